"""Finds what VACUUM would remove from each table of a pipeline, and what keeps it from that. Needs no JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Set
from datetime import datetime

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.delta_log import DamagedLog
from sluice.erasure import prevention
from sluice.flows.progress.behind import LaggingFlow, find_lagging_flows_at
from sluice.lake.inventory import VacuumDecision, decide_vacuum
from sluice.lake.places import PipelinePlaces
from sluice.lake.workspace import list_record_tables
from sluice.record_tables import RECORD_TABLES
from sluice.settings import Settings


def locate_tables_with_people(settings: Settings, graph: Graph) -> Set[str]:
    """The paths of the tables with personal columns, whose removed files go as soon as the retention is over."""
    return {path for path, columns in prevention.personal_columns_by_path(settings, graph).items() if columns}


def decide_table_vacuums(settings: Settings, graph: Graph, now: datetime) -> dict[str, VacuumDecision]:
    """Decides for each existing table whether to remove files at `now` (UTC). Leaves out damaged tables, which their readers report."""
    with_people, found = locate_tables_with_people(settings, graph), {}
    for name, path in list_record_tables(graph, PipelinePlaces(graph.records(settings), graph), settings).items():
        if delta_log.is_delta_table(path):
            with contextlib.suppress(DamagedLog):
                found[name] = decide_vacuum(path, now, path in with_people)
    return found


def decide_all_vacuums(settings: Settings, graph: Graph, now: datetime) -> dict[str, VacuumDecision]:
    """The same, also for the tables in which Sluice keeps its records."""
    paths = {f"_sluice/{name}": graph.records(settings).bookkeeping(name) for name in RECORD_TABLES}
    of_records = {name: decide_vacuum(path, now, False) for name, path in paths.items() if delta_log.is_delta_table(path)}
    return {**decide_table_vacuums(settings, graph, now), **of_records}


def find_holding_flows(settings: Settings, graph: Graph, now: datetime) -> dict[str, list[LaggingFlow]]:
    """The flows for which VACUUM waits, by the name of the table."""
    places = PipelinePlaces(graph.records(settings), graph)
    lagging = find_lagging_flows_at(places, graph, now)
    paths = {
        **list_record_tables(graph, places, settings),
        **{f"_sluice/{name}": graph.records(settings).bookkeeping(name) for name in RECORD_TABLES},
    }
    found = {name: [one for one in lagging.get(path, ()) if not one.overdue] for name, path in paths.items()}
    return {name: flows for name, flows in found.items() if flows}
