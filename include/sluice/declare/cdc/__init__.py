"""Change data capture: `auto_cdc`, the log of changes that it keeps, and what such a log comes to."""
