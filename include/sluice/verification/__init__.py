"""Verifies tables: recomputes each from bronze by plain batch code, and compares it row by row."""
