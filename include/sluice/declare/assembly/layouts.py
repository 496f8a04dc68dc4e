"""Checks declared layouts against the pipeline: its own retention, and what reads a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.layout import Layout
from sluice.declare.pipeline import Pipeline, parse_duration
from sluice.declare.sql.schema import split_schema_declaration
from sluice.errors import nearest_name_hint

DeclaredByName = Mapping[str, Source | Dataset[Any]]


def find_layout_mistakes(pipeline: Pipeline, declared: DeclaredByName) -> Iterator[str]:
    """Yields what is wrong with declared layouts, as sentences. declared: the stored declarations by name."""
    for name, item in declared.items():
        if item.layout is not None:
            readers = sorted(one.name for one in declared.values() if name in one.streamed_reads)
            yield from (f"{item.mention}: {mistake}" for mistake in _find_mistakes(pipeline, item, item.layout, readers))


def _find_mistakes(pipeline: Pipeline, item: Source | Dataset[Any], layout: Layout, readers: list[str]) -> Iterator[str]:
    if isinstance(item, Source):
        yield from _find_source_mistakes(item, layout)
    if not layout.change_feed and readers:
        yield f"layout.change_feed is False, but '{readers[0]}' follows the table's changes by its feed. Leave it out, or let nothing read the table."
    retain = layout.retain or pipeline.retain
    if layout.retain and pipeline.deadline and parse_duration(layout.retain) < parse_duration(pipeline.deadline):
        yield (
            f"layout.retain ('{layout.retain}') is shorter than the deadline= of the pipeline ('{pipeline.deadline}'): until its end, a run "
            f"reads the version that a table had at its start."
        )
    if layout.keep_log and not layout.retain and parse_duration(layout.keep_log) < parse_duration(retain):
        yield (
            f"layout.keep_log ('{layout.keep_log}') is shorter than the retain= of the pipeline ('{retain}'); a log says which files are kept."
        )
    waits = pipeline.vacuum_waits
    if layout.keep_log and waits and readers and parse_duration(layout.keep_log) < parse_duration(waits):
        yield (
            f"layout.keep_log ('{layout.keep_log}') is shorter than the vacuum_waits= of the pipeline ('{waits}'): '{readers[0]}' may be "
            f"that far behind, and continues from the log."
        )


def _find_source_mistakes(source: Source, layout: Layout) -> Iterator[str]:
    if source.into:
        yield f"layout belongs to a table, and the records go into '{source.into}'. Declare it there."
    columns = split_schema_declaration(source.ddl, f"Source '{source.name}'").columns if source.ddl else ()
    for name in layout.statistics_columns:
        if is_reserved_column(name):
            yield f"layout.statistics names '{name}', which Sluice, Delta or Spark uses itself. Leave it out."
        elif columns and name not in columns:
            yield f"layout.statistics names '{name}', no column of its schema=.{nearest_name_hint(name, columns)}"
