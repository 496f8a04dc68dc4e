"""Commands about tables and what is in them: sql, show, changes, diff, verify, clone, release."""
