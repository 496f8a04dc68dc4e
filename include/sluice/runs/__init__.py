"""One run of one stage: its mode, its lease, its progress and its records."""
