"""What is wrong with declarations only beside each other: names that are declared twice, and layouts that the pipeline or a reader does not allow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.expansion.stored import Declared
from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.source import Source
from sluice.declare.layout import Layout
from sluice.declare.pipeline import Pipeline, parse_duration
from sluice.declare.sql.schema import split_schema_declaration
from sluice.errors import nearest_name_hint
from sluice.pipeline_records import name_quarantine


def find_duplicate_names(declared: Sequence[Declared]) -> Iterator[str]:
    """Yields the mistake of each name that is declared twice."""
    seen: dict[str, Declared] = {}
    for item in declared:
        first = seen.setdefault(item.name, item)
        if first is not item and (same := first.serves or item.serves):
            yield f"'{item.name}' is the name of a table that '{same}' keeps for itself; give the other declaration another name."
        elif first is not item:
            places = "; ".join(one.declared_at for one in (first, item) if one.declared_at)
            yield (
                f"two declarations are named '{item.name}'{f' ({places})' if places else ''}. The names of all layers are one set: "
                "give one of them another name."
            )


def find_names_of_kept_tables(declared: Iterable[Declared], pipeline: str) -> Iterator[str]:
    """Yields the mistake of each declaration that has the name of a stream's late rows or of a quarantine."""
    by_name = {item.name: item for item in declared}
    yield from _find_names_of_late_tables(by_name)
    for item in by_name.values():
        if item.kind.sets_rows_aside and name_quarantine(item.name) in by_name:
            yield (
                f"'{name_quarantine(item.name)}' is the table in which Sluice keeps the rows that {item.mention} sets aside; give the other "
                f"declaration another name. To read those rows: sluice quarantine show {pipeline} {item.name}"
            )


def _find_names_of_late_tables(by_name: Mapping[str, Declared]) -> Iterator[str]:
    for stream in by_name.values():
        if stream.late in by_name:
            yield f"'{stream.late}' is the table in which '{stream.name}' keeps late rows; give the other declaration another name."


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
