"""A pipeline that is kept running: its trigger, the time of its next look, and what is new."""
