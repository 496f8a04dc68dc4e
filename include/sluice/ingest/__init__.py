"""Deliveries: finds them, examines them before they are read, and reads their records."""
