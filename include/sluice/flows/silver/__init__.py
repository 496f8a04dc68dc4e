"""Silver: the fold of the live deliveries into one row per key, and its repetition for an interval."""
