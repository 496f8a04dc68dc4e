"""Upkeep that delta-rs does starts no Spark: it is run, recorded and reported like a job's, and what needs Spark is left to a job."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice import optimize
from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import StopRequested
from sluice.lake import commit_history, small_writes
from sluice.lake.small_writes import SmallWriteFailed
from sluice.locations import locate
from sluice.own_records import LINEAGE_EVENTS
from sluice.pipeline_stages import DELETIONS, OPTIMIZE, VACUUM, list_stage_names
from sluice.runs import quiet, run_ledger, stage_run, task_without_spark
from sluice.runs.execution import stages
from sluice.runs.job import JobRequest
from sluice.runs.lease import lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

sales = Source(name="sales", format="csv", path="sales", comment="Sales.", schema="id INT, at TIMESTAMP")
UPKEEP = (DELETIONS.name, OPTIMIZE.name, VACUUM.name)


@table(reads="sales", keys="id", zorder_by="at")
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "at")


def shop(settings: Settings, spark: SparkSession, source: Source = sales) -> Lakehouse:
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver"), retain="7 days")
    declared = [source, replace(sale, declared_in="shop.silver")]  # type: ignore[type-var]
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, declared))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    made = shop(settings, spark)
    monkeypatch.setattr(task_without_spark, "load_declaration_graph", lambda settings, pipeline: made.graph)
    monkeypatch.setattr(task_without_spark, "load_pipeline_lake", lambda settings, pipeline: made.lake)
    made.land("sales/1.csv", "id,at\n1,2026-01-01 00:00:00\n")
    return made


def run_layers(lake: Lakehouse, run: str) -> None:
    for stage in lake.graph.pipeline.layer_names:
        run_job(lake, run, stage)


def run_job(lake: Lakehouse, run: str, stage: str) -> dict[str, Any]:
    with lock.hold_writer_lease(lake.records, lake.spark, run, 0):
        workspace = lake.workspace(run=run)
        return stage_run.record_stage_run(
            workspace,
            JobRequest("shop", stage, run=run),
            lambda: stages.run_pipeline_stage(workspace, stage),
            towards_quiet=True,
        )


def read_lineage_events(lake: Lakehouse) -> list[dict[str, Any]]:
    folder = locate(lake.records.bookkeeping(LINEAGE_EVENTS.name))
    return [json.loads(line) for file in sorted(folder.rglob("*.json*")) for line in file.read_text().splitlines()]


def take_turn(lake: Lakehouse, stage: str, run: str = "r") -> dict[str, Any] | None:
    """What a task of Airflow asks before it submits."""
    found = task_without_spark.run_stages_without_spark(lake.settings, JobRequest("shop", stage, run=run), [stage])
    return found[0] if found else None


def test_small_tables_are_laid_out_and_the_run_ends_quiet_without_spark(lake: Lakehouse) -> None:
    for number in range(2, 5):
        run_layers(lake, uuid.uuid4().hex)
        lake.land(f"sales/{number}.csv", f"id,at\n{number},2026-01-0{number} 00:00:00\n")
    run_layers(lake, "r")
    before = lake.versions()
    reports = {stage: take_turn(lake, stage) for stage in UPKEEP}
    assert None not in reports.values()
    laid_out = {one["flow"]: one for one in (reports[OPTIMIZE.name] or {})["flows"]}
    assert lake.versions()["sales"] == before["sales"] + 1 == laid_out["sales"]["version_after"]
    assert laid_out["sales"]["note"].startswith("4 files > 1")
    assert lake.rows("sale", "id") == [(1,), (2,), (3,), (4,)]
    last = commit_history.read_commit_history(lake.workspace().path("sales"))[0]
    assert (last["operation"], last["note"]["run"], last["note"]["flow"]) == ("OPTIMIZE", "r", OPTIMIZE.name)
    assert {row["stage"] for row in run_ledger.read_run_ledger(lake.records) if row["run"] == "r"} >= {*UPKEEP[1:], "silver"}
    run_job(lake, "r", list_stage_names(lake.graph.pipeline)[-1])
    run_layers(lake, "r2")
    for stage in UPKEEP:
        assert "quiet_since" not in (take_turn(lake, stage, "r2") or {"quiet_since": "no report"})
    run_job(lake, "r2", list_stage_names(lake.graph.pipeline)[-1])
    mark = quiet.read_quiet_mark(lake.records)
    assert mark is not None and mark.until is not None, "stages without Spark lead to a quiet pipeline, too"


def test_what_needs_spark_is_left_to_a_job(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    run_layers(lake, "r")
    rows = len(run_ledger.read_run_ledger(lake.records))
    assert take_turn(lake, "silver") is None, "its record names nothing that could say so"
    with lock.hold_writer_lease(lake.records, lake.spark, "other", 0):
        assert take_turn(lake, OPTIMIZE.name) is None, "another holds the lease: the job waits for it"
    with monkeypatch.context() as patch:
        patch.setattr(optimize, "_holds_microseconds", lambda path: False)
        assert take_turn(lake, OPTIMIZE.name) is None, "files with INT96 are Spark's"
    with monkeypatch.context() as patch:
        patch.setattr(small_writes, "MOST_REWRITTEN_BYTES", 1)
        for number in (2, 3):
            lake.land(f"sales/{number}.csv", f"id,at\n{number},2026-01-0{number} 00:00:00\n")
            run_layers(lake, "r")
        rows = len(run_ledger.read_run_ledger(lake.records))
        assert take_turn(lake, OPTIMIZE.name) is None, "too large for delta-rs"
    lake.graph = shop(lake.settings, lake.spark, replace(sales, keep_for="9000 days", dated_by="at")).graph
    assert take_turn(lake, DELETIONS.name) is None, "somebody has to look for what is too old"
    assert len(run_ledger.read_run_ledger(lake.records)) == rows, "nothing is recorded that was not done"


def test_a_lake_that_is_not_there_stays_away_and_a_request_to_stop_is_obeyed(lake: Lakehouse) -> None:
    assert {take_turn(lake, stage) for stage in UPKEEP} == {None}
    assert not locate(lake.records.bookkeeping()).exists(), "not even the folder of a lease"
    run_layers(lake, "r")
    request = lake.records.stop_request("r")
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    for stage in (OPTIMIZE.name, VACUUM.name):
        with pytest.raises(StopRequested):
            take_turn(lake, stage)


@pytest.mark.thorough
def test_where_restricted_tables_are_not_mounted_a_job_does_it(lake: Lakehouse) -> None:
    hidden = replace(sale, restricted=True, declared_in="shop.silver")
    lake.graph = build_declaration_graph(lake.graph.pipeline, [sales, hidden])  # type: ignore[list-item]
    run_layers(lake, "r")
    assert take_turn(lake, OPTIMIZE.name) is not None
    mounted, elsewhere = Path(str(lake.settings.restricted)), Path(f"{lake.settings.restricted}-elsewhere")
    mounted.rename(elsewhere)
    for stage in (OPTIMIZE.name, VACUUM.name):
        assert take_turn(lake, stage) is None
    assert not mounted.exists(), "nothing is made where they should be"
    elsewhere.rename(mounted)
    assert take_turn(lake, VACUUM.name) is not None


@pytest.mark.thorough
def test_where_delta_rs_fails_the_job_does_it_and_the_pipeline_gets_quiet(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (2, 3):
        run_layers(lake, uuid.uuid4().hex)
        lake.land(f"sales/{number}.csv", f"id,at\n{number},2026-01-0{number} 00:00:00\n")
    run_layers(lake, "r")
    assert take_turn(lake, DELETIONS.name) is not None

    def fail(*arguments: object) -> tuple[int, int]:
        raise SmallWriteFailed("delta-rs failed")

    before = lake.versions()["sales"]
    with monkeypatch.context() as patch:
        patch.setattr(small_writes, "lay_out_small_table", fail)
        patch.setattr(lake, "settings", replace(lake.settings, openlineage_file=True))
        assert take_turn(lake, OPTIMIZE.name) is None
        assert lake.versions()["sales"] == before
        assert [one["eventType"] for one in read_lineage_events(lake)][-2:] == ["START", "ABORT"]
        report = run_job(lake, "r", OPTIMIZE.name)
    assert next(one for one in report["flows"] if one["flow"] == "sales")["note"].startswith("3 files > 1")
    states = [row["state"] for row in run_ledger.read_run_ledger(lake.records) if row["stage"] == OPTIMIZE.name]
    assert set(states) == {"done"}
    assert take_turn(lake, VACUUM.name) is not None
    mark = quiet.read_quiet_mark(lake.records)
    assert mark is not None and OPTIMIZE.name in mark.stages, "what was left to the job takes nothing from the mark"
