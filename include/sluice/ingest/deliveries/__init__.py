"""Finds deliveries: what is in landing folders, what the ledger knows about it, what is new, and its date."""
