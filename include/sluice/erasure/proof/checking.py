"""Checks whether a certificate is as it was issued, and whether what it says still holds."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import residue
from residue import ScanResult
from sluice.declare.assembly.graph import Graph
from sluice.erasure import request_record
from sluice.erasure.proof import chain, signatures, sought, stamps
from sluice.erasure.proof.chain import Certificate
from sluice.erasure.proof.signatures import SealCheck
from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import Location, locate
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


Report = dict[str, Any]
_PARTS = ("hash", "seal", "page", "chain", "head", "kept")
"""The fields of a report that say whether a certificate is as issued."""


def verify_certificate(
    settings: Settings,
    path: Location,
    graph: Graph | None = None,
    public: Ed25519PublicKey | None = None,
    kept: tuple[int, str] | None = None,
) -> Report:
    """Checks a certificate and its chain. With a graph, and if it is as issued, also scans again and compares.

    public: an auditor's key; an auditor has the other certificates beside this one, but neither the secret nor the requests. kept: a
    head of the chain that was kept elsewhere.
    Returns hash, seal, page, chain, head and kept (bool; None if unknown), issued (its verdict; None if it is not as issued), verdict
    (that of the new scan; None without one) and differs (what has changed). Raises UsageError if it is no certificate, the key of the
    seals is lost, or the vault no longer has the identifiers.
    """
    record = chain.read_certificate_record(path)
    records = PipelineRecords(settings, record["pipeline"])
    every = chain.read_certificates(records) if public is None else chain.read_certificate_folder(path.parent)
    seals = signatures.load_seal_check(settings, public)
    report: Report = {
        "certificate": path.name,
        "hash": chain.has_matching_hash(record),
        "seal": seals.holds(record),
        "page": chain.is_page_of_record(record, path.with_suffix(".html")),
        "chain": chain.is_chained_to_first(record, chain.index_records_by_hash(every)),
        "head": _is_complete_to_head(record, every, seals, None if public else _read_certificate_notes(records)),
        "kept": None if kept is None else _has_chain_head(every, kept),
        "issued": None,
        "verdict": None,
        "differs": [],
    }
    if is_as_issued(report):
        report["issued"] = record["verdict"]
        if graph is not None:
            _compare_with_rescan(PipelineLake(settings, graph), record, report)
    return report


def is_as_issued(report: Report) -> bool:
    """Whether a certificate is as issued, and everything before and after it exists, as far as that can be known."""
    return report["seal"] is True and not any(report[part] is False for part in _PARTS)


def read_verified_certificate(records: PipelineRecords, request: str) -> Certificate | None:
    """The last certificate of a request, or None. Raises SluiceError if it is not as it was issued."""
    found = chain.read_certificates(records, request)
    if not found:
        return None
    report = verify_certificate(records.settings, found[-1].path)
    if not is_as_issued(report):
        wrong = ", ".join(part for part in _PARTS if report[part] is False)
        raise SluiceError(
            f"Certificate {found[-1].path.stem} is not shown, since nothing shows that it is the one that was issued ({wrong}). More of it: "
            f"sluice erase verify {found[-1].path} --no-scan. A new one: sluice erase certificate {request} --new"
        )
    return found[-1]


def _compare_with_rescan(lake: PipelineLake, record: dict[str, Any], report: Report) -> None:
    """Scans again, and adds to the report what has changed."""
    request = request_record.read_erasure_request(lake.records, record["request"])
    found = sought.search_for_people(lake, [request])
    now = stamps.build_stamps(request, found, {"verdict": stamps.PASS})
    report["verdict"] = stamps.find_worst_verdict(now["logical"]["verdict"], now["physical"]["verdict"])
    report["differs"] = _describe_differences(record, now, found.result)


def hash_scanner_source() -> str:
    """A hash of the scanner's source, which identifies its version."""
    folder = locate(residue.__file__).parent
    made = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        made.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:16]


def _is_complete_to_head(
    record: dict[str, Any], every: Sequence[Certificate], seals: SealCheck, told: Collection[tuple[int, str]] | None
) -> bool | None:
    """Whether later certificates, and those that requests mention, all exist as issued. told: None if it cannot be known."""
    later = [one.record for one in every if one.record["number"] > record["number"]]
    last = max(later, key=lambda one: int(one["number"]), default=None)
    whole = last is None or (
        chain.is_chained_to_first(last, chain.index_records_by_hash(every))
        and len(every) == last["number"]
        and not any(seals.holds(one) is False for one in later)
    )
    if told is None:
        return None if whole else False
    return whole and all(_has_chain_head(every, one) for one in told)


def _has_chain_head(every: Sequence[Certificate], head: tuple[int, str]) -> bool:
    """Whether the chain has a certificate of this number and hash."""
    number, hashed = head
    return any(one["number"] == number and one["hash"].startswith(hashed) for one in chain.index_records_by_hash(every).values())


def _read_certificate_notes(records: PipelineRecords) -> set[tuple[int, str]]:
    """The certificates that requests' histories mention: numbers, and the beginnings of their hashes."""
    notes = (event.note for request in request_record.list_erasure_requests(records) for event in request.history)
    return {found for note in notes if (found := chain.parse_certificate_note(note)) is not None}


def _describe_differences(record: dict[str, Any], now: dict[str, Any], result: ScanResult) -> list[str]:
    """What has changed since the certificate, as sentences."""
    found = [
        f"{stamp}: {record['stamps'][stamp]['verdict']} then, {now[stamp]['verdict']} now"
        for stamp in ("logical", "physical")
        if record["stamps"][stamp]["verdict"] != now[stamp]["verdict"]
    ]
    known = {(hit["root"], hit["path"], hit["decoder"], hit["kind"]) for hit in record["stamps"]["physical"]["hits"]}
    fresh = {
        (hit["root"], hit["path"])
        for hit in now["physical"]["hits"]
        if (hit["root"], hit["path"], hit["decoder"], hit["kind"]) not in known
    }
    found += [f"{root}: found in a file that was clean before, {path}" for root, path in sorted(fresh)]
    if result.kinds != record["needles"]:
        found.append("other needles are looked for")
    if hash_scanner_source() != record["scanner"]:
        found.append("the scanner is of another version")
    return found
