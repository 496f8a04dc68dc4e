"""Expands declarations into the tables and rules that they stand for."""
