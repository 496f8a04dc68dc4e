"""Rows of people are deleted through delta-rs where they and their table are few, and through Spark elsewhere: the same rows are left."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from tests.unit.lake.test_small_writes import THERE, described, make_table

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure.steps import rows
from sluice.lake import commit_history, log, small_writes
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.spark

SUBJECT = "CAST(lower(email) AS STRING) <=> s._erased_subject"
CASES = {
    "an expression": (SUBJECT, "_erased_subject STRING", [("person1@example.org",), ("person4@example.org",), ("nobody",)], 2),
    "two columns": (
        f"({SUBJECT}) AND (coalesce(t, email) LIKE 'key%')",
        "_erased_subject STRING",
        [("person2@example.org",), ("personnone@example.org",)],
        1,
    ),
    "equal in one column alone": ("t.day <=> s.day AND t.k <=> s.k", "day DATE, k BIGINT", [(THERE[0][4], 3)], 1),
    "NULL equals NULL": ("t.k <=> s.k AND t.at <=> s.at", "k BIGINT, at TIMESTAMP", [(None, None)], 1),
    "an instant": ("try_cast(at AS TIMESTAMP) <=> s._erased_at", "_erased_at TIMESTAMP", [(THERE[0][2],)], 5),
}


@pytest.fixture
def workspace(settings: Settings, spark: SparkSession) -> Workspace:
    source = Source(name="sales", format="csv", path="sales", comment="Sales.", schema="id INT")
    pipeline = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze",))
    found = Workspace(settings, build_declaration_graph(pipeline, [source]), spark, "r1", "increment", None)
    found.note("erasure_people")
    return found


@pytest.mark.parametrize("case", CASES)
def test_both_ways_leave_the_same_rows_and_no_value_in_the_log(
    workspace: Workspace, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    condition, columns, people, deleted = CASES[case]
    ours, theirs = make_table(spark, tmp_path / "ours"), str(tmp_path / "theirs")
    shutil.copytree(ours, theirs)

    def gone() -> DataFrame:
        return spark.createDataFrame(people, columns)

    assert rows.delete_by_merge(workspace, ours, gone(), condition) == deleted
    with monkeypatch.context() as none_is_few:
        none_is_few.setattr(small_writes, "MOST_ROWS", -1)
        assert rows.delete_by_merge(workspace, theirs, gone(), condition) == deleted
    by = [commit_history.summarize_new_versions(path, 1).writers for path in (ours, theirs)]
    assert by == ["delta-rs", "Spark"]

    def held(path: str) -> list[str]:
        return described(spark.read.format("delta").load(path))

    def feed(path: str) -> list[str]:
        changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2)
        return described(changes.load(path).drop("_commit_timestamp"))

    assert held(ours) == held(theirs) and len(held(ours)) == len(THERE) - deleted
    assert feed(ours) == feed(theirs) and len(feed(ours)) == deleted
    notes = [commit_history.read_commit_history(path, 1)[0]["note"] for path in (ours, theirs)]
    assert notes[0] == notes[1] and notes[0]["flow"] == "erasure_people"
    assert "example.org" not in "".join(file.read_text() for file in (Path(ours) / "_delta_log").glob("*.json"))


@pytest.mark.parametrize(
    ("condition", "columns", "people", "most"),
    [
        ("t.x <=> s.x", "x DOUBLE", [(1.5,)], 10_000),
        ("t.inner.s <=> s.name", "name STRING", [("a",)], 10_000),
        (SUBJECT, "_erased_subject STRING", [("person1@example.org",), ("person2@example.org",)], 1),
    ],
    ids=["a fraction", "in a struct", "too many"],
)
def test_what_delta_rs_may_see_otherwise_and_what_is_much_is_deleted_by_spark(
    workspace: Workspace,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    condition: str,
    columns: str,
    people: list[tuple[object]],
    most: int,
) -> None:
    path = make_table(spark, tmp_path / "table")
    monkeypatch.setattr(small_writes, "MOST_ROWS", most)
    monkeypatch.setattr(small_writes, "delete_few_rows", lambda *_: pytest.fail("through delta-rs"))
    before = spark.read.format("delta").load(path).count()
    deleted = rows.delete_by_merge(workspace, path, spark.createDataFrame(people, columns), condition)
    assert spark.read.format("delta").load(path).count() == before - deleted


def test_where_nobody_is_there_is_no_commit(workspace: Workspace, spark: SparkSession, tmp_path: Path) -> None:
    path = make_table(spark, tmp_path / "table")
    before = log.read_table_state(path)
    gone = spark.createDataFrame([("nobody",)], "_erased_subject STRING")
    assert rows.delete_by_merge(workspace, path, gone, SUBJECT) == 0
    assert log.read_table_state(path) == before


def test_a_file_with_a_far_date_loses_its_rows_too(workspace: Workspace, spark: SparkSession, tmp_path: Path) -> None:
    path = make_table(spark, tmp_path / "table")
    far = spark.read.format("delta").load(path).where("k = 1").withColumn("day", F.expr("make_date(12000, 1, 1)"))
    near = spark.read.format("delta").load(path).where("k = 2")
    far.unionAll(near).coalesce(1).write.format("delta").mode("overwrite").save(path)
    gone = spark.createDataFrame([("person2@example.org",)], "_erased_subject STRING")
    assert rows.delete_by_merge(workspace, path, gone, SUBJECT) == 1
    assert [one[0] for one in spark.read.format("delta").load(path).selectExpr("string(day)").collect()] == ["+12000-01-01"]
