"""Clones and releases as runs of their own, and the comparison of two states of a table."""
