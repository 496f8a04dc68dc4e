"""Change data capture: `auto_cdc`, the change log behind it, and the states and histories that a log gives."""
