"""Silver: the fold of the live deliveries, one row a key, and the same again for an interval."""
