"""Receives and withdraws requests. A request holds pseudonyms; the identifiers themselves are checked and go into the vault.

A request can be withdrawn while nothing has been done for it; only its history stays. The suppression of erased people can be lifted;
they then come back by new data only. This module also keeps how far bronze was searched for rows that ask: after a withdrawal, it is
searched again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from sluice import delta_log, record_tables
from sluice.declare.assembly.graph import PSEUDONYM, Graph
from sluice.declare.pipeline import parse_duration
from sluice.durable_files import write_json_durably
from sluice.erasure import ledger, request_events, request_record, requests, vault
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError, nearest_name_hint
from sluice.ingest.ledger import read_delivery_ledger_columns
from sluice.kept_files import KeptFileDamaged, load_kept_object
from sluice.lake.commit_marks import format_commit_mark
from sluice.open_tables import find_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.printable import count_noun
from sluice.privacy.pseudonyms import canonical_text
from sluice.settings import Settings
from sluice.stores.opening import find_store_kind, is_store_url


def _refuse_unsearched_store(settings: Settings) -> None:
    if is_store_url(settings.lake) and not find_store_kind(settings.lake).tried:
        raise UsageError(
            f"The lake {settings.lake} is on a store whose objects and former versions the scan cannot search, so that an erasure could not "
            f"be proved. No request was made. docs/stores.md lists the stores on which it can."
        )


def receive_erasure_request(
    settings: Settings,
    graph: Graph,
    identifiers: Iterable[str | Identifier],
    domain: str | None = None,
    received_at: datetime | None = None,
    said: str = "",
) -> ErasureRequest:
    """Stores a request to erase the people with these identifiers, which go into the vault. said: its origin, for the history.

    domain: that of identifiers given as texts; it may be left out if the pipeline has only one. Raises UsageError if there is no
    identifier, if a domain is unknown, or for a lake on a store that the scan cannot search.
    """
    _refuse_unsearched_store(settings)
    asked = _validate_identifiers(graph, identifiers, domain)
    pipeline, records = graph.pipeline, graph.records(settings)
    received = (received_at or datetime.now(UTC)).astimezone(UTC)
    due = received + parse_duration(pipeline.erase_within)
    hashed = requests.pseudonymise_subjects(settings, graph, asked)
    domains = {one.domain for one in asked}
    request = ErasureRequest(
        request=uuid.uuid4().hex[:12],
        received_at=requests.format_request_time(received),
        due_at=requests.format_request_time(due),
        state=request_events.RECEIVED,
        domain=domains.pop() if len(domains) == 1 else requests.SEVERAL,
        pseudonyms=tuple(sorted({one.pseudonym for one in hashed})),
        history=(requests.new_request_event(request_events.RECEIVED, said),),
    )
    # The vault first: a request whose identifiers are nowhere could not be carried out.
    expires = max(due, received + parse_duration(pipeline.retain)) + request_events.SCANNED_AGAIN_AFTER
    vault.store_vault_entry(records, request.request, asked, requests.format_request_time(expires))
    return requests.write_erasure_request(records, request)


def resolve_identifier_domain(graph: Graph, domain: str | None) -> str:
    """Returns the domain, or the only one if none is given. Raises UsageError with the nearest name."""
    domains = graph.domains()
    if not domains:
        raise UsageError(f"No source of pipeline '{graph.pipeline.name}' declares a subject; there is nobody to erase.")
    plain = [one for one in domains if one != PSEUDONYM]
    if domain is None and len(plain) == 1:
        return plain[0]
    if domain not in domains:
        unknown = (
            f"There is no kind of identifier '{domain}'."
            if domain
            else "Say with --identifier which kind of identifier is meant."
        )
        raise UsageError(f"{unknown}{nearest_name_hint(domain or '', domains)}")
    return domain


def _validate_identifiers(graph: Graph, identifiers: Iterable[str | Identifier], domain: str | None) -> list[Identifier]:
    texts = [one for one in identifiers]
    of_texts = resolve_identifier_domain(graph, domain) if any(isinstance(one, str) for one in texts) else ""
    found: dict[Identifier, None] = {}
    for given in texts:
        asked = Identifier(of_texts, given) if isinstance(given, str) else given
        value, domain_of = asked.value.strip(), resolve_identifier_domain(graph, asked.domain)
        if value and not canonical_text(value, graph.canonical(domain_of)):
            raise UsageError(
                f"An identifier of kind '{domain_of}' is empty in the form in which its kind is compared, "
                f"'{graph.canonical(domain_of)}'. Is it of another kind?"
            )
        if value:
            found[replace(asked, domain=domain_of, value=value)] = None
    if not found:
        raise UsageError("No identifier was given. Give them on standard input, or in a file named by --subject-file.")
    return list(found)


State = dict[str, str]
"""path: that of a bronze table, so that `sluice.runs.due` can inspect it without declarations; mark: see `log.table_change_mark`."""


def read_request_table_states(records: PipelineRecords) -> dict[str, Any]:
    """The state of bronze that was last searched, by declaration."""
    path = records.searched_tables_file
    try:
        return load_kept_object(path, request_events.SEARCHED_TABLES, "")
    except (FileNotFoundError, KeptFileDamaged):
        return {}  # everything is searched again


def write_request_table_states(records: PipelineRecords, states: Mapping[str, Any]) -> None:
    """Stores what was searched, atomically."""
    path = records.searched_tables_file
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(path, states)


def reset_request_table_states(records: PipelineRecords) -> None:
    """Makes all rows be searched again: one may have been skipped because of a request that no longer exists."""
    before = read_request_table_states(records)
    if before:
        write_request_table_states(records, {name: one | {"mark": ""} for name, one in before.items()})


def withdraw_erasure_request(records: PipelineRecords, request: str) -> ErasureRequest:
    """Withdraws a request for which nothing is done yet, without a JVM. Its identifiers leave the vault. Safe to repeat.

    Raises UsageError if it was carried out or is under way: what is begun is finished.
    """
    found = request_record.read_erasure_request(records, request)
    if found.is_withdrawn:
        _forget_request_identifiers(records, request)  # a kill came right after it was recorded
        return found
    if found.rows_left_at is not None or found.state not in (request_events.RECEIVED, request_events.FAILED):
        raise UsageError(
            f"Request {request} is carried out: it is {found.state}. To let the person come back: sluice erase lift {request}"
        )
    if _is_propagation_begun(records, request):
        raise UsageError(
            f"Request {request} is being carried out. When that has ended (sluice erase run {records.pipeline}): sluice erase lift {request}"
        )
    kept = requests.mark_request_withdrawn(records, request)
    _forget_request_identifiers(records, request)
    return kept


def _forget_request_identifiers(records: PipelineRecords, request: str) -> None:
    vault.remove_vault_entry(records, request)
    reset_request_table_states(records)


def _is_propagation_begun(records: PipelineRecords, request: str) -> bool:
    """Whether its people are on the suppression list, which is the first step, or a later step is done."""
    if request in ledger.list_begun_requests(records):
        return True
    listed = find_table_snapshot(records.suppression_list)
    return listed is not None and request in listed.query_rows("SELECT request FROM t")["request"].to_pylist()


def lift_suppression(records: PipelineRecords, request: str) -> int:
    """Lifts a request's entries, without a JVM. Returns how many. What had been delivered before stays out. Call this under the lease.

    Raises UsageError if the request was not carried out, and SluiceError if another process is writing the list.
    """
    found = request_record.read_erasure_request(records, request)
    # A request whose scan found something was still carried out.
    if found.rows_left_at is None:
        raise UsageError(f"Request {request} is '{found.shown_state}': nobody was erased by it, so there is nothing to lift.")
    if found.is_lifted:
        return 0
    lifted = _lift_suppression_entries(records, request)
    requests.add_request_event(records, request, request_events.LIFTED, f"{count_noun(lifted, 'entry')} of the suppression list")
    return lifted


def _lift_suppression_entries(records: PipelineRecords, request: str) -> int:
    path = records.suppression_list
    if not delta_log.is_delta_table(path):
        return 0
    numbers = read_delivery_ledger_columns(records.delivery_ledger, ["delivery"])["delivery"].to_pylist()
    lifted = {"lifted_at": datetime.now(UTC), "lifted_delivery": max(numbers, default=0)}
    given = pa.Table.from_pylist([{"request": request, **lifted}])
    note = format_commit_mark(flow="suppression", lifted=request)
    return record_tables.update_record_rows(path, given, "t.request = s.request AND t.lifted_at IS NULL", list(lifted), note)
