"""Writes rows into a flow's table: prepares the table, checks rows against rules and schema, and writes only what differs."""
