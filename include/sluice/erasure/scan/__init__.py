"""Searches every byte below some roots for a person. Knows nothing of Spark, of Delta's libraries, nor of what erases people.

scan.run([Root("lake", "/data/lake/gym")], needles.of([("user_id", "7000000001")]), needles.of(canary))
"""

from sluice.erasure.scan.result import Clock, Hit, Needle, Root, ScanResult, Unread, Written
from sluice.erasure.scan.walk import run

__all__ = ["Clock", "Hit", "Needle", "Root", "ScanResult", "Unread", "Written", "run"]
