"""Clones and releases as runs of their own, and two states of a table compared."""
