"""Proves that tables are what they should be: recomputes each from bronze by plain batch code and compares row by row."""
