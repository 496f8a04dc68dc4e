"""Changes in landing folders: cleans files away, and removes records."""
