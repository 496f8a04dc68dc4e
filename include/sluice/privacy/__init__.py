"""Secrets, keyed hashes of identifiers, and the list of people who were erased and must not come back."""
