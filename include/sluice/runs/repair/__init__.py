"""Repairs as runs of their own: check quarantined rows again, restore a table, mend a damaged log."""
