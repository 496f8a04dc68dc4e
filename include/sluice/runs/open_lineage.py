"""Sends what a stage did as OpenLineage events: a run for the stage, one below it for each table, and one for the rules of a table.

Events hold names of tables and columns, versions, counts and types; no value, condition or path, and no text of a declaration or an error.
They are made from what the engine knows at the end of a flow, because Spark's listener loses streams and merges. A view that is computed when
it is read has no runs: it is a job of its own, whose event is sent again when a table below it changes. `openlineage-python` is loaded only
if events are configured.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.column_origins import TableOrigins
from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.computed import View
from sluice.declare.expansion import resolve_computed_views
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.lineage_datasets import (
    NAMESPACE,
    PRODUCER,
    describe_columns,
    describe_inputs,
    describe_output,
    describe_rules,
    name_dataset,
)
from sluice.runs.lineage_sending import send_lineage_events
from sluice.runs.status.column_lineage_record import read_column_lineage
from sluice.settings import LINEAGE_PARENT, LINEAGE_ROOT, Settings

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, Job, JobEvent, OutputDataset, RunEvent

RunName = tuple[str, str, str]
"""A run's id, and the namespace and name of its job."""


@dataclass(frozen=True)
class ParentRun:
    """The run that started a stage. root: the run at the top, such as that of the DAG; None if unknown."""

    above: RunName
    root: RunName | None = None


@dataclass(frozen=True)
class StageIdentity:
    """The stage's run. parent: the run that started it; None if unknown."""

    pipeline: str
    stage: str
    run: str
    began: datetime
    parent: ParentRun | None = None

    def run_id(self, *parts: str) -> str:
        """Returns the id of the stage's run, or of a run below it; the same at each call."""
        named = "/".join((self.pipeline, self.stage, self.run, self.began.isoformat(), *parts))
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}/{named}"))

    def job_name(self, *parts: str) -> str:
        """Returns the name of the stage's job, or of one below it."""
        return ".".join((self.pipeline, self.stage, *parts))


def find_parent_run(read_conf: Callable[[str], str | None]) -> ParentRun | None:
    """Finds the run that started this job, and the one at the top: both by Spark's configuration, otherwise both by the environment.

    The latter are OPENLINEAGE_PARENT_ID and OPENLINEAGE_ROOT_PARENT_ID, each as namespace/name/run id. A run whose id is no UUID is left out,
    because no event could name it.
    """
    if above := _name_run(*(read_conf(one) for one in LINEAGE_PARENT)):
        return ParentRun(above, _name_run(*(read_conf(one) for one in LINEAGE_ROOT)))
    above = _read_run_variable("OPENLINEAGE_PARENT_ID")
    return ParentRun(above, _read_run_variable("OPENLINEAGE_ROOT_PARENT_ID")) if above else None


def _read_run_variable(variable: str) -> RunName | None:
    namespace, _, rest = os.environ.get(variable, "").partition("/")
    name, _, run = rest.rpartition("/")
    return _name_run(run, namespace, name)


def _name_run(run: str | None, namespace: str | None, name: str | None) -> RunName | None:
    try:
        return (str(uuid.UUID(run)), namespace, name) if run and namespace and name else None
    except ValueError:
        return None


def send_stage_start(settings: Settings, identity: StageIdentity) -> None:
    """Sends that a stage began, if events are configured."""
    if settings.sends_lineage:
        send_lineage_events(settings, identity.pipeline, lambda: [_build_event(identity, "START", identity.began)])


def send_stage_end(
    lake: PipelineLake,
    identity: StageIdentity,
    flows: Collection[Mapping[str, Any]],
    failed: bool,
    failed_flows: Collection[str] = (),
) -> None:
    """Sends what a stage did, if events are configured. flows: of its report; only those that did something or failed are sent."""
    if lake.settings.sends_lineage:
        send_lineage_events(
            lake.settings, identity.pipeline, lambda: _build_end_events(lake, identity, flows, failed, failed_flows)
        )


def send_stage_abort(settings: Settings, identity: StageIdentity) -> None:
    """Sends that a stage ended before it did anything that counts, such as one that is left to another process."""
    if settings.sends_lineage:
        send_lineage_events(settings, identity.pipeline, lambda: [_build_event(identity, "ABORT", datetime.now(UTC))])


