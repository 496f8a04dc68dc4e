"""Commands about tables and their rows: sql, show, changes, diff, verify, clone, release."""
