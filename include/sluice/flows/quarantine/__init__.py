"""Rows that were set aside and are judged again, and what a killed attempt to do so left behind."""