def _build_end_events(
    lake: PipelineLake,
    identity: StageIdentity,
    flows: Collection[Mapping[str, Any]],
    failed: bool,
    failed_flows: Collection[str],
) -> list[RunEvent | JobEvent]:
    known, now = read_column_lineage(lake.records), datetime.now(UTC)
    events: list[RunEvent | JobEvent] = []
    changed: set[str] = set()
    for flow in flows:
        table = str(flow["flow"])
        wrong = table in failed_flows
        if table not in lake.graph.stored or not (wrong or flow["version_before"] != flow["version_after"]):
            continue
        inputs = describe_inputs(lake, table)
        outputs = [describe_output(lake.graph, flow, known.get(table))]
        if flow["version_before"] != flow["version_after"]:
            changed.add(table)
        events.append(_build_event(identity, "START", identity.began, table, inputs=inputs))
        events.append(_build_event(identity, "FAIL" if wrong else "COMPLETE", now, table, inputs=inputs, outputs=outputs))
        if rules := describe_rules(lake.graph, flow):
            events.append(_build_event(identity, "START", now, table, "rules", inputs=[rules]))
            events.append(_build_event(identity, "COMPLETE", now, table, "rules", inputs=[rules]))
    events += [
        _build_view_event(lake.graph, view, known[view.name], now)
        for view in _list_views_of(lake.graph, changed)
        if view.name in known and known[view.name].columns
    ]
    return [*events, _build_event(identity, "FAIL" if failed else "COMPLETE", now)]


def _list_views_of(graph: Graph, changed: Collection[str]) -> Iterator[View[Any]]:
    """Yields the computed views that read any of these tables, directly or through other views."""
    for view in graph.computed.values():
        below = {name for one in resolve_computed_views(graph.computed, (view.name,)) for name in one.reads}
        if not below.isdisjoint(changed):
            yield view


def _build_view_event(graph: Graph, view: View[Any], known: TableOrigins, at: datetime) -> JobEvent:
    """Makes the event that says what a computed view is made of."""
    from openlineage.client.event_v2 import InputDataset, JobEvent, OutputDataset
    from openlineage.client.facet_v2 import dataset_type_dataset

    kind = dataset_type_dataset.DatasetTypeDatasetFacet(datasetType="VIEW", producer=PRODUCER)
    facets = {"datasetType": kind, **describe_columns(graph, known)}
    return JobEvent(
        eventTime=at.isoformat(),
        job=_describe_job(f"{graph.pipeline.name}.{view.name}", "VIEW"),
        inputs=[InputDataset(NAMESPACE, name_dataset(graph, name)) for name in view.reads],
        outputs=[OutputDataset(NAMESPACE, name_dataset(graph, view.name), facets=facets)],
        producer=PRODUCER,
    )


def _build_event(
    identity: StageIdentity,
    state: str,
    at: datetime,
    *parts: str,
    inputs: list[InputDataset] | None = None,
    outputs: list[OutputDataset] | None = None,
) -> RunEvent:
    """Makes an event of the stage's run, or of a run below it."""
    from openlineage.client.event_v2 import Run, RunEvent, RunState

    facets: dict[str, Any] = {}
    if parent := _find_run_above(identity) if parts else identity.parent:
        facets["parent"] = _describe_parent(parent)
    return RunEvent(
        eventType=RunState[state],
        eventTime=at.isoformat(),
        run=Run(runId=identity.run_id(*parts), facets=facets),
        job=_describe_job(identity.job_name(*parts), "TABLE" if parts else "STAGE"),
        inputs=inputs or [],
        outputs=outputs or [],
        producer=PRODUCER,
    )


def _find_run_above(identity: StageIdentity) -> ParentRun:
    """Returns the stage's own run, as the parent of those below it."""
    above = (identity.run_id(), NAMESPACE, identity.job_name())
    return ParentRun(above, (identity.parent.root or identity.parent.above) if identity.parent else above)


def _describe_parent(parent: ParentRun) -> Any:
    from openlineage.client.facet_v2 import parent_run

    run, namespace, name = parent.above
    root = None
    if parent.root is not None:
        root_run, root_namespace, root_name = parent.root
        root = parent_run.Root(run=parent_run.RootRun(runId=root_run), job=parent_run.RootJob(root_namespace, root_name))
    return parent_run.ParentRunFacet(
        run=parent_run.Run(runId=run), job=parent_run.Job(namespace=namespace, name=name), root=root, producer=PRODUCER
    )


def _describe_job(name: str, kind: str) -> Job:
    from openlineage.client.event_v2 import Job
    from openlineage.client.facet_v2 import job_type_job

    facet = job_type_job.JobTypeJobFacet(processingType="BATCH", integration="SLUICE", jobType=kind, producer=PRODUCER)
    return Job(namespace=NAMESPACE, name=name, facets={"jobType": facet})
