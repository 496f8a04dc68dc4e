"""Recomputes tables from bronze, through all layers, lazily in Spark's memory, and writes nothing to the lake."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice import delta_log
from sluice.declare.datasets import made_rows
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.expansion.cdc_tables import ChangeLogFold
from sluice.declare.kinds import load_kind_function
from sluice.lake import table_frames
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.privacy import treatments
from sluice.verification.comparison import TablePart, align_columns
from sluice.verification.rows import recompute_silver_rows
from sluice.verification.targets import recompute_cdc_target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Recomputation:
    """The rows that tables should have. as_stored: for a table whose readers follow its stored rows, the reason (they are no function of bronze).

    Shared inputs of several tables are made once, and stay in Spark's cache until `release`. part: the part of the rows that is compared; a
    recomputation may return others too.
    """

    workspace: Workspace
    as_stored: Callable[[str], str | None]
    shared: frozenset[str] = frozenset()
    part: TablePart | None = None
    made: dict[str, DataFrame | None] = field(default_factory=dict)

    def expected(self, name: str) -> DataFrame | None:
        """The rows that a table should have. None if there is nothing yet to make them from."""
        if name not in self.made:
            found = self._recompute_declared(self.workspace.graph.datasets[name])
            self.made[name] = found.persist() if found is not None and name in self.shared else found
        return self.made[name]

    def followed(self, name: str) -> list[str]:
        """The reasons why a view is compared over stored inputs, one text for each such input, direct or indirect."""
        if name not in self.workspace.graph.views:
            return []
        found: dict[str, None] = {}
        for read in self.workspace.graph.views[name].reads:
            why = self.as_stored(read)
            found |= dict.fromkeys([f"over '{read}' as it is stored, which is {why}"] if why else self.followed(read))
        return list(found)

    def release(self) -> None:
        """Frees what was cached."""
        for name in self.shared:
            frame = self.made.get(name)
            if frame is not None:
                frame.unpersist()

    def _recompute_declared(self, declared: Dataset[Any]) -> DataFrame | None:
        if declared.kind.recompute is None:
            return None
        recompute: Callable[[Recomputation, Any], DataFrame | None] = load_kind_function(declared.kind, "recompute")
        return recompute(self, declared)

    def read_input(self, name: str) -> DataFrame:
        """An input of a view: a table as it should be, with the columns that the stored one has."""
        stored = table_frames.read_table(self.workspace.session, self.workspace.path(name)).drop(*PROVENANCE)
        if name in self.workspace.graph.sources:  # bronze, from which everything is made
            return stored
        made = None if self.as_stored(name) else self.expected(name)
        if made is not None:
            return align_columns(made, stored.schema)
        return stored if self.as_stored(name) else stored.limit(0)


def recompute_table(again: Recomputation, table: Table[Any]) -> DataFrame | None:
    """The rows that a silver table should have."""
    return recompute_silver_rows(again.workspace, table)


def recompute_view(again: Recomputation, view: MaterializedView[Any]) -> DataFrame | None:
    """The rows that a view should have, over those of its inputs that exist."""
    there = view.over(name for name in view.reads if delta_log.is_delta_table(again.workspace.path(name)))
    if there is None:
        return None
    inputs = {name: again.read_input(name) for name in there.reads}
    if isinstance(there.function, ChangeLogFold):
        rows = made_rows.null_empty_partition_texts(
            _recompute_folded_view(there.function, inputs, again.part), there.partition_by
        )
    else:
        rows = there(*inputs.values())
    return treatments.apply_treatments(again.workspace.settings, rows, there.treatments, f"View '{there.name}'")


def _recompute_folded_view(folded: ChangeLogFold, inputs: Mapping[str, DataFrame], part: TablePart | None) -> DataFrame:
    changes = {name: frame for name, frame in inputs.items() if name not in folded.truncates}
    return recompute_cdc_target(folded.declared, changes, [inputs[name] for name in inputs if name in folded.truncates], part)


def find_shared_inputs(workspace: Workspace, wanted: Iterable[str], as_stored: Callable[[str], str | None]) -> frozenset[str]:
    """The tables that are needed more than once to make the wanted ones."""
    uses: Counter[str] = Counter()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        uses[name] += 1
        if uses[name] == 1 and name in workspace.graph.views:
            waiting += [read for read in workspace.graph.views[name].reads if as_stored(read) is None]
    return frozenset(name for name, count in uses.items() if count > 1)
