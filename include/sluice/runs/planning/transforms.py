"""What `sluice check --plans` finds: do transforms keep what their decorators promise, and how far a change reaches.

Transforms are called with empty frames and their query plans are looked into. No data is read and nothing is written.

What of subjects, links and requests can be known to be wrong once the columns of tables are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.expansion.stored import resolve_temporary_views
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError, nearest_name_hint
from sluice.flows import stateful
from sluice.flows.bronze import append
from sluice.flows.gold.probe import find_input_reaches
from sluice.flows.silver import made
from sluice.flows.silver.provenance import carry_provenance
from sluice.flows.silver.winners import replace_negative_zeros
from sluice.flows.writing import enforced, targets
from sluice.lake import log, tables
from sluice.lake.workspace import PROVENANCE
from sluice.privacy import treatments
from sluice.privacy.anonymised import MARK
from sluice.quality import conditions, whole_table
from sluice.quality.verdicts import VERDICT, add_verdict_column
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class TransformFindings:
    """What was found.

    mistakes: one a line. bounds: view, input, and by column of the view the expression over the input; reach: the one declared in
    time; without both: full recompute.

    notes: what could not be looked at, and why.
    """

    mistakes: list[str] = field(default_factory=list)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def examine_transforms(session: SparkSession, settings: Settings, graph: Graph) -> TransformFindings:
    """Look into every transform of a pipeline, inputs first. What reads a table with a mistake is left out, with a note."""
    found = TransformFindings()
    schemas: dict[str, StructType] = {}
    for source in (one for one in graph.sources.values() if one.into is None):
        schema = _find_source_schema(session, settings, graph, source)
        if schema is None:
            found.notes.append(f"source '{source.name}': columns not known before the first delivery")
        else:
            schemas[source.name] = schema
    for declared in (*graph.tables.values(), *graph.streams.values(), *graph.views.values()):
        dataset = (declared.over(schemas) or declared) if isinstance(declared, MaterializedView) else declared
        missing = [name for name in dataset.reads if name not in schemas]
        if missing:
            found.notes.append(f"'{dataset.name}' was not looked into: the columns of '{missing[0]}' are not known")
            continue
        look = (
            _examine_table if isinstance(dataset, Table) else _examine_stream if isinstance(dataset, Windowed) else _examine_view
        )
        with _note_mistakes(found, _describe_owner(dataset)):
            schemas[dataset.name] = look(session, dataset, schemas, found)
    _examine_computed_views(session, graph, schemas, found)
    found.mistakes += _find_table_rule_mistakes(graph, schemas)
    found.mistakes += find_subject_column_mistakes(session, graph, schemas)
    found.mistakes = list(dict.fromkeys(found.mistakes))
    return found


def _find_source_schema(session: SparkSession, settings: Settings, graph: Graph, source: Source) -> StructType | None:
    """A source's columns: those of the lake, else the declared ones; None where there are neither."""
    path = settings.table_path(graph.pipeline.name, graph.layer(source), source.name)
    if log.is_delta_table(path):
        schema = tables.read_table(session, path).drop(MARK).schema
        return schema if delivered_columns(schema.names) else None
    if source.ddl is None:
        return None
    return StructType([*tables.parse_ddl_schema(source.ddl).fields, *tables.parse_ddl_schema(append.TECHNICAL).fields])


def _examine_table(
    session: SparkSession, table: Dataset[Any], schemas: Mapping[str, StructType], found: TransformFindings
) -> StructType:
    assert isinstance(table, Table)
    rows = replace_negative_zeros(carry_provenance(table(_create_empty_frame(session, schemas[table.reads[0]])), table.name))
    enforced.check_declared_schema(table, rows.schema)
    schema = made.order_provenance_last(
        made.prepare_rows_for_storage(None, table, add_verdict_column(rows, ())).drop(*VERDICT).schema
    )
    targets.check_declared_columns(table, schema)
    found.mistakes += conditions.find_condition_mistakes(session, table, rows.schema)
    return schema


def _examine_stream(
    session: SparkSession, stream: Dataset[Any], schemas: Mapping[str, StructType], found: TransformFindings
) -> StructType:
    assert isinstance(stream, Windowed)
    return stateful.preview_stream_schema(session, stream, schemas)


def _examine_view(
    session: SparkSession, view: Dataset[Any], schemas: Mapping[str, StructType], found: TransformFindings
) -> StructType:
    assert isinstance(view, MaterializedView)
    inputs = {name: _drop_provenance_columns(schemas[name]) for name in view.reads}
    rows = view(*(_create_empty_frame(session, inputs[name]) for name in view.reads))
    enforced.check_declared_schema(view, rows.schema)
    stored = treatments.apply_treatments(None, rows, view.treatments, f"View '{view.name}'").schema
    targets.check_declared_columns(view, stored)
    found.mistakes += conditions.find_condition_mistakes(session, view, rows.schema)
    for name, reach in find_input_reaches(session, view, inputs).items():
        declared = view.reach.get(name)
        in_time = vars(declared) if declared else None
        found.bounds.append({"view": view.name, "input": name, "columns": dict(reach.columns), "reach": in_time})
    return stored


