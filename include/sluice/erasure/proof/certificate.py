"""The certificate of an erasure: what was searched for and where, what was found, and whether the search can be believed.

A record holds no personal data. Records of a pipeline are a chain: each has the hash of the one before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from datetime import UTC, datetime
from typing import Any

from sluice import __version__
from sluice.declare.graph import Graph
from sluice.erasure import requests, vault
from sluice.erasure.control import canary
from sluice.erasure.proof import checking, scope, sought, stamps, undeclared
from sluice.erasure.proof.chain import Certificate, all_of, told, write
from sluice.erasure.proof.sought import Sought
from sluice.erasure.proof.stamps import DUE, FAIL, INCONCLUSIVE, MOST_NAMED, PASS, is_due_later, worst
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import ScanResult, opening
from sluice.lake import log
from sluice.settings import Settings

__all__ = ["FAIL", "INCONCLUSIVE", "PASS", "Certificate", "all_of", "issue"]
FORMAT = 1
_PROVABLE = (requests.PHYSICALLY, requests.CERTIFIED, requests.FAILED)
"""The states in which a scan that finds the person means that something went wrong."""


def issue(settings: Settings, graph: Graph, request: ErasureRequest) -> Certificate:
    """Scan, ask the tables, write the next certificate of a request, and put the request into the state that it shows.

    Raises UsageError where the vault does not have the request's identifiers any more.
    """
    pipeline = graph.pipeline.name
    wanted = sought.of(settings, graph, [request])
    rows = sought.rows(settings, graph, wanted)
    result = sought.looked(settings, graph, wanted)
    control = _control(settings, pipeline, request, result)
    record = _record(settings, graph, request, wanted, rows, result, control)
    made = write(settings, pipeline, request.request, record)
    _told(settings, pipeline, request, made)
    if made.verdict == PASS:
        shutil.rmtree(canary.root(settings, pipeline, request.request), ignore_errors=True)
    return made


def _control(settings: Settings, pipeline: str, request: ErasureRequest, result: ScanResult) -> dict[str, Any]:
    """The canary: what was found of it beforehand, what is now, and whether this very scanner finds another one that is planted now."""
    before = canary.planted(settings, pipeline, request.request) or _before(settings, pipeline, request.request)
    again = canary.witnessed(settings, pipeline)
    after = sum(hit.times for hit in result.of_control())
    hidden = stamps.hashing(settings, pipeline)
    places = sorted({(hit.root, hidden(hit.path), hit.decoder) for hit in result.of_control()})
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
    wanted: Sought,
    rows: ScanResult,
    result: ScanResult,
    control: dict[str, Any],
) -> dict[str, Any]:
    pipeline = graph.pipeline.name
    chain = all_of(settings, pipeline)
    hidden, others = stamps.hashing(settings, pipeline), undeclared.found(settings, graph)
    stamped = stamps.of(settings, pipeline, request, rows, result, control, len(others))
    verdict = worst(stamped["logical"]["verdict"], stamped["physical"]["verdict"])
    return {
        "format": FORMAT,
        "number": chain[-1].record["number"] + 1 if chain else 1,
        "previous": chain[-1].record["hash"] if chain else None,
        "pipeline": pipeline,
        "request": request.request,
        "received_at": request.received_at,
        "due_at": request.due_at,
        "issued_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Bytes that may not go yet are no failure, and no proof.
        "verdict": INCONCLUSIVE if verdict == DUE else verdict,
        "stamps": stamped,
        "control": control,
        "needles": dict(sorted(result.kinds.items())),
        "shared_identifiers": wanted.shared,
        "shared_found": result.of_others(),
        "roots": [{"name": root.name, "there": root.name not in result.missing} for root in result.roots],
        "decoders": {name: {"files": read.files, "bytes": read.bytes} for name, read in sorted(result.decoders.items())},
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
        "tables": {name: log.version(path) for name, path in sorted(scope.tables(settings, graph).items())},
        "undeclared": [{"root": one.root, "path": hidden(one.path)} for one in others],
        "exceptions": _exceptions(settings, graph, request, wanted),
        "sluice": __version__,
        "scanner": checking.scanner(),
        "policy": _policy(settings, graph),
        "depth": opening.DEPTH,
    }


def _exceptions(settings: Settings, graph: Graph, request: ErasureRequest, wanted: Sought) -> list[dict[str, Any]]:
    expires = vault.expires_at(settings, graph.pipeline.name, request.request)
    found = [{"what": "the identifiers of the request, in the vault", "until": expires}]
    if wanted.shared:
        found.append({
            "what": f"identifiers that were others', too: {wanted.shared}; looked for by their times, in rows of tables that are kept by them alone",
            "until": None,
        })
    for path in undeclared.said_to_be_there(settings, graph):
        found.append({"what": f"'{path}', which is no table of the pipeline's and said to be there", "until": None})
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
    said = f"certificate {made.path.stem}: {made.verdict}, {told(made.record)}"
    # A request that is not carried out yet would never be, if it counted as failed.
    meant = {PASS: (requests.LOGICALLY, *_PROVABLE), FAIL: _PROVABLE}.get(made.verdict, ())
    now = requests.one(settings, pipeline, request.request)
    if now.state in meant and now.done_at is not None:
        requests.advance(settings, pipeline, request, requests.CERTIFIED if made.verdict == PASS else requests.FAILED, said)
    else:
        requests.note(settings, pipeline, request.request, "scanned", said)
