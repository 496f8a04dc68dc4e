"""How rows get into a flow's table: made ahead, judged, enforced, protected, and only what differs."""
