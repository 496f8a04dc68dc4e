"""Putting right as a run of its own: quarantine judged again, a table restored."""
