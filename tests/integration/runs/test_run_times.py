"""Where the time of a run goes is measured: steps of stages and flows, and what Spark counts of each flow's own jobs."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse, settings_at
from tests.waiting import until

from sluice import work_progress
from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError
from sluice.lake import spark_counters
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.runs import job, run_ledger
from sluice.runs.execution import stages
from sluice.runs.job import JobRequest
from sluice.runs.status.run_times import select_run_rows
from sluice.work_progress import Pace, TaskCount

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.lake.workspace import Workspace
    from sluice.settings import Settings

sales = Source(name="sales", format="csv", path="sales", comment="Sales.", schema="id INT, city STRING, amount DOUBLE")


@table(reads="sales", keys="id")
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "city", "amount")


@materialized_view(reads="sale", keys="city")
def by_city(sale: DataFrame) -> DataFrame:
    """Sales of a city."""
    return sale.groupBy("city").agg(F.sum("amount").alias("amount"))


def make_shop(settings: Settings, spark: SparkSession) -> Lakehouse:
    declared = [sales, replace(sale, declared_in="shop.silver"), replace(by_city, declared_in="shop.gold")]
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver", "shop.gold"))
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, declared))


def run_recorded(lake: Lakehouse, run: str) -> None:
    for stage in ("bronze", "silver", "gold"):
        request = JobRequest("shop", stage, run=run)
        job.run_under_lease(lake.lake, request, lambda found, name=stage: stages.run_pipeline_stage(found, name))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    return make_shop(settings, spark)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """After two runs."""
    made = make_shop(settings_at(tmp_path_factory.mktemp("recorded")), spark)
    made.land("sales/1.csv", "id,city,amount\n" + "".join(f"{number},c{number % 7},1\n" for number in range(50)))
    run_recorded(made, "one")
    made.land("sales/2.csv", "id,city,amount\n99,c1,5\n")
    run_recorded(made, "two")
    return made


def test_each_flow_and_stage_says_where_its_seconds_went(recorded: Lakehouse) -> None:
    rows = {
        (row["run"], row["flow"]): row for row in run_ledger.read_run_ledger(recorded.records) if row["run"] in ("one", "two")
    }
    assert {flow for _, flow in rows} == {"sales", "sale", "by_city"}
    for (run, flow), row in rows.items():
        assert 0 < sum(row["steps"].values()) <= row["seconds"] + 0.1, (run, flow)
        assert {"streaming", "computing", "writing"} <= row["steps"].keys(), (run, flow, row["steps"])
        assert row["stage_steps"]["tables"] >= row["seconds"] - 0.1
        assert row["spark"]["jobs"] >= 1 and row["spark"]["tasks"] >= 1, (run, flow)
        assert row["spark"]["cores"] >= 1 and row["spark"]["tables_bytes"] > 0
        assert row["stage_cpu_seconds"] > 0 and row["failure"] is None
        numbers = row["stream"]
        assert numbers["batches"] == 1 and "told_batches" not in numbers
        assert 0 < numbers["computing_seconds"] <= numbers["seconds"] == numbers["longest_batch_seconds"] <= row["seconds"] + 1
        assert row["table_files"]["files"] >= 1 and row["table_files"]["added"] >= 1
    assert "planning" in rows["two", "by_city"]["steps"] and "preparing" in rows["one", "sale"]["steps"]
    assert "looking for deliveries" in rows["one", "sales"]["stage_steps"]
    run = select_run_rows(list(rows.values()))
    assert run and [stage["stage"] for stage in run.stages] == ["bronze", "silver", "gold"]


def test_cpu_seconds_are_those_of_the_stage_alone_and_a_failure_has_its_kind(recorded: Lakehouse) -> None:
    used = spark_counters.measure_cpu_seconds(recorded.spark) or 0.0
    measured = {row["stage"]: row["stage_cpu_seconds"] for row in run_ledger.read_run_ledger(recorded.records)}
    assert sum(measured.values()) < used, "what the process took before is no stage's"

    def fail(found: Workspace) -> list[FlowReport]:
        raise FlowsFailed([FlowReport("sale", "silver")], {"sale": ValueError("[DIVIDE_BY_ZERO] in the row of 'ada'")})

    with pytest.raises(SluiceError):
        job.run_under_lease(recorded.lake, JobRequest("shop", "silver", run="three"), fail)
    row = run_ledger.read_run_ledger(recorded.records)[-1]
    assert (row["state"], row["failure"]) == ("failed", "DIVIDE_BY_ZERO")


@pytest.mark.thorough
def test_counts_that_cannot_be_read_are_left_out_and_the_run_is_recorded(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(session: object) -> object:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr(spark_counters, "_json_writer", fail)
    monkeypatch.setattr(spark_counters, "_spark_context", fail)
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n")
    run_recorded(lake, "one")
    rows = run_ledger.read_run_ledger(lake.records)
    assert {row["flow"]: row["spark"] for row in rows} == {"sales": {}, "sale": {}, "by_city": {}}
    assert all(row["steps"] for row in rows)


@pytest.mark.thorough
def test_jobs_of_flows_side_by_side_are_counted_apart(spark: SparkSession) -> None:
    since = spark_counters.count_started_jobs(spark)
    ours, theirs = spark.newSession(), spark.newSession()
    for session, times in ((ours, 1), (theirs, 3)):
        for _ in range(times):
            session.range(100, numPartitions=2).selectExpr("sum(id)").collect()
    tags = {"ours": [spark_counters.session_job_tag(ours)], "theirs": [spark_counters.session_job_tag(theirs)]}
    found = spark_counters.count_jobs_by_flow(spark, tags, since)
    assert 3 * found["ours"]["tasks"] == found["theirs"]["tasks"] > 0
    assert found["theirs"]["jobs"] == 3 * found["ours"]["jobs"]
    assert spark_counters.count_jobs_by_flow(spark, tags, spark_counters.count_started_jobs(spark)) == {}


def test_tasks_of_a_job_that_goes_on_are_told_while_it_does(spark: SparkSession, tmp_path: Path) -> None:
    ours = spark.newSession()
    tags = {"ours": [spark_counters.session_job_tag(ours)], "theirs": ["nobody"]}
    was_seen = str(tmp_path / "seen")

    def wait_until_seen(number: int) -> int:
        """The first task is soon done, and the others go on until the test has seen that."""
        time.sleep(0.3)
        while number and not Path(was_seen).exists():
            time.sleep(0.05)
        return number

    # By the annotations of a function, Spark would guess at its kind, and warn that it cannot.
    wait_until_seen.__annotations__.clear()
    slow = ours.range(6, numPartitions=6).select(F.udf(wait_until_seen, "int")(F.col("id").cast("int")))
    seen: list[tuple[str, TaskCount]] = []

    def is_one_done() -> bool:
        seen.extend(spark_counters.count_running_tasks(spark, tags).items())
        return any(count.done for _, count in seen)

    thread = threading.Thread(target=slow.collect)
    thread.start()
    try:
        until(is_one_done, what="the first task")
    finally:
        Path(was_seen).touch()
        thread.join()
    assert {subject for subject, _ in seen} == {"ours"}
    done = [count.done for _, count in seen]
    assert done == sorted(done) and {count.all for _, count in seen} == {6}
    until(lambda: spark_counters.count_running_tasks(spark, tags) == {}, what="the job")  # Spark notes its end a moment later


def test_a_recorded_run_says_how_far_each_flow_is(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(work_progress, "_LOOK_EVERY", 0.02)
    monkeypatch.setattr(work_progress, "IN_LOG", Pace(first=0.02, every=0.02, growth=1.0))
    lake.land("sales/1.csv", "id,city,amount\n" + "".join(f"{number},Samarkand,1\n" for number in range(500)))
    run_recorded(lake, "one")
    said = capsys.readouterr().err
    for words in (
        "sluice: shop, bronze: tables; sales; ",
        "sluice: shop, sales: computing; 0 of 1 deliveries (0%)",
        "sluice: shop, sale: ",
        "sluice: shop, by_city: ",
        " Spark tasks; ",
    ):
        assert words in said, said
    assert "Samarkand" not in said and "1.csv" not in said
