"""OpenLineage events: what a server gets, what a file has, and that sending never fails a run. Without the client, skipped and counted."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sluice.column_origins import Origin, TableOrigins, TracedColumn
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import open_lineage
from sluice.runs.open_lineage import ParentRun, StageIdentity
from sluice.runs.status.column_lineage_record import write_column_lineage
from sluice.settings import Settings

if not os.environ.get("CI"):
    pytest.importorskip("openlineage.client", reason="openlineage-python is not installed: pip install -r requirements.txt")

PARENT = ("01981c4a-0000-7000-8000-000000000001", "airflow", "gym.gold")
ROOT = ("01981c4a-0000-7000-8000-000000000002", "airflow", "gym")
IDENTITY = StageIdentity("gym", "gold", "r1", datetime(2026, 11, 21, 2, tzinfo=UTC), ParentRun(PARENT, ROOT))


def flow(table: str, **said: Any) -> dict[str, Any]:
    common = {"flow": table, "layer": "gold", "version_before": 3, "version_after": 4, "rows_out": 7, "note": ""}
    return {**common, "table_files": {"bytes": 900, "added": 2}, "rules": {}, "table_rules": {}, **said}


@pytest.fixture
def received() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server's address, and what it is sent."""
    events: list[dict[str, Any]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", events
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def traced(settings: Settings) -> PipelineRecords:
    records = PipelineRecords(settings, "gym")
    Path(records.bookkeeping()).mkdir(parents=True)
    mean = TracedColumn("mean", "double", (Origin("heart_rate", "bpm", "aggregation"),), treated="round")
    write_column_lineage(
        records,
        {
            "device_day": TableOrigins("device_day", "m", (mean,), (Origin("heart_rate", "time", "group by"),)),
            "members_for_coaches": TableOrigins(
                "members_for_coaches", "m", (TracedColumn("city", "string", (Origin("members", "city", "identity"),)),)
            ),
        },
    )
    return records


def send_all(settings: Settings, flows: list[dict[str, Any]], *failed: str) -> None:
    open_lineage.send_stage_start(settings, IDENTITY)
    open_lineage.send_stage_end(
        PipelineLake(settings, load_declaration_graph(settings, "gym")), IDENTITY, flows, bool(failed), failed
    )


def test_a_server_gets_the_stage_and_each_table_that_changed(
    settings: Settings, received: tuple[str, list[dict[str, Any]]], capsys: pytest.CaptureFixture[str]
) -> None:
    address, events = received
    idle = flow("member_day", version_after=3)
    send_all(
        replace(settings, openlineage_url=address), [flow("device_day", table_rules={"enough": {"met": False, "count": 2}}), idle]
    )
    assert [(one["job"]["name"], one["eventType"]) for one in events] == [
        ("gym.gold", "START"),
        ("gym.gold.device_day", "START"),
        ("gym.gold.device_day", "COMPLETE"),
        ("gym.gold.device_day.rules", "START"),
        ("gym.gold.device_day.rules", "COMPLETE"),
        ("gym.gold", "COMPLETE"),
    ]
    assert capsys.readouterr().err == ""
    stage, done, ruled = events[0], events[2], events[4]
    for event, above in ((stage, PARENT[0]), (done, stage["run"]["runId"]), (ruled, stage["run"]["runId"])):
        parent = event["run"]["facets"]["parent"]
        assert (parent["run"]["runId"], parent["root"]["run"]["runId"]) == (above, ROOT[0])
        assert (parent["root"]["job"]["namespace"], parent["root"]["job"]["name"]) == ROOT[1:]
    assert done["run"]["facets"]["parent"]["run"]["runId"] == stage["run"]["runId"] == events[-1]["run"]["runId"]
    output = done["outputs"][0]
    assert (output["namespace"], output["name"]) == ("sluice", "gym.device_day")
    assert output["facets"]["version"]["datasetVersion"] == "4"
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 7
    lineage = output["facets"]["columnLineage"]
    [source] = lineage["fields"]["mean"]["inputFields"]
    assert (source["name"], source["field"]) == ("gym.heart_rate", "bpm")
    [way] = source["transformations"]
    assert (way["type"], way["subtype"], way["masking"]) == ("DIRECT", "AGGREGATION", True)
    assert lineage["dataset"][0]["transformations"][0]["subtype"] == "GROUP_BY"
    assertions = ruled["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {one["name"]: one["success"] for one in assertions if one["name"] == "enough"} == {"enough": False}
    assert {"gym.heart_rate"} <= {one["name"] for one in done["inputs"]}


def test_a_view_without_a_table_is_a_job_of_what_it_reads(settings: Settings, received: tuple[str, list[dict[str, Any]]]) -> None:
    address, events = received
    send_all(replace(settings, openlineage_url=address), [flow("device_day"), flow("members", layer="silver")])
    [told] = [one for one in events if "run" not in one]
    assert told["job"]["name"] == "gym.members_for_coaches" and told["job"]["facets"]["jobType"]["jobType"] == "VIEW"
    assert [one["name"] for one in told["inputs"]] == ["gym.members"]
    [output] = told["outputs"]
    assert output["name"] == "gym.members_for_coaches" and output["facets"]["datasetType"]["datasetType"] == "VIEW"
    [source] = output["facets"]["columnLineage"]["fields"]["city"]["inputFields"]
    assert (source["name"], source["field"]) == ("gym.members", "city")
    events.clear()
    send_all(replace(settings, openlineage_url=address), [flow("device_day")])
    assert all("run" in one for one in events), "nothing below the view has changed"
    events.clear()
    send_all(replace(settings, openlineage_url=address), [flow("members", version_after=3)], "members")
    assert all("run" in one for one in events), "nor by a flow that failed before it wrote"
    assert ("gym.gold.members", "FAIL") in [(one["job"]["name"], one["eventType"]) for one in events]


def test_events_fit_the_models_of_the_client(settings: Settings, received: tuple[str, list[dict[str, Any]]]) -> None:
    from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    address, events = received
    send_all(replace(settings, openlineage_url=address), [flow("device_day")])
    for one in events:
        RunEvent(
            eventType=RunState[one["eventType"]],
            eventTime=one["eventTime"],
            run=Run(runId=one["run"]["runId"]),
            job=Job(namespace=one["job"]["namespace"], name=one["job"]["name"]),
            producer=one["producer"],
        )
    facet = events[2]["outputs"][0]["facets"]["columnLineage"]
    assert facet["_schemaURL"] == lineage.ColumnLineageDatasetFacet._get_schema()
    for field in facet["fields"]["mean"]["inputFields"]:
        lineage.InputField(**{**field, "transformations": [lineage.Transformation(**one) for one in field["transformations"]]})


def test_a_stage_that_failed_says_so_without_why(settings: Settings, traced: PipelineRecords) -> None:
    send_all(replace(settings, openlineage_file=True), [flow("device_day", note="who = 'lovelace'; failed")], "device_day")
    text = Path(traced.bookkeeping("openlineage/events.jsonl")).read_text()
    events = [json.loads(line) for line in text.splitlines()]
    assert [one["eventType"] for one in events if one["job"]["name"] in {"gym.gold", "gym.gold.device_day"}] == [
        "START", "START", "FAIL", "FAIL",
    ]  # fmt: skip
    assert "lovelace" not in text and str(settings.lake) not in text


def test_a_server_that_is_away_fails_nothing_and_says_how_many_events_are_lost(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    send_all(replace(settings, openlineage_url="http://127.0.0.1:9"), [flow("device_day")])
    said = capsys.readouterr().err
    assert "OpenLineage: 1 event not sent" in said and "OpenLineage: 3 events not sent" in said


def test_nothing_is_sent_unless_it_is_asked_for(settings: Settings, traced: PipelineRecords) -> None:
    send_all(settings, [flow("device_day")])
    assert not Path(traced.bookkeeping("openlineage")).exists()


def test_the_parent_is_what_spark_was_told_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENLINEAGE_PARENT_ID", "OPENLINEAGE_ROOT_PARENT_ID"):
        monkeypatch.delenv(name, raising=False)
    assert open_lineage.find_parent_run(lambda name: None) is None
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"airflow/gym.gold/{PARENT[0]}")
    assert open_lineage.find_parent_run(lambda name: None) == ParentRun(PARENT)
    monkeypatch.setenv("OPENLINEAGE_ROOT_PARENT_ID", f"airflow/gym/{ROOT[0]}")
    assert open_lineage.find_parent_run(lambda name: None) == ParentRun(PARENT, ROOT)
    above, top = "01981c4a-0000-7000-8000-000000000003", "01981c4a-0000-7000-8000-000000000004"
    conf = {
        "spark.openlineage.parentRunId": above,
        "spark.openlineage.parentJobNamespace": "n",
        "spark.openlineage.parentJobName": "j",
    }
    assert open_lineage.find_parent_run(conf.get) == ParentRun((above, "n", "j")), "not with another DAG's run at the top"
    conf |= {
        "spark.openlineage.rootParentRunId": top,
        "spark.openlineage.rootParentJobNamespace": "N",
        "spark.openlineage.rootParentJobName": "J",
    }
    assert open_lineage.find_parent_run(conf.get) == ParentRun((above, "n", "j"), (top, "N", "J"))
    conf["spark.openlineage.rootParentRunId"] = "no uuid"
    assert open_lineage.find_parent_run(conf.get) == ParentRun((above, "n", "j")), "no event could name it"
