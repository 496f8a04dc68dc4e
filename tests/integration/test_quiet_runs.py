"""When a run leaves nothing to do, the pipeline is marked quiet, and the next run takes no Spark; nothing is marked that a stage missed."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source, expect_fresh, expect_row_count, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.interval import Interval
from sluice.errors import LeaseHeld
from sluice.pipeline_stages import list_stage_names
from sluice.runs import ledger, quiet
from sluice.runs.execution import quiet_marking, stages
from sluice.runs.job import JobRequest
from sluice.runs.lease import lock
from sluice.runs.quiet_run import take_quiet_turn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

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


def run_all_stages(lake: Lakehouse, between: Callable[[str], None] = lambda stage: None) -> None:
    """One run of all stages, each under the lease as a job runs it. between: called after each, with its name."""
    run = f"r{lake.landed}"
    for stage in list_stage_names(lake.graph.pipeline):
        workspace = lake.workspace(run=run)
        with lock.hold_writer_lease(lake.settings, lake.spark, "shop", run, 0):
            quiet_marking.run_stage_towards_quiet(
                workspace, stage, lambda workspace=workspace, stage=stage: stages.run_pipeline_stage(workspace, stage)
            )
        between(stage)


def is_quiet(lake: Lakehouse, later: timedelta = timedelta()) -> bool:
    return quiet.find_quiet_mark(lake.settings, "shop", datetime.now(UTC) + later) is not None


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    made = shop(settings, spark)
    made.land("sales/1.csv", "id,at\n1,2026-01-01 00:00:00\n")
    return made


def test_after_a_run_that_left_nothing_a_stage_is_recorded_and_reported_without_spark(lake: Lakehouse) -> None:
    run_all_stages(lake)
    assert is_quiet(lake)
    assert not is_quiet(lake, timedelta(days=7)), "by then VACUUM has something to remove"
    before = lake.versions()
    request = JobRequest("shop", "silver", run="q1", airflow_run="a1", interval=DAY)
    with lock.hold_writer_lease(lake.settings, lake.spark, "shop", "other", 0):
        assert take_quiet_turn(lake.settings, request) is None, "another holds the lease: the job waits for it"
    report = take_quiet_turn(lake.settings, request)
    assert report is not None
    assert [(flow["flow"], flow["note"], flow["version_after"]) for flow in report["flows"]] == [
        ("sale", "nothing new", before["sale"])
    ]
    row = ledger.read_run_ledger(lake.settings, "shop")[-1]
    assert (row["run"], row["flow"], row["state"], row["interval_start"]) == ("q1", "sale", "done", DAY.start)
    assert lake.versions() == before
    assert is_quiet(lake), "what it recorded itself is nothing new"
    described = json.loads((Path(lake.settings.bookkeeping("shop")) / "lease.json").read_text())
    assert (described["run"], described["jvm"], bool(described["ended"])) == ("q1", None, True)


def test_a_lease_without_a_jvm_keeps_a_jvm_out(lake: Lakehouse) -> None:
    run_all_stages(lake)
    with (
        lock.hold_lease_without_spark(lake.settings, "shop", "q1", "Wait."),
        pytest.raises(LeaseHeld, match="run q1"),
        lock.hold_writer_lease(lake.settings, lake.spark, "shop", "r2", 0),
    ):
        pass


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
            Path(lake.settings.bookkeeping("shop"), "checkpoints", "beside").touch()

    lake.land("sales/3.csv", "id,at\n3,2026-01-01 00:00:00\n")
    run_all_stages(lake, write_beside)
    assert not is_quiet(lake), "somebody wrote between two stages"


def test_nothing_is_quiet_beside_a_file_that_cannot_be_read_or_a_rule_that_is_not_met(
    lake: Lakehouse, settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_all_stages(lake)
    broken, opened = str(lake.land("sales/4.csv", "id,at\n4,2026-01-01 00:00:00\n")), os.open

    def open_unless_broken(path: Any, *arguments: Any, **options: Any) -> int:
        if os.fspath(path) == broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(path, *arguments, **options)

    with monkeypatch.context() as disk:
        disk.setattr(os, "open", open_unless_broken)
        run_all_stages(lake)
        run_all_stages(lake)
    assert not is_quiet(lake), "every run tries it again"
    run_all_stages(lake)
    assert is_quiet(lake)
    full = shop(settings, spark, silver=full_sale)
    lake.land("sales/2.csv", "id,at\n2,2026-01-01 00:00:00\n")
    run_all_stages(full)
    assert not is_quiet(full), "each run tells of it"


@pytest.mark.parametrize("name", ["kept", "fresh"])
def test_what_the_clock_decides_ends_the_quiet(lake: Lakehouse, settings: Settings, spark: SparkSession, name: str) -> None:
    kept = shop(settings, spark, source=replace(sales, clean_source="delete", clean_after_days=3650))
    fresh = shop(settings, spark, silver=fresh_sale)
    began = datetime.now(UTC)
    run_all_stages(kept if name == "kept" else fresh)
    assert is_quiet(lake) == (name == "kept")
    assert not is_quiet(lake, began + timedelta(days=1, minutes=5) - datetime.now(UTC))
