"""How tables are laid out on disk, and when files that no version needs any more are removed."""
