"""What comes first, and what counts, of the rows that the ledgers hold.

Each row of the ledgers of outcomes, of runs and of erasures has an increasing number, its entry, given under the lease. The tables share
one count, so that it can be told which came first, an outcome or a run. A clock may be set back; an entry never is. Rows of before there
were entries have none: they come first, in the order of their times.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from sluice.delta_log import find_table_snapshot

ENTRY = "entry"
COUNTED = ("outcomes", "runs", "erasure")
"""The tables that share the count, below a pipeline's `_sluice`."""

Place = tuple[int, Any]
FIRST: Place = (-1, None)
"""Before every row."""
LAST: Place = (2, None)
"""After every row."""

_Row = TypeVar("_Row", bound=Mapping[str, Any])
_APPENDING = threading.Lock()


def entry_order_key(row: Mapping[str, Any], at: str) -> Place:
    """Where a row stands among those of all tables. at: its column with the time that counts where it has no entry."""
    entry = row.get(ENTRY)
    return (0, row[at]) if entry is None else (1, entry)


def sort_by_entry(rows: Iterable[_Row], at: str) -> list[_Row]:
    """Rows as they came. at: as of `entry_order_key`."""
    return sorted(rows, key=lambda row: entry_order_key(row, at))


@contextmanager
def rows_with_next_entries(table: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The rows with the next entries, to be appended to the table at that path within the context: flows of a process wait for each other."""
    with _APPENDING:
        first = _last_shared_entry(table.rpartition("/")[0]) + 1
        yield [{**row, ENTRY: number} for number, row in enumerate(rows, start=first)]


def _last_shared_entry(folder: str) -> int:
    return max(_last_entry_of_table(f"{folder}/{name}") for name in COUNTED)


def _last_entry_of_table(path: str) -> int:
    there = find_table_snapshot(path)
    if there is None or ENTRY not in there.column_names:
        return 0
    actions = there.table.get_add_actions(flatten=True)
    if not len(actions):
        return 0
    told = {
        name: pa.chunked_array(actions[name]).to_pylist()
        for name in (f"max.{ENTRY}", "num_records")
        if name in actions.schema.names
    }
    if len(told) == 2 and None not in told["num_records"]:
        # The files of before there were entries have no highest one.
        return max((entry for entry in told[f"max.{ENTRY}"] if entry is not None), default=0)
    return int(there.query_rows(f"SELECT max({ENTRY}) AS last FROM t")["last"][0].as_py() or 0)


class AcceptedDelivery(NamedTuple):
    """A delivery that was ingested. file: which file it is a version of; modified_at, sha256: None where it is not known."""

    delivery: int
    file: Hashable
    modified_at: datetime | None
    sha256: str | None


def select_counting_deliveries(accepted: Iterable[AcceptedDelivery]) -> set[int]:
    """Of each file the delivery that counts.

    It is the one with the latest modification time, then the one with the greatest content hash, then the one that came first;
    arrival does not matter. What is not known comes first, as NULL does in SQL.
    """
    latest = {one.file: one.delivery for one in sorted(accepted, key=_redelivery_precedence)}
    return set(latest.values())


def _redelivery_precedence(one: AcceptedDelivery) -> tuple[bool, float, str, int]:
    at = one.modified_at
    return (at is not None, at.timestamp() if at else 0, one.sha256 or "", -one.delivery)
