"""Follows a run from stage to stage. When it has done all of them and nothing is left, it marks the pipeline quiet (`sluice.runs.quiet`).

The run's input must be unchanged since its first stage began, and nobody else may have written between two of its stages. Otherwise some
stage has not seen the current input, and there is no mark. The next run, which finds nothing to do, then leaves one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import psutil  # type: ignore[import-untyped]  # it has no types

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint, digest_declarations
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.pipeline import parse_duration
from sluice.ingest.deliveries.folder_part import find_ends_of_partial_listings, is_listed_in_part
from sluice.ingest.deliveries.known_files import read_known_files
from sluice.pipeline_stages import list_stage_names
from sluice.record_states import WAITING
from sluice.runs import quiet
from sluice.runs.execution import clones
from sluice.runs.execution.verifying import list_differing_tables
from sluice.runs.quiet import QuietMark
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.runs.status.removals import decide_table_vacuums

if TYPE_CHECKING:
    from sluice.declare.datasets.windowed import Windowed
    from sluice.declare.ingest.source import Source
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace

NEVER = datetime.max.replace(tzinfo=UTC)
_PROCESS_BEGAN = float(psutil.Process().create_time())
"""By the clock as it was when this module was loaded: once the clock is set, the system reports another time."""


def begin_stage(workspace: Workspace, stage: str) -> QuietMark | None:
    """Returns the mark of the run's stages before this one if nobody has written since, or None if this run leads to no mark.

    Call it under the lease, before the stage does anything.
    """
    records = workspace.records
    stages = list_stage_names(workspace.graph.pipeline)
    try:
        if records.settings.secrets_given or clones.read_clone_description(records) is not None:
            return None
        if quiet.find_latest_code_change(records.settings) >= _PROCESS_BEGAN:
            return None  # this process may have loaded earlier code
        if stage == stages[0]:
            after = _find_listed_names(workspace)
            inputs = quiet.digest_run_inputs(records, after)
            return QuietMark(workspace.run, datetime.now(UTC), (), inputs, "", listed_after=after)
        mark = quiet.read_quiet_mark(records)
        if mark is None or mark.run != workspace.run or list(mark.stages) != stages[: stages.index(stage)]:
            return None
        return mark if mark.lake == quiet.digest_lake(records) else None
    except Exception as error:
        _tell_without_mark(records.pipeline, error)
        return None


def end_stage(workspace: Workspace, stage: str, mark: QuietMark, reports: Sequence[FlowReport]) -> None:
    """Records that the run has done this stage too. Call it under the lease, when everything is recorded and on the disk."""
    try:
        quiet.write_quiet_mark(workspace.records, _add_stage(workspace, stage, mark, reports))
    except Exception as error:
        _tell_without_mark(workspace.pipeline, error)


def _tell_without_mark(pipeline: str, error: Exception) -> None:
    """Reports that no mark could be made. The stage is done and must not fail for that; without a mark the next run looks for itself."""
    print(f"sluice: whether '{pipeline}' is quiet could not be noted ({type(error).__name__})", file=sys.stderr, flush=True)


def _add_stage(workspace: Workspace, stage: str, mark: QuietMark, reports: Sequence[FlowReport]) -> QuietMark:
    records, graph = workspace.records, workspace.graph
    tables = dict(mark.tables)
    if stage in graph.pipeline.layer_names:
        tables[stage] = [
            {
                "flow": one.flow,
                "version": one.version_after,
                "fingerprint": _fingerprint_of_flow(workspace, one),
                "table_rules": one.table_rules,
            }
            for one in reports
            if one.layer == stage
        ]
    done = replace(mark, stages=(*mark.stages, stage), tables=tables)
    if list(done.stages) == list_stage_names(graph.pipeline):
        until = _find_end_of_quiet(workspace, mark.began)
        nothing_left = until > datetime.now(UTC) and not _list_what_waits(workspace)
        if nothing_left and quiet.digest_run_inputs(records, mark.listed_after) == mark.inputs:
            done = replace(done, until=until, declared=digest_declarations(graph))
    return replace(done, lake=quiet.digest_lake(records))


def _find_listed_names(workspace: Workspace) -> dict[str, str | None]:
    """Returns the folders that runs do not list in full, each with the name after which they list; None if events name the objects."""
    partial = [one for one in workspace.graph.sources.values() if is_listed_in_part(one, workspace.landing / one.path)]
    if not partial:
        return {}
    known = read_known_files(workspace.deliveries, workspace.outcomes)
    found: dict[str, str | None] = {}
    for source in partial:
        greatest = known.files_of_source(source.name).find_greatest_name()
        if source.events is not None or greatest is not None:
            found[str(workspace.landing / source.path)] = None if source.events is not None else greatest
    return found


def _fingerprint_of_flow(workspace: Workspace, report: FlowReport) -> str | None:
    dataset = workspace.graph.datasets.get(report.flow)
    return compute_declaration_fingerprint(dataset) if dataset else None


def _list_what_waits(workspace: Workspace) -> list[Any]:
    """Lists flows with something to take or that cannot run, files that no run could open, missing folders, and tables that differ."""
    books = PipelineBooks(workspace.settings, workspace.graph)
    flows = lag.measure_pipeline_lag(books)
    return [
        *(flow.name for flow in flows if flow.waits or flow.moved or flow.anew or flow.stuck or flow.warnings),
        *(
            file
            for source in books.graph.sources
            for file in (*books.of_source(source, WAITING), *books.known.unread_files(source))
        ),
        *(
            one.path
            for one in books.graph.sources.values()
            if one.kind.in_files and not (books.records.landing / one.path).is_dir()
        ),
        *list_differing_tables(books.runs, workspace.graph.datasets),
    ]


def _find_end_of_quiet(workspace: Workspace, began: datetime) -> datetime:
    """Returns when the passing of time alone gives a run something to do, as seen by a run that began at that instant.

    VACUUM must remove files when they outlive the retention, and leftovers of killed writers at the latest one retention from now.
    """
    kept = parse_duration(workspace.settings.retain or workspace.graph.pipeline.retain)
    ends = [one.kind.find_end_of_quiet(one, began, workspace.path) for one in workspace.graph]
    ends += find_ends_of_partial_listings(workspace.deliveries, workspace.graph.sources.values(), workspace.landing, began)
    decisions = decide_table_vacuums(workspace.lake, began).values()
    pipeline = workspace.graph.pipeline
    stay = [parse_duration(one) for one in (pipeline.keep_quarantine, pipeline.keep_late) if one is not None]
    ends += [_next_look_for_old_rows(began, stay)] if stay else []
    due = [one.due for one in decisions if one.due is not None]
    return min(began + kept, *ends, *due)


def find_end_of_quiet_source(source: Source, began: datetime, path_of_table: Callable[[str], str]) -> datetime:
    """Returns when a source must be checked for records that grow too old and files to clean: once a day, or more often if they stay for less."""
    stay = [parse_duration(source.keep_for)] if source.keep_for else []
    stay += [timedelta(days=source.clean_after_days)] if source.clean_source != "keep" else []
    return _next_look_for_old_rows(began, stay) if stay else NEVER


def _next_look_for_old_rows(began: datetime, stay: Sequence[timedelta]) -> datetime:
    return began + min(timedelta(days=1), *(one / 24 for one in stay))


def find_end_of_quiet_topic(source: Source, began: datetime, path_of_table: Callable[[str], str]) -> datetime:
    """Returns the present, because only the broker knows what is new."""
    return began


def find_end_of_quiet_dataset(dataset: Dataset[Any], began: datetime, path_of_table: Callable[[str], str]) -> datetime:
    """Returns when a dataset must be checked: some expectations on whole tables depend on the age of rows."""
    return began if any(rule.depends_on_time for rule in dataset.table_expectations) else NEVER


def find_end_of_quiet_stream(stream: Windowed[Any], began: datetime, path_of_table: Callable[[str], str]) -> datetime:
    """Returns when a stream must be checked: open windows are closed when nothing has come for a while."""
    from sluice.flows.stateful import idle

    closed = idle.find_idle_time(stream, path_of_table)
    end = find_end_of_quiet_dataset(stream, began, path_of_table)
    return end if closed is None or closed <= began else min(end, closed)
