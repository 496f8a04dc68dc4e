"""Where everything lies that a pipeline or an autoload_to_table call reads and writes, and whether the logs of a stage's tables are whole."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.datasets.dataset import AnyDataset, Dataset
from sluice.declare.ingest.source import Source
from sluice.delta_log import LOG, check_table_logs
from sluice.locations import Location, locate
from sluice.own_records import OWN_TABLES, OwnRecord, name_own_record
from sluice.pipeline_records import PipelineRecords, name_quarantine
from sluice.settings import Settings


class FlowPaths(Protocol):
    """The paths that flows ask for: of Delta tables as text, of other things as Location."""

    @property
    def landing(self) -> Location:
        """The folder that holds the sources' folders, each at its `path`."""

    def path(self, name: str) -> str:
        """Returns where a declared table lies."""

    def quarantine(self, name: str) -> str:
        """Returns where the rows lie that a table's flow did not accept."""

    def checkpoints(self, flow: str) -> str:
        """Returns the folder of a flow's checkpoints."""

    def bookkeeping(self, name: str) -> str:
        """Returns where one of Sluice's own records lies: deliveries, outcomes and so on."""

    def stop_request(self, run: str) -> Location:
        """Returns the file whose presence asks a run to stop before its next batch."""


def locate_streamed_tables(paths: FlowPaths, declared: Source | Dataset[Any]) -> dict[str, str]:
    """Returns the paths of the tables that a declaration's flow streams, by their names in its checkpoint."""
    inputs = {name: paths.path(name) for name in declared.streamed_reads}
    return inputs | {name: paths.bookkeeping(record) for name, record in declared.streamed_records.items()}


@dataclass(frozen=True)
class PipelineLake:
    """One pipeline's lake: what is declared, and where it lies by these settings. Made where a job or command has loaded the declarations."""

    settings: Settings
    graph: Graph

    @cached_property
    def records(self) -> PipelineRecords:
        """The locations of everything that is recorded of the pipeline."""
        return PipelineRecords(self.settings, self.graph.pipeline.name)

    @property
    def landing(self) -> Location:
        """As the records say."""
        return self.records.landing

    def path(self, name: str) -> str:
        """The path of a declaration's table: in its layer, below the restricted root, or among the pipeline's own records."""
        declared = self.graph[name]
        if declared.record_path is not None:
            return self.records.bookkeeping(declared.record_path, restricted=declared.restricted)
        layer, table = self.graph.layer(declared), self.graph.table_of(name)
        return self.records.table_path(layer, table, restricted=declared.restricted)

    def quarantine(self, name: str) -> str:
        """As the records say; of a restricted table below the restricted root, too."""
        return self.records.quarantine(name, restricted=self.graph[name].restricted)

    def late(self, name: str) -> str:
        """The path of a stream's late table: beside its own; restricted if that table or one of its inputs is."""
        stream = self.graph.streams[name]
        restricted = any(self.graph[one].restricted for one in (name, *stream.reads))
        return self.records.table_path(self.graph.layer(stream), stream.late, restricted=restricted)

    def checkpoints(self, flow: str) -> str:
        """As the records say."""
        return self.records.checkpoints(flow)

    def bookkeeping(self, name: str) -> str:
        """As the records say."""
        return self.records.bookkeeping(name)

    def stop_request(self, run: str) -> Location:
        """As the records say."""
        return self.records.stop_request(run)

    def record_tables(self) -> dict[str, str]:
        """Returns every table that may hold records, by its SQL name: declared tables, quarantines, and late tables of streams."""
        return {name: path for item in self.graph for name, path in self._tables_written_for(item).items()}

    def stage_tables(self, stage: str = "") -> dict[str, str]:
        """Returns, by name, the tables that a stage reads or writes, Sluice's own among them; all tables if the stage is no layer."""
        written = self.graph.in_layer(stage)
        if not written:
            return locate_bookkeeping_tables(self.records) | self.record_tables()
        found = locate_bookkeeping_tables(self.records)
        for name in dict.fromkeys(name for item in written for name in item.reads):
            found |= self._tables_read_as(self.graph[name])
        for item in written:
            found |= self._tables_written_for(item)
        return found

    def _tables_read_as(self, item: Source | AnyDataset) -> dict[str, str]:
        late = {item.late: self.late(item.name)} if item.late and item.may_be_late else {}
        return {self.graph.table_of(item.name): self.path(item.name), **late}

    def _tables_written_for(self, item: Source | AnyDataset) -> dict[str, str]:
        aside = {name_quarantine(item.name): self.quarantine(item.name)} if item.kind.sets_rows_aside else {}
        return {**self._tables_read_as(item), **aside}


def load_pipeline_lake(settings: Settings, pipeline: str) -> PipelineLake:
    """Loads a pipeline's declarations, and returns its lake. Raises what `load_declaration_graph` does."""
    return PipelineLake(settings, load_declaration_graph(settings, pipeline))


def list_own_tables(paths: FlowPaths, tables: Iterable[OwnRecord] = OWN_TABLES) -> dict[str, str]:
    """Returns the paths of tables of Sluice's own records, whether they exist or not, by their names in reports: all, or these."""
    return {name_own_record(one): paths.bookkeeping(one.name) for one in tables}


def check_stage_logs(lake: PipelineLake, stage: str) -> None:
    """Raises DamagedLog, with the table and the remedy, if the log of a table that the stage reads or writes is damaged."""
    check_table_logs(lake.stage_tables(stage), lake.graph.pipeline.name)


def locate_bookkeeping_tables(records: PipelineRecords) -> dict[str, str]:
    """Returns, by name, those tables that exist in which Sluice keeps its records of a pipeline."""
    found: dict[str, str] = {}
    for restricted in (False, True):
        folder = locate(records.bookkeeping(restricted=restricted))
        logs = sorted([*folder.glob(f"*/{LOG}"), *folder.glob(f"*/*/{LOG}")])
        found |= {str(log.parent.relative_to(folder)): str(log.parent) for log in logs}
    return found
