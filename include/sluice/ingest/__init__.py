"""Deliveries: finding them, looking at them before they are read, and reading their records."""
