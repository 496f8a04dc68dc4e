"""From the names a user types to pipelines and tables. A wrong name is answered with the nearest."""

from __future__ import annotations

from sluice.declare.assembly.graph import Graph
from sluice.declare.assembly.loading import load
from sluice.errors import DeclarationError, SluiceError, UsageError, nearest
from sluice.lake import log
from sluice.runs import ledger
from sluice.settings import Settings, known_pipeline, pipeline_names


def chosen(settings: Settings, pipeline: str | None) -> list[str]:
    """The pipeline of that name alone, or all of them. Raises UsageError for an unknown one."""
    return [known_pipeline(settings, pipeline)] if pipeline else pipeline_names(settings)


def table(settings: Settings, name: str) -> tuple[str, str, str]:
    """Pipeline, table and path of 'pipeline.table'. Raises UsageError for an unknown name, SluiceError for one not made yet."""
    pipeline, dot, wanted = name.partition(".")
    if not dot or not wanted:
        raise UsageError(f"'{name}' is no table's name: write it as <pipeline>.<table>.{nearest(name, _all(settings))}")
    known_pipeline(settings, pipeline)
    present = _present(settings, pipeline)
    if wanted in present:
        return pipeline, wanted, ledger.path_of(settings, pipeline, wanted)
    kept = _kept(settings, pipeline)
    if wanted in kept and log.exists(kept[wanted]):
        return pipeline, wanted, kept[wanted]
    if view(settings, name) is not None:
        raise UsageError(
            f"'{name}' is a @view: computed when it is read, it has no table, no versions and no changes. Read it: sluice show {name}"
        )
    declared = _declared(settings, pipeline)
    if wanted in declared:
        raise SluiceError(
            f"Table '{name}' has not been made yet: nothing has been run that writes it. Run: sluice run {pipeline}"
        )
    raise UsageError(f"There is no table '{name}'.{nearest(wanted, present | declared)}")


def view(settings: Settings, name: str) -> Graph | None:
    """The pipeline of 'pipeline.view' where this names a view that is computed when it is read; None where it does not."""
    pipeline, _, wanted = name.partition(".")
    if pipeline not in pipeline_names(settings):
        return None
    graph = readable(settings, pipeline)
    return graph if graph and wanted in graph.computed else None


def readable(settings: Settings, pipeline: str) -> Graph | None:
    """A pipeline's declarations; None where they cannot be loaded: what is in the lake can be read nevertheless."""
    try:
        return load(settings, pipeline)
    except Exception:
        return None


def replacing(settings: Settings, pipeline: str) -> frozenset[str]:
    """The sources in which a file that comes again replaces the earlier one. None of a pipeline whose declarations are wrong."""
    try:
        sources = load(settings, pipeline).sources.values()
    except DeclarationError:
        return frozenset()
    return frozenset(source.name for source in sources if source.redelivery == "replace")


def _present(settings: Settings, pipeline: str) -> set[str]:
    """Tables that are there, by the name they have in SQL."""
    return {ledger.sql_name(row) for row in ledger.tables(settings, pipeline)}


def _kept(settings: Settings, pipeline: str) -> dict[str, str]:
    """Where the tables lie that Sluice keeps for declared ones: change logs."""
    try:
        graph = load(settings, pipeline)
    except DeclarationError:
        return {}
    return {name: graph.location(settings, name) for name, table in graph.tables.items() if table.serves}


def _declared(settings: Settings, pipeline: str) -> set[str]:
    try:
        graph = load(settings, pipeline)
    except DeclarationError:
        return set()
    quarantines = (f"{name}_quarantine" for name in (*graph.sources, *graph.tables))
    return {*graph.computed, *(graph.table_of(declared.name) for declared in graph), *quarantines}


def _all(settings: Settings) -> list[str]:
    return [f"{pipeline}.{name}" for pipeline in pipeline_names(settings) for name in _present(settings, pipeline)]
