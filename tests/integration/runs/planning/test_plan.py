"""What the plan says is what the run does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from pipelines.gym import maker
from sluice.cli.tables.upkeep import vacuum
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.erasure import searched_tables
from sluice.errors import LeaseHeld
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import erasure_jobs
from sluice.runs.job import JobRequest, run_recorded_stage
from sluice.runs.lease import lock
from sluice.runs.planning import plan
from sluice.runs.planning.plan import RunPlan
from sluice.runs.status import lag, reconciliation
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


LAYERS = ("bronze", "silver", "gold")
CHAIN = ("readings", "heart_rate", "device_day")
"""The tables that are looked at: of the others a day may bring nothing."""


def planned(lake: Lakehouse) -> RunPlan:
    return plan.plan_run(lake.lake)


@pytest.mark.slow
def test_the_plan_is_what_happens(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, load_declaration_graph(settings, "gym"))
    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.1)

    def check(words: list[str]) -> None:
        """Plan, run, and compare table by table."""
        before = planned(lake)
        assert [step.does for name in CHAIN for step in before.steps if step.table == name] == words
        flows = {
            flow["flow"]: flow for stage in LAYERS for flow in run_recorded_stage(settings, JobRequest("gym", stage))["flows"]
        }
        for step in before.steps:
            flow = flows[step.table]
            if step.does == "nothing":
                assert flow["note"] == "nothing new"
            if step.layer == "bronze":
                assert flow["deliveries"] == step.deliveries
            if step.table not in CHAIN:
                continue
            if step.does != "nothing":
                assert flow["version_before"] != flow["version_after"]
            if step in before.recomputed:
                assert step.why in flow["note"]
        assert {step.does for step in planned(lake).steps} == {"nothing"}
        assert not any(flow.waits for flow in lag.measure_pipeline_lag(PipelineBooks(settings, lake.graph)))

    check(["ingest", "fold anew", "recompute in full"])
    check(["nothing", "nothing", "nothing"])
    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.1)
    check(["ingest", "fold", "follow"])
    assert [account.adds_up for account in reconciliation.reconcile_deliveries(PipelineLake(settings, lake.graph))] == [True] * 4

    # Between the stages each flow says what waits for it.
    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.1)
    (taken,) = (flow for flow in run_recorded_stage(settings, JobRequest("gym", "bronze"))["flows"] if flow["flow"] == "readings")
    waiting = {flow.table: flow for flow in lag.measure_pipeline_lag(PipelineBooks(settings, lake.graph))}
    assert (waiting["heart_rate"].deliveries, waiting["heart_rate"].rows) == (taken["deliveries"], taken["rows_out"])
    run_recorded_stage(settings, JobRequest("gym", "silver"))
    waiting = {flow.table: flow for flow in lag.measure_pipeline_lag(PipelineBooks(settings, lake.graph))}
    assert (waiting["heart_rate"].deliveries, waiting["device_day"].versions) == (0, 1)
    run_recorded_stage(settings, JobRequest("gym", "optimize"))
    waiting = {flow.table: flow for flow in lag.measure_pipeline_lag(PipelineBooks(settings, lake.graph))}
    assert (waiting["heart_rate"].deliveries, waiting["device_day"].versions) == (0, 1)


def test_the_lease_of_a_jvm_keeps_a_reset_out(settings: Settings, spark: SparkSession) -> None:
    records = PipelineRecords(settings, "gym")
    with (
        lock.hold_writer_lease(records, spark, "r1", 0),
        pytest.raises(LeaseHeld, match="run r1"),
        lock.hold_lease_without_spark(records, "reset", "Reset when it has ended."),
    ):
        pass
    with (
        lock.hold_lease_without_spark(records, "reset", "Reset when it has ended."),
        pytest.raises(LeaseHeld, match="run reset "),
        lock.hold_writer_lease(records, spark, "r2", 0),
    ):
        pass


@pytest.mark.parametrize("who", ["stage", "command", "erasure"])
def test_whoever_removes_files_needs_the_lease(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """Each way to VACUUM, before its first commit."""
    monkeypatch.setattr(Settings, "current", lambda: settings)
    monkeypatch.setattr(searched_tables, "has_unseen_request_rows", lambda lake: True)
    remove: Callable[[], object] = {
        "stage": lambda: run_recorded_stage(settings, JobRequest("gym", "vacuum")),
        "command": lambda: vacuum("gym"),
        "erasure": lambda: erasure_jobs.run_erase_stage(settings, JobRequest("gym", "erase")),
    }[who]
    with (
        lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "r1", "Later."),
        pytest.raises(LeaseHeld, match="run r1 "),
    ):
        remove()
