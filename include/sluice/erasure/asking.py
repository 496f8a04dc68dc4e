"""Requests that arrive as data: rows of bronze that ask for the erasure of the person they name (`erasure_requests`).

Bronze is searched for them whenever it has changed. A person who already has a request gets no second one, unless the first was
refused. Once the erasure is done, the rows that asked for it are gone with the person's other rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.erasure.identifiers import ErasureRequests
from sluice.declare.expansion import resolve_temporary_views
from sluice.declare.privacy.treat import AS_TEXT
from sluice.declare.quoting import quote_column
from sluice.erasure import request_events, request_record, requests, searched_tables, vault
from sluice.erasure.request_record import ErasureRequest
from sluice.erasure.searched_tables import describe_request_table, request_declaration_key
from sluice.erasure.vault import Identifier
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.ingest import delivery_tables
from sluice.ingest.delivery_tables import DeliveryOutcome
from sluice.lake import table_creation, table_frames
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets, suppression, suppression_list
from sluice.privacy.pseudonyms import canonical_column, compute_pseudonym
from sluice.record_states import INGESTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BY_ROWS = "asked by rows"
_UP_TO = ", up to delivery "


def create_requests_from_rows(workspace: Workspace) -> list[ErasureRequest]:
    """Makes a request for each person in a declaration's new rows. If killed afterwards, the next run finds the same rows and makes none again."""
    records, graph = workspace.records, workspace.graph
    people: dict[Identifier, str] = {}
    seen = searched_tables.read_searched_tables(records) or {}
    kept = {name: table for name, table in seen.items() if name in map(request_declaration_key, graph.asking)}
    for asking in graph.asking:
        now = describe_request_table(workspace.lake, asking)
        if now is not None and kept.get(request_declaration_key(asking)) != now:
            people = dict.fromkeys(_find_new_requesters(workspace, asking), asking.reads) | people
            kept[request_declaration_key(asking)] = now
    made = list(_create_or_retry_requests(workspace, people, _find_latest_request_delivery(workspace))) if people else []
    if kept != seen:
        searched_tables.write_searched_tables(records, kept)
    return made


def _create_or_retry_requests(workspace: Workspace, people: Mapping[Identifier, str], latest: int) -> Iterator[ErasureRequest]:
    """Makes one request per person, so that an ambiguous person does not hold up the rest. people: with the declaration that named them.

    latest: the last delivery that was searched. A request from rows that was refused is tried again, with its original deadline.
    """
    records = workspace.records
    refused: dict[Identifier, ErasureRequest] = {}
    for one in request_record.list_erasure_requests(records) if people else ():
        by_rows = one.is_refused and not one.is_withdrawn and one.history[0].note.startswith(_BY_ROWS)
        if by_rows and len(one.pseudonyms) == 1 and vault.has_vault_entry(records, one.request):
            refused |= dict.fromkeys(vault.read_asked_identifiers(records, one.request), one)
    for person, reads in people.items():
        before = refused.get(person)
        if before is None:
            yield requests.receive_erasure_request(workspace.lake, [person], said=f"{_BY_ROWS} of '{reads}'{_UP_TO}{latest}")
        else:
            yield requests.advance_request_state(records, before, request_events.RECEIVED, f"asked again{_UP_TO}{latest}")


def _find_latest_request_delivery(workspace: Workspace) -> int:
    """The last delivery in the bronze tables whose rows may ask. Under the lease nothing else is added to them."""
    reads = {resolve_temporary_views(workspace.graph.unstored, asking.reads)[0] for asking in workspace.graph.asking}
    found = []
    for path in (workspace.path(name) for name in sorted(reads)):
        if delta_log.is_delta_table(path):
            found.append(
                compute_aggregates(table_frames.read_table(workspace.session, path), F.max("_delivery").alias("last"))["last"]
                or 0
            )
    return max(found, default=0)


