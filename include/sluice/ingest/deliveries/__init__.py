"""Which deliveries there are: what lies in landing folders, what is known of it, what is new, and for which date."""
