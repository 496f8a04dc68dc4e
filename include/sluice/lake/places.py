"""Where everything lies that a pipeline, or a call of autoload_to_table, reads and writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.source import Source
from sluice.pipeline_records import PipelineRecords


class Places(Protocol):
    """The places that flows ask for: paths of Delta tables as text, of other things as Path."""

    @property
    def landing(self) -> Path:
        """The folder that holds the sources' own, each at its `path`."""

    def table(self, name: str) -> str:
        """Where a declared table lies."""

    def quarantine(self, name: str) -> str:
        """Where the rows lie that a table's flow did not accept."""

    def checkpoints(self, flow: str) -> str:
        """The folder of a flow's checkpoints."""

    def bookkeeping(self, name: str) -> str:
        """Where one of Sluice's own records lies: deliveries, outcomes and so on."""

    def stop_request(self, run: str) -> Path:
        """The file whose presence asks a run to stop before its next batch."""


def locate_streamed_tables(places: Places, declared: Source | Dataset[Any]) -> dict[str, str]:
    """Where the tables lie whose rows or changes a declaration's flow streams, by the names that its checkpoint has for them."""
    inputs = {name: places.table(name) for name in declared.streamed_reads}
    return inputs | {name: places.bookkeeping(record) for name, record in declared.streamed_records.items()}


@dataclass(frozen=True)
class PipelinePlaces:
    """A pipeline's places: those of its tables by their declarations, all others as its records say."""

    records: PipelineRecords
    graph: Graph

    @property
    def landing(self) -> Path:
        """As the records say."""
        return self.records.landing

    def table(self, name: str) -> str:
        """As the declaration says."""
        return self.graph.location(self.records.settings, name)

    def quarantine(self, name: str) -> str:
        """As the records say; of a restricted table below the restricted root, too."""
        return self.records.quarantine(name, restricted=self.graph[name].restricted)

    def checkpoints(self, flow: str) -> str:
        """As the records say."""
        return self.records.checkpoints(flow)

    def bookkeeping(self, name: str) -> str:
        """As the records say."""
        return self.records.bookkeeping(name)

    def stop_request(self, run: str) -> Path:
        """As the records say."""
        return self.records.stop_request(run)
