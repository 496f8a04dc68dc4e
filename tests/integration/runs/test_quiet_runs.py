"""When a run leaves nothing to do, the pipeline is marked quiet, and the next run takes no Spark; nothing is marked that a stage missed."""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source, expect_fresh, expect_row_count, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.interval import Interval
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.locations import locate
from sluice.pipeline_stages import VERIFY, list_stage_names
from sluice.runs import quiet, run_ledger, stage_run, task_without_spark
from sluice.runs.execution import stages, verifying
from sluice.runs.execution.stages import StageOptions
from sluice.runs.job import JobRequest
from sluice.runs.lease import lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

sales = Source(name="sales", format="csv", path="sales", comment="Sales.", schema="id INT, at TIMESTAMP")
DAY = Interval.of("2026-01-01", "2026-01-01")


@table(reads="sales", keys="id")
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "at")


@table(reads="sales", keys="id", name="sale")
@expect_row_count("full", at_least=5)
def full_sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "at")


@table(reads="sales", keys="id", name="sale")
@expect_fresh("new", "at", within="3650 days")
def fresh_sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "at")


def shop(settings: Settings, spark: SparkSession, source: Source = sales, silver: object = sale) -> Lakehouse:
    declared = [source, replace(silver, declared_in="shop.silver")]  # type: ignore[type-var]
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver"))
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, declared))


Work = Callable[[], list[FlowReport]]


def run_all_stages(lake: Lakehouse, between: Callable[[str], None] = lambda stage: None) -> None:
    """One run of all stages, each under the lease as a job runs it. between: called after each, with its name."""
    run = uuid.uuid4().hex
    for stage in list_stage_names(lake.graph.pipeline):
        workspace = lake.workspace(run=run)
        run_one_stage(lake, run, stage, lambda workspace=workspace, stage=stage: stages.run_pipeline_stage(workspace, stage))
        between(stage)


def run_idle_stages(lake: Lakehouse, verified: Work = list) -> None:
    """One run of stages that find nothing to do. verified: the work of the last."""
    run = uuid.uuid4().hex
    for stage in list_stage_names(lake.graph.pipeline):
        run_one_stage(lake, run, stage, verified if stage == VERIFY.name else list)


def run_one_stage(lake: Lakehouse, run: str, stage: str, work: Work) -> None:
    with lock.hold_writer_lease(lake.records, lake.spark, run, 0):
        stage_run.record_stage_run(lake.workspace(run=run), JobRequest("shop", stage, run=run), work, towards_quiet=True)


