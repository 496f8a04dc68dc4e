"""Expectations on rows and on whole tables, and sets of rules kept as data."""
