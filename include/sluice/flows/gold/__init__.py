"""Gold: views that always equal their full recompute, and which part of a view a change can touch."""
