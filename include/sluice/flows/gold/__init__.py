"""Gold: views kept equal to their recompute, and which part of one a change can touch."""
