"""The certificate of an erasure: what was searched for and where, what was found, and whether the search can be believed.

A record holds no personal data. Records of a pipeline are a chain: each has the hash of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sluice import __version__
from sluice.declare.assembly.graph import Graph
from sluice.erasure import requests, vault
from sluice.erasure.control import canary
from sluice.erasure.proof import checking, evidence, scope, signatures, stamps
from sluice.erasure.proof.chain import Certificate, agrees_with_itself, all_of, latest, told, write
from sluice.erasure.proof.evidence import Evidence
from sluice.erasure.proof.stamps import DUE, FAIL, INCONCLUSIVE, MOST_NAMED, PASS, is_due_later, worst
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import opening
from sluice.errors import SluiceError
from sluice.settings import Settings

__all__ = ["FAIL", "INCONCLUSIVE", "PASS", "Certificate", "NotIssued", "all_of", "issue"]
FORMAT = signatures.FIRST_SIGNED
_PROVABLE = (requests.PHYSICALLY, requests.CERTIFIED, requests.FAILED)
"""The states in which a scan that finds the person means that something went wrong."""


class NotIssued(SluiceError):
    """Some certificates could not be made. made: the others, by request; errors: why, by request."""

    def __init__(self, made: dict[str, Certificate], errors: dict[str, SluiceError]) -> None:
        super().__init__(
            " ".join(f"Request {request} has no certificate of this scan: {error}" for request, error in errors.items())
        )
        self.made, self.errors = made, errors


def issue(settings: Settings, graph: Graph, asked: Sequence[ErasureRequest]) -> dict[str, Certificate]:
    """Look once for the people of all these requests, and write the next certificate of each; it puts its request into the state it shows.

    Returns them by request. Raises NotIssued, with those that could be made, where others could not; and UsageError, before any is
    made, where the vault does not have the identifiers of one any more.
    """
    pipeline, found = graph.pipeline.name, evidence.gathered(settings, graph, asked)
    made: dict[str, Certificate] = {}
    errors: dict[str, SluiceError] = {}
    last = latest(settings, pipeline)
    try:
        for request in asked:
            try:
                last = made[request.request] = _issued(settings, graph, request, found.of(request), last)
            except SluiceError as error:  # of one request: it keeps nobody else from a certificate
                errors[request.request] = error
                last = latest(settings, pipeline)  # a certificate may have been written before the error
    finally:
        canary.tidy(settings, pipeline)
    if errors:
        raise NotIssued(made, errors)
    return made


def _issued(settings: Settings, graph: Graph, request: ErasureRequest, found: Evidence, last: Certificate | None) -> Certificate:
    """last: the end of the chain."""
    pipeline = graph.pipeline.name
    made = write(settings, pipeline, request.request, _record(settings, graph, request, found, last), last)
    _told(settings, pipeline, request, made)
    return made


def _control(settings: Settings, pipeline: str, request: ErasureRequest, found: Evidence) -> dict[str, Any]:
    """The canary: what was found of it beforehand, what is now, and whether this very scanner finds another one that is planted now."""
    before = canary.planted(settings, pipeline, request.control) or _before(settings, pipeline, request.request)
    hits, again = found.result.of_control(), found.witnessed
    after = sum(hit.times for hit in hits)
    places = sorted({(hit.root, found.hidden(hit.path), hit.decoder) for hit in hits})
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
    """What an earlier certificate of the request, as it was issued, knows of the control: it is gone since."""
    every = [one.record for one in all_of(settings, pipeline, request)]
    seals = signatures.seal_check(settings, every)
    issued = (one for one in every if agrees_with_itself(one) and seals.holds(one))
    return next((before for one in issued if (before := one["control"]["before"])), None)


def _record(
    settings: Settings, graph: Graph, request: ErasureRequest, found: Evidence, last: Certificate | None
) -> dict[str, Any]:
    pipeline, result = graph.pipeline.name, found.result
    control = _control(settings, pipeline, request, found)
    stamped = stamps.of(request, found.rows, result, control, len(found.undeclared), found.hidden)
    verdict = worst(stamped["logical"]["verdict"], stamped["physical"]["verdict"])
    if verdict == PASS and request.certified_at is None:
        # Before the record names the date: the second look needs what this one looked for, however late this one is.
        vault.extend(settings, pipeline, request.request, datetime.now(UTC) + requests.KEPT_AFTER)
    return {
        "format": FORMAT,
        "number": last.record["number"] + 1 if last else 1,
        "previous": last.record["hash"] if last else None,
        "pipeline": pipeline,
        "request": request.request,
        "received_at": request.received_at,
        "due_at": request.due_at,
        "issued_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Bytes that may not go yet are no failure, and no proof.
        "verdict": INCONCLUSIVE if verdict == DUE else verdict,
        "stamps": stamped,
        "control": control,
        "needles": result.kinds,
        "shared_identifiers": found.shared[request.request],
        "shared_found": result.of_others(),
        "roots": [{"name": root.name, "there": root.name not in result.missing} for root in result.roots],
        "decoders": {name: {"files": read.files, "bytes": read.bytes} for name, read in sorted(result.decoders.items())},
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
        "tables": found.tables,
        "undeclared": [{"root": one.root, "path": found.hidden(one.path)} for one in found.undeclared],
        "exceptions": _exceptions(settings, graph, request, found),
        "sluice": __version__,
        "scanner": checking.scanner(),
        "policy": found.policy,
        "depth": opening.DEPTH,
    }


def _exceptions(settings: Settings, graph: Graph, request: ErasureRequest, found: Evidence) -> list[dict[str, Any]]:
    expires, shared = vault.expires_at(settings, graph.pipeline.name, request.request), found.shared[request.request]
    told: list[dict[str, Any]] = [{"what": "the identifiers of the request, in the vault", "until": expires}]
    if shared:
        told.append({
            "what": f"identifiers that were others', too: {shared}; looked for by their times, in rows of tables that are kept by them alone",
            "until": None,
        })
    for path in found.acknowledged:
        told.append({"what": f"'{path}', which is no table of the pipeline's and said to be there", "until": None})
    return [*told, *scope.out_of_reach(settings, graph)]


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
