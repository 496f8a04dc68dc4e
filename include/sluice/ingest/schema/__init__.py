"""Which columns a source's records have, and how they grow."""
