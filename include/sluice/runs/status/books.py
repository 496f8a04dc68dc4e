"""A pipeline's ledgers and the locations of its tables, read once for all reports. Needs no JVM.

It also finds fields of records that could be columns and are not: those that the ledger names, except those that are columns by now.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from sluice import delta_log
from sluice.declare.assembly.kept_fields import columns_named_in_schema, suggest_kept_fields
from sluice.declare.datasets.dataset import AnyDataset
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.ingest.deliveries.known_files import KnownFiles, read_known_files, select_deliveries_in_interval
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake, locate_streamed_tables
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row


class PipelineBooks(PipelineLake):
    """A pipeline's lake with what is recorded about it. Each part is read when it is first needed, and then kept."""

    @cached_property
    def deliveries(self) -> list[Row]:
        """The delivery ledger, oldest first, with the state of each delivery."""
        replacing = frozenset(source.name for source in self.graph.sources.values() if source.replaces_files)
        return run_ledger.read_delivery_ledger(self.records, replacing=replacing)

    @cached_property
    def runs(self) -> list[Row]:
        """The run ledger, newest last."""
        return run_ledger.read_run_ledger(self.records)

    @cached_property
    def known(self) -> KnownFiles:
        """What is known of each file of the landing folders."""
        return read_known_files(self.records.delivery_ledger, self.records.outcome_ledger)

    def streamed_tables(self, declared: Source | AnyDataset) -> dict[str, str]:
        """The tables that a declaration's flow streams, as `locate_streamed_tables` returns them."""
        return locate_streamed_tables(self, declared)

    def flow_checkpoints(self, declared: Source | AnyDataset) -> tuple[str, str]:
        """Returns the name of a table's flow in checkpoints and commits, and the folder of its checkpoints."""
        name = self.graph.flow_name(declared)
        return name, self.records.checkpoints(name)

    def of_source(self, name: str, *states: str) -> list[Row]:
        """Returns a source's deliveries in these states."""
        return [row for row in self.deliveries if row["source"] == name and row["state"] in states]

    def feeding(self, name: str, *states: str) -> list[Row]:
        """Returns the deliveries in these states of all sources that feed a bronze table."""
        return [row for source in self.graph.feeding(name) for row in self.of_source(source.name, *states)]

    def of_interval(self, source: Source, interval: Interval) -> list[Row]:
        """Returns a source's deliveries of an interval, as `select_deliveries_in_interval` does."""
        return select_deliveries_in_interval(source, self.deliveries, interval)

    def select_unchanged(self, source: Source, rows: list[Row]) -> list[Row]:
        """Returns those of a source's deliveries that can be read as they were discovered. Raises UnreachableBroker."""
        unchanged = source.kind.find_unchanged(source, self.records.landing, rows)
        return [row for row in rows if row["delivery"] in unchanged]

    def warnings(self, source: Source) -> list[str]:
        """Returns warnings about records of a source that will soon be lost. Raises UnreachableBroker."""
        return source.kind.find_warnings(source, self.records.delivery_ledger, self.records.outcome_ledger)


def find_rescued_fields(books: PipelineBooks) -> Iterator[dict[str, Any]]:
    """Returns, for each source that has some, its name, the rescued fields with their types, and what in the declaration keeps them out."""
    for source in books.graph.sources.values():
        path = books.path(source.name)
        kept = {
            name.lower()
            for name in (
                *columns_named_in_schema(source),
                *(log.read_column_names(path) if delta_log.is_delta_table(path) else ()),
            )
        }
        told = [row["held_back"].items() for row in books.deliveries if row["source"] == source.name and row["held_back"]]
        fields = {name: kind for items in told for name, kind in items if name.lower() not in kept}
        if fields:
            yield {"source": source.name, "fields": fields, "keep": "; ".join(suggest_kept_fields(source, fields))}
