"""Runs flows that do not read each other side by side in one JVM, each in a session of its own, and times each of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.flows.progress.stream_numbers import join_stream_numbers
from sluice.lake import spark_counters
from sluice.lake.flow_report import FlowReport, TableTurns
from sluice.lake.workspace import Workspace
from sluice.runs.execution import table_rules
from sluice.step_times import TABLES, StepTimes, collect_step_times, current_step_times, measure_step
from sluice.work_progress import CountedWork, FollowedSubject, count_work, follow_subject

Flow = Callable[[Workspace, FlowReport], None]
"""What is done to one table. It notes in the report what it did."""

_SIDE_BY_SIDE = 3


def group_independent_flows(graph: Graph, layer: str) -> list[list[Source | Dataset[Any]]]:
    """Groups the layer's declarations: within a group none reads another, and no two write one table."""
    levels: list[list[Source | Dataset[Any]]] = []
    level_of: dict[str, int] = {}
    for item in graph.in_layer(layer):
        # A source that writes into another's table follows that source, and those that wrote into it before.
        before = (*(one.name for one in graph.sharing(item)), *item.reads)
        level_of[item.name] = max((level_of[name] + 1 for name in before if name in level_of), default=0)
        while len(levels) <= level_of[item.name]:
            levels.append([])
        levels[level_of[item.name]].append(item)
    return levels


@measure_step(TABLES)
def run_flows_in_parallel(
    workspace: Workspace, stage: str, items: list[tuple[Source | Dataset[Any], Flow]], judged: bool
) -> list[FlowReport]:
    """Runs the flows of some declarations of a stage. Raises FlowsFailed when all have ended, if one failed.

    judged: whether expectations on whole tables are evaluated.
    """
    turns = TableTurns([FlowReport(flow=item.name, layer=stage) for item, _ in items])

    def run_flow(position: int) -> None:
        item, flow = items[position]
        # Each flow has a session of its own, because the mark of its commits is set on the session.
        mine = workspace.within(workspace.session.newSession())
        if (times := current_step_times()) is not None:
            times.job_tags.append(spark_counters.session_job_tag(mine.session))
        mine.mark_next_commits(item.name)
        try:
            flow(mine, turns.reports[position])
            if judged and isinstance(item, Dataset):
                table_rules.judge_own_table_rules(mine, item, turns.reports[position])
        except Exception as error:
            turns.errors[item.name] = error

    def run_flow_in_turn(position: int, tables: CountedWork, context: Context) -> None:
        context.run(run_timed_flow, workspace, turns.reports[position], lambda: run_flow(position))
        tables.advance()

    with count_work("tables", [item.name for item, _ in items]) as tables, ThreadPoolExecutor(max_workers=_SIDE_BY_SIDE) as pool:
        begun = [pool.submit(run_flow_in_turn, position, tables, copy_context()) for position in range(len(items))]
    for one in begun:
        one.result()
    return turns.end_turns()


def run_timed_flow(workspace: Workspace, report: FlowReport, work: Callable[[], None]) -> None:
    """Does a flow's work, and notes its seconds and the versions of its table before and after."""
    times = StepTimes()
    with (
        report.note_change(workspace.path(report.flow)),
        collect_step_times(times),
        follow_subject(FollowedSubject(report.flow, times)),
    ):
        work()
    report.steps, report.job_tags = times.rounded_seconds(), tuple(times.job_tags)
    report.stream = join_stream_numbers(times.streams)
