"""Rows of people are deleted through delta-rs where they and their table are few, and through Spark elsewhere: the same rows are left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F
from tests.unit.lake.test_small_writes import THERE, MakeTable, described, table_maker  # noqa: F401  # a fixture

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure.personal_places.place import CanaryMarks, CanaryPlace
from sluice.erasure.personal_places.registry import list_control_stores
from sluice.erasure.steps import rows
from sluice.lake import commit_history, log, small_writes, table_creation
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.lake.written_alike import choose_statistics_columns
from sluice.locations import locate
from sluice.open_tables import open_checked_table
from sluice.privacy import secrets

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
    found.mark_next_commits("erasure_people")
    return found


@pytest.mark.parametrize("case", CASES)
def test_both_ways_leave_the_same_rows_and_no_value_in_the_log(
    workspace: Workspace, spark: SparkSession, make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    condition, columns, people, deleted = CASES[case]
    ours, theirs = make_table(tmp_path / "ours"), make_table(tmp_path / "theirs")

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
    make_table: MakeTable,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    condition: str,
    columns: str,
    people: list[tuple[object]],
    most: int,
) -> None:
    path = make_table(tmp_path / "table")
    monkeypatch.setattr(small_writes, "MOST_ROWS", most)
    monkeypatch.setattr(small_writes, "delete_few_rows", lambda *_: pytest.fail("through delta-rs"))
    before = spark.read.format("delta").load(path).count()
    deleted = rows.delete_by_merge(workspace, path, spark.createDataFrame(people, columns), condition)
    assert spark.read.format("delta").load(path).count() == before - deleted


def test_where_nobody_is_there_is_no_commit(
    workspace: Workspace, spark: SparkSession, make_table: MakeTable, tmp_path: Path
) -> None:
    path = make_table(tmp_path / "table")
    before = log.read_table_state(path)
    gone = spark.createDataFrame([("nobody",)], "_erased_subject STRING")
    assert rows.delete_by_merge(workspace, path, gone, SUBJECT) == 0
    assert log.read_table_state(path) == before


def test_a_file_with_a_far_date_loses_its_rows_too(
    workspace: Workspace, spark: SparkSession, make_table: MakeTable, tmp_path: Path
) -> None:
    path = make_table(tmp_path / "table")
    far = spark.read.format("delta").load(path).where("k = 1").withColumn("day", F.expr("make_date(12000, 1, 1)"))
    near = spark.read.format("delta").load(path).where("k = 2")
    far.unionAll(near).coalesce(1).write.format("delta").mode("overwrite").save(path)
    gone = spark.createDataFrame([("person2@example.org",)], "_erased_subject STRING")
    assert rows.delete_by_merge(workspace, path, gone, SUBJECT) == 1
    assert [one[0] for one in spark.read.format("delta").load(path).selectExpr("string(day)").collect()] == ["+12000-01-01"]


def test_a_row_that_delta_rs_cannot_write_does_not_stop_the_deletion_of_another(
    workspace: Workspace, spark: SparkSession, make_table: MakeTable, tmp_path: Path
) -> None:
    path = make_table(tmp_path / "table")
    kept = spark.read.format("delta").load(path)
    others = kept.where("k = 1").withColumn("note", F.expr("CAST(X'61FF' AS STRING)"))
    others.unionAll(kept.where("k = 2")).coalesce(1).write.format("delta").mode("overwrite").save(path)
    gone = spark.createDataFrame([("person2@example.org",)], "_erased_subject STRING")
    assert rows.delete_by_merge(workspace, path, gone, SUBJECT) == 1
    assert commit_history.summarize_new_versions(path, 1).writers == "Spark"
    assert [one.k for one in spark.read.format("delta").load(path).select("k").collect()] == [1]
    assert rows.delete_by_merge(workspace, path, gone, SUBJECT) == 0, "the merge before is not counted again"


def test_only_numbers_of_deliveries_bound_what_is_read(workspace: Workspace, spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    schema = table_creation.parse_ddl_schema("_delivery BIGINT, _row BIGINT, number BIGINT")
    shape = TableShape(
        schema=schema, comment="c", statistics=choose_statistics_columns(schema, private=(), first=("_delivery", "_row"))
    )
    table_creation.create_table(spark, path, shape)
    spark.createDataFrame([(1, 0, 111_222), (2, 0, 333_444)], schema).coalesce(1).write.format("delta").mode("append").save(path)
    for columns, one, condition in (
        ("_delivery BIGINT, _row BIGINT", (1, 0), rows.SAME_ROW),
        ("_erased_subject STRING", ("333444",), "CAST(number AS STRING) <=> s._erased_subject"),
    ):
        assert rows.delete_by_merge(workspace, path, spark.createDataFrame([one], columns), condition) == 1
    none_left = spark.createDataFrame([(1, 0)], "_delivery BIGINT, _row BIGINT")
    assert rows.delete_by_merge(workspace, path, none_left, rows.SAME_ROW) == 0, "as after a run that was killed"
    by_person, by_delivery = (str(commit["operationParameters"].get("predicate")) for commit in DeltaTable(path).history(2))
    assert "_delivery = 1" in by_delivery and "333444" not in by_person and "number" not in by_delivery


def test_a_canary_is_deleted_in_each_way_in_which_rows_are(workspace: Workspace, tmp_path: Path) -> None:
    secrets.read_secret_key(workspace.settings)
    marks, found = CanaryMarks.by_chance(), {}
    for store in list_control_stores():
        if store.erase.text.endswith(":erase_canary_rows"):
            path = locate(tmp_path / store.folder)
            store.plant(path, marks, "0 seconds")
            if store.prepare:
                store.prepare(workspace, path)
            version = open_checked_table(str(path)).version()
            assert store.erase(workspace, CanaryPlace(path, store.column, frozenset({marks.text}), 0.0)) == 1
            found[store.folder] = commit_history.summarize_new_versions(str(path), version).writers
    assert found == {"table": "delta-rs", "vectors": "Spark", "quarantine": "Spark"}, "marks of Spark, and files that it rewrites"
