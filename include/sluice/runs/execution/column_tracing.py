"""Keeps the record of where columns come from. A table is traced again when its declaration or its inputs' columns change.

A run in which no table changed traces nothing. A table that cannot be traced is left out with a note, and never fails a run. Computed views
have no flow: they are traced after the tables, over the recorded columns of their inputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from pyspark.sql.types import StructType

from sluice import delta_log
from sluice.column_origins import TableOrigins, TracedColumn
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint, compute_view_fingerprint
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.quoting import quote_identifier
from sluice.flows.column_lineage import trace_table_columns
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_creation import parse_ddl_schema
from sluice.lake.workspace import Workspace
from sluice.open_tables import open_checked_table
from sluice.runs.execution import clones
from sluice.runs.status.column_lineage_record import read_column_lineage, write_column_lineage
from sluice.step_times import PLANNING, measure_step


@measure_step(PLANNING)
def record_column_lineage(workspace: Workspace, reports: Iterable[FlowReport]) -> None:
    """Traces the columns of the tables of these reports, if needed. A note in a report says what could not be traced.

    A clone has no record of its own: it leaves out columns, and its tables have the origins of those that were cloned.
    """
    able = [one for one in reports if one.flow in workspace.graph.stored]
    if not able or clones.read_clone_description(workspace.records) is not None:
        return
    try:
        known = read_column_lineage(workspace.records)
    except Exception as error:
        able[0].notes.append(f"where columns come from was not recorded ({type(error).__name__})")
        return
    fresh: dict[str, TableOrigins] = {}
    for report in able:
        try:
            found = _trace_if_changed(workspace, report, known.get(report.flow))
        except Exception as error:  # tracing must not fail a run
            report.notes.append(f"where its columns come from could not be found ({type(error).__name__})")
            continue
        if found is not None:
            fresh[report.flow] = found
    declared = {**workspace.graph.stored, **workspace.graph.computed}
    kept = {name: one for name, one in known.items() if name in declared}
    fresh.update(_trace_computed_views(workspace, able[0], kept | fresh))
    if fresh:
        write_column_lineage(workspace.records, kept | fresh)


def _trace_computed_views(workspace: Workspace, report: FlowReport, known: Mapping[str, TableOrigins]) -> dict[str, TableOrigins]:
    """Returns the columns of the computed views that must be traced, each after those it reads. report: gets a note for each that failed.

    A view that could not be traced is kept without columns, so that it is tried again only when it or its inputs have changed.
    """
    found: dict[str, TableOrigins] = {}
    for view in workspace.graph.computed.values():
        inputs = {name: found.get(name) or known.get(name) for name in view.reads}
        recorded = {name: _list_recorded_columns(one) for name, one in inputs.items() if one is not None and one.columns}
        mark = f"{compute_view_fingerprint(view)}:{_digest(sorted(recorded.items()))}"
        before = known.get(view.name)
        if len(recorded) < len(inputs) or (before is not None and before.mark == mark):
            continue
        try:
            schemas = {name: _read_input_schema(workspace, name, columns) for name, columns in recorded.items()}
            found[view.name] = trace_table_columns(workspace.session.newSession(), view, schemas, mark)
        except Exception as error:  # tracing must not fail a run
            found[view.name] = TableOrigins(view.name, mark, ())
            report.notes.append(
                f"where the columns of the view '{view.name}' come from could not be found ({type(error).__name__})"
            )
    return found


def _read_input_schema(workspace: Workspace, name: str, columns: str) -> StructType:
    """Returns an input's columns: a table's from its log, since Spark's text of a nested type quotes no name; a view's as they were traced."""
    return parse_ddl_schema(columns) if name in workspace.graph.computed else read_logged_schema(workspace.path(name))


def _list_recorded_columns(found: TableOrigins) -> str:
    """Returns the columns of a record as DDL."""
    return ", ".join(f"{quote_identifier(one.name)} {one.type}" for one in found.columns)


def _trace_if_changed(workspace: Workspace, report: FlowReport, known: TableOrigins | None) -> TableOrigins | None:
    """Returns a table's columns with their origins if they must be traced again, otherwise None."""
    declared = workspace.graph[report.flow]
    fingerprint = compute_declaration_fingerprint(declared) if isinstance(declared, Dataset) else "source"
    if known is not None and not report.committed and known.mark.startswith(fingerprint):
        return None
    if not isinstance(declared, Dataset):
        return _list_source_columns(workspace, declared.name, known)
    if declared.kind.preview_rows is None:  # this kind does not say where its columns come from
        return None
    present = declared.over([name for name in declared.reads if delta_log.is_delta_table(workspace.path(name))])
    if present is None or not delta_log.is_delta_table(workspace.path(declared.name)):
        return None
    inputs = {name: read_logged_schema(workspace.path(name)) for name in present.reads}
    mark = f"{fingerprint}:{_digest_schemas(inputs)}"
    if known is not None and known.mark == mark:
        return None
    return trace_table_columns(workspace.session.newSession(), present, inputs, mark)


def _list_source_columns(workspace: Workspace, source: str, known: TableOrigins | None) -> TableOrigins | None:
    """Returns the columns of a source's records, which come from nowhere in the lake."""
    path = workspace.path(source)
    if not delta_log.is_delta_table(path):
        return None
    schema = read_logged_schema(path)
    mark = f"source:{_digest_schemas({source: schema})}"
    if known is not None and known.mark == mark:
        return None
    return TableOrigins(source, mark, tuple(TracedColumn(one.name, one.dataType.simpleString()) for one in schema))


def read_logged_schema(path: str) -> StructType:
    """Returns a table's columns as in its log, read without a Spark job."""
    return StructType.fromJson(json.loads(open_checked_table(path).schema().to_json()))


def _digest_schemas(schemas: Mapping[str, StructType]) -> str:
    return _digest(sorted((name, schema.simpleString()) for name, schema in schemas.items()))


def _digest(told: list[tuple[str, str]]) -> str:
    return hashlib.sha256(repr(told).encode()).hexdigest()[:16]
