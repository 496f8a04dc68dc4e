"""What each stage of a run does once the lease is held, also in a clone."""
