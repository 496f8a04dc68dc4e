"""Finds what VACUUM would remove from each table of a pipeline, and what keeps it from that. Needs no JVM."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence, Set
from dataclasses import replace
from datetime import datetime

from sluice import delta_log
from sluice.delta_log import DamagedLog
from sluice.erasure import prevention
from sluice.flows.progress.positions import LaggingFlow, find_lagging_flows_at
from sluice.lake.inventory import VacuumDecision, decide_vacuum
from sluice.lake.lagging_clones import LaggingClone, find_lagging_clones
from sluice.lake.pipeline_lake import PipelineLake, list_own_tables
from sluice.record_tables import RECORD_TABLES
from sluice.vacuum import SlowReader


def locate_tables_with_people(lake: PipelineLake) -> Set[str]:
    """The paths of the tables with personal columns, whose removed files go as soon as the retention is over."""
    return {path for path, columns in prevention.personal_columns_by_path(lake).items() if columns}


def decide_table_vacuums(lake: PipelineLake, now: datetime) -> dict[str, VacuumDecision]:
    """Decides for each existing table whether to remove files at `now` (UTC), and not from a shallow clone that is waited for.

    Leaves out damaged tables, which their readers report.
    """
    with_people, found = locate_tables_with_people(lake), {}
    clones = _find_lagging_clones(lake, now)
    for name, path in lake.record_tables().items():
        if delta_log.is_delta_table(path):
            with contextlib.suppress(DamagedLog):
                found[name] = _respect_clones(decide_vacuum(path, now, path in with_people), clones.get(path, ()))
    return found


def _respect_clones(decision: VacuumDecision, clones: Sequence[LaggingClone]) -> VacuumDecision:
    """Returns the decision with the clones that hold the files, or that lose them."""
    holding = [one for one in clones if not one.overdue]
    if not (decision.needed and clones):
        return decision
    if not holding:
        return replace(decision, why="; ".join([decision.why, *(f"it breaks the shallow clone {one.lake}" for one in clones)]))
    ends = [one.until for one in holding]
    due = None if None in ends else max(end for end in ends if end is not None)
    held = "; ".join(map(str, holding))
    return replace(decision, needed=False, why=held, due=due, held=held)


def _find_lagging_clones(lake: PipelineLake, now: datetime) -> dict[str, list[LaggingClone]]:
    records = lake.records
    paths = lake.record_tables().values()
    return find_lagging_clones(records, paths, lake.graph.pipeline.vacuum_waits, now)


def find_slow_readers(lake: PipelineLake, now: datetime) -> dict[str, list[SlowReader]]:
    """Returns, by table path, the flows and shallow clones that still need files which VACUUM would remove at `now` (UTC)."""
    flows = find_lagging_flows_at(lake, lake.graph, now)
    clones = _find_lagging_clones(lake, now)
    return {path: [*flows.get(path, ()), *clones.get(path, ())] for path in [*flows, *clones]}


def decide_all_vacuums(lake: PipelineLake, now: datetime) -> dict[str, VacuumDecision]:
    """Decides what `decide_table_vacuums` does, and in the same way for the tables in which Sluice keeps its records."""
    paths = list_own_tables(lake, RECORD_TABLES)
    of_records = {name: decide_vacuum(path, now, False) for name, path in paths.items() if delta_log.is_delta_table(path)}
    return {**decide_table_vacuums(lake, now), **of_records}


def find_holding_flows(lake: PipelineLake, now: datetime) -> dict[str, list[LaggingFlow]]:
    """The flows for which VACUUM waits, by the name of the table."""
    lagging = find_lagging_flows_at(lake, lake.graph, now)
    paths = {**lake.record_tables(), **list_own_tables(lake, RECORD_TABLES)}
    found = {name: [one for one in lagging.get(path, ()) if not one.overdue] for name, path in paths.items()}
    return {name: flows for name, flows in found.items() if flows}
