"""Whether a certificate is the one that was issued, and whether what it says still holds."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.erasure import requests, scan
from sluice.erasure.proof import chain, sought, stamps, undeclared
from sluice.erasure.scan import ScanResult
from sluice.settings import Settings


def verify(settings: Settings, path: Path, graph: Graph | None = None) -> dict[str, Any]:
    """Check a certificate and its chain; with a graph, scan again and compare.

    Returns hash, seal, page, chain and head (bool; None of seal and page where it was issued before there were any), issued (its verdict),
    verdict (of the new scan; None without one) and differs (what is otherwise now). Raises UsageError where it is no certificate, the key of the
    seals is lost, or the identifiers are not in the vault any more.
    """
    record = chain.read(path)
    report: dict[str, Any] = {
        "certificate": path.name,
        "hash": chain.hash_of(record) == record["hash"],
        **_of_chain(settings, record, path),
        "issued": record["verdict"],
        "verdict": None,
        "differs": [],
    }
    if graph is not None:
        request = requests.one(settings, record["pipeline"], record["request"])
        wanted = sought.of(settings, graph, [request])
        rows = sought.rows(settings, graph, wanted)
        result = sought.looked(settings, graph, wanted)
        others, hidden = len(undeclared.found(settings, graph)), stamps.hashing(settings, record["pipeline"])
        now = stamps.of(request, rows, result, {"verdict": stamps.PASS}, others, hidden)
        report["verdict"] = stamps.worst(now["logical"]["verdict"], now["physical"]["verdict"])
        report["differs"] = _differences(record, now, result)
    return report


def scanner() -> str:
    """What tells one scanner's code from another's: a hash of its source."""
    folder = Path(scan.__file__).parent
    made = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        made.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:16]


def _of_chain(settings: Settings, record: dict[str, Any], path: Path) -> dict[str, bool | None]:
    every = [one.record for one in chain.all_of(settings, record["pipeline"])]
    known = {one["hash"]: one for one in every}
    told = _told(settings, record["pipeline"])
    # Of before there were seals is only what no sealed one comes before, and no history knows the hash of.
    unsealed = "seal" not in record and record["number"] not in told
    unsealed = unsealed and not any("seal" in one and one["number"] < record["number"] for one in every)
    there = {one["number"]: one["hash"] for one in every}
    return {
        "seal": None if unsealed else chain.is_sealed(settings, record),
        "page": None if unsealed else chain.is_its_page(record, path.with_suffix(".html")),
        "chain": record["hash"] in known and chain.is_chained(record, known),
        "head": all(there.get(number, "").startswith(hashed) for number, hashed in told.items()),
    }


def _told(settings: Settings, pipeline: str) -> dict[int, str]:
    """The certificates that the histories of requests tell of: the beginnings of their hashes by their numbers."""
    notes = (event.note for request in requests.all_of(settings, pipeline) for event in request.history)
    return dict(found for note in notes if (found := chain.told_of(note)) is not None)


def _differences(record: dict[str, Any], now: dict[str, Any], result: ScanResult) -> list[str]:
    """What is otherwise than the certificate says, as sentences."""
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
    found += [f"{root}: found in a file where nothing was, {path}" for root, path in sorted(fresh)]
    if result.kinds != record["needles"]:
        found.append("other needles are looked for")
    if scanner() != record["scanner"]:
        found.append("the scanner is of another version")
    return found
