"""Deliveries into bronze: each is appended once and accounted for, and is read again if somebody asks for it."""
