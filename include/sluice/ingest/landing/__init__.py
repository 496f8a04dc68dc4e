"""Changes in landing folders: files are cleaned away, and records are removed."""
