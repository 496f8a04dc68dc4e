"""`sluice repair` of a table whose lost commits had removed people or old rows: they are removed again before any flow reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse
from tests.integration.runs.repair.test_lost_rows import adds_up, begin_another_process, spoil

from sluice.cli.repair import restore
from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import request_record, requests
from sluice.errors import SluiceError
from sluice.lake import log
from sluice.runs import job, stage_run
from sluice.runs.execution import stages
from sluice.runs.repair import lost_commits, lost_contents, lost_removals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
ORDERS = Source(name="orders", schema="id BIGINT, who STRING, at STRING", subject="who", subject_at="at")
KEPT = replace(ORDERS, keep_for="400 days")


@table(reads="orders", keys="id", subject="who")
def order(orders: DataFrame) -> DataFrame:
    """An order."""
    return orders.select("id", "who")


def declare(lake: Lakehouse, source: Source) -> None:
    lake.graph = build_declaration_graph(PIPELINE, [source, order])


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order]))
    old = (datetime.now(UTC) - timedelta(days=500)).isoformat(timespec="seconds")
    people = [{"id": 1, "who": "ann"}, {"id": 2, "who": "bob"}, {"id": 3, "who": "eve", "at": old}]
    lake.land("orders/1.jsonl", "".join(json.dumps(row) + "\n" for row in people))
    lake.run()
    return lake


def run_deletions(lake: Lakehouse) -> None:
    """The stage as a job runs it, so that the run ledger has it."""
    stage = "propagate_deletions"
    workspace = lake.workspace()
    stage_run.record_stage_run(workspace, job.JobRequest(lake.name, stage), lambda: stages.run_pipeline_stage(workspace, stage))


def lose_last_commit(lake: Lakehouse, name: str) -> lost_commits.LogRepair:
    path = lake.workspace().lake.record_tables()[name]
    spoil(path, log.latest_table_version(path) or 0)
    (found,) = lost_commits.find_log_repairs(lake.lake)
    lost_commits.repair_table_log(lake.lake, found)
    begin_another_process(lake.spark)
    return found


def people(lake: Lakehouse, name: str) -> list[str]:
    return [who for (who,) in lake.rows(name, "who")]


@pytest.mark.parametrize("lost", ["orders", pytest.param("order", marks=pytest.mark.thorough)])
def test_people_whose_erasure_was_lost_are_erased_again_before_any_flow_reads_them(lake: Lakehouse, lost: str) -> None:
    request = requests.receive_erasure_request(lake.lake, ["ann"], "who").request
    run_deletions(lake)
    assert people(lake, "orders") == people(lake, "order") == ["bob", "eve"] and adds_up(lake)
    found = lose_last_commit(lake, lost)
    assert found.erased_again == (request,) and found.lost == {}
    assert f"are erased again before anything is read: {request}." in restore._describe_log_repair("shop", found)
    assert restore._log_repair_as_object(found)["erased_again"] == [request]
    assert people(lake, lost) == ["ann", "bob", "eve"] and adds_up(lake)
    lake.settings = replace(lake.settings, erasure_approval=True)
    assert request_record.list_unapproved_requests(lake.records) == [], "it was approved, or needed no approval"
    for layer in ("bronze", __name__.rpartition(".")[2]):
        with pytest.raises(SluiceError, match=rf"{request} may be back.*sluice run shop --stage propagate_deletions"):
            lake.run(layer)
    run_deletions(lake)
    assert request_record.read_erasure_request(lake.records, request).state == "logically erased"
    lake.run()
    assert people(lake, "orders") == people(lake, "order") == ["bob", "eve"] and adds_up(lake)


@pytest.mark.thorough
def test_an_erasure_that_was_done_long_before_the_lost_commit_is_not_repeated(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (lost_contents, lost_removals):
        monkeypatch.setattr(module, "CLOCKS_DIFFER", timedelta())
    requests.receive_erasure_request(lake.lake, ["ann"], "who")
    run_deletions(lake)
    for number in (2, 3):
        lake.land(f"orders/{number}.jsonl", json.dumps({"id": 10 + number, "who": "kim"}) + "\n")
        lake.run()
    found = lose_last_commit(lake, "orders")
    assert (found.erased_again, found.lost) == ((), {"orders": (4,)}), "2 is the first file, rewritten"
    lake.run()
    assert people(lake, "orders") == people(lake, "order") == ["bob", "eve", "kim", "kim"] and adds_up(lake)


@pytest.mark.thorough
def test_old_rows_and_people_who_are_back_together_reach_no_other_table(lake: Lakehouse) -> None:
    request = requests.receive_erasure_request(lake.lake, ["ann"], "who").request
    run_deletions(lake)
    assert lose_last_commit(lake, "orders").erased_again == (request,)
    declare(lake, KEPT)
    before = log.latest_table_version(lake.workspace().path("order")) or 0
    run_deletions(lake)
    assert people(lake, "orders") == people(lake, "order") == ["bob"] and adds_up(lake)
    reader = lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", before + 1)
    fed = reader.load(lake.workspace().path("order")).select("who", "_change_type").collect()
    assert sorted(map(tuple, fed)) == [("eve", "delete")], "nobody who was erased was there in between"


@pytest.mark.thorough
def test_rows_that_went_by_age_and_came_back_count_once_when_they_have_gone_again(lake: Lakehouse) -> None:
    declare(lake, KEPT)
    run_deletions(lake)
    assert people(lake, "orders") == ["ann", "bob"] and adds_up(lake)
    lose_last_commit(lake, "orders")
    assert people(lake, "orders") == ["ann", "bob", "eve"] and adds_up(lake)
    run_deletions(lake)
    lake.run()
    assert people(lake, "orders") == people(lake, "order") == ["ann", "bob"] and adds_up(lake)
