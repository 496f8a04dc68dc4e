"""Sends what a stage did as OpenLineage events: a run for the stage, one below it for each table, and one for the rules of a table.

Events hold names of tables and columns, versions, counts and types; no value, condition or path, and no text of a declaration or an error.
They are made from what the engine knows at the end of a flow, because Spark's listener loses streams and merges. Sending never fails a run.
`openlineage-python` is loaded only if events are asked for.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sluice import delta_log
from sluice.column_origins import Origin, TableOrigins
from sluice.declare.assembly.graph import Graph
from sluice.lake import commit_history, log
from sluice.locations import is_on_disk, locate
from sluice.pipeline_records import LINEAGE_EVENTS, PipelineRecords
from sluice.private_files import make_private_folder
from sluice.runs.status.column_lineage import read_column_lineage
from sluice.settings import Settings

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

NAMESPACE = "sluice"
"""The namespace of all jobs and tables. A table is named <pipeline>.<table>, wherever its files lie."""
PRODUCER = "urn:sluice"
_SECONDS = 5.0
_PARENT = ("spark.openlineage.parentRunId", "spark.openlineage.parentJobNamespace", "spark.openlineage.parentJobName")
"""The properties that Airflow's provider puts into a job's configuration, with [openlineage] spark_inject_parent_job_info."""


@dataclass(frozen=True)
class StageIdentity:
    """The stage's run. parent: run id, namespace and name of the job that started it; None if unknown."""

    pipeline: str
    stage: str
    run: str
    began: datetime
    parent: tuple[str, str, str] | None = None

    def run_id(self, *parts: str) -> str:
        """Returns the id of the stage's run, or of a run below it; the same at each call."""
        named = "/".join((self.pipeline, self.stage, self.run, self.began.isoformat(), *parts))
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{PRODUCER}/{named}"))

    def job_name(self, *parts: str) -> str:
        """Returns the name of the stage's job, or of one below it."""
        return ".".join((self.pipeline, self.stage, *parts))


def find_parent_run(read_conf: Callable[[str], str | None]) -> tuple[str, str, str] | None:
    """Finds the run that started this job: by Spark's configuration, otherwise by OPENLINEAGE_PARENT_ID (namespace/name/run id)."""
    said = [read_conf(name) for name in _PARENT]
    if said[0] and said[1] and said[2]:
        return (said[0], said[1], said[2])
    namespace, _, rest = (os.environ.get("OPENLINEAGE_PARENT_ID") or "").partition("/")
    name, _, run = rest.rpartition("/")
    return (run, namespace, name) if run and name else None


def send_stage_start(settings: Settings, identity: StageIdentity) -> None:
    """Sends that a stage began, if events are configured."""
    if settings.sends_lineage:
        _send_events(settings, identity.pipeline, lambda: [_build_event(identity, "START", identity.began)])


def send_stage_end(
    settings: Settings, graph: Graph, identity: StageIdentity, flows: Collection[Mapping[str, Any]], failed: bool
) -> None:
    """Sends what a stage did, if events are configured. flows: of its report; only those that did something are sent."""
    if settings.sends_lineage:
        _send_events(settings, identity.pipeline, lambda: _build_end_events(settings, graph, identity, flows, failed))


def _build_end_events(
    settings: Settings, graph: Graph, identity: StageIdentity, flows: Collection[Mapping[str, Any]], failed: bool
) -> list[RunEvent]:
    known, now = read_column_lineage(graph.records(settings)), datetime.now(UTC)
    events: list[RunEvent] = []
    for flow in flows:
        table = str(flow["flow"])
        wrong = str(flow["note"]).endswith("failed")
        if table not in graph.stored or not (wrong or flow["version_before"] != flow["version_after"]):
            continue
        inputs = _describe_inputs(settings, graph, table)
        outputs = [_describe_output(graph, flow, known.get(table))]
        events.append(_build_event(identity, "START", identity.began, table, inputs=inputs))
        events.append(_build_event(identity, "FAIL" if wrong else "COMPLETE", now, table, inputs=inputs, outputs=outputs))
        if rules := _describe_rules(graph, flow):
            events.append(_build_event(identity, "START", now, table, "rules", inputs=[rules]))
            events.append(_build_event(identity, "COMPLETE", now, table, "rules", inputs=[rules]))
    return [*events, _build_event(identity, "FAIL" if failed else "COMPLETE", now)]


def _build_event(
    identity: StageIdentity,
    state: str,
    at: datetime,
    *parts: str,
    inputs: list[InputDataset] | None = None,
    outputs: list[OutputDataset] | None = None,
) -> RunEvent:
    """Makes an event of the stage's run, or of a run below it."""
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import job_type_job, parent_run

    above = (identity.run_id(), NAMESPACE, identity.job_name()) if parts else identity.parent
    facets: dict[str, Any] = {}
    if above is not None:
        run, namespace, name = above
        facets["parent"] = parent_run.ParentRunFacet(
            run=parent_run.Run(runId=run), job=parent_run.Job(namespace=namespace, name=name), producer=PRODUCER
        )
    kind = job_type_job.JobTypeJobFacet(
        processingType="BATCH", integration="SLUICE", jobType="TABLE" if parts else "STAGE", producer=PRODUCER
    )
    return RunEvent(
        eventType=RunState[state],
        eventTime=at.isoformat(),
        run=Run(runId=identity.run_id(*parts), facets=facets),
        job=Job(namespace=NAMESPACE, name=identity.job_name(*parts), facets={"jobType": kind}),
        inputs=inputs or [],
        outputs=outputs or [],
        producer=PRODUCER,
    )


