"""Cloning a pipeline's tables into a development lake: a copy that names nobody, or references to the files as they are."""

from __future__ import annotations

import json
import secrets as chance
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.declare.assembly.graph import Graph
from sluice.erasure import requests
from sluice.errors import SluiceError, UsageError
from sluice.lake import log, shallow
from sluice.runs import job, ledger
from sluice.runs.copies import clone_plan
from sluice.runs.copies.clone_plan import Plan
from sluice.runs.execution import clones
from sluice.runs.execution.clones import COPY, SHALLOW
from sluice.settings import Settings

if TYPE_CHECKING:
    from sluice.lake.report import FlowReport
    from sluice.lake.workspace import Workspace

CLONE = "clone"
"""The stage and the mode of such a run, in the run ledger of the clone."""


def clone(
    settings: Settings, graph: Graph, to: str, kind: str = COPY, names: Sequence[str] = (), wait: float = 0.0
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Clone a pipeline's tables, all or those that are named. Returns the run's report, and what the clone says of itself.

    Raises UsageError for a folder that cannot hold a clone, and for a table that is not cloned.
    """
    pipeline = graph.pipeline.name
    target = replace(settings, lake=str(Path(to).absolute()))
    check_target(settings, target, pipeline)
    if requests.waiting(settings, pipeline):
        raise SluiceError(
            f"Erasure requests of '{pipeline}' wait; a clone is made after them. Run: sluice run {pipeline} --stage propagate_deletions"
        )
    plan = clone_plan.planned(settings, graph, kind, names)
    made: dict[str, Any] = {}

    def work(workspace: Workspace) -> list[FlowReport]:
        made.update(_written(settings, workspace, plan))
        return _all(settings, workspace, plan, made)

    report = job.under_lease(target, graph, job.Request(pipeline, CLONE, CLONE, wait=wait), work)
    return report, made


def check_target(settings: Settings, target: Settings, pipeline: str) -> None:
    """Raises UsageError where the target is the lake itself, lies in it or around it, or holds tables of the pipeline."""
    here, there = Path(settings.lake).resolve(), Path(target.lake).resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UsageError(f"A clone needs a lake of its own; {target.lake} and {settings.lake} are, or lie in, one another.")
    if there.exists() and not there.is_dir():
        raise UsageError(f"{target.lake} is no folder.")
    present = ledger.tables(replace(target, restricted=Path(target.lake)), pipeline)
    if present or clones.of(target, pipeline):
        raise UsageError(
            f"{target.lake} has tables of '{pipeline}' already, and a clone is made as a whole. "
            f"Name another folder, or remove {target.lake}/{pipeline}."
        )


def _written(settings: Settings, workspace: Workspace, plan: Plan) -> dict[str, Any]:
    """Say what the clone is, before there is a table in it: what is half made is known for what it is."""
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
    _keep(clones.file(workspace.settings, workspace.pipeline), said)
    if plan.kind == SHALLOW:
        shallow.register(settings, workspace.pipeline, workspace.run, workspace.settings.lake)
    return said


def _all(settings: Settings, workspace: Workspace, plan: Plan, said: dict[str, Any]) -> list[FlowReport]:
    from sluice.flows.copies import copying
    from sluice.lake.report import FlowReport
    from sluice.lake.workspace import Workspace
    from sluice.runs.execution import stages

    source = Workspace(settings, workspace.graph, workspace.session, workspace.run, workspace.mode)
    key = chance.token_bytes(32)  # nobody keeps it: no stand-in leads back
    reports: list[FlowReport] = []
    for one in plan.tables:
        report = FlowReport(flow=one.name, layer=CLONE)
        reports.append(report)
        path = workspace.settings.lake + one.path.removeprefix(settings.lake)
        workspace.note(f"clone_{one.name}")
        asked = copying.Asked(one.path, one.version, path, one.dataset, one.private, plan.joining | set(one.keys))
        try:
            made = copying.shallow(source, asked, report) if plan.kind == SHALLOW else copying.copy(source, asked, key, report)
        except Exception as error:
            raise stages.Failed(reports, {one.name: error}) from None
        report.version_after = log.version(path)
        report.seconds = round(time.monotonic() - report.started, 2)
        said["tables"][one.name] = {"version": one.version, "left_out": made.left_out, "stand_ins": made.stand_ins}
    said["finished"] = True
    _keep(clones.file(workspace.settings, workspace.pipeline), said)
    return reports


def _keep(file: Path, said: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.tmp")
    temporary.write_text(json.dumps(said, indent=1))
    temporary.replace(file)
