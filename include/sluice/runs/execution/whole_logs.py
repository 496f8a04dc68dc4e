"""Before a stage: the logs of all tables that it reads or writes are whole."""

from __future__ import annotations

from pathlib import Path

from sluice.declare.assembly.graph import Graph
from sluice.delta_log import LOG, check_table_logs
from sluice.lake.places import PipelinePlaces
from sluice.lake.workspace import has_quarantine
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings, name_quarantine


def check_stage_logs(settings: Settings, graph: Graph, stage: str) -> None:
    """Raises DamagedLog, with the table and the remedy, where the log of a table is damaged that the stage reads or writes."""
    check_table_logs(locate_stage_tables(settings, graph, stage), graph.pipeline.name)


def locate_stage_tables(settings: Settings, graph: Graph, stage: str = "") -> dict[str, str]:
    """By name, the paths of the tables that a stage reads or writes; of all tables of the pipeline, where it is no layer."""
    of_layer = [item.name for item in graph if graph.layer(item) == stage]
    reads = [name for item in graph if item.name in of_layer for name in item.reads]
    places = PipelinePlaces(graph.records(settings), graph)
    found = locate_bookkeeping_tables(places.records)
    for item in graph:
        if of_layer and item.name not in (*of_layer, *reads):
            continue
        found[graph.table_of(item.name)] = graph.location(settings, item.name)
        if has_quarantine(item) and (not of_layer or item.name in of_layer):
            found[name_quarantine(item.name)] = places.quarantine(item.name)
        if item.late and item.may_be_late:
            found[item.late] = graph.location_of_late(settings, item.name)
    return found


def locate_bookkeeping_tables(records: PipelineRecords) -> dict[str, str]:
    """By name, the tables in which Sluice keeps its records of a pipeline, those that are there."""
    found: dict[str, str] = {}
    for restricted in (False, True):
        folder = Path(records.bookkeeping(restricted=restricted))
        logs = sorted([*folder.glob(f"*/{LOG}"), *folder.glob(f"*/*/{LOG}")])
        found |= {str(log.parent.relative_to(folder)): str(log.parent) for log in logs}
    return found
