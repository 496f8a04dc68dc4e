"""How rows get into a flow's table: the table is prepared, rows are judged and held to their schema, and only what differs is written."""
