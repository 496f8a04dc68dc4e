"""Silver: the fold of the live deliveries into one row per key, and the same again for an interval."""
