"""The order of the ledgers' rows, and which deliveries count.

Each row of the ledgers of outcomes, of runs and of erasures has an increasing number, its entry, given under the lease. The tables share
one count, so that an outcome and a run can be ordered too. A clock may be set back; an entry never is. Rows that are older than entries
have none: they come first, in the order of their times.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from sluice.open_tables import LastCommit, TableSnapshot, find_commit, find_table_snapshot, is_still_last
from sluice.own_records import ERASURE, OUTCOMES, RUNS, locate_record_beside

ENTRY = "entry"
COUNTED = (OUTCOMES, RUNS, ERASURE)
"""The tables that share the count."""

OrderKey = tuple[int, Any]
FIRST: OrderKey = (-1, None)
"""Before every row."""
LAST: OrderKey = (2, None)
"""After every row."""

_Row = TypeVar("_Row", bound=Mapping[str, Any])


def entry_order_key(row: Mapping[str, Any], at: str) -> OrderKey:
    """The position of a row among those of all tables. at: the column whose time orders rows without an entry."""
    entry = row.get(ENTRY)
    return (0, row[at]) if entry is None else (1, entry)


def sort_by_entry(rows: Iterable[_Row], at: str) -> list[_Row]:
    """The rows in the order in which they were recorded. at: as in `entry_order_key`."""
    return sorted(rows, key=lambda row: entry_order_key(row, at))


def give_next_entries(table: str, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the next entries. The caller appends them to the table at that path before anyone asks for more entries."""
    first = max(_last_entry_of_table(locate_record_beside(table, one)) for one in COUNTED) + 1
    return [{**row, ENTRY: number} for number, row in enumerate(rows, start=first)]


_LAST_ENTRIES: dict[str, tuple[LastCommit, int]] = {}
"""By path, the last entry of a table and the commit that has to be its last for this to hold."""


def note_last_entry(path: str, version: int, last: int) -> None:
    """Remember the last entry of a table at a version, so that the next request for entries need not read the table."""
    commit = find_commit(path, version)
    if commit is not None:
        _LAST_ENTRIES[path] = (commit, last)


def _last_entry_of_table(path: str) -> int:
    known = _LAST_ENTRIES.get(path)
    if known is not None and is_still_last(path, known[0]):
        return known[1]
    there = find_table_snapshot(path)
    if there is None:
        return 0
    last = _read_last_entry(there) if ENTRY in there.column_names else 0
    note_last_entry(path, there.table.version(), last)
    return last


def _read_last_entry(there: TableSnapshot) -> int:
    actions = there.table.get_add_actions(flatten=True)
    if not len(actions):
        return 0
    columns = (f"max.{ENTRY}", f"null_count.{ENTRY}", "num_records")
    if all(name in actions.schema.names for name in columns):
        files = list(zip(*(pa.chunked_array(actions[name]).to_pylist() for name in columns), strict=True))
        # A file from before entries existed has none; for a file without statistics of entries it is unknown.
        if all(highest is not None or (rows is not None and nulls == rows) for highest, nulls, rows in files):
            return max((highest for highest, _, _ in files if highest is not None), default=0)
    return int(there.query_rows(f"SELECT max({ENTRY}) AS last FROM t")["last"][0].as_py() or 0)


class AcceptedDelivery(NamedTuple):
    """A delivery that was ingested. file: the file of which it is a version; modified_at, sha256: None if unknown."""

    delivery: int
    file: Hashable
    modified_at: datetime | None
    sha256: str | None


def select_counting_deliveries(accepted: Iterable[AcceptedDelivery]) -> set[int]:
    """The delivery of each file that counts.

    It is the one with the latest modification time; among equals, the one with the greatest content hash, and then the first one.
    Otherwise arrival does not matter. Unknown values sort first, as NULL does in SQL.
    """
    latest = {one.file: one.delivery for one in sorted(accepted, key=_redelivery_precedence)}
    return set(latest.values())


def _redelivery_precedence(one: AcceptedDelivery) -> tuple[bool, float, str, int]:
    at = one.modified_at
    return (at is not None, at.timestamp() if at else 0, one.sha256 or "", -one.delivery)