def _find_new_requesters(workspace: Workspace, asking: ErasureRequests) -> list[Identifier]:
    """The people who ask and have no request yet. After a withdrawn request, only later rows count."""
    domain = asking.identifier[1]
    told = _read_requester_deliveries(workspace, asking)
    known = _compute_request_watermarks(workspace) if told else {}
    key = secrets.read_suppression_key(workspace.settings, workspace.suppression) if told else b""
    form = workspace.graph.canonical(domain)
    # Includes the hash from before a form was declared.
    called = {value: {str(compute_pseudonym(key, domain, value, one)) for one in (form, AS_TEXT)} for value in told}
    after = {value: max(known.get(one, 0) for one in called[value]) for value in told}
    # Another query is needed only if a view drops the delivery that a row came in.
    unsaid = {after[value] for value, last in told.items() if last is None and 0 < after[value] < math.inf}
    later = {up_to: _read_requester_deliveries(workspace, asking, int(up_to)).keys() for up_to in unsaid}

    def asks(value: str, last: int | None) -> bool:
        return not after[value] or (last > after[value] if last is not None else value in later.get(after[value], ()))

    return [Identifier(domain, value) for value in sorted(told) if asks(value, told[value])]


def _read_requester_deliveries(workspace: Workspace, asking: ErasureRequests, after: int = 0) -> dict[str, int | None]:
    """The people that rows ask for, each with the last delivery that asks, if known. after: only deliveries after this one count."""
    column, domain = asking.identifier
    rows = _read_request_rows(workspace, asking, after)
    if column not in rows.columns:
        raise DeclarationError(f"{asking.owner}: it has no column '{column}'.{nearest_name_hint(column, rows.columns)}")
    last = F.max("_delivery") if "_delivery" in rows.columns else F.lit(None)
    named = rows.where(asking.where).groupBy(
        canonical_column(quote_column(column), workspace.graph.canonical(domain)).alias("value")
    )
    return {row["value"]: row["last"] for row in named.agg(last.alias("last")).collect() if row["value"]}


def _find_ingested_deliveries(workspace: Workspace, name: str) -> tuple[list[DeliveryOutcome], set[int]]:
    """The deliveries whose records a bronze table has or had, and those of them that count now."""
    every: list[DeliveryOutcome] = []
    live: set[int] = set()
    for one in workspace.graph.feeding(name):
        outcomes = [
            found for found in delivery_tables.read_source_outcomes(workspace.outcomes, one.name) if found.state == INGESTED
        ]
        every += outcomes
        live |= delivery_tables.select_live_deliveries(outcomes, one.replaces_files)
    return every, live


def _read_request_rows(workspace: Workspace, asking: ErasureRequests, after: int) -> DataFrame:
    """The rows that the declaration reads, from deliveries that count, without erased people."""
    name, passed = resolve_temporary_views(workspace.graph.unstored, asking.reads)
    source = workspace.graph.sources[name]
    rows = table_frames.read_table(workspace.session, workspace.path(name))
    if after:
        rows = rows.where(F.col("_delivery") > after)
    every, live = _find_ingested_deliveries(workspace, name)
    dead = [(one.delivery,) for one in every if one.delivery not in live]
    if dead:
        rows = rows.join(
            F.broadcast(table_creation.make_inline_frame(workspace.session, dead, "_delivery BIGINT")), "_delivery", "left_anti"
        )
    subject = subjects.build_subject_expression(workspace.graph, source, rows.columns)
    if subject and not suppression_list.is_suppression_list_empty(workspace):
        at = suppression.row_instant_column(rows, subjects.subject_time_expression(source))
        rows = suppression.exclude_suppressed_rows(workspace, rows, F.expr(subject), source.domain, at)
    for view in passed:
        rows = view(rows)
    return rows


def _compute_request_watermarks(workspace: Workspace) -> dict[str, float]:
    """By pseudonym, the last delivery whose rows need no new request: all if a request stands, those searched if it was withdrawn.

    A refused request is made again: what has arrived since may show who is meant.
    """
    found: dict[str, float] = {}
    for one in request_record.list_erasure_requests(workspace.records):
        up_to = 0.0
        if one.is_withdrawn:
            up_to = _parse_request_watermark(one)
        elif not (one.is_lifted or one.is_refused):
            up_to = math.inf
        for called in one.pseudonyms:
            found[called] = max(found.get(called, 0.0), up_to)
    return found


def _parse_request_watermark(request: ErasureRequest) -> float:
    """The last delivery that was searched when rows made this request; 0 if none did, and infinite if it was not recorded yet."""
    noted = [re.search(rf"{_UP_TO}(\d+)\Z", event.note) for event in request.history]
    by_rows = request.history[0].note.startswith(_BY_ROWS)
    return max((float(one.group(1)) for one in noted if one), default=math.inf if by_rows else 0.0)
