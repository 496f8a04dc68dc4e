"""Repairs as runs of their own: quarantine judged again, a table restored, a damaged log mended."""
