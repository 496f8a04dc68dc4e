"""Which deliveries there are: what lies in landing folders, what is known about it, what is new, and for which date."""