def take_turn(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> dict[str, Any] | None:
    """What a task of Airflow asks before it submits. The declarations are those of this test."""
    monkeypatch.setattr(task_without_spark, "load_declaration_graph", lambda settings, pipeline: lake.graph)
    given = {"stage": "silver", "run": "q1", "airflow_run": "a1", **asked}
    reports = task_without_spark.run_stages_without_spark(lake.settings, JobRequest("shop", **given), [given["stage"]])
    return reports[0] if reports else None


def is_quiet(lake: Lakehouse, later: timedelta = timedelta()) -> bool:
    return quiet.find_quiet_mark(lake.records, datetime.now(UTC) + later) is not None


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    made = shop(settings, spark)
    made.land("sales/1.csv", "id,at\n1,2026-01-01 00:00:00\n")
    return made


def test_after_a_run_that_left_nothing_a_stage_is_recorded_and_reported_without_spark(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all_stages(lake)
    assert is_quiet(lake)
    assert not is_quiet(lake, timedelta(days=7)), "by then VACUUM has something to remove"
    before = lake.versions()
    with lock.hold_writer_lease(lake.records, lake.spark, "other", 0):
        assert take_turn(lake, monkeypatch) is None, "another holds the lease: the job waits for it"
    some, every = StageOptions(("sale",)), StageOptions(verify="all")
    for more in ({"mode": "replay"}, {"mode": "refresh"}, {"options": some}, {"stage": VERIFY.name, "options": every}):
        assert take_turn(lake, monkeypatch, **more) is None, "whoever asks for more than what is new gets it"
    report = take_turn(lake, monkeypatch, interval=DAY, options=every)
    assert report is not None, "what is to be verified does not concern silver"
    assert [(flow["flow"], flow["note"], flow["version_after"]) for flow in report["flows"]] == [
        ("sale", "nothing new", before["sale"])
    ]
    row = run_ledger.read_run_ledger(lake.records)[-1]
    assert (row["run"], row["flow"], row["state"], row["interval_start"]) == ("q1", "sale", "done", DAY.start)
    assert lake.versions() == before
    assert is_quiet(lake), "what it recorded itself is nothing new"
    described = json.loads((locate(lake.records.bookkeeping()) / "lease.json").read_text())
    assert (described["run"], described["jvm"], bool(described["ended"])) == ("q1", None, True)
    lake.graph = shop(lake.settings, lake.spark, silver=full_sale).graph
    assert take_turn(lake, monkeypatch) is None, "another declaration, though no file of the code is another"


def test_what_came_while_the_run_went_on_is_not_marked_away(lake: Lakehouse) -> None:
    def land_another(stage: str) -> None:
        if stage == "silver":
            lake.land("sales/2.csv", "id,at\n2,2026-01-01 00:00:00\n")

    run_all_stages(lake, land_another)
    assert not is_quiet(lake), "bronze has not seen the second file"
    run_all_stages(lake)
    assert is_quiet(lake)
    assert lake.rows("sale", "id") == [(1,), (2,)]

    def write_beside(stage: str) -> None:
        if stage == "silver":
            locate(lake.records.bookkeeping(), "checkpoints", "beside").touch()

    write_beside("silver")
    assert not is_quiet(lake)
    run_idle_stages(lake)
    assert is_quiet(lake)
    locate(lake.records.bookkeeping(), "checkpoints", "beside").unlink()
    run = uuid.uuid4().hex
    for stage in list_stage_names(lake.graph.pipeline):
        run_one_stage(lake, run, stage, list)
        write_beside(stage)
    assert not is_quiet(lake), "somebody wrote between two stages"


def test_nothing_is_quiet_beside_a_file_that_cannot_be_read_or_a_rule_that_is_not_met(
    lake: Lakehouse, settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, opened = str(lake.land("sales/4.csv", "id,at\n4,2026-01-01 00:00:00\n")), os.open

    def open_unless_broken(path: Any, *arguments: Any, **options: Any) -> int:
        if os.fspath(path) == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(path, *arguments, **options)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", open_unless_broken)
        run_all_stages(lake)
        run_idle_stages(lake)
    assert not is_quiet(lake), "every run tries it again"
    full = shop(settings, spark, silver=full_sale)
    lake.land("sales/2.csv", "id,at\n2,2026-01-01 00:00:00\n")
    run_all_stages(full)
    assert is_quiet(full)
    report = take_turn(full, monkeypatch)
    assert report is not None and report["flows"][0]["table_rules"]["full"]["met"] is False, "each run tells of it"


@pytest.mark.thorough
def test_what_failed_is_tried_again_and_a_table_that_differs_is_not_forgotten(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all_stages(lake)
    assert is_quiet(lake)
    report = FlowReport("sale", VERIFY.name)

    def differ() -> list[FlowReport]:
        raise FlowsFailed([report], {"sale": verifying.TablesDiffer("it differs")})

    with pytest.raises(FlowsFailed):
        run_one_stage(lake, "by hand", VERIFY.name, differ)
    assert not is_quiet(lake), "asked by hand: the next run looks, too"
    run_idle_stages(lake)
    assert not is_quiet(lake), "the next turn of verify was another table's"
    with monkeypatch.context() as deployed:
        deployed.setattr(quiet, "find_latest_code_change", lambda settings: time.time())
        run_idle_stages(lake, lambda: [report])
    assert not is_quiet(lake), "what was deployed after the process began is not what it loaded"
    run_idle_stages(lake, lambda: [report])
    assert is_quiet(lake), "it was compared again, and is equal"

    def break_down() -> list[FlowReport]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        run_one_stage(lake, "r", VERIFY.name, break_down)
    assert not is_quiet(lake)
    run_idle_stages(lake, lambda: [report])
    assert is_quiet(lake), "it goes well again as a whole"


def test_what_the_clock_decides_ends_the_quiet(lake: Lakehouse, settings: Settings, spark: SparkSession) -> None:
    kept = shop(settings, spark, source=replace(sales, clean_source="delete", clean_after_days=3650))
    began = datetime.now(UTC)
    run_all_stages(kept)
    assert is_quiet(kept)
    assert not is_quiet(kept, began + timedelta(days=1, minutes=5) - datetime.now(UTC)), "files are to be cleaned"
    run_idle_stages(shop(settings, spark, silver=fresh_sale))
    assert not is_quiet(kept), "rows may grow too old at any moment"
