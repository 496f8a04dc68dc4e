"""Hands the keys of few merged rows, within a run, to the flow that follows the table, so that it need not ask the change feed for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

MOST_KEYS = 10_000
"""How many keys are handed on at most, in the memory of the driver's Python. With more, the change feed costs little beside the work."""


@dataclass(frozen=True)
class MergedKeys:
    """What the commits after the version `before`, up to `after`, changed. rows: the keys; a key of two commits is there twice."""

    before: int
    after: int
    rows: pa.Table

    @property
    def versions(self) -> range:
        """The versions that these commits made."""
        return range(self.before + 1, self.after + 1)


@dataclass
class MergedKeysByTable:
    """What a run's latest merges changed, by table. Nothing of this outlives the process: a flow that finds nothing here asks its stream."""

    _found: dict[str, MergedKeys] = field(default_factory=dict)

    def hand_on(self, table: str, keys: MergedKeys) -> None:
        """Keeps what was merged, together with what the commits right before it merged."""
        before = self._found.pop(table, None)
        if before is not None and before.after == keys.before:
            import pyarrow as pa  # loaded here, so that code that only asks where tables lie does not wait for it

            keys = MergedKeys(before.before, keys.after, pa.concat_tables([before.rows, keys.rows]))
        if keys.rows.num_rows <= MOST_KEYS:
            self._found[table] = keys

    def find(self, table: str) -> MergedKeys | None:
        """Returns what the latest merges into a table changed, or None if that is not known."""
        return self._found.get(table)
