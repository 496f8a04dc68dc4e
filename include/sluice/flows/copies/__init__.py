"""Copies of tables: clones, releases, and restored versions. None of them ever holds erased people."""
