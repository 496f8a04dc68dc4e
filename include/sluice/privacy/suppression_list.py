"""The suppression list as a table: the people who were erased, as pseudonyms by domain.

An entry for an identifier that changes hands covers the time during which it was the person's. A lifted entry still covers data from
before the lifting, so the person comes back by new data only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from sluice import delta_log
from sluice.lake import commits, log, table_creation
from sluice.lake.batch_sizes import measure_inline_rows
from sluice.lake.commits import Transaction
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.open_tables import open_table_snapshot, read_snapshot_rows
from sluice.privacy import secrets
from sluice.record_columns import build_record_ddl

if TYPE_CHECKING:
    from sluice.erasure.request_record import SuppressedIdentifier


class SuppressionEntry(NamedTuple):
    """A row of the list. A time that is None is open."""

    domain: str
    pseudonym: str
    request: str
    since: datetime
    """When the entry was listed."""
    valid_from: datetime | None
    valid_to: datetime | None
    """The time during which the identifier was the person's."""
    known_until: datetime | None
    """If valid_to is open, the last instant at which the person was known to have it."""
    lifted_at: datetime | None = None
    lifted_delivery: int | None = None
    """The last delivery that had arrived when the entry was lifted."""


SCHEMA = build_record_ddl(SuppressionEntry)
FORMS = "sluice.canonicalForms"
"""The list's table property with the canonical forms of its entries, by domain. Domains that it lacks are in the form text."""


def create_suppression_list(workspace: Workspace) -> None:
    """Makes the list unless it exists. Raises UsageError if its key is missing."""
    shape = TableShape(
        schema=table_creation.parse_ddl_schema(SCHEMA),
        comment="Who was erased, as keyed hashes.",
        statistics=("domain",),
        change_feed=False,
    )
    path = workspace.suppression
    if table_creation.create_table(workspace.session, path, shape):
        record_canonical_forms(workspace)
    secrets.record_key_check(workspace.session, workspace.settings, path)


def suppress_subjects(workspace: Workspace, subjects: Mapping[str, Iterable[SuppressedIdentifier]]) -> int:
    """Puts the subjects of requests on the list in one commit, and only once even if it is retried. Returns how many are new."""
    create_suppression_list(workspace)
    workspace.mark_next_commits("suppression")
    now = datetime.now(UTC)
    there = list_suppressed_requests(workspace) if subjects else frozenset()
    new = sorted(request for request, of in subjects.items() if of and request not in there)
    rows = [_make_entry(request, one, now) for request in new for one in dict.fromkeys(subjects[request])]
    return _append_entries_once(workspace, rows, " ".join(new))


def add_suppression_entries(workspace: Workspace, subjects: Mapping[str, Iterable[SuppressedIdentifier]]) -> int:
    """Adds further subjects of requests that are already listed, each once. Returns how many are new."""
    create_suppression_list(workspace)
    workspace.mark_next_commits("suppression")
    there, now = read_suppression_times(workspace.suppression), datetime.now(UTC)
    rows = [
        _make_entry(request, one, now)
        for request, of in subjects.items()
        for one in dict.fromkeys(of)
        if request not in {entry[0] for entry in there.get((one.domain, one.pseudonym), ())}
    ]
    return _append_entries_once(workspace, rows, " ".join(sorted(f"{one.request} {one.pseudonym}" for one in rows)))


def _make_entry(request: str, one: SuppressedIdentifier, now: datetime) -> SuppressionEntry:
    """Makes an entry that is not lifted."""
    during = (_parse_utc_instant(one.since), _parse_utc_instant(one.until), _parse_utc_instant(one.known_until))
    return SuppressionEntry(one.domain, one.pseudonym, request, now, *during)


def _append_entries_once(workspace: Workspace, rows: Sequence[SuppressionEntry], what: str) -> int:
    """Appends entries in one commit, only once even if it is retried. what: their name, the same in each try. Returns their number."""
    if rows:
        once = Transaction("suppression", hashlib.sha256(what.encode()).hexdigest()[:12], "suppression", 0)
        listed = table_creation.make_inline_frame(workspace.session, rows, SCHEMA)
        commits.append_rows(listed, workspace.suppression, once, measure_inline_rows(rows))
    return len(rows)


def canonical_forms_text(workspace: Workspace) -> str:
    """The canonical forms of the domains that are not compared as text."""
    return ",".join(f"{domain}={form}" for domain, form in sorted(workspace.graph.forms.items()))


def find_changed_forms(workspace: Workspace) -> frozenset[str]:
    """The domains whose form has changed since the list was made or last recomputed."""
    said = log.read_table_properties(workspace.suppression).get(FORMS, "")
    before, now = ({tuple(one.split("=")) for one in text.split(",") if one} for text in (said, canonical_forms_text(workspace)))
    return frozenset(pair[0] for pair in before ^ now)


def record_canonical_forms(workspace: Workspace) -> None:
    """Records on the list in which forms its entries are."""
    text = canonical_forms_text(workspace)
    if log.read_table_properties(workspace.suppression).get(FORMS, "") != text:
        workspace.session.sql(f"ALTER TABLE delta.`{workspace.suppression}` SET TBLPROPERTIES ('{FORMS}' = '{text}')")


def list_suppressed_requests(workspace: Workspace) -> frozenset[str]:
    """The requests whose subjects are on the list."""
    return (
        frozenset(read_listed_values(workspace.suppression, "request"))
        if delta_log.is_delta_table(workspace.suppression)
        else frozenset()
    )


def is_suppression_list_empty(workspace: Workspace) -> bool:
    """Whether nobody was ever erased; flows then leave the check out of their plans."""
    state = log.read_table_state(workspace.suppression)
    return state is None or state.rows == 0


Times = Mapping[tuple[str, str], Sequence[tuple[str, datetime | None, datetime | None]]]


def read_suppression_times(path: str) -> Times:
    """The entries in force, by domain and pseudonym: the request, and when the identifier was that person's. Without a JVM."""
    found: dict[tuple[str, str], list[tuple[str, datetime | None, datetime | None]]] = {}
    # Reads all entries: a value in a query's text would be one more place that holds it.
    for row in read_snapshot_rows(path):
        if row["lifted_at"] is None:
            entry = str(row["request"]), row["valid_from"], row["valid_to"]
            found.setdefault((row["domain"], row["pseudonym"]), []).append(entry)
    return found


def read_listed_values(path: str, column: str) -> set[str]:
    """The values in a column of the list, each once. Without a JVM."""
    found = open_table_snapshot(path).query_rows(f'SELECT DISTINCT "{column}" FROM t')
    return {str(value) for value in found[column].to_pylist()}


def _parse_utc_instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
