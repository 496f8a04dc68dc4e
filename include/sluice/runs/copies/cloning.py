"""Clones a pipeline's tables into a development lake: as a copy that names nobody, or as references to the existing files.

It also decides which tables are cloned, at which version, and why the others are not.
"""

from __future__ import annotations

import secrets as chance
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.dataset import Dataset
from sluice.durable_files import write_json_durably
from sluice.erasure import request_record
from sluice.errors import SluiceError, UsageError, nearest_name_hint
from sluice.lake import log
from sluice.lake.clone_registry import register_shallow_clone
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import Location, locate, locate_given
from sluice.pipeline_records import PipelineRecords, name_quarantine
from sluice.pipeline_stages import CLONE, DELETIONS
from sluice.runs import job, run_ledger
from sluice.runs.execution import clones
from sluice.runs.execution.clones import COPY, SHALLOW
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.lake.flow_report import FlowReport
    from sluice.lake.workspace import Workspace


def clone_tables(
    lake: PipelineLake, to: str, kind: str = COPY, names: Sequence[str] = (), wait: float = 0.0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Clones a pipeline's tables, all or those that are named. Returns the run's report, and what the clone says about itself.

    Raises UsageError for a folder that cannot hold a clone, for a table that is not cloned, and in a clone: the lake that has the files would
    not know of a clone's clone, and no list says whom a copy of it must leave out.
    """
    records, pipeline = lake.records, lake.graph.pipeline.name
    clones.refuse_in_clone(records, f"Clone that lake instead: set SLUICE_LAKE to it, and sluice clone {pipeline} --to {to}")
    target = replace(lake.settings, lake=str(locate_given(to).absolute()), copied_lake=lake.settings.lake)
    check_clone_target(records, target)
    if request_record.list_waiting_requests(records):
        raise SluiceError(
            f"Erasure requests of '{pipeline}' wait; a clone is made after them. Run: sluice run {pipeline} --stage {DELETIONS.name}"
        )
    plan = plan_clone(lake, kind, names)
    made: dict[str, Any] = {}

    def work(workspace: Workspace) -> list[FlowReport]:
        made.update(_write_clone_description(lake.settings, workspace, plan))
        return _clone_planned_tables(lake.settings, workspace, plan, made)

    report = job.run_under_lease(PipelineLake(target, lake.graph), job.JobRequest(pipeline, CLONE, CLONE, wait=wait), work)
    return report, made


def check_clone_target(records: PipelineRecords, target: Settings) -> None:
    """Raises UsageError if the target is the lake itself, lies in it or around it, or holds tables of the pipeline."""
    here, there = locate(records.settings.lake).resolve(), locate(target.lake).resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UsageError(
            f"A clone needs a lake of its own; {target.lake} and {records.settings.lake} are, or lie in, one another."
        )
    if there.exists() and not there.is_dir():
        raise UsageError(f"{target.lake} is no folder.")
    present = run_ledger.list_pipeline_tables(replace(records, settings=replace(target, restricted=locate(target.lake))))
    if present or clones.read_clone_description(replace(records, settings=target)):
        raise UsageError(
            f"{target.lake} has tables of '{records.pipeline}' already, and a clone is made as a whole. "
            f"Name another folder, or remove {target.lake}/{records.pipeline}."
        )


def _write_clone_description(settings: Settings, workspace: Workspace, plan: ClonePlan) -> dict[str, Any]:
    """Writes the clone's description before it has a table, so that a half-made clone is recognised as one."""
    said = {
        "from": settings.lake,
        "restricted": str(settings.restricted),
        "kind": plan.kind,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": workspace.run,
        "finished": False,
        "tables": {},
        "not_cloned": plan.left_out,
    }
    _write_clone_file(clones.clone_description_path(workspace.records), said)
    if plan.kind == SHALLOW:
        register_shallow_clone(workspace.records, workspace.run, workspace.settings.lake)
    return said


def _clone_planned_tables(settings: Settings, workspace: Workspace, plan: ClonePlan, said: dict[str, Any]) -> list[FlowReport]:
    from sluice.flows.copies import copying
    from sluice.lake.flow_report import FlowReport, end_at_failure
    from sluice.lake.workspace import Workspace

    source = Workspace(settings, workspace.graph, workspace.session, workspace.run, workspace.mode)
    key = chance.token_bytes(32)  # never stored: no stand-in leads back to a person
    reports: list[FlowReport] = []
    for one in plan.tables:
        report = FlowReport(flow=one.name, layer=CLONE)
        path = workspace.settings.lake + one.path.removeprefix(settings.lake)
        workspace.mark_next_commits(f"clone_{one.name}")
        asked = copying.CloneRequest(one.path, one.version, path, one.dataset, one.private, plan.joining | set(one.keys))
        with end_at_failure(reports, report):
            made = (
                copying.create_shallow_clone(source, asked, report)
                if plan.kind == SHALLOW
                else copying.copy_table_into_clone(source, asked, key, report)
            )
        report.note_new_versions(path)
        report.note_seconds()
        said["tables"][one.name] = {"version": one.version, "left_out": made.left_out, "stand_ins": made.stand_ins}
    said["finished"] = True
    _write_clone_file(clones.clone_description_path(workspace.records), said)
    return reports


def _write_clone_file(file: Location, said: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(file, said, indent=1)


@dataclass(frozen=True)
class TableToClone:
    """A table to clone. dataset: None for bronze and quarantines. private: its columns with personal data. keys: columns that it cannot lack."""

    name: str
    path: str
    version: int
    dataset: Dataset[Any] | None = None
    private: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class ClonePlan:
    """What is cloned, and why the other tables are not. joining: personal columns that tables are joined by."""

    kind: str
    tables: tuple[TableToClone, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()


def plan_clone(lake: PipelineLake, kind: str, names: Sequence[str] = ()) -> ClonePlan:
    """Plans what to clone, at the present versions. Raises UsageError for a named table that does not exist or is not cloned."""
    found, left_out = [], {}
    for one in _list_tables_to_clone(lake):
        why = _explain_uncloned_table(lake.settings, one, kind)
        if why:
            left_out[one.name] = why
        else:
            found.append(one)
    for stream in lake.graph.streams.values():
        left_out[stream.late] = f"it is kept beside '{stream.name}', whose stream does not run in a clone"
    known = {*(one.name for one in found), *left_out}
    for name in names:
        if name not in known:
            raise UsageError(f"There is no table '{lake.graph.pipeline.name}.{name}'.{nearest_name_hint(name, known)}")
        if name in left_out:
            raise UsageError(f"'{lake.graph.pipeline.name}.{name}' is not cloned: {left_out[name]}.")
    if names:
        return ClonePlan(kind, tuple(one for one in found if one.name in names), {}, _find_joining_columns(lake.graph))
    return ClonePlan(kind, tuple(found), left_out, _find_joining_columns(lake.graph))


def _list_tables_to_clone(lake: PipelineLake) -> list[TableToClone]:
    """Lists every existing table: declared ones and quarantines."""
    found = []
    for one in lake.graph:
        private = frozenset[str]().union(*(each.private for each in lake.graph.sharing(one)))
        if lake.graph.table_of(one.name) == one.name:
            found.append((one.name, lake.path(one.name), lake.graph.datasets.get(one.name), private, one.keys))
        if one.kind.sets_rows_aside:
            found.append((name_quarantine(one.name), lake.quarantine(one.name), None, private, ()))
    versions = {path: log.latest_table_version(path) for _, path, *_ in found}
    return [
        TableToClone(name, path, version, dataset, private, keys)
        for name, path, dataset, private, keys in found
        if (version := versions[path]) is not None
    ]


def _find_joining_columns(graph: Graph) -> frozenset[str]:
    """Returns the names of columns that are keys or subjects somewhere: a copy without them could not be joined."""
    datasets = [one for one in graph.datasets.values() if not one.serves]
    return frozenset(name for one in datasets for name in (*one.keys, one.subject) if name)


def _explain_uncloned_table(settings: Settings, one: TableToClone, kind: str) -> str | None:
    """Returns why a table is not cloned, or None if it is."""
    if one.path.startswith(f"{settings.restricted}/"):
        return "it is restricted"
    if kind == SHALLOW or not one.private:
        return None
    if one.dataset is None:
        return "it holds records as they came, and there is personal data in them"
    if one.dataset.serves:
        return f"it is kept for '{one.dataset.serves}' and holds what was personal in each change"
    from sluice.flows.copies import copying

    hidden = {name.lower() for name in one.private}  # to Spark, upper and lower case are one
    bad = copying.find_column_without_stand_in(one.path, [name for name in one.keys if name.lower() in hidden])
    return f"its key {bad} is personal and of a type that has no stand-in" if bad else None
