"""Who may write into a lake: one process per pipeline at a time, and none that is older than the lake's layout."""
