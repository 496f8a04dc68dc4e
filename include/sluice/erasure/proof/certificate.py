"""The certificate of an erasure: what was searched for and where, what was found, and whether the search can be believed.

A record holds no personal data. The records of a pipeline form a chain: each has the hash of the one before. One look at a lake (a scan
of every byte, a query of the current tables, a list of what else is there) serves the people of several requests.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from residue import opening
from sluice import __version__
from sluice.erasure import canary, request_events, request_record, requests, vault
from sluice.erasure.proof import checking, search_scope, signatures, sought, stamps
from sluice.erasure.proof.chain import (
    Certificate,
    format_certificate_note,
    has_matching_hash,
    read_certificates,
    read_latest_certificate,
    write_certificate,
)
from sluice.erasure.proof.sought import SearchEvidence
from sluice.erasure.proof.stamps import DUE, FAIL, INCONCLUSIVE, MOST_NAMED, PASS, find_worst_verdict
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.subjects import domain_columns
from sluice.errors import SluiceError
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords

__all__ = ["FAIL", "INCONCLUSIVE", "PASS", "Certificate", "CertificatesNotIssued", "issue_certificates", "read_certificates"]
FORMAT = signatures.FIRST_SIGNED
_PROVABLE = (request_events.PHYSICALLY, request_events.CERTIFIED, request_events.FAILED)
"""The states in which finding the person means that something went wrong."""


class CertificatesNotIssued(SluiceError):
    """Some certificates could not be issued. made: the others, by request; errors: the reasons, by request."""

    def __init__(self, made: dict[str, Certificate], errors: dict[str, SluiceError]) -> None:
        super().__init__(
            " ".join(f"Request {request} has no certificate of this scan: {error}" for request, error in errors.items())
        )
        self.made, self.errors = made, errors


def issue_certificates(lake: PipelineLake, asked: Sequence[ErasureRequest]) -> dict[str, Certificate]:
    """Scans once for the people of all these requests, writes the next certificate of each, and puts each request into the state it shows.

    Returns the certificates by request. Raises CertificatesNotIssued, with those that could be issued, if others could not; and
    UsageError, before any is issued, if the vault no longer has the identifiers of one.
    """
    records = lake.records
    found = _gather_evidence(lake, asked)
    made: dict[str, Certificate] = {}
    errors: dict[str, SluiceError] = {}
    last = read_latest_certificate(records)
    try:
        for request in asked:
            try:
                last = made[request.request] = _issue_certificate(lake, request, found, last)
            except SluiceError as error:  # of one request; the others still get their certificates
                errors[request.request] = error
                last = read_latest_certificate(records)  # the certificate may have been written before the error
    finally:
        canary.remove_stale_canaries(records)
    if errors:
        raise CertificatesNotIssued(made, errors)
    return made


def _issue_certificate(
    lake: PipelineLake, request: ErasureRequest, found: ErasureEvidence, last: Certificate | None
) -> Certificate:
    """Issues one certificate. found: of all requests. last: the end of the chain."""
    own = replace(found, search=found.search.about_request(request))
    made = write_certificate(lake.records, request.request, _build_certificate_record(lake, request, own, last), last)
    _advance_certified_request(lake.records, request, made)
    return made


def _judge_control(records: PipelineRecords, request: ErasureRequest, found: ErasureEvidence) -> dict[str, Any]:
    """The control: what was found of the canary before, what is found now, and whether this scanner finds another planted now."""
    before = canary.read_planted_counts(records, request.control) or _find_earlier_control_counts(records, request.request)
    hits, again = found.search.result.of_control(), found.witnessed
    after = sum(hit.times for hit in hits)
    locations = sorted({(hit.root, found.search.hash_path(hit.path), hit.decoder) for hit in hits})
    blind = sorted(store for counts in (before or {}, again) for store, count in counts.items() if not count)
    if after and request.must_bytes_stay(datetime.now(UTC)):
        verdict, why = DUE, "the control is erased, and its bytes may not be removed yet"
    elif after:
        verdict, why = FAIL, "the control was found after it had been erased"
    elif not before:
        verdict, why = INCONCLUSIVE, "no control was planted before the erasure"
    elif blind:
        verdict, why = INCONCLUSIVE, f"the control was not found in: {', '.join(dict.fromkeys(blind))}"
    else:
        verdict, why = PASS, "found in every kind of store before, and in none after"
    return {"verdict": verdict, "why": why, "before": before, "now": again, "after": after, "places": locations[:MOST_NAMED]}


def _find_earlier_control_counts(records: PipelineRecords, request: str) -> dict[str, int] | None:
    """The control counts in an earlier certificate of the request that is as issued; the canary itself is gone since."""
    every = [one.record for one in read_certificates(records, request)]
    if not every:
        return None
    seals = signatures.load_seal_check(records.settings)
    issued = (one for one in every if has_matching_hash(one) and seals.holds(one))
    return next((before for one in issued if (before := one["control"]["before"])), None)


def _build_certificate_record(
    lake: PipelineLake, request: ErasureRequest, found: ErasureEvidence, last: Certificate | None
) -> dict[str, Any]:
    search, result = found.search, found.search.result
    control = _judge_control(lake.records, request, found)
    stamped = stamps.build_stamps(request, search, control)
    verdict = find_worst_verdict(stamped["logical"]["verdict"], stamped["physical"]["verdict"])
    if verdict == PASS and not request.certified_at:
        # Set before the record states the date: the second scan needs the same identifiers, however late this one is.
        vault.extend_vault_entry(lake.records, request.request, datetime.now(UTC) + request_events.KEPT_AFTER)
    return {
        "format": FORMAT,
        "number": last.record["number"] + 1 if last else 1,
        "previous": last.record["hash"] if last else None,
        "pipeline": lake.records.pipeline,
        "request": request.request,
        "received_at": request.received_at,
        "due_at": request.due_at,
        "issued_at": datetime.now(UTC).isoformat(timespec="seconds"),
        # Bytes that may not be removed yet are neither a failure nor a proof.
        "verdict": INCONCLUSIVE if verdict == DUE else verdict,
        "stamps": stamped,
        "control": control,
        "needles": result.kinds,
        "shared_identifiers": search.shared[request.request],
        "shared_found": result.of_others(),
        "roots": [{"name": root.name, "there": root.name not in result.missing} for root in result.roots],
        "decoders": {name: {"files": read.files, "bytes": read.bytes} for name, read in sorted(result.decoders.items())},
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
        "tables": found.tables,
        "undeclared": [{"root": one.root, "path": search.hash_path(one.path)} for one in search.undeclared],
        "exceptions": _list_certificate_exceptions(lake, request, found),
        "sluice": __version__,
        "scanner": checking.hash_scanner_source(),
        "policy": found.policy,
        "depth": opening.DEPTH,
    }


def _list_certificate_exceptions(lake: PipelineLake, request: ErasureRequest, found: ErasureEvidence) -> list[dict[str, Any]]:
    expires, shared = vault.read_vault_expiry(lake.records, request.request), found.search.shared[request.request]
    told: list[dict[str, Any]] = [{"what": "the identifiers of the request, in the vault", "until": expires}]
    if shared:
        told.append({
            "what": f"identifiers that were others', too: {shared}; looked for by their times, in rows of tables that are kept by them alone",
            "until": None,
        })
    for path in found.acknowledged:
        told.append({"what": f"'{path}', which is no table of the pipeline but is listed in also_here", "until": None})
    return [*told, *search_scope.list_unreachable_places(lake)]


def _advance_certified_request(records: PipelineRecords, request: ErasureRequest, made: Certificate) -> None:
    """Puts the request into the state that its certificate shows. An undecided certificate changes nothing."""
    said = f"certificate {made.path.stem}: {made.verdict}, {format_certificate_note(made.record)}"
    # A request that is not carried out yet must not count as failed, or it never would be.
    meant = {PASS: (request_events.LOGICALLY, *_PROVABLE), FAIL: _PROVABLE}.get(made.verdict, ())
    now = request_record.read_erasure_request(records, request.request)
    if now.state in meant and now.rows_left_at is not None:
        requests.advance_request_state(
            records, request, request_events.CERTIFIED if made.verdict == PASS else request_events.FAILED, said
        )
    else:
        requests.add_request_event(records, request.request, request_events.SCANNED, said)


@dataclass(frozen=True)
class ErasureEvidence:
    """What a search found, and what shows whether it can be believed and what it was of.

    witnessed: by kind of store, how often another canary was found that was planted for this scan. tables: their versions. policy: a hash
    that shows whether the relevant declarations have changed.
    """

    search: SearchEvidence
    witnessed: dict[str, int]
    acknowledged: Sequence[str]
    tables: dict[str, int | None]
    policy: str


def _gather_evidence(lake: PipelineLake, asked: Sequence[ErasureRequest]) -> ErasureEvidence:
    """Raises as `search_for_people` does."""
    return ErasureEvidence(
        search=sought.search_for_people(lake, asked),
        witnessed=canary.scan_fresh_canary(lake.records),
        acknowledged=search_scope.find_acknowledged_paths(lake),
        tables={name: log.latest_table_version(path) for name, path in sorted(search_scope.find_searched_tables(lake).items())},
        policy=_hash_policy(lake),
    )


def _hash_policy(lake: PipelineLake) -> str:
    """A hash that shows whether the relevant declarations have changed: whose rows are where, and how long files are kept."""
    told = {
        "columns": {domain: sorted(names) for domain, names in domain_columns.columns_by_domain(lake).items()},
        "subjects": {one.name: one.subject for one in lake.graph if one.subject},
        "retain": lake.graph.pipeline.retain,
    }
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
