"""Searches every byte below some roots for a person. Knows nothing of Sluice, Spark or Delta: see README.md.

residue.scan_roots([residue.ScanRoot("lake", "/data/lake/gym")], needles.build_needles([("user_id", "7000000001")]))
"""

from residue.delimited_rows import TextDialect
from residue.result import Hit, Needle, ScanResult, ScanRoot, TableClock, TextFileFormat, Unread
from residue.walk import ScannedSoFar, scan_roots, scan_tables

__all__ = [
    "Hit",
    "Needle",
    "ScanResult",
    "ScanRoot",
    "ScannedSoFar",
    "TableClock",
    "TextDialect",
    "TextFileFormat",
    "Unread",
    "scan_roots",
    "scan_tables",
]
