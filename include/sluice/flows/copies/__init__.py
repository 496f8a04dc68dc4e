"""Copies of tables: clones, releases, and a table as it was. None of them ever holds erased people."""
