"""How each kind of table is kept up to date, as a triggered stream of names."""
