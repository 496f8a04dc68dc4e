"""What the deliveries table knows of each file, read once a run."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sluice.ingest import ledger
from sluice.ingest.deliveries.listing import DELIVERED

GONE, EXISTING, IGNORED, CLEANED = "vanished", "existing", "ignored", "cleaned"
REWRITTEN = "rewritten"
"""Sluice has taken somebody's records out of the file: its size and its hash are others now, and it is the same delivery as before."""
TAKEN = (DELIVERED, GONE)
"""The events that bronze flows take and that get an outcome. The others say what is known of a file, and it is not read for them."""

_COLUMNS = ["delivery", "source", "file", "event", "size", "modified_at"]
_NOT_READ = frozenset({ledger.MISSED, ledger.VANISHED})


class Seen(NamedTuple):
    """The last that is known of a file. modified: microseconds since 1970."""

    delivery: int
    event: str
    size: int | None
    modified: int | None


@dataclass(frozen=True)
class Known:
    """What is known of files, by source. last: the greatest delivery number. outcomes, deliveries: the tables with the rest."""

    last: int = 0
    outcomes: str = ""
    by_source: dict[str, dict[str, Seen]] = field(default_factory=dict)
    deliveries: str = ""

    def of(self, source: str) -> dict[str, Seen]:
        """What is known of a source's files, by their names."""
        return self.by_source.get(source, {})

    def was_read(self, source: str, file: str) -> bool:
        """Whether any delivery of the file came to an outcome but that it was missed."""
        return (source, file) in self._read

    @cached_property
    def _read(self) -> set[tuple[str, str]]:
        found = ledger.columns(self.outcomes, ["source", "file", "state"])
        rows = zip(*(found[name].to_pylist() for name in ("source", "file", "state")), strict=True)
        return {(source, file) for source, file, state in rows if state not in _NOT_READ}


def latest(deliveries: str, outcomes: str = "") -> Known:
    """What is known, of the deliveries table at that path. outcomes: that table's path, unless it lies beside it."""
    beside = outcomes or f"{deliveries.rpartition('/')[0]}/outcomes"
    found = ledger.columns(deliveries, _COLUMNS)
    if not found.num_rows:
        return Known(0, beside, deliveries=deliveries)
    found = found.take(pc.sort_indices(found["delivery"]))
    by_source: defaultdict[str, dict[str, Seen]] = defaultdict(dict)
    at = found["modified_at"].cast(pa.int64())
    names = ("delivery", "source", "file", "event", "size")
    values = [*(found[name].to_pylist() for name in names), at.to_pylist()]
    for number, source, file, event, size, modified in zip(*values, strict=True):
        before = by_source[source].get(file) if event == REWRITTEN else None
        delivery, was = (before.delivery, before.event) if before else (number, event)
        by_source[source][file] = Seen(delivery, was, size, modified)
    return Known(found["delivery"][-1].as_py(), beside, dict(by_source), deliveries)


def deliveries_now(path: str) -> list[dict[str, Any]]:
    """The rows of the deliveries table at that path, by number, each with the size and the hash that its file has now.

    Of a file that was rewritten the row of its last delivery says so; what only tells of that is left out.
    """
    found: list[dict[str, Any]] = sorted(ledger.rows(path), key=lambda row: int(str(row["delivery"])))
    last: dict[tuple[str, str], dict[str, Any]] = {}
    kept = []
    for row in found:
        file = (row["source"], row["file"])
        if row["event"] == REWRITTEN:
            last.get(file, {}).update(size=row["size"], sha256=row["sha256"])
        else:
            last[file] = row
            kept.append(row)
    return kept
