"""Finds the pipelines and tables that a user names. The error for a wrong name suggests the nearest."""

from __future__ import annotations

from sluice import delta_log
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import DeclarationError, SluiceError, UsageError, find_nearest_name, nearest_name_hint
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.pipeline_records import PipelineRecords, list_pipeline_records, name_quarantine
from sluice.runs import run_ledger
from sluice.settings import Settings, list_pipeline_names, require_known_pipeline


def select_pipelines(settings: Settings, pipeline: str | None) -> list[str]:
    """The pipeline of that name alone, or all of them. Raises UsageError for an unknown one."""
    return [require_known_pipeline(settings, pipeline)] if pipeline else list_pipeline_names(settings)


def split_table_name(settings: Settings, name: str) -> tuple[str, str]:
    """The pipeline and the table of 'pipeline.table', which may not exist. Raises UsageError, with the nearest table, for another form."""
    pipeline, _, table = name.partition(".")
    if pipeline and table:
        return pipeline, table
    raise UsageError(
        f"'{name[:80]}' is no table's name: write it as <pipeline>.<table>.{_hint_at_table_of_any_pipeline(settings, name)}"
    )


def resolve_table_name(settings: Settings, name: str) -> tuple[PipelineRecords, str, str]:
    """The pipeline's records, table and path of 'pipeline.table'. Raises UsageError for an unknown name, SluiceError for a table not made yet."""
    pipeline, wanted = split_table_name(settings, name)
    records = PipelineRecords.of_known(settings, pipeline)
    present = _list_tables_in_lake(records)
    if wanted in present:
        return records, wanted, run_ledger.find_table_path(records, wanted)
    kept = _locate_change_logs(records)
    if wanted in kept and delta_log.is_delta_table(kept[wanted]):
        return records, wanted, kept[wanted]
    if find_computed_view_lake(settings, name) is not None:
        raise UsageError(
            f"'{name}' is a @view: computed when it is read, it has no table, no versions and no changes. Read it: sluice show {name}"
        )
    declared = _list_declared_tables(records)
    if wanted in declared:
        raise SluiceError(f"Table '{name}' does not exist yet: no run has written it. Run: sluice run {pipeline}")
    raise UsageError(f"There is no table '{name}'.{nearest_name_hint(wanted, present | declared)}")


def find_computed_view_lake(settings: Settings, name: str) -> PipelineLake | None:
    """The lake of the view's pipeline if 'pipeline.view' names a computed view; else None."""
    pipeline, _, wanted = name.partition(".")
    if pipeline not in list_pipeline_names(settings):
        return None
    lake = load_lake_if_readable(settings, pipeline)
    return lake if lake and wanted in lake.graph.computed else None


def load_lake_if_readable(settings: Settings, pipeline: str) -> PipelineLake | None:
    """A pipeline's lake; None if its declarations cannot be loaded, since the tables can be read without them."""
    try:
        return load_pipeline_lake(settings, pipeline)
    except Exception:
        return None


def find_replacing_sources(records: PipelineRecords) -> frozenset[str]:
    """The sources in which a redelivered file replaces the earlier one. Empty if the pipeline's declarations are wrong."""
    try:
        sources = load_declaration_graph(records.settings, records.pipeline).sources.values()
    except DeclarationError:
        return frozenset()
    return frozenset(source.name for source in sources if source.replaces_files)


def _list_tables_in_lake(records: PipelineRecords) -> set[str]:
    """The existing tables, by their names in SQL."""
    return {run_ledger.sql_name(row) for row in run_ledger.list_pipeline_tables(records)}


def _locate_change_logs(records: PipelineRecords) -> dict[str, str]:
    """The paths of change logs, the tables that Sluice keeps for declared ones."""
    try:
        graph = load_declaration_graph(records.settings, records.pipeline)
    except DeclarationError:
        return {}
    return {name: PipelineLake(records.settings, graph).path(name) for name, table in graph.tables.items() if table.serves}


def _list_declared_tables(records: PipelineRecords) -> set[str]:
    try:
        graph = load_declaration_graph(records.settings, records.pipeline)
    except DeclarationError:
        return set()
    quarantines = (name_quarantine(name) for name in (*graph.sources, *graph.tables))
    return {*graph.computed, *(graph.table_of(declared.name) for declared in graph), *quarantines}


def _hint_at_table_of_any_pipeline(settings: Settings, name: str) -> str:
    """The tables of the pipeline of that name, or else the table with the most similar name of its own."""
    tables = {
        records.pipeline: _list_tables_in_lake(records) | _list_declared_tables(records)
        for records in list_pipeline_records(settings)
    }
    if name in tables:
        return f" '{name}' is a pipeline. Its tables: {', '.join(f'{name}.{table}' for table in sorted(tables[name]))}."
    known = {table: f"{pipeline}.{table}" for pipeline, names in tables.items() for table in names}
    close = find_nearest_name(name, known)
    return f" Did you mean '{known[close]}'?" if close else ""
