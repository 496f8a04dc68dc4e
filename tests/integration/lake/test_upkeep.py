"""Expectations on real rows, files laid out and removed: only where there is something to do."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import write_deltalake
from tests.conftest import Lakehouse

from sluice import record_file_joins, record_tables, vacuum
from sluice.declare import (
    F,
    Layout,
    Pipeline,
    Source,
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
    materialized_view,
    table,
)
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError, StopRequested
from sluice.lake import commit_history, file_overlap, file_statistics, inventory, layout, log, small_writes
from sluice.lake.report import FlowsFailed
from sluice.locations import locate
from sluice.runs import failures, job, ledger, stage_recording
from sluice.runs.execution import stages, upkeep
from sluice.runs.planning import plan
from sluice.table_properties import LOG_RETENTION, RETENTION, STATISTICS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

sales = Source(name="sales", format="csv", path="sales", comment="Sales.", schema="id INT, city STRING, amount DOUBLE")


@table(reads="sales", keys="id", partition_by="city", zorder_by="id")
@expect("round", "amount = floor(amount)")
@expect_or_drop("known_city", "city <> 'nowhere'")
@expect_or_quarantine("positive", "amount > 0")
@expect_or_fail("plausible", "amount < 1000", null_ok=True)
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "city", "amount")


@materialized_view(reads="sale", keys="city", recompute="keys")  # so that a batch reads its changes
def by_city(sale: DataFrame) -> DataFrame:
    """Sales of a city."""
    return sale.groupBy("city").agg(F.sum("amount").alias("amount"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    declared = [sales, replace(sale, declared_in="shop.silver"), replace(by_city, declared_in="shop.gold")]
    layers = ("shop.bronze", "shop.silver", "shop.gold")
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=layers, retain="1 second")
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, declared))


def append_sales(path: str, delivery: int, sold: list[tuple[int, str, float]]) -> None:
    """What the silver stage would append of a delivery, without Spark. The files are what these tests are about, and they need many."""
    names = ("id", "city", "amount")
    rows = [{**dict(zip(names, one, strict=True)), "_delivery": delivery, "_row": row} for row, one in enumerate(sold)]
    write_deltalake(path, pa.Table.from_pylist(rows, pa.schema(RustTable(path).schema().to_arrow())), mode="append")


def test_each_expectation_does_what_it_is_for(lake: Lakehouse) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,2\n2,a,2.5\n3,nowhere,1\n4,b,-1\n5,b,\n")
    report = lake.run()["sale"]
    assert lake.rows("sale", "id") == [(1,), (2,)]
    # A condition that is NULL is not met (F2): row 5 is neither accepted nor lost.
    assert lake.rows("sale_quarantine", "record", "reasons") == [
        ('{"id":4,"city":"b","amount":-1.0}', ["positive"]),
        ('{"id":5,"city":"b"}', ["round", "positive"]),
    ]
    assert dict(report.rules) == {"round": 2, "known_city": 1, "positive": 2, "plausible": 0}
    assert (report.rows_in, report.rows_out, report.quarantined, report.dropped) == (5, 2, 2, 1)


def test_a_rule_that_must_not_fail_stops_the_batch_before_anything_is_visible(lake: Lakehouse) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,2\n")
    lake.run()
    lake.land("sales/2.csv", "id,city,amount\n2,a,4711815.5\n3,a,-1\n")
    before = lake.versions()
    with pytest.raises(SluiceError, match="1 row does not meet 'plausible'") as failed:
        lake.run()
    assert "4711815.5" not in str(failed.value)
    after = lake.versions()
    assert {name for name in before if after[name] != before[name]} == {"sales"}
    # Put right by whoever delivers, the run goes on.
    lake.land("sales/2.csv", "id,city,amount\n2,a,12\n")
    with pytest.raises(SluiceError):
        lake.run()  # what was delivered stays in bronze until it is discarded


def test_optimize_keeps_to_partitions_with_new_files_and_vacuum_to_files_that_are_old(lake: Lakehouse) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n3,c's,1\n")
    lake.run()
    assert lake.run("optimize")["sale"].committed is False, "each partition is one file"
    lake.land("sales/2.csv", "id,city,amount\n4,c's,1\n")
    lake.run("bronze", "silver")
    # A part of what there is, or as much: whether a second file is as large as the first one is for the writer of Parquet to say.
    lake.land("sales/3.csv", "id,city,amount\n5,c's,1\n")
    lake.run("bronze", "silver")
    lake.run("optimize")
    commits = [c for c in commit_history.read_commit_history(lake.workspace().path("sale")) if c["operation"] == "OPTIMIZE"]
    assert "c's" in str(commits[0]["parameters"]["predicate"]) and int(commits[0]["metrics"]["numRemovedFiles"]) == 3
    assert json.loads(commits[0]["parameters"]["zOrderBy"]) == ["id"], "sorted by what is declared"
    versions = lake.versions()
    assert lake.run("optimize")["sale"].committed is False and lake.versions() == versions

    time.sleep(1.5)
    assert lake.run("vacuum")["sale"].deleted == 0, "gold has not read them yet"
    lake.run("gold")
    files = lake.files(["silver"])
    gone = lake.run("vacuum")["sale"].deleted
    assert 0 < gone == len(files) - len(lake.files(["silver"]))
    assert lake.rows("sale", "id") == [(1,), (2,), (3,), (4,), (5,)]
    assert lake.run("vacuum")["sale"].committed is False


def test_small_files_are_joined_and_what_is_good_stays_as_it_is(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is smaller than all of them together."""
    monkeypatch.setattr(file_overlap, "MANY_SMALL_FILES", 8)
    monkeypatch.setattr(layout, "has_grown_since_rewrite", lambda sizes, good=0: False)
    declared = [sales, replace(sale, zorder_by=(), declared_in="shop.silver"), replace(by_city, declared_in="shop.gold")]
    unordered = Lakehouse(lake.settings, lake.spark, build_declaration_graph(lake.graph.pipeline, declared))
    lots = "".join(f"{number},a,{number % 7}\n" for number in range(1_000))
    unordered.land("sales/0.csv", f"id,city,amount\n{lots}90000,b,1\n")
    unordered.run("bronze", "silver")
    path = unordered.workspace().path("sale")
    good = {file for file in RustTable(path).file_uris() if "city=a" in file}
    for day in range(1, 9):
        assert unordered.run("optimize")["sale"].committed is False
        append_sales(path, day + 1, [(90000 + day, "a", 1.0)])
    (sizes,) = (one.file_sizes for one in file_statistics.list_partition_file_sizes(path) if one.values["city"] == "a")
    large, small = max(sizes), sorted(sizes)[:-1]
    assert 4 * max(small) < large < sum(small), "what the test is about"
    before, rows = set(RustTable(path).file_uris()), unordered.rows("sale")
    report = unordered.run("optimize")["sale"]
    after = set(RustTable(path).file_uris())
    assert report.decision and report.decision.startswith("yes: 8 small files"), report.decision
    assert good < after and len(before - after) == 8 and len(after - before) == 1
    assert unordered.rows("sale") == rows
    again = unordered.run("optimize")["sale"]
    assert not again.committed and again.decision == "no: no data came since the last rewrite"
    conf = "spark.databricks.delta.optimize.minFileSize"
    assert lake.spark.conf.get(conf, None) is None, "what was set for one table is not left for the next"


