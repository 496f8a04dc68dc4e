"""What each stage of a run does once the lease is held, in a clone too."""
