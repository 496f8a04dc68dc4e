"""Before anything moves: what a run would do, and whether transforms keep what their declarations promise."""
