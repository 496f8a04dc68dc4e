"""The certificate of an erasure: what was searched for and where, what was found, and whether the search can be believed.

A record holds no personal data. Records of a pipeline are a chain: each has the hash of the one before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sluice import __version__
from sluice.declare.graph import Graph
from sluice.erasure import canary, logical, requests, scan, scope, stamps, vault
from sluice.erasure.chain import Certificate, all_of, hash_of, is_chained, read, write
from sluice.erasure.identifiers import Identifier
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import Needle, ScanResult, needles, opening
from sluice.erasure.stamps import DUE, FAIL, INCONCLUSIVE, MOST_NAMED, PASS, hashed, is_due_later, worst
from sluice.errors import SluiceError
from sluice.lake import log
from sluice.settings import Settings

__all__ = ["FAIL", "INCONCLUSIVE", "PASS", "Certificate", "all_of", "hashed", "issue", "verify"]
FORMAT = 1


@dataclass(frozen=True)
class Sought:
    """What is looked for. shared: identifiers that were others', too, at other times: no needles, since the others' rows stay."""

    person: list[Needle]
    control: list[Needle]
    shared: int


def issue(settings: Settings, graph: Graph, request: ErasureRequest) -> Certificate:
    """Scan, ask the tables, write the next certificate of a request, and put the request into the state that it shows.

    Raises UsageError where the vault does not have the request's identifiers any more.
    """
    pipeline = graph.pipeline.name
    sought = sought_of(settings, graph, [request])
    rows = logical.returned(scope.tables(settings, graph), sought.person)
    result = looked(settings, graph, sought)
    control = _control(settings, pipeline, request, result)
    record = _record(settings, graph, request, sought, rows, result, control)
    made = write(settings, pipeline, request.request, record)
    _told(settings, pipeline, request, made)
    if made.verdict == PASS:
        shutil.rmtree(canary.root(settings, pipeline, request.request), ignore_errors=True)
    return made


def sought_of(settings: Settings, graph: Graph, asked: Sequence[ErasureRequest]) -> Sought:
    """What is looked for of the people of some requests. Raises UsageError where the vault does not have their identifiers any more."""
    pipeline = graph.pipeline.name
    found = [
        one
        for request in asked
        for one in vault.read(settings, pipeline, request.request)
        if not one.domain.startswith(canary.PREFIX)
    ]
    own = [one for one in found if _is_own(one)]
    columns = scope.columns_of_domain(settings, graph)
    person = needles.of(((one.domain, one.value) for one in own), columns, scope.encodings(graph))
    control = [one for request in asked for one in canary.needles_of(settings, pipeline, request.request)]
    return Sought(person, control, len(found) - len(own))


def looked(settings: Settings, graph: Graph, sought: Sought) -> ScanResult:
    """Scan all roots. Raises SluiceError where the lake is not on this machine."""
    try:
        return scan.run(scope.roots(settings, graph), sought.person, sought.control)
    except ValueError as error:
        raise SluiceError(f"There can be no certificate: {error}.") from None


def verify(settings: Settings, path: Path, graph: Graph | None = None) -> dict[str, Any]:
    """Check a certificate's hash and its chain; with a graph, scan again and compare.

    Returns hash, chain (bool), issued (its verdict), verdict (of the new scan; None without one) and differs (what is otherwise now).
    Raises UsageError where it is no certificate, or the identifiers are not in the vault any more.
    """
    record = read(path)
    earlier = {one.record["hash"]: one.record for one in all_of(settings, record["pipeline"])}
    report: dict[str, Any] = {
        "certificate": path.name,
        "hash": hash_of(record) == record["hash"],
        "chain": is_chained(record, earlier),
        "issued": record["verdict"],
        "verdict": None,
        "differs": [],
    }
    if graph is not None:
        request = requests.one(settings, record["pipeline"], record["request"])
        sought = sought_of(settings, graph, [request])
        rows = logical.returned(scope.tables(settings, graph), sought.person)
        result = looked(settings, graph, sought)
        now = stamps.of(request, rows, result, {"verdict": PASS})
        report["verdict"] = worst(now["logical"]["verdict"], now["physical"]["verdict"])
        report["differs"] = _differences(record, now, result)
    return report


def scanner() -> str:
    """What tells one scanner's code from another's: a hash of its source."""
    folder = Path(scan.__file__).parent
    made = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        made.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return made.hexdigest()[:16]


def _is_own(one: Identifier) -> bool:
    """Whether an identifier was never anybody else's."""
    return one.since is None and one.until is None


