"""One run's view of one pipeline's lake: its session, where each table lies, how the run marks its commits, and keys of rows that it merged.

A flow that follows a table takes these keys from here, so that it need not ask the change feed for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.lake import commit_marks
from sluice.lake.pipeline_lake import FlowPaths, PipelineLake, locate_streamed_tables
from sluice.locations import Location, locate
from sluice.own_records import DELIVERIES, OUTCOMES, SCHEMAS, STAGING, SUPPRESSION
from sluice.pipeline_records import PipelineRecords
from sluice.run_modes import INCREMENT
from sluice.settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MOST_KEYS = 10_000
"""How many keys are handed on at most, in the memory of the driver's Python. With more, the change feed costs little beside the work."""
PROVENANCE = ("_delivery", "_row")
"""The columns that say where a row of bronze or silver came from: the delivery's number, and the row's number in it."""


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


@dataclass(frozen=True)
class Workspace:
    """What one run knows about the lake.

    session: the session to read and write with. Inside foreachBatch that is the batch's own: use `within`. interval: what a run in mode replay
    takes again; None in every other mode. elsewhere: the paths of tables that belong to no pipeline. follows_deletion: whether people's rows
    were removed and every flow must follow, even if it would refuse otherwise. merged_keys: what this run's flows have changed in change logs,
    for the flows that follow them.
    """

    settings: Settings
    graph: Graph
    session: SparkSession
    run: str
    mode: str = INCREMENT.name
    interval: Interval | None = None
    elsewhere: FlowPaths | None = None
    follows_deletion: bool = False
    merged_keys: MergedKeysByTable = field(default_factory=MergedKeysByTable, compare=False)

    @property
    def paths(self) -> FlowPaths:
        """The paths of everything that the run reads and writes."""
        return self.elsewhere or self.lake

    @cached_property
    def lake(self) -> PipelineLake:
        """The pipeline's lake, for what needs no session."""
        return PipelineLake(self.settings, self.graph)

    @property
    def records(self) -> PipelineRecords:
        """The pipeline's records."""
        return self.lake.records

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.graph.pipeline.name

    def within(self, session: SparkSession) -> Workspace:
        """Returns the same workspace in another session: that of a micro-batch."""
        return replace(self, session=session)

    def as_increment(self) -> Workspace:
        """Returns the same workspace for a flow that takes what is new, whatever the run's mode is."""
        return replace(self, mode=INCREMENT.name, interval=None)

    def mark_next_commits(self, flow: str, deliveries: Sequence[int] = (), inputs: Mapping[str, int] | None = None) -> None:
        """Marks all further commits of this session as this run's. inputs: by name, the versions that a view is made from."""
        commit_marks.mark_session_commits(self.session, self.run, self.mode, flow, deliveries, inputs)

    @property
    def staging(self) -> Location:
        """The folder for records that are read and not written yet, if executors share no other folder."""
        return locate(self.paths.bookkeeping(STAGING.name))

    def path(self, name: str) -> str:
        """Returns where a declared table lies. For a source whose records go into another source's table, that table's path."""
        return self.paths.path(name)

    def quarantine(self, name: str) -> str:
        """Returns where the rows lie that a table's flow did not accept."""
        return self.paths.quarantine(name)

    def late(self, name: str) -> str:
        """Returns where the rows lie that came too late for a stream."""
        return self.lake.late(name)

    def checkpoints(self, flow: str) -> str:
        """Returns the folder of a flow's checkpoints."""
        return self.paths.checkpoints(flow)

    def schemas(self, table: str) -> str:
        """Returns the folder of a bronze table's schema log."""
        return self.paths.bookkeeping(f"{SCHEMAS.name}/{table}")

    @property
    def landing(self) -> Location:
        """The folder that holds the sources' landing folders."""
        return self.paths.landing

    def streamed_tables(self, declared: Source | Dataset[Any]) -> dict[str, str]:
        """Returns what a declaration's flow streams, as `locate_streamed_tables` does."""
        return locate_streamed_tables(self.paths, declared)

    @property
    def deliveries(self) -> str:
        """The table of deliveries: which file came when. Append-only; bronze flows stream it."""
        return self.paths.bookkeeping(DELIVERIES.name)

    @property
    def outcomes(self) -> str:
        """The table of outcomes: what became of each delivery. Append-only; silver flows stream it."""
        return self.paths.bookkeeping(OUTCOMES.name)

    @property
    def suppression(self) -> str:
        """The table of people who were erased, as keyed hashes."""
        return self.paths.bookkeeping(SUPPRESSION.name)
