"""Sources of files and of topics, and the checks of a source that need no data."""