def _control(settings: Settings, pipeline: str, request: ErasureRequest, result: ScanResult) -> dict[str, Any]:
    """The canary: what was found of it beforehand, what is now, and whether this very scanner finds another one that is planted now."""
    before = canary.planted(settings, pipeline, request.request) or _before(settings, pipeline, request.request)
    again = canary.witnessed(settings, pipeline)
    after = sum(hit.times for hit in result.of_control())
    places = sorted({(hit.root, hashed(hit.path), hit.decoder) for hit in result.of_control()})
    blind = sorted(store for counts in (before or {}, again) for store, count in counts.items() if not count)
    if after and is_due_later(request):
        verdict, why = DUE, "the control is erased, and its bytes may not be removed yet"
    elif after:
        verdict, why = FAIL, "the control was found after it had been erased"
    elif not before:
        verdict, why = INCONCLUSIVE, "no control was planted before the erasure"
    elif blind:
        verdict, why = INCONCLUSIVE, f"the control was not found in: {', '.join(dict.fromkeys(blind))}"
    else:
        verdict, why = PASS, "found in every kind of store before, and in none after"
    return {"verdict": verdict, "why": why, "before": before, "now": again, "after": after, "places": places[:MOST_NAMED]}


def _before(settings: Settings, pipeline: str, request: str) -> dict[str, int] | None:
    """What an earlier certificate of the request knows of the control: it is gone since."""
    found = [one.record["control"]["before"] for one in all_of(settings, pipeline, request)]
    return next((one for one in found if one), None)


def _record(
    settings: Settings,
    graph: Graph,
    request: ErasureRequest,
    sought: Sought,
    rows: ScanResult,
    result: ScanResult,
    control: dict[str, Any],
) -> dict[str, Any]:
    pipeline = graph.pipeline.name
    chain = all_of(settings, pipeline)
    told = stamps.of(request, rows, result, control)
    verdict = worst(told["logical"]["verdict"], told["physical"]["verdict"])
    return {
        "format": FORMAT,
        "number": len(chain) + 1,
        "previous": chain[-1].record["hash"] if chain else None,
        "pipeline": pipeline,
        "request": request.request,
        "received_at": request.received_at,
        "due_at": request.due_at,
        "issued_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Bytes that may not go yet are no failure, and no proof.
        "verdict": INCONCLUSIVE if verdict == DUE else verdict,
        "stamps": told,
        "control": control,
        "needles": dict(sorted(result.kinds.items())),
        "shared_identifiers": sought.shared,
        "roots": [{"name": root.name, "there": root.name not in result.missing} for root in result.roots],
        "decoders": {name: {"files": read.files, "bytes": read.bytes} for name, read in sorted(result.decoders.items())},
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
        "tables": {name: log.version(path) for name, path in sorted(scope.tables(settings, graph).items())},
        "undeclared": [{"root": one.root, "path": hashed(one.path)} for one in scope.undeclared(settings, graph)],
        "exceptions": _exceptions(settings, graph, request, sought),
        "sluice": __version__,
        "scanner": scanner(),
        "policy": _policy(settings, graph),
        "depth": opening.DEPTH,
    }


def _exceptions(settings: Settings, graph: Graph, request: ErasureRequest, sought: Sought) -> list[dict[str, Any]]:
    expires = vault.expires_at(settings, graph.pipeline.name, request.request)
    found = [{"what": "the identifiers of the request, in the vault", "until": expires}]
    if sought.shared:
        found.append({
            "what": f"identifiers that were others', too: {sought.shared}; erased by their times, not searched for",
            "until": None,
        })
    return [*found, *scope.out_of_reach(settings, graph)]


def _policy(settings: Settings, graph: Graph) -> str:
    """What tells whether the declarations that matter here are the same: whose rows are where, and how long files are kept."""
    told = {
        "columns": {domain: sorted(names) for domain, names in scope.columns_of_domain(settings, graph).items()},
        "subjects": {one.name: one.subject for one in graph if one.subject},
        "retain": graph.pipeline.retain,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


def _told(settings: Settings, pipeline: str, request: ErasureRequest, made: Certificate) -> None:
    """Put the request into the state that its certificate shows. What is not decided leaves it as it is."""
    said = f"certificate {made.path.stem}: {made.verdict}"
    if made.verdict == PASS:
        requests.advance(settings, pipeline, request, requests.CERTIFIED, said)
    elif made.verdict == FAIL:
        requests.advance(settings, pipeline, request, requests.FAILED, said)
    else:
        requests.note(settings, pipeline, request.request, "scanned", said)


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
    if dict(result.kinds) != record["needles"]:
        found.append("other needles are looked for")
    if scanner() != record["scanner"]:
        found.append("the scanner is of another version")
    return found
