"""The checks of `sluice check --plans`: whether transforms do what their decorators promise, and how far a change reaches.

It calls transforms with empty frames and examines their query plans. It reads no data and writes nothing. Once the columns of tables are
known, it also checks subjects, links and requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.declare.cdc.change_log import find_unknown_left_out_columns, is_change_log
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.erasure.unreachable_places import find_unknown_target_columns
from sluice.declare.expansion import resolve_temporary_views
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.declare.sql.schema import split_schema_declaration
from sluice.errors import SluiceError, nearest_name_hint
from sluice.flows import stateful
from sluice.flows.bronze.table_shape import TECHNICAL
from sluice.flows.gold.probe import find_input_reaches
from sluice.flows.gold.view_batch import check_view_columns
from sluice.flows.silver import judged_rows
from sluice.lake import table_creation, table_frames
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import PROVENANCE
from sluice.privacy.anonymised import MARK
from sluice.quality import verdicts, whole_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class TransformFindings:
    """What was found.

    mistakes: one a line. bounds: view, input, and by column of the view the expression over the input; joined: columns whose values a join
    with the other inputs finds; reach: the declared one in time; without all three, a change recomputes in full or, if refused, fails.

    notes: what could not be examined, and why.
    """

    mistakes: list[str] = field(default_factory=list)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def examine_transforms(session: SparkSession, lake: PipelineLake) -> TransformFindings:
    """Examine every transform of a pipeline, inputs first. Readers of a table with a mistake are left out, with a note."""
    examination = Examination(session, lake)
    found, schemas = examination.found, examination.schemas
    for declared in lake.graph:
        if lake.graph.table_of(declared.name) == declared.name:
            _examine_declaration(examination, declared)
    # Computed views come last, and in schemas of their own: nothing that is stored refers to their columns.
    of_views = replace(examination, schemas=dict(schemas))
    for view in lake.graph.computed.values():
        _examine_declaration(of_views, view)
    found.mistakes += _find_target_column_mistakes(examination)
    found.mistakes += _find_table_rule_mistakes(lake.graph, schemas)
    found.mistakes += find_subject_column_mistakes(session, lake.graph, schemas)
    found.mistakes = list(dict.fromkeys(found.mistakes))
    return found


@dataclass(frozen=True)
class Examination:
    """One examination of a pipeline's transforms. schemas: the columns that are known so far. feeds: by change log, those of its feed."""

    session: SparkSession
    lake: PipelineLake
    schemas: dict[str, StructType] = field(default_factory=dict)
    feeds: dict[str, list[str]] = field(default_factory=dict)
    found: TransformFindings = field(default_factory=TransformFindings)

    def make_empty_input(self, name: str) -> DataFrame:
        """A frame without rows, with all columns that are stored."""
        return _create_empty_frame(self.session, self.schemas[name])

    def make_empty_view_input(self, name: str) -> DataFrame:
        """A frame without rows, with the columns that a view sees: none of provenance."""
        return _create_empty_frame(self.session, self.view_input_schema(name))

    def view_input_schema(self, name: str) -> StructType:
        """The columns that a view sees of an input."""
        return StructType([one for one in self.schemas[name] if one.name not in PROVENANCE])


def _examine_declaration(examination: Examination, declared: Source | Dataset[Any] | View[Any]) -> None:
    """Examine one declaration by its kind's function, unless an input is unknown."""
    item = declared.over(examination.schemas) or declared
    called = item.mention if item.name in examination.lake.graph.computed else f"'{item.name}'"
    for name in item.reads:
        if name not in examination.schemas:
            examination.found.notes.append(f"{called} was not looked into: the columns of '{name}' are not known")
            return
    examine = item.kind.examine_declaration
    if examine is None:
        raise item.kind.lacking_function_error("examine_declaration")
    with _note_mistakes(examination.found, _describe_owner(item)):
        schema = examine(examination, item)
        if schema is not None:
            examination.schemas[item.name] = schema


