"""One run of one stage: its mode, its lease, its progress and what is recorded of it."""
