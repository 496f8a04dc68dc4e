"""Says what a search for people found in the two stamps of a certificate, without personal data.

The logical stamp: no query returns the person. The physical one: no byte holds anything of the person.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from residue import Hit, ScanResult, needles
from sluice.erasure.request_record import ErasureRequest
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets

if TYPE_CHECKING:  # searching loads Spark, and what only reads certificates does not
    from sluice.erasure.proof.sought import SearchEvidence

Verdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]
PASS: Verdict = "PASS"
FAIL: Verdict = "FAIL"
INCONCLUSIVE: Verdict = "INCONCLUSIVE"
DUE = "DUE"
"""The stamp while there are bytes that may not be removed yet."""
MOST_NAMED = 200
"""The most hits and unreadable files that a record names; it counts all of them."""


def build_stamps(request: ErasureRequest, found: SearchEvidence, control: dict[str, Any]) -> dict[str, Any]:
    """Builds the two stamps, for queries and for bytes."""
    rows, result, undeclared, hash_path = found.rows, found.result, len(found.undeclared), found.hash_path
    # A search for nothing finds nothing, so this is the scan's own count of needles; both searches use the same.
    blind = not set(result.kinds) - {needles.TIMED}
    asked = FAIL if rows.of_person() else INCONCLUSIVE if rows.unread or blind else PASS
    scanned: str = FAIL if result.of_person() else INCONCLUSIVE if result.unread or undeclared or blind else PASS
    if scanned == FAIL and request.must_bytes_stay(datetime.now(UTC)):
        scanned = DUE
    return {
        "logical": {
            "verdict": asked,
            "hits": _list_named_hits(rows.of_person(), hash_path),
            "unread": _list_named_unread_files(rows, hash_path),
        },
        "physical": {
            "verdict": find_worst_verdict(scanned, control["verdict"]),
            "hits": _list_named_hits(result.of_person(), hash_path),
            "found": sum(hit.times for hit in result.of_person()),
            "unread": _list_named_unread_files(result, hash_path),
            "undeclared": undeclared,
            "nothing_sought": blind,
            "due_at": request.physical_due_at,
        },
    }


def find_worst_verdict(*verdicts: str) -> str:
    """The verdict that counts among several."""
    return next((one for one in (FAIL, DUE, INCONCLUSIVE) if one in verdicts), PASS)


def _list_named_hits(found: list[Hit], hash_path: Callable[[str], str]) -> list[dict[str, Any]]:
    return [
        {
            "root": hit.root,
            "path": hash_path(hit.path),
            "decoder": hit.decoder,
            "column": hit.column,
            "kind": hit.kind,
            "count": hit.times,
        }
        for hit in found[:MOST_NAMED]
    ]


def _list_named_unread_files(found: ScanResult, hash_path: Callable[[str], str]) -> list[dict[str, Any]]:
    return [{"root": one.root, "path": hash_path(one.path), "reason": one.reason} for one in found.unread[:MOST_NAMED]]


def make_path_hasher(records: PipelineRecords) -> Callable[[str], str]:
    """Returns the function that replaces paths in a record: they may name people, and without the key no guess can be tested."""
    key = secrets.read_suppression_key(records.settings, records.suppression_list)

    def hash_path(path: str) -> str:
        return hmac.new(key, b"sluice: path\0" + path.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()[:16]

    return hash_path
