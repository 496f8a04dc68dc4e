"""What a certificate states: what was looked for, where, what was found, sealed and chained."""
