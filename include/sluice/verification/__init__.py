"""Proof that tables are what they should be: each recomputed from bronze by plain batch code and compared row for row."""
