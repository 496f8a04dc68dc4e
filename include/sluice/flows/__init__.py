"""Keeps each kind of table up to date, as a triggered stream of names."""