def find_source_schema(examination: Examination, source: Source) -> StructType | None:
    """A source's columns: those in the lake, else the declared ones; None, with a note, if there are neither."""
    path = examination.lake.path(source.name)
    if delta_log.is_delta_table(path):
        schema = table_frames.read_table(examination.session, path).drop(MARK).schema
        if delivered_columns(schema.names):
            return schema
    elif source.ddl is not None:
        return StructType([
            *table_creation.parse_ddl_schema(source.ddl).fields,
            *table_creation.parse_ddl_schema(TECHNICAL).fields,
        ])
    examination.found.notes.append(f"source '{source.name}': columns not known before the first delivery")
    return None


def examine_table(examination: Examination, table: Table[Any]) -> StructType:
    """The columns of a table, by its recipe over a frame without rows."""
    rows = judged_rows.transform_source_rows(table, examination.make_empty_input(table.reads[0]))
    if is_change_log(table):
        examination.feeds[table.name] = rows.columns
    schema = judged_rows.check_table_columns(table, rows)
    examination.found.mistakes += verdicts.find_condition_mistakes(examination.session, table, rows.schema)
    return schema


def examine_stream(examination: Examination, stream: Windowed[Any]) -> StructType:
    """The columns of a stream's table."""
    return stateful.preview_stream_schema(examination.session, stream, examination.schemas)


def examine_view(examination: Examination, view: MaterializedView[Any]) -> StructType:
    """The columns of a view, and how far a change of each input reaches."""
    rows = view(*map(examination.make_empty_view_input, view.reads))
    stored = check_view_columns(view, rows)
    examination.found.mistakes += verdicts.find_condition_mistakes(examination.session, view, rows.schema)
    inputs = {name: examination.view_input_schema(name) for name in view.reads}
    for name, reach in find_input_reaches(examination.session, view, inputs).items():
        declared = view.reach.get(name)
        in_time = vars(declared) if declared else None
        refused = view.recompute_rule.bounded_only and not (reach.bounding or in_time)
        joined = list(reach.joined.columns) if reach.joined else []
        bound = {
            "view": view.name,
            "input": name,
            "columns": dict(reach.columns),
            "joined": joined,
            "reach": in_time,
            "refused": refused,
        }
        examination.found.bounds.append(bound)
    return stored


def examine_computed_view(examination: Examination, view: View[Any]) -> StructType:
    """The columns that a view has for its readers."""
    return view(*map(examination.make_empty_view_input, view.reads)).schema


def _find_target_column_mistakes(examination: Examination) -> Iterator[str]:
    every = [table for table in examination.lake.graph.tables.values() if is_change_log(table)]
    declared = {log.name: [*examination.feeds[log.name], *names] for log, names in _list_declared_feeds(examination, every)}
    for target in dict.fromkeys(log.serves for log in every):
        logs = [log for log in every if log.serves == target]
        yield from find_unknown_left_out_columns(logs, examination.feeds)
        yield from find_unknown_target_columns(logs, declared)


def _list_declared_feeds(examination: Examination, logs: Iterable[Table[Any]]) -> Iterator[tuple[Table[Any], tuple[str, ...]]]:
    """The logs of sources with a declared schema, and its columns: the lake may not have all of them yet."""
    for log in logs:
        ddl = examination.lake.graph.sources[log.folded_source].ddl
        if ddl is not None and log.name in examination.feeds:
            yield log, split_schema_declaration(ddl, f"Source '{log.folded_source}'").columns


def _find_table_rule_mistakes(graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    """Yields what is wrong with expectations on whole tables whose columns are known."""
    for dataset in graph.datasets.values():
        for rule in dataset.table_expectations if dataset.name in schemas else ():
            wrong = whole_table.find_table_rule_mistake(rule, schemas, dataset.name)
            if wrong:
                yield f"{_describe_owner(dataset)}, expectation '{rule.name}': {wrong}"


def _describe_owner(declared: Source | Dataset[Any] | View[Any]) -> str:
    """The name as declared: an `auto_cdc` is a table to its author, and so are the tables kept for it."""
    return f"{'Table' if declared.of_some else declared.kind.label} '{declared.serves or declared.name}'"


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
        owner = f"{declared.kind.noun} '{declared.name}'"
        if declared.subject_in:
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
            yield f"{owner}: subject_at has the type {kind.upper()} and must be a TIMESTAMP, as in subject_at='timestamp_seconds(time)'."


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
