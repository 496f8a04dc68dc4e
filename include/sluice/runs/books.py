"""A pipeline's ledgers and the places of its tables, read once for everything that is told of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sluice.declare.graph import AnyDataset, Graph
from sluice.declare.interval import Interval
from sluice.declare.source import Source
from sluice.ingest import dates, discovery
from sluice.runs import ledger
from sluice.runs.ledger import Row
from sluice.settings import Settings


@dataclass(frozen=True)
class Books:
    """What is written down about a pipeline. Read when first asked for, and then kept."""

    settings: Settings
    graph: Graph

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self.graph.pipeline.name

    @cached_property
    def deliveries(self) -> list[Row]:
        """The delivery ledger, oldest first, with the state of each delivery."""
        replacing = frozenset(source.name for source in self.graph.sources.values() if source.redelivery == "replace")
        return ledger.deliveries(self.settings, self.pipeline, replacing=replacing)

    @cached_property
    def runs(self) -> list[Row]:
        """The run ledger, newest last."""
        return ledger.runs(self.settings, self.pipeline)

    @cached_property
    def known(self) -> discovery.Known:
        """What is known of each file of the landing folders."""
        return discovery.latest(self.bookkeeping("deliveries"))

    @property
    def landing(self) -> Path:
        """The pipeline's landing folder."""
        return Path(self.settings.landing) / self.pipeline

    def path(self, name: str) -> str:
        """Where a declared table lies."""
        return self.settings.table_path(self.pipeline, self.graph.layer(self.graph[name]), name)

    def bookkeeping(self, name: str) -> str:
        """Where one of the pipeline's own tables lies."""
        return self.settings.bookkeeping(self.pipeline, name)

    def checkpoints(self, declared: Source | AnyDataset) -> tuple[str, str]:
        """A table's flow as its checkpoint and its commits call it, and the folder of its checkpoints."""
        name = f"bronze_{declared.name}" if isinstance(declared, Source) else f"{self.graph.layer(declared)}_{declared.name}"
        return name, self.settings.checkpoints(self.pipeline, name)

    def of_source(self, name: str, *states: str) -> list[Row]:
        """A source's deliveries in these states."""
        return [row for row in self.deliveries if row["source"] == name and row["state"] in states]

    def of_interval(self, source: Source, interval: Interval) -> list[Row]:
        """A source's deliveries of an interval: by the date in the file's path where the source declares one, else by delivery time."""
        ours = [row for row in self.deliveries if row["source"] == source.name and row["event"] == discovery.DELIVERED]
        return [row for row in ours if row["modified_at"] and dates.of_file(source, row["file"], row["modified_at"]) in interval]

    def as_it_was(self, source: Source, row: Row) -> bool:
        """Whether a delivery's file is still the one that was discovered."""
        try:
            return discovery.modified(self.landing / source.path / row["file"]) == (row["size"], row["modified_at"])
        except OSError:
            return False
