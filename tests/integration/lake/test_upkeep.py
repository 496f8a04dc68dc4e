"""Expectations on real rows, files laid out and removed: only where there is something to do."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder, write_deltalake
from tests.conftest import Lakehouse, copied_lakehouse, settings_at

from sluice import record_tables, vacuum
from sluice.declare import (
    F,
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
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.errors import StopRequested
from sluice.lake import commit_history, file_overlap, file_statistics, inventory, layout, log, small_writes
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.layout import decide_layout
from sluice.locations import locate
from sluice.runs import failures, job, run_ledger, stage_run
from sluice.runs.execution import stages, upkeep
from sluice.runs.planning import plan
from sluice.table_properties import RETENTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


VIEW = replace(by_city, declared_in="shop.gold")
PIPELINE = Pipeline(
    name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver", "shop.gold"), retain="1 second"
)


def declaring(lake: Lakehouse, view: MaterializedView[...] | None = VIEW, **more: Any) -> Lakehouse:
    """The same lake with other declarations. view: None for a lake that has nothing after silver. more: about the table."""
    declared: list[Any] = [sales, replace(sale, declared_in="shop.silver", **more), *([view] if view else [])]
    return Lakehouse(lake.settings, lake.spark, build_declaration_graph(PIPELINE, declared), lake.landed)


@dataclass
class FirstRun:
    """A lake after its first run, to be copied, and what that run reported."""

    lake: Lakehouse
    reports: dict[str, FlowReport]


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> FirstRun:
    lake = declaring(
        Lakehouse(settings_at(tmp_path_factory.mktemp("first_run")), spark, build_declaration_graph(PIPELINE, [sales]))
    )
    lake.land("sales/1.csv", "id,city,amount\n1,a,1\n2,b,1\n3,c's,1\n4,a,2.5\n5,nowhere,1\n6,b,-1\n7,b,\n")
    return FirstRun(lake, lake.run())


@pytest.fixture
def lake(first_run: FirstRun, tmp_path: Path) -> Lakehouse:
    """With a file in each of three partitions of the table, all of which gold has read."""
    return copied_lakehouse(first_run.lake, tmp_path)


def append_again(path: str, times: int) -> None:
    """Append all rows of a table once more, as often as that: its files are what a test is about, and not its rows."""
    rows = pa.table(QueryBuilder().register("t", RustTable(path)).execute("SELECT * FROM t").read_all())
    for _ in range(times):
        write_deltalake(path, rows.cast(pa.schema(RustTable(path).schema().to_arrow())), mode="append")


def append_sales(path: str, delivery: int, sold: list[tuple[int, str, float]]) -> None:
    """What the silver stage would append of a delivery, without Spark. The files are what these tests are about, and they need many."""
    names = ("id", "city", "amount")
    rows = [{**dict(zip(names, one, strict=True)), "_delivery": delivery, "_row": row} for row, one in enumerate(sold)]
    write_deltalake(path, pa.Table.from_pylist(rows, pa.schema(RustTable(path).schema().to_arrow())), mode="append")


def test_each_expectation_does_what_it_is_for(first_run: FirstRun) -> None:
    lake, report = first_run.lake, first_run.reports["sale"]
    assert lake.rows("sale", "id") == [(1,), (2,), (3,), (4,)]
    # A condition that is NULL is not met (F2): row 7 is neither accepted nor lost.
    assert lake.rows("sale_quarantine", "record", "reasons") == [
        ('{"id":6,"city":"b","amount":-1.0}', ["positive"]),
        ('{"id":7,"city":"b"}', ["round", "positive"]),
    ]
    assert dict(report.rules) == {"round": 2, "known_city": 1, "positive": 2, "plausible": 0}
    assert (report.rows_in, report.rows_out, report.quarantined, report.dropped) == (7, 4, 2, 1)


def test_optimize_keeps_to_partitions_with_new_files_and_vacuum_to_files_that_are_old(lake: Lakehouse) -> None:
    assert lake.run("optimize")["sale"].committed is False, "each partition is one file"
    # A part of what there is, or as much: whether a second file is as large as the first one is for the writer of Parquet to say.
    path = lake.workspace().path("sale")
    append_sales(path, 2, [(8, "c's", 1.0)])
    append_sales(path, 3, [(9, "c's", 1.0)])
    lake.run("optimize")
    commits = [c for c in commit_history.read_commit_history(path) if c["operation"] == "OPTIMIZE"]
    assert "c's" in str(commits[0]["parameters"]["predicate"]) and int(commits[0]["metrics"]["numRemovedFiles"]) == 3
    assert json.loads(commits[0]["parameters"]["zOrderBy"]) == ["id"], "sorted by what is declared"
    versions = lake.versions()
    assert lake.run("optimize")["sale"].committed is False and lake.versions() == versions

    time.sleep(1.1)
    assert lake.run("vacuum")["sale"].deleted == 0, "gold has not read them yet"
    lake.run("gold")
    files = lake.files(["silver"])
    gone = lake.run("vacuum")["sale"].deleted
    assert 0 < gone == len(files) - len(lake.files(["silver"]))
    assert lake.rows("sale", "id") == [(1,), (2,), (3,), (4,), (8,), (9,)]
    assert lake.rows("by_city") == [("c's", 3.0), ("a", 3.5), ("b", 1.0)], "of files that were appended and joined since"
    assert lake.run("vacuum")["sale"].committed is False


def test_small_files_are_joined_and_what_is_good_stays_as_it_is(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what is smaller than all of them together."""
    monkeypatch.setattr(file_overlap, "MANY_SMALL_FILES", 8)
    monkeypatch.setattr(layout, "has_grown_since_rewrite", lambda sizes, good=0: False)
    unordered = declaring(lake, zorder_by=())
    path = unordered.workspace().path("sale")
    append_sales(path, 2, [(number, "d", float(number % 7)) for number in range(600)])
    good = {file for file in RustTable(path).file_uris() if "city=d" in file}
    for day in range(1, 9):
        assert not decide_layout(path, ()).needed
        append_sales(path, day + 2, [(90000 + day, "d", 1.0)])
    (sizes,) = (one.file_sizes for one in file_statistics.list_partition_file_sizes(path) if one.values["city"] == "d")
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


