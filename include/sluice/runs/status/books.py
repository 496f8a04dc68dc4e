"""A pipeline's ledgers and the places of its tables, read once for everything that is told of them.

Fields of a source's records that could be columns and are not: what the ledger names, without what is kept by now. Read without a JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice import file_events
from sluice.declare.assembly.graph import AnyDataset, Graph
from sluice.declare.assembly.kept_fields import columns_named_in_schema, suggest_kept_fields
from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.ingest.deliveries import dates, listing
from sluice.ingest.deliveries.known import KnownFiles, read_known_files
from sluice.ingest.deliveries.listing import resolve_landed_path
from sluice.ingest.topics.offset_ranges import Partition, parse_offset_range
from sluice.lake import log
from sluice.runs import ledger
from sluice.runs.ledger import Row
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.ingest.topics.broker import KeptOffsets


@dataclass(frozen=True)
class PipelineBooks:
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
        return ledger.read_delivery_ledger(self.settings, self.pipeline, replacing=replacing)

    @cached_property
    def runs(self) -> list[Row]:
        """The run ledger, newest last."""
        return ledger.read_run_ledger(self.settings, self.pipeline)

    @cached_property
    def known(self) -> KnownFiles:
        """What is known of each file of the landing folders."""
        return read_known_files(self.bookkeeping("deliveries"), self.bookkeeping("outcomes"))

    @property
    def landing(self) -> Path:
        """The pipeline's landing folder."""
        return Path(self.settings.landing) / self.pipeline

    def path(self, name: str) -> str:
        """Where a declared table lies."""
        return self.graph.location(self.settings, name)

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

    def feeding(self, name: str, *states: str) -> list[Row]:
        """The deliveries in these states of all sources that feed a bronze table."""
        return [row for source in self.graph.feeding(name) for row in self.of_source(source.name, *states)]

    def of_interval(self, source: Source, interval: Interval) -> list[Row]:
        """A source's deliveries of an interval: by the date in the file's path where the source declares one, else by delivery time."""
        ours = [row for row in self.deliveries if row["source"] == source.name and row["event"] == file_events.DELIVERED]
        return [
            row
            for row in ours
            if row["modified_at"] and dates.find_delivery_date(source, row["file"], row["modified_at"]) in interval
        ]

    def as_it_was(self, source: Source, row: Row) -> bool:
        """Whether a delivery's file is still the one that was discovered, or the broker still has its offsets. Raises Unreachable."""
        if isinstance(source, KafkaSource):
            kept, one = self._kept(source), parse_offset_range(row["file"])
            mine = kept.get((one.topic, one.partition))
            return mine is not None and mine.has(one.start, one.until, row["sha256"])
        try:
            return listing.read_file_size_and_time(resolve_landed_path(self.landing / source.path, row["file"])) == (
                row["size"],
                row["modified_at"],
            )
        except OSError:
            return False

    def warnings(self, source: Source) -> tuple[str, ...]:
        """What is to be seen to before records of a source are lost. Raises Unreachable."""
        if not isinstance(source, KafkaSource):
            return ()
        from sluice.ingest.topics import offsets  # its client is loaded only where topics are read

        return tuple(offsets.find_retention_warnings(source, self.bookkeeping("deliveries"), self.bookkeeping("outcomes")))

    def _kept(self, source: KafkaSource) -> Mapping[Partition, KeptOffsets]:
        """What the broker has now, asked once."""
        if source.name not in self._brokers:
            from sluice.ingest.topics.broker import Broker  # the client, as above

            self._brokers[source.name] = Broker(source).kept()
        return self._brokers[source.name]

    @cached_property
    def _brokers(self) -> dict[str, dict[Partition, KeptOffsets]]:
        return {}


def find_rescued_fields(books: PipelineBooks) -> Iterator[dict[str, Any]]:
    """Of each source that has some: its name, the fields with their types, and what of the declaration keeps them."""
    for source in books.graph.sources.values():
        path = books.path(source.name)
        kept = {
            name.lower()
            for name in (*columns_named_in_schema(source), *(log.read_column_names(path) if log.is_delta_table(path) else ()))
        }
        told = [row["held_back"].items() for row in books.deliveries if row["source"] == source.name and row["held_back"]]
        fields = {name: kind for items in told for name, kind in items if name.lower() not in kept}
        if fields:
            yield {"source": source.name, "fields": fields, "keep": "; ".join(suggest_kept_fields(source, fields))}
