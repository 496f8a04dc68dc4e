"""The keys of few merged rows, handed on within a run to the flow that follows the table: it need not ask the change feed for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MOST_KEYS = 10_000
"""So many are handed on at most: they are in the memory of the driver's Python. Of more, the change feed costs little beside the work."""


@dataclass(frozen=True)
class MergedKeys:
    """What the commits after the version `before`, up to `after`, changed. rows: the keys, a key of two commits twice."""

    before: int
    after: int
    rows: pa.Table

    @property
    def versions(self) -> range:
        """The versions that these commits made."""
        return range(self.before + 1, self.after + 1)


@dataclass
class MergedKeysByTable:
    """By table, what a run's latest merges changed. Nothing of this outlives the process: a flow that finds nothing here asks its stream."""

    _found: dict[str, MergedKeys] = field(default_factory=dict)

    def hand_on(self, table: str, keys: MergedKeys) -> None:
        """Keep what was merged, with what the commits right before it merged."""
        before = self._found.pop(table, None)
        if before is not None and before.after == keys.before:
            import pyarrow as pa  # who only looks where tables lie does not wait for it

            keys = MergedKeys(before.before, keys.after, pa.concat_tables([before.rows, keys.rows]))
        if keys.rows.num_rows <= MOST_KEYS:
            self._found[table] = keys

    def find(self, table: str) -> MergedKeys | None:
        """What the latest merges into a table changed; None where that is not known."""
        return self._found.get(table)