@pytest.fixture(scope="module")
def overlapping(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """A lake whose table has one good file and nine over one another, all of which gold has read."""
    folder = tmp_path_factory.mktemp("overlapping")
    bare = Lakehouse(settings_at(folder), spark, build_declaration_graph(PIPELINE, [sales]))
    lake = declaring(bare, partition_by=(), asked_by=("id", "city"))
    good = "".join(f"{number},a,1\n" for number in range(100_000, 100_400))
    lake.land("sales/0.csv", f"id,city,amount\n{good}")
    lake.run("bronze", "silver")
    for day in range(1, 10):
        append_sales(lake.workspace().path("sale"), day + 1, [(day, "a", 1.0), (99_000 - day, "b", 1.0)])
    lake.run("gold")
    return lake


@pytest.mark.thorough
@pytest.mark.parametrize("through", ["delta-rs", "Spark"])
def test_only_files_that_lie_over_one_another_are_written_anew_and_what_it_bought_is_said(
    overlapping: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str
) -> None:
    """By the stage, of a table that both engines may write; a view follows it, and sees no change."""
    if through == "Spark":
        monkeypatch.setattr(small_writes, "MOST_SORTED_ROWS", 0)
    plain = copied_lakehouse(overlapping, tmp_path)
    path = plain.workspace().path("sale")
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
    append_sales(path, 90, [(200_000, "b", 7.0)])
    view = plain.run("gold")["by_city"]
    assert view.recomputed == "keys: 1 of 2 rows", "who follows the table sees no change but what comes after it"
    assert plain.rows("by_city") == [("a", 409.0), ("b", 16.0)]


@pytest.mark.thorough
def test_a_table_is_laid_out_on_demand(lake: Lakehouse) -> None:
    rows = lake.rows("sale")
    assert not decide_layout(lake.workspace().path("sale"), ("id",)).needed
    (report,) = upkeep.optimize_tables_now(lake.workspace(), ["sale"])
    assert report.committed and report.decision == "yes: demanded" and lake.rows("sale") == rows


def test_a_table_that_cannot_be_laid_out_keeps_no_other_from_it_and_is_named(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = declaring(lake, view=None)
    paths = lake.workspace().lake.record_tables()
    for name in ("sales", "sale"):
        append_again(paths[name], 2)
    before = lake.versions()
    for file in sorted(Path(paths["sales"]).rglob("*.parquet")):
        file.unlink()

    def record_stage(stage: str) -> dict[str, BaseException]:
        workspace, request = lake.workspace(), job.JobRequest("shop", stage)
        with pytest.raises(FlowsFailed) as failed:
            stage_run.record_stage_run(workspace, request, lambda: stages.run_pipeline_stage(workspace, stage))
        report = failed.value.report
        assert report is not None and {one["flow"] for one in report["flows"] if "failed" in one["note"]} == {"sales"}
        states = {row["flow"]: row["state"] for row in run_ledger.read_run_ledger(lake.records) if row["stage"] == stage}
        assert {flow for flow, state in states.items() if state == "failed"} == {"sales"}, states
        assert {"sale", "sale_quarantine", "_sluice/deliveries", "_sluice/outcomes"} < set(states), states
        return failed.value.errors

    (error,) = record_stage("optimize").values()
    said = failures.describe_error_without_values(error)
    assert paths["sales"] in said and "has lost its data file" in said and "Put it back" in said, said
    after = lake.versions()
    assert after["sales"] == before["sales"] and after["sale"] != before["sale"], "which comes after it"

    time.sleep(1.1)
    decide = vacuum.decide_vacuum

    def decide_or_fail(path: str, *rest: Any) -> Any:
        if path == paths["sales"]:
            raise OSError("the disk does not answer")
        return decide(path, *rest)

    monkeypatch.setattr(vacuum, "decide_vacuum", decide_or_fail)
    assert list(record_stage("vacuum")) == ["sales"]
    assert commit_history.read_commit_history(paths["sale"], 1)[0]["operation"] == "VACUUM END"


@pytest.mark.thorough
def test_a_request_to_stop_does_not_hide_which_tables_failed_before_it(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = lake.workspace()

    def fail_and_ask_to_stop(*_: object) -> None:
        request = workspace.paths.stop_request(workspace.run)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()
        raise OSError("the disk does not answer")

    monkeypatch.setattr(vacuum, "decide_vacuum", fail_and_ask_to_stop)
    with pytest.raises(FlowsFailed) as failed:
        stages.run_pipeline_stage(workspace, "vacuum")
    assert list(failed.value.errors) == ["sales", "vacuum"] and isinstance(failed.value.errors["vacuum"], StopRequested)
    assert [report.flow for report in failed.value.reports] == ["sales"]


@pytest.mark.thorough
def test_a_stream_whose_change_files_were_removed_recomputes_by_itself(lake: Lakehouse) -> None:
    path = lake.workspace().path("sale")
    RustTable(path).update(new_values={"amount": 5.0}, predicate="id = 1")
    time.sleep(1.1)
    removed = vacuum.vacuum_table(lake.workspace(), "sale", path)
    assert removed.deleted > 0, "nobody was waited for"
    reports: dict[str, Any] = lake.run("gold")
    assert "recomputed in full" in reports["by_city"].notes[0]
    assert lake.rows("by_city") == [("c's", 1.0), ("a", 7.5), ("b", 1.0)]


@pytest.mark.thorough
def test_the_files_of_records_become_one_and_go_when_no_flow_has_yet_to_read_them(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And flows go on from where they were."""
    monkeypatch.setattr(record_tables, "MOST_SMALL_FILES", 1)
    monkeypatch.setattr(record_tables, "LEAST_GROWTH", 0.0)
    records = ("_sluice/deliveries", "_sluice/outcomes")
    for path in (lake.workspace().deliveries, lake.workspace().outcomes):
        RustTable(path).alter.set_table_properties({RETENTION: "interval 0 days"})
    lake.land("sales/2.csv", "id,city,amount\n8,a,1\n")
    lake.run("bronze")
    reports = lake.run("optimize")
    assert [reports[name].notes for name in records] == [["2 files > 1"]] * 2
    assert "_sluice/runs" not in reports, "no run was recorded here, so there is no such table"
    reports = lake.run("vacuum")
    assert reports["_sluice/deliveries"].deleted == 2, "bronze has read them"
    (held,) = reports["_sluice/outcomes"].notes
    assert "the flow 'silver_sale' has not read version" in held and reports["_sluice/outcomes"].deleted == 0
    lake.land("sales/3.csv", "id,city,amount\n9,b,1\n")
    reports = lake.run("bronze", "silver")
    assert (reports["sales"].rows_out, reports["sale"].rows_in) == (1, 2)
    assert lake.run("vacuum")["_sluice/outcomes"].deleted == 2
    done = lake.run("vacuum")
    for name in records:
        assert not done[name].committed and str(done[name].decision).startswith("no: "), "nothing is due any more"
    # A stream that starts anew reads what the tables are now.
    lake.run("silver", mode="refresh", tables=["sale"])
    assert lake.rows("sale", "id") == [(1,), (2,), (3,), (4,), (8,), (9,)]
    assert [(row["delivery"], row["state"]) for row in lake.outcomes()] == [(number, "ingested") for number in (1, 2, 3)]


def test_a_stalled_flow_holds_files_for_the_declared_time_and_then_starts_over(lake: Lakehouse) -> None:
    def waiting(time: str | None) -> Lakehouse:
        pipeline = replace(lake.graph.pipeline, vacuum_waits=time)
        return Lakehouse(lake.settings, lake.spark, build_declaration_graph(pipeline, list(lake.graph)), lake.landed)

    path = lake.workspace().path("sale")
    for amount in (3.0, 4.0):
        RustTable(path).update(new_values={"amount": amount}, predicate="id = 1")
    time.sleep(1.1)
    for held in (waiting(None), waiting("1 day")):
        report = held.run("vacuum")["sale"]
        assert report.deleted == 0 and "has not read version" in report.notes[0]
        assert report.decision and report.decision.startswith("no: 1 reader is behind; else yes: "), report.decision
    report = waiting("1 second").run("vacuum")["sale"]
    said = "VACUUM waited 1 second for it to read version 3 of an input"
    assert report.deleted > 0 and report.notes[0] == f"the flow 'gold_by_city' starts over with its next run: {said}"
    gold = lake.run("gold")["by_city"]
    assert gold.recomputed and said in " ".join(gold.notes), gold.notes
    assert lake.rows("by_city") == [("c's", 1.0), ("a", 6.5), ("b", 1.0)]
    append_sales(path, 5, [(9, "b", 5.0)])
    assert lake.run("gold")["by_city"].rows_out == 1, "from there it goes on by what changes"
    assert lake.rows("by_city") == [("c's", 1.0), ("a", 6.5), ("b", 6.0)]


@pytest.mark.thorough
def test_files_that_no_commit_names_go_with_a_walk_and_the_next_vacuum_knows(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Delta on Spark has vacuumed is not looked for again, and what Sluice has, Delta on Spark reads."""

    def vacuum_sale() -> FlowReport:
        (report,) = upkeep.vacuum_named_table(lake.workspace(), "sale")
        return report

    lake = declaring(lake, view=None)
    path = lake.workspace().path("sale")
    RustTable(path).update(new_values={"amount": 2.0}, predicate="id = 1")
    orphan = locate(path) / "city=a" / "part-orphan.c000.snappy.parquet"
    orphan.write_bytes(b"never committed")
    os.utime(orphan, (1, 1))
    time.sleep(1.1)
    by_inventory = vacuum_sale()
    assert by_inventory.deleted > 0 and by_inventory.written_by == "Sluice" and orphan.exists()
    rows = lake.rows("sale")
    monkeypatch.setattr(inventory, "WALKED_EVERY", timedelta())
    walked = vacuum_sale()
    assert walked.decision and walked.decision.startswith("yes: in full") and not orphan.exists()
    assert (walked.deleted, walked.written_by) == (1, "Spark")
    monkeypatch.undo()
    again = vacuum_sale()
    assert not again.committed and again.decision == "no: no file was removed from the table since the last time"
    assert not inventory.read_file_inventory(path, datetime.now(UTC)).changed_since_walk
    assert lake.rows("sale") == rows


def test_what_delta_prints_of_a_vacuum_does_not_reach_the_jobs_standard_output(lake: Lakehouse) -> None:
    jvm: Any = lake.spark._jvm
    console = getattr(getattr(jvm.scala, "Console$"), "MODULE$")
    assert not console.out().equals(jvm.java.lang.System.out)


@pytest.mark.thorough
def test_other_partitions_come_to_a_table_by_a_refresh(lake: Lakehouse) -> None:
    path, rows = lake.workspace().path("sale"), lake.rows("sale")
    other = declaring(lake, view=None, partition_by=("amount",))
    notes = plan.plan_run(other.lake).notes
    assert any("'sale' is partitioned by city, and declared by amount" in note for note in notes), notes
    other.run("silver")
    assert log.read_partition_columns(path) == ["city"]
    other.run("silver", mode="refresh", tables=["sale"])
    assert log.read_partition_columns(path) == ["amount"] and other.rows("sale") == rows
    assert not any("is partitioned by" in note for note in plan.plan_run(other.lake).notes)
