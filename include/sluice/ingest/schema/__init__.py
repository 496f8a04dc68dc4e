"""The columns of a source's records, and how they grow."""
