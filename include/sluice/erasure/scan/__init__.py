"""Searches every byte below some roots for a person. Knows nothing of Spark, of Delta's libraries, nor of what erases people.

scan.run([Root("lake", "/data/lake/gym")], needles.of([("user_id", "7000000001")]), needles.of(canary))
"""

from sluice.erasure.scan.result import Hit, Needle, ScanResult, ScanRoot, TableClock, TextFileFormat, Unread
from sluice.erasure.scan.walk import scan_roots

__all__ = ["Hit", "Needle", "ScanResult", "ScanRoot", "TableClock", "TextFileFormat", "Unread", "scan_roots"]