@pytest.mark.parametrize("through", ["delta-rs", "Spark"])
def test_only_files_that_lie_over_one_another_are_written_anew_and_what_it_bought_is_said(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    """By the stage, of a table that both engines may write; a view follows it, and sees no change."""
    if through == "Spark":
        monkeypatch.setattr(small_writes, "MOST_SORTED_ROWS", 0)
    one = replace(sale, partition_by=(), asked_by=("id", "city"), declared_in="shop.silver")
    plain = Lakehouse(
        lake.settings,
        lake.spark,
        build_declaration_graph(lake.graph.pipeline, [sales, one, replace(by_city, declared_in="shop.gold")]),
    )
    good = "".join(f"{number},a,1\n" for number in range(100_000, 100_400))
    plain.land("sales/0.csv", f"id,city,amount\n{good}")
    plain.run("bronze", "silver")
    path = plain.workspace().path("sale")
    for day in range(1, 10):
        append_sales(path, day + 1, [(day, "a", 1.0), (99_000 - day, "b", 1.0)])
    plain.run("gold")
    before, rows = set(RustTable(path).file_uris()), plain.rows("sale")
    report = plain.run("optimize")["sale"]
    after = set(RustTable(path).file_uris())
    assert report.decision and report.decision.startswith("yes: "), report.decision
    assert len(before - after) == 9 and len(after - before) == 1 and report.written_by == through
    assert plain.rows("sale") == rows
    asked = report.questions["id"]
    assert asked["files_after"] < asked["files_before"] and "a question by id opens" in "; ".join(report.notes)
    commit = commit_history.read_commit_history(path, 1)[0]
    assert commit["operation"] == "OPTIMIZE" and commit["note"]["sluice"]
    assert plain.run("optimize")["sale"].decision == "no: no data came since the last rewrite"
    assert plain.run("gold")["by_city"].committed is False, "who follows the table sees no change"
    plain.land("sales/90.csv", "id,city,amount\n200000,b,7\n")
    plain.run()
    assert plain.rows("by_city") == [("a", 409.0), ("b", 16.0)], "and what comes after it"


def test_a_table_is_laid_out_on_demand(lake: Lakehouse) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,a,1\n3,b,1\n")
    lake.run()
    lake.run("optimize")
    rows = lake.rows("sale")
    (report,) = upkeep.optimize_demanded_tables(lake.workspace(), ["sale"])
    assert report.committed and report.decision == "yes: demanded" and lake.rows("sale") == rows


def test_a_table_that_cannot_be_laid_out_keeps_no_other_from_it_and_is_named(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        lake.land(f"sales/{number}.csv", f"id,city,amount\n{number},a,1\n")
        lake.run()
    paths, before = lake.workspace().tables(), lake.versions()
    for file in sorted(Path(paths["sales"]).rglob("*.parquet")):
        file.unlink()

    def record_stage(stage: str) -> dict[str, BaseException]:
        workspace, request = lake.workspace(), job.JobRequest("shop", stage)
        with pytest.raises(FlowsFailed) as failed:
            stage_recording.record_stage_run(workspace, request, lambda: stages.run_pipeline_stage(workspace, stage))
        report = failed.value.report
        assert report is not None and {one["flow"] for one in report["flows"] if "failed" in one["note"]} == {"sales"}
        states = {row["flow"]: row["state"] for row in ledger.read_run_ledger(lake.records) if row["stage"] == stage}
        assert {flow for flow, state in states.items() if state == "failed"} == {"sales"} and len(states) >= 5, states
        return failed.value.errors

    (error,) = record_stage("optimize").values()
    said = failures.describe_error_without_values(error)
    assert paths["sales"] in said and "has lost its data file" in said and "Put it back" in said, said
    after = lake.versions()
    assert after["sales"] == before["sales"] and after["sale"] != before["sale"], "which comes after it"

    time.sleep(1.5)
    decide = vacuum.decide_vacuum

    def decide_or_fail(path: str, *rest: Any) -> Any:
        if path == paths["sales"]:
            raise OSError("the disk does not answer")
        return decide(path, *rest)

    monkeypatch.setattr(vacuum, "decide_vacuum", decide_or_fail)
    assert list(record_stage("vacuum")) == ["sales"]
    assert commit_history.read_commit_history(paths["sale"], 1)[0]["operation"] == "VACUUM END"


def test_a_request_to_stop_does_not_hide_which_tables_failed_before_it(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n")
    lake.run()
    workspace = lake.workspace()

    def fail_and_ask_to_stop(*_: object) -> None:
        request = workspace.places.stop_request(workspace.run)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()
        raise OSError("the disk does not answer")

    monkeypatch.setattr(vacuum, "decide_vacuum", fail_and_ask_to_stop)
    with pytest.raises(FlowsFailed) as failed:
        stages.run_pipeline_stage(workspace, "vacuum")
    assert list(failed.value.errors) == ["sales", "vacuum"] and isinstance(failed.value.errors["vacuum"], StopRequested)
    assert [report.flow for report in failed.value.reports] == ["sales"]


def test_a_stream_whose_change_files_were_removed_recomputes_by_itself(lake: Lakehouse) -> None:
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n")
    lake.run()
    lake.land("sales/2.csv", "id,city,amount\n1,a,5\n")
    lake.run("bronze", "silver")
    time.sleep(1.5)
    lake.spark.sql(f"VACUUM delta.`{lake.workspace().path('sale')}`")
    reports: dict[str, Any] = lake.run("gold")
    assert "recomputed in full" in reports["by_city"].notes[0]
    assert lake.rows("by_city") == [("a", 5.0), ("b", 1.0)]


def test_the_files_of_records_become_one_and_flows_go_on_from_where_they_were(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file_joins, "MOST_SMALL_FILES", 1)
    monkeypatch.setattr(record_file_joins, "LEAST_GROWTH", 0.0)
    for number in (1, 2):
        lake.land(f"sales/{number}.csv", f"id,city,amount\n{number},a,1\n")
        lake.run()
    reports = lake.run("optimize")
    assert [reports[f"_sluice/{name}"].notes for name in ("deliveries", "outcomes")] == [["2 files > 1"]] * 2
    assert "_sluice/runs" not in reports, "no run was recorded here, so there is no such table"
    lake.land("sales/3.csv", "id,city,amount\n3,b,1\n")
    reports = lake.run()
    assert (reports["sales"].rows_out, reports["sale"].rows_in, reports["by_city"].rows_out) == (1, 1, 1)
    # A stream that starts anew reads what the tables are now.
    lake.run(mode="refresh", tables=["sale"])
    assert lake.rows("sale", "id") == [(1,), (2,), (3,)]
    assert [(row["delivery"], row["state"]) for row in lake.outcomes()] == [(number, "ingested") for number in (1, 2, 3)]


def test_files_of_records_go_when_they_are_old_and_no_flow_has_yet_to_read_them(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_file_joins, "MOST_SMALL_FILES", 1)
    monkeypatch.setattr(record_file_joins, "LEAST_GROWTH", 0.0)
    monkeypatch.setitem(record_tables._PROPERTIES, RETENTION, "interval 0 days")
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n")
    lake.run()
    lake.land("sales/2.csv", "id,city,amount\n2,a,1\n")
    lake.run("bronze")
    lake.run("optimize")
    reports = lake.run("vacuum")
    assert reports["_sluice/deliveries"].deleted == 2, "bronze has read them"
    (held,) = reports["_sluice/outcomes"].notes
    assert "the flow 'silver_sale' has not read version" in held and reports["_sluice/outcomes"].deleted == 0
    lake.run("silver", "gold")
    assert lake.run("vacuum")["_sluice/outcomes"].deleted == 2
    done = lake.run("vacuum")
    for name in ("_sluice/outcomes", "_sluice/deliveries"):
        assert not done[name].committed and str(done[name].decision).startswith("no: "), "nothing is due any more"
    lake.land("sales/3.csv", "id,city,amount\n3,b,1\n")
    lake.run()
    assert lake.rows("sale", "id") == [(1,), (2,), (3,)]


def test_a_stalled_flow_holds_files_for_the_declared_time_and_then_starts_over(lake: Lakehouse) -> None:
    def waiting(time: str | None) -> Lakehouse:
        pipeline = replace(lake.graph.pipeline, vacuum_waits=time)
        return Lakehouse(lake.settings, lake.spark, build_declaration_graph(pipeline, list(lake.graph)), lake.landed)

    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n")
    lake.run()
    for number in (3, 4):
        lake.land(f"sales/{number}.csv", f"id,city,amount\n1,a,{number}\n")
        lake.run("bronze", "silver")
    time.sleep(1.5)
    for held in (waiting(None), waiting("1 day")):
        report = held.run("vacuum")["sale"]
        assert report.deleted == 0 and "has not read version" in report.notes[0]
        assert report.decision and report.decision.startswith("no: 1 reader is behind; else yes: "), report.decision
    report = waiting("1 second").run("vacuum")["sale"]
    said = "VACUUM waited 1 second for it to read version 3 of an input"
    assert report.deleted > 0 and report.notes[0] == f"the flow 'gold_by_city' starts over with its next run: {said}"
    gold = lake.run("gold")["by_city"]
    assert gold.recomputed and said in " ".join(gold.notes), gold.notes
    assert lake.rows("by_city") == [("a", 4.0), ("b", 1.0)]
    lake.land("sales/5.csv", "id,city,amount\n9,b,5\n")
    assert lake.run()["by_city"].rows_out == 1, "from there it goes on by what changes"
    assert lake.rows("by_city") == [("a", 4.0), ("b", 6.0)]


def test_files_that_no_commit_names_go_with_a_walk_and_the_next_vacuum_knows(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Delta on Spark has vacuumed is not looked for again, and what Sluice has, Delta on Spark reads."""
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n")
    lake.run()
    lake.land("sales/2.csv", "id,city,amount\n1,a,2\n")
    lake.run()
    orphan = locate(lake.workspace().path("sale")) / "city=a" / "part-orphan.c000.snappy.parquet"
    orphan.write_bytes(b"never committed")
    os.utime(orphan, (1, 1))
    time.sleep(1.5)
    by_inventory = lake.run("vacuum")["sale"]
    assert by_inventory.deleted > 0 and by_inventory.written_by == "Sluice" and orphan.exists()
    rows = lake.rows("sale"), lake.rows("by_city")
    monkeypatch.setattr(inventory, "WALKED_EVERY", timedelta())
    walked = lake.run("vacuum")["sale"]
    assert walked.decision and walked.decision.startswith("yes: in full") and not orphan.exists()
    assert (walked.deleted, walked.written_by) == (1, "Spark")
    monkeypatch.undo()
    again = lake.run("vacuum")["sale"]
    assert not again.committed and again.decision == "no: no file was removed from the table since the last time"
    assert not inventory.read_file_inventory(lake.workspace().path("sale"), datetime.now(UTC)).changed_since_walk
    assert (lake.rows("sale"), lake.rows("by_city")) == rows


def test_what_delta_prints_of_a_vacuum_does_not_reach_the_jobs_standard_output(lake: Lakehouse) -> None:
    jvm: Any = lake.spark._jvm
    console = getattr(getattr(jvm.scala, "Console$"), "MODULE$")
    assert not console.out().equals(jvm.java.lang.System.out)


def test_a_declared_layout_is_brought_to_a_table_that_is_there_and_partitions_by_a_refresh(lake: Lakehouse) -> None:
    def declaring(layout: Layout | None, **more: Any) -> Lakehouse:
        declared = [
            sales,
            replace(sale, layout=layout, declared_in="shop.silver", **more),
            replace(by_city, declared_in="shop.gold"),
        ]
        return Lakehouse(lake.settings, lake.spark, build_declaration_graph(lake.graph.pipeline, declared), lake.landed)

    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n")
    lake.run()
    path, rows = lake.workspace().path("sale"), lake.rows("sale")
    plain, versions = log.read_table_properties(path), lake.versions()
    lake.run()
    assert lake.versions() == versions, "what is not declared changes nothing"
    said = Layout(retain="14 days", keep_log="60 days", statistics="id")
    laid = declaring(said)
    laid.land("sales/2.csv", "id,city,amount\n3,a,1\n")
    laid.run()
    expected = {RETENTION: "interval 14 days", LOG_RETENTION: "interval 60 days", STATISTICS: "id"}
    assert {name: log.read_table_properties(path)[name] for name in expected} == expected
    laid.land("sales/3.csv", "id,city,amount\n4,a,1\n")
    laid.run()
    commits = [one["operation"] for one in commit_history.read_commit_history(path)]
    assert commits.count("SET TBLPROPERTIES") == 2, "once, and the fingerprint's of the first run"
    back = declaring(None)
    back.land("sales/4.csv", "id,city,amount\n5,a,1\n")
    back.run()
    now = log.read_table_properties(path)
    assert (now[RETENTION], now[LOG_RETENTION]) == (plain[RETENTION], plain[LOG_RETENTION])
    other = declaring(None, partition_by=("amount",))
    notes = plan.plan_run(other.settings, other.graph).notes
    assert any("'sale' is partitioned by city, and declared by amount" in note for note in notes), notes
    assert log.read_partition_columns(path) == ["city"]
    other.run(mode="refresh", tables=["sale"])
    assert log.read_partition_columns(path) == ["amount"] and set(rows) <= set(other.rows("sale"))
    assert not any("is partitioned by" in note for note in plan.plan_run(other.settings, other.graph).notes)
