"""A pipeline that is kept running: by which trigger, when to look again, and what is new."""
