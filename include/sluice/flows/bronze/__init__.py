"""Takes deliveries into bronze: appends and accounts for each one once, and reads it again on request."""
