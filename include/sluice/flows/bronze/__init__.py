"""Deliveries into bronze: appended once, accounted for, and read again where that is asked for."""