def _examine_computed_views(
    session: SparkSession, graph: Graph, schemas: Mapping[str, StructType], found: TransformFindings
) -> None:
    """Call the views that are computed when they are read; those that they read come before them."""
    known = dict(schemas)
    for view in graph.computed.values():
        missing = [name for name in view.reads if name not in known]
        if missing:
            found.notes.append(f"@view '{view.name}' was not looked into: the columns of '{missing[0]}' are not known")
            continue
        with _note_mistakes(found, f"View '{view.name}'"):
            known[view.name] = view(
                *(_create_empty_frame(session, _drop_provenance_columns(known[name])) for name in view.reads)
            ).schema


def _find_table_rule_mistakes(graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    """What is wrong with expectations on whole tables whose columns are known."""
    for dataset in (*graph.tables.values(), *graph.views.values()):
        for rule in dataset.table_expectations if dataset.name in schemas else ():
            wrong = whole_table.find_table_rule_mistake(rule, schemas, dataset.name)
            if wrong:
                yield f"{_describe_owner(dataset)}, expectation '{rule.name}': {wrong}"


def _describe_owner(dataset: Dataset[Any]) -> str:
    """As declared: an `auto_cdc` is a table to whoever declared it, and so is what is kept for it."""
    view = isinstance(dataset, MaterializedView) and dataset.of_some is None
    if isinstance(dataset, Windowed):
        return f"Stream '{dataset.name}'"
    return f"{'View' if view else 'Table'} '{dataset.serves or dataset.name}'"


@contextmanager
def _note_mistakes(found: TransformFindings, owner: str) -> Iterator[None]:
    """Whatever is raised inside becomes a mistake, in one line."""
    try:
        yield
    except SluiceError as error:
        text = " ".join(str(error).splitlines())
        found.mistakes.append(text if text.startswith(owner) else f"{owner}: {text}")
    except PySparkException as error:
        found.mistakes.append(f"{owner}: {str(error).splitlines()[0]}")
    except Exception as error:
        found.mistakes.append(f"{owner}: its transform raised {type(error).__name__}: {error}")


def _create_empty_frame(session: SparkSession, schema: StructType) -> DataFrame:
    return session.createDataFrame([], schema)


def _drop_provenance_columns(schema: StructType) -> StructType:
    return StructType([one for one in schema if one.name not in PROVENANCE])


def find_subject_column_mistakes(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType]) -> list[str]:
    """All mistakes, one a text. schemas: of the tables whose columns are known, by name."""
    return [
        *_find_subject_expression_mistakes(session, graph, schemas),
        *_find_missing_link_columns(graph, schemas),
        *_find_request_source_mistakes(session, graph, schemas),
    ]


def _find_subject_expression_mistakes(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    for declared in graph:
        schema = schemas.get(declared.name)
        if schema is None:
            continue
        owner = f"{'source' if isinstance(declared, Source) else 'table'} '{declared.name}'"
        if isinstance(declared, Source) and declared.subject_in:
            try:
                _create_empty_frame(session, schema).select(F.expr(declared.subject_in).cast("string"))
            except AnalysisException as error:
                yield f"{owner}: subject_in cannot be read: {_first_error_line(error)}"
        if declared.subject_at is None:
            continue
        try:
            kind = _create_empty_frame(session, schema).select(F.expr(declared.subject_at)).schema[0].dataType.typeName()
        except AnalysisException as error:
            yield f"{owner}: subject_at cannot be read: {_first_error_line(error)}"
            continue
        if kind not in ("timestamp", "timestamp_ntz", "date", "void"):
            yield f"{owner}: subject_at gives {kind.upper()}; of what time a row tells is a TIMESTAMP, as in subject_at='timestamp_seconds(time)'."


def _find_missing_link_columns(graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    for link in graph.links:
        if link.table in schemas:
            wanted = (link.person[0], link.identifier[0], *((link.since,) if link.since else ()))
            yield from _find_missing_columns(link.owner, wanted, schemas[link.table].names)


def _find_request_source_mistakes(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    for asking in graph.asking:
        name, passed = resolve_temporary_views(graph.unstored, asking.reads)
        if name not in schemas:
            continue
        try:
            rows = _create_empty_frame(session, schemas[name])
            for view in passed:
                rows = view(rows)
            yield from _find_missing_columns(asking.owner, (asking.identifier[0],), rows.where(asking.where).columns)
        except AnalysisException as error:
            yield f"{asking.owner}: its condition cannot be read: {_first_error_line(error)}"


def _find_missing_columns(owner: str, wanted: Iterable[str], names: list[str]) -> Iterator[str]:
    for name in wanted:
        if name not in names:
            yield f"{owner}: it has no column '{name}'.{nearest_name_hint(name, names)}"


def _first_error_line(error: AnalysisException) -> str:
    return str(error).splitlines()[0]
