"""The suppression list, as a table: who was erased, as pseudonyms by domain.

An entry of an identifier that changes hands holds for the time during which it was the person's. A lifted entry holds for what was there
before: the person comes back by new data only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sluice.delta_log import open_table_snapshot, read_snapshot_rows
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.row_sizes import measure_inline_rows
from sluice.lake.tables import TableShape
from sluice.lake.workspace import Workspace
from sluice.privacy import secrets

if TYPE_CHECKING:
    from sluice.erasure.requests import SuppressedIdentifier


SCHEMA = (
    "domain STRING, pseudonym STRING, request STRING, since TIMESTAMP, "
    "valid_from TIMESTAMP, valid_to TIMESTAMP, known_until TIMESTAMP, lifted_at TIMESTAMP, lifted_delivery BIGINT"
)
"""since: when it was listed. valid_from, valid_to: from when until when the identifier was the person's, NULL where that is open.

known_until: where valid_to is open, the last instant at which the person was said to have it. lifted_delivery: the last delivery that had
come when the entry was lifted.
"""
FORMS = "sluice.canonicalForms"
"""The list's table property that tells in which forms its entries are, by domain; what it does not name is as text."""


def create_suppression_list(workspace: Workspace) -> None:
    """Make the list unless it is there. Raises UsageError where its key is not there."""
    shape = TableShape(
        schema=tables.parse_ddl_schema(SCHEMA),
        comment="Who was erased, as keyed hashes.",
        statistics=("domain",),
        change_feed=False,
    )
    path = workspace.suppression
    if tables.create_table(workspace.session, path, shape):
        record_canonical_forms(workspace)
    secrets.record_key_check(workspace.session, workspace.settings, path)


def suppress_subjects(workspace: Workspace, subjects: Mapping[str, Iterable[SuppressedIdentifier]]) -> int:
    """Put the subjects of requests on the list, in one commit and once, however often it is tried. Returns how many are new."""
    create_suppression_list(workspace)
    workspace.note("suppression")
    now = datetime.now(UTC)
    there = list_suppressed_requests(workspace) if subjects else frozenset()
    new = sorted(request for request, of in subjects.items() if of and request not in there)
    rows = [_entry_row(request, one, now) for request in new for one in dict.fromkeys(subjects[request])]
    return _append_entries_once(workspace, rows, " ".join(new))


def add_suppression_entries(workspace: Workspace, subjects: Mapping[str, Iterable[SuppressedIdentifier]]) -> int:
    """Put further subjects of requests that are listed already on the list, each once. Returns how many are new."""
    create_suppression_list(workspace)
    workspace.note("suppression")
    there, now = read_suppression_times(workspace.suppression), datetime.now(UTC)
    rows = [
        _entry_row(request, one, now)
        for request, of in subjects.items()
        for one in dict.fromkeys(of)
        if request not in {entry[0] for entry in there.get((one.domain, one.pseudonym), ())}
    ]
    return _append_entries_once(workspace, rows, " ".join(sorted(f"{request} {called}" for _, called, request, *_ in rows)))


EntryRow = tuple[str, str, str, datetime, datetime | None, datetime | None, datetime | None, None, None]


def _entry_row(request: str, one: SuppressedIdentifier, now: datetime) -> EntryRow:
    """A row of the list, in the order of SCHEMA, that nobody has lifted."""
    during = (_parse_utc_instant(one.since), _parse_utc_instant(one.until), _parse_utc_instant(one.known_until))
    return (one.domain, one.pseudonym, request, now, *during, None, None)


def _append_entries_once(workspace: Workspace, rows: Sequence[EntryRow], what: str) -> int:
    """Append entries in one commit, however often it is tried. what: names them, the same in each try. Returns how many they are."""
    if rows:
        once = Transaction("suppression", hashlib.sha256(what.encode()).hexdigest()[:12], "suppression", 0)
        listed = tables.make_inline_frame(workspace.session, rows, SCHEMA)
        commits.append_rows(listed, workspace.suppression, once, measure_inline_rows(rows))
    return len(rows)


def canonical_forms_text(workspace: Workspace) -> str:
    """The forms in which identifiers are compared, by domain, where that is not as text."""
    return ",".join(f"{domain}={form}" for domain, form in sorted(workspace.graph.forms.items()))


def find_changed_forms(workspace: Workspace) -> frozenset[str]:
    """The domains that have another form now than when the list was made, or was recomputed last."""
    said = log.read_table_properties(workspace.suppression).get(FORMS, "")
    before, now = ({tuple(one.split("=")) for one in text.split(",") if one} for text in (said, canonical_forms_text(workspace)))
    return frozenset(pair[0] for pair in before ^ now)


def record_canonical_forms(workspace: Workspace) -> None:
    """Let the list tell in which forms it has its entries."""
    text = canonical_forms_text(workspace)
    if log.read_table_properties(workspace.suppression).get(FORMS, "") != text:
        workspace.session.sql(f"ALTER TABLE delta.`{workspace.suppression}` SET TBLPROPERTIES ('{FORMS}' = '{text}')")


def list_suppressed_requests(workspace: Workspace) -> frozenset[str]:
    """The requests whose subjects are on the list."""
    return (
        frozenset(read_listed_values(workspace.suppression, "request"))
        if log.is_delta_table(workspace.suppression)
        else frozenset()
    )


def is_suppression_list_empty(workspace: Workspace) -> bool:
    """Whether nobody was ever erased; the flows then leave the check out of their plans."""
    state = log.read_table_state(workspace.suppression)
    return state is None or state.rows == 0


Times = Mapping[tuple[str, str], Sequence[tuple[str, datetime | None, datetime | None]]]


def read_suppression_times(path: str) -> Times:
    """By domain and pseudonym the entries that hold: request, and from when until when the identifier was that person's. Without a JVM."""
    found: dict[tuple[str, str], list[tuple[str, datetime | None, datetime | None]]] = {}
    # All of them: a value in a query's text would be one more place where it stands.
    for row in read_snapshot_rows(path):
        if row["lifted_at"] is None:
            entry = str(row["request"]), row["valid_from"], row["valid_to"]
            found.setdefault((row["domain"], row["pseudonym"]), []).append(entry)
    return found


def read_listed_values(path: str, column: str) -> set[str]:
    """What stands in a column of the list, each value once. Without a JVM."""
    found = open_table_snapshot(path).query_rows(f'SELECT DISTINCT "{column}" FROM t')
    return {str(value) for value in found[column].to_pylist()}


def _parse_utc_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
