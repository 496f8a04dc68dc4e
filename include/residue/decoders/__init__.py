"""What opens files, by kind."""