def _describe_inputs(settings: Settings, graph: Graph, table: str) -> list[InputDataset]:
    """Describes a table's inputs, each in the version that its last commit notes, or in its present version."""
    from openlineage.client.event_v2 import InputDataset

    path = graph.location(settings, table)
    commits = commit_history.read_commit_history(path, 1) if delta_log.is_delta_table(path) else []
    pinned: Mapping[str, int] = ((commits[0]["note"] or {}).get("inputs") or {}) if commits else {}
    found = []
    for name in graph[table].reads:
        version = pinned.get(name, log.latest_table_version(graph.location(settings, name)))
        found.append(InputDataset(NAMESPACE, _dataset_name(graph, name), facets=_describe_version(version)))
    return found


def _describe_output(graph: Graph, flow: Mapping[str, Any], known: TableOrigins | None) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import column_lineage_dataset, output_statistics_output_dataset, schema_dataset

    facets: dict[str, Any] = _describe_version(flow["version_after"])
    if known is not None:
        columns = [schema_dataset.SchemaDatasetFacetFields(name=one.name, type=one.type) for one in known.columns]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns, producer=PRODUCER)
        facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
            fields={
                one.name: column_lineage_dataset.Fields(
                    inputFields=[_describe_origin(graph, origin, "DIRECT", one.treated is not None) for origin in one.origins]
                )
                for one in known.columns
                if one.origins
            },
            dataset=[_describe_origin(graph, origin, "INDIRECT", False) for origin in known.rows_by],
            producer=PRODUCER,
        )
    files = flow["table_files"] or {}
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=flow["rows_out"], size=files.get("bytes"), fileCount=files.get("added"), producer=PRODUCER
    )
    name = _dataset_name(graph, str(flow["flow"]))
    return OutputDataset(NAMESPACE, name, facets=facets, outputFacets={"outputStatistics": statistics})


def _describe_origin(graph: Graph, origin: Origin, kind: str, masked: bool) -> Any:
    from openlineage.client.facet_v2 import column_lineage_dataset

    way = column_lineage_dataset.Transformation(type=kind, subtype=origin.way.replace(" ", "_").upper(), masking=masked)
    name = _dataset_name(graph, origin.table)
    return column_lineage_dataset.InputField(namespace=NAMESPACE, name=name, field=origin.column, transformations=[way])


def _describe_version(version: int | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset

    if version is None:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(version), producer=PRODUCER)}


def _describe_rules(graph: Graph, flow: Mapping[str, Any]) -> InputDataset | None:
    """Describes what a table's rules found: by name, whether all rows met them and how many did not. None if it has no rules."""
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import data_quality_assertions_dataset

    declared = graph[str(flow["flow"])]
    counts: dict[str, int] = {rule.name: int(flow["rules"].get(rule.name, 0)) for rule in declared.expectations}
    counts |= {name: int(told["count"] or 0) if told["met"] is False else 0 for name, told in flow["table_rules"].items()}
    if not counts:
        return None
    assertions = [
        data_quality_assertions_dataset.Assertion(assertion=name, name=name, success=not count, actual=str(count))
        for name, count in counts.items()
    ]
    facet = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(assertions=assertions, producer=PRODUCER)
    name = _dataset_name(graph, declared.name)
    facets = _describe_version(flow["version_after"])
    return InputDataset(NAMESPACE, name, facets=facets, inputFacets={"dataQualityAssertions": facet})


def _dataset_name(graph: Graph, table: str) -> str:
    return f"{graph.pipeline.name}.{graph.table_of(table)}"


def _send_events(settings: Settings, pipeline: str, build: Callable[[], list[RunEvent]]) -> None:
    """Sends events in order. If one cannot be sent, no other is tried: an absent server must not hold up the run."""
    count, sent = 1, 0
    try:
        events = build()
        count = len(events)
        with _open_client(settings, pipeline) as client:
            for event in events:
                client.emit(event)
                sent += 1
    except Exception as error:  # in any case the run has done its work
        left = count - sent
        print(f"OpenLineage: {left} {'event' if left == 1 else 'events'} not sent ({type(error).__name__})", file=sys.stderr)


@contextmanager
def _open_client(settings: Settings, pipeline: str) -> Iterator[Any]:
    """A client whose events go to the server, to the end of events.jsonl, or on a store, where nothing is appended, to an object of their own."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.file import FileConfig, FileTransport
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    if settings.openlineage_url:
        config = HttpConfig.from_dict({"url": settings.openlineage_url, "timeout": _SECONDS, "retry": {"total": 0}})
        yield OpenLineageClient(transport=HttpTransport(config))
        return
    folder = locate(PipelineRecords(settings, pipeline).bookkeeping(LINEAGE_EVENTS))
    make_private_folder(folder)
    with TemporaryDirectory(prefix="sluice-events-") as local:
        file = (folder if is_on_disk(folder) else locate(local)) / "events.jsonl"
        file.touch(mode=0o600)
        try:
            yield OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(file), append=True)))
        finally:
            if not is_on_disk(folder) and (content := file.read_bytes()):
                (folder / f"events-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.jsonl").write_bytes(content)
