"""Appends through delta-rs: once by transaction, only where the rows are known to be few, and read alike by every reader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from tests.unit.lake.test_small_writes import COLUMNS, THERE, MakeTable, described, table_maker, write_log  # noqa: F401  # a fixture

from sluice.delta_log import find_log_damage
from sluice.errors import SluiceError
from sluice.flows.writing.difference import apply_merge_operations
from sluice.flows.writing.ranges import BoundingColumns
from sluice.lake import batch_sizes, commit_history, commit_marks, commits, log, small_writes, table_creation
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.commits import Transaction
from sluice.lake.table_creation import TableShape

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

ONCE = Transaction("bronze_t", "checkpoint", "t", 4)


def appended_rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(THERE, COLUMNS).drop("note")


def test_both_ways_append_what_every_reader_reads_alike(spark: SparkSession, make_table: MakeTable, tmp_path: Path) -> None:
    ours, theirs = make_table(tmp_path / "ours"), make_table(tmp_path / "theirs")
    commit_marks.mark_session_commits(spark, "r1", "increment", "bronze_t", [3])
    commits.append_rows(appended_rows(spark), ours, ONCE, batch_sizes.measure_rows(appended_rows(spark)))
    commits.append_rows(appended_rows(spark), theirs, ONCE)
    assert (commit_history.summarize_new_versions(ours, 1).writers, commit_history.summarize_new_versions(theirs, 1).writers) == (
        "delta-rs",
        "Spark",
    )

    def held(path: str) -> DataFrame:
        return spark.read.format("delta").load(path)

    assert described(held(ours)) == described(held(theirs)) and held(ours).count() == 2 * len(THERE)
    assert len(DeltaTable(ours).to_pyarrow_table()) == len(polars.read_delta(ours)) == 2 * len(THERE)
    for condition in ("x > 5", "x = double('NaN')", "at > '2026-06-01'", "k = 6", "note IS NULL"):
        wanted = sum(one.met is True for one in held(ours).selectExpr(f"{condition} AS met").collect())
        assert held(ours).where(condition).count() == wanted > 0, condition

    def feed(path: str) -> list[str]:
        rows = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(path)
        return described(rows.drop("_commit_timestamp"))

    assert feed(ours) == feed(theirs)
    commit = commit_history.read_commit_history(ours, 1)[0]
    assert (commit["operation"], commit["note"]["run"], commit["parameters"]["mode"]) == ("WRITE", "r1", "Append")
    assert int(commit["metrics"]["numOutputRows"]) == len(THERE)
    text = (Path(ours) / "_delta_log" / f"{2:020d}.json").read_text()
    assert "example.org" not in text and "key 1" not in text
    assert (Path(ours) / "_delta_log" / f"{2:020d}.crc").exists()


@pytest.mark.parametrize("first", ["delta-rs", "Spark"])
def test_a_transaction_is_appended_once_whichever_way_it_went_first(
    spark: SparkSession, make_table: MakeTable, tmp_path: Path, first: str
) -> None:
    path = make_table(tmp_path / "table")
    sizes = [batch_sizes.measure_rows(appended_rows(spark)), None]
    for size in sizes if first == "delta-rs" else reversed(sizes):
        commits.append_rows(appended_rows(spark), path, ONCE, size)
        assert log.latest_table_version(path) == 2
        assert log.last_committed_transaction(path, ONCE.application) == ONCE.batch
    commits.append_rows(appended_rows(spark), path, Transaction("bronze_t", "checkpoint", "t", 0), sizes[0])
    assert log.latest_table_version(path) == 2, "an earlier one has been, too"
    commits.append_rows(appended_rows(spark), path, Transaction("bronze_t", "checkpoint", "t", 5), sizes[0])
    commits.append_rows(appended_rows(spark), path, Transaction("bronze_t", "another", "t", 0), sizes[0])
    commits.append_rows(appended_rows(spark), path, Transaction("bronze_t", "another", "t", 0), sizes[0])
    assert log.latest_table_version(path) == 4


def test_rows_of_unknown_size_many_rows_and_new_or_other_columns_are_left_to_spark(
    spark: SparkSession, make_table: MakeTable, tmp_path: Path
) -> None:
    path = make_table(tmp_path / "table")

    def small(ddl: str = COLUMNS, size: RowsSize | None = None) -> bool:
        return small_writes.is_appended_by_delta_rs(path, table_creation.parse_ddl_schema(ddl), size or RowsSize(1, 1))

    assert small() and small("k BIGINT, x DOUBLE")
    assert small(size=RowsSize(small_writes.MOST_APPENDED_ROWS, small_writes.MOST_ROW_BYTES))
    assert not small(size=RowsSize(1))
    assert not small(size=RowsSize(small_writes.MOST_APPENDED_ROWS + 1, 1))
    assert not small(size=RowsSize(1, small_writes.MOST_ROW_BYTES + 1))
    assert not small("k BIGINT, novel STRING") and not small("k INT") and not small("K BIGINT")
    assert not small("k BIGINT, inner STRUCT<a: INT, s: STRING, more: INT>")
    commits.append_rows(spark.createDataFrame([(1, "n")], "k BIGINT, novel STRING"), path, None, RowsSize(1, 1))
    assert "novel" in log.read_column_names(path) and small("k BIGINT, novel STRING"), "Spark has added it"


def test_rows_of_deliveries_are_appended_where_none_can_be_there_and_replaced_where_some_are(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, ddl = str(tmp_path / "table"), "_delivery BIGINT, v STRING"
    table_creation.create_table(
        spark, path, TableShape(schema=table_creation.parse_ddl_schema(ddl), comment="", statistics=("_delivery",))
    )

    def replace(*rows: tuple[int, str]) -> tuple[list[tuple[Any, ...]], str | None]:
        before = log.latest_table_version(path)
        frame = spark.createDataFrame(list(rows), ddl)
        commits.replace_rows_of_deliveries(frame, path, sorted({number for number, _ in rows}), RowsSize(len(rows), 10))
        held = sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())
        return held, commit_history.summarize_new_versions(path, before).writers

    assert replace((1, "a"), (3, "b")) == ([(1, "a"), (3, "b")], "delta-rs")
    assert replace((4, "c")) == ([(1, "a"), (3, "b"), (4, "c")], "delta-rs")
    assert replace((3, "d"), (5, "e")) == ([(1, "a"), (3, "d"), (4, "c"), (5, "e")], "Spark")


def test_dates_that_delta_rs_cannot_name_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    path, ddl = str(tmp_path / "table"), "k INT, day DATE"
    table_creation.create_table(
        spark, path, TableShape(schema=table_creation.parse_ddl_schema(ddl), comment="", statistics=("k", "day"))
    )
    for version, (day, writer) in enumerate([("9999-12-31", "delta-rs"), ("0001-01-01", "delta-rs"), ("+300000-01-01", "Spark")]):
        frame = spark.sql(f"SELECT {version} AS k, DATE'{day}' AS day UNION ALL SELECT NULL, NULL")
        commits.append_rows(frame, path, None, batch_sizes.measure_rows(frame))
        assert commit_history.summarize_new_versions(path, version).writers == writer, day
    assert spark.read.format("delta").load(path).where("day > DATE'9999-12-31'").count() == 1
    both = spark.sql(f"SELECT 'D' AS {small_writes.OPERATION}, 2 AS k, DATE'+300000-01-01' AS day")
    by = BoundingColumns(table_creation.parse_ddl_schema(ddl), ("k",))
    assert apply_merge_operations(spark, path, both, ("k",), by).deleted == 1
    assert commit_history.summarize_new_versions(path, 3).writers == "Spark"


def test_many_rows_of_a_table_with_partitions_are_left_to_spark(tmp_path: Path) -> None:
    path = write_log(tmp_path / "table", by=["k"])
    columns = table_creation.parse_ddl_schema("k BIGINT, v STRING")
    assert small_writes.is_appended_by_delta_rs(path, columns, RowsSize(small_writes.MOST_PARTITIONED_ROWS, 1))
    assert not small_writes.is_appended_by_delta_rs(path, columns, RowsSize(small_writes.MOST_PARTITIONED_ROWS + 1, 1))
    small_writes.append_few_rows(path, pa.table({"k": [1, None, 2], "v": ["a", "b", None]}), None)
    assert sorted(DeltaTable(path).to_pyarrow_table().to_pylist(), key=repr) == [
        {"k": 1, "v": "a"},
        {"k": 2, "v": None},
        {"k": None, "v": "b"},
    ]


def test_a_row_that_lacks_a_wanted_value_is_refused_and_nothing_is_appended(tmp_path: Path) -> None:
    path = write_log(tmp_path / "table", schema="k BIGINT, v STRING NOT NULL")
    with pytest.raises(small_writes.SmallWriteFailed) as caught:
        small_writes.append_few_rows(path, pa.table({"k": ["told@example.org"], "v": ["a"]}), None)
    assert "example" not in str(caught.value) and caught.value.__suppress_context__
    with pytest.raises(SluiceError, match=r"'v' .* is NOT NULL, and 2 rows"):
        small_writes.append_few_rows(path, pa.table({"k": [4711, 4712]}), None)
    assert DeltaTable(path).version() == 0


def test_footers_hold_values_of_no_other_columns_than_the_log_and_a_cut_commit_is_found(tmp_path: Path) -> None:
    path = write_log(tmp_path / "table")
    small_writes.append_few_rows(path, pa.table({"k": [1, 2], "v": ["told@example.org", None]}), '{"sluice": 1}', ("a", 1))
    group = pq.ParquetFile(DeltaTable(path).file_uris()[0]).metadata.row_group(0)
    told = {group.column(position).path_in_schema: group.column(position).statistics for position in range(2)}
    assert told["k"].has_min_max and (told["v"] is None or not told["v"].has_min_max)
    file = Path(path) / "_delta_log" / f"{1:020d}.json"
    whole = file.read_text().splitlines(keepends=True)
    assert {next(iter(json.loads(line))) for line in whole} == {"add", "commitInfo", "txn"}
    for left in range(1, len(whole)):
        file.write_text("".join(whole[:left]))
        assert [damage.version for damage in find_log_damage(path)] == [1], "".join(whole[:left])


def test_sizes_are_at_least_what_the_rows_are(spark: SparkSession) -> None:
    rows = [(1, "ä" * 10, ["x" * 5, None]), (2, None, None)]
    frame = spark.createDataFrame(rows, "k INT, t STRING, l ARRAY<STRING>")
    measured = batch_sizes.measure_rows(frame)
    assert measured.rows == 2 and measured.bytes is not None and 25 + 6 * 16 <= measured.bytes <= 400
    inline = batch_sizes.measure_inline_rows(rows)
    assert inline.rows == 2 and (inline.bytes or 0) >= 25
    wide = spark.sql("SELECT " + ", ".join(f"1.0D AS c{position}" for position in range(300)))
    hollow = spark.sql("SELECT array_repeat(named_struct('a', CAST(NULL AS BIGINT), 'b', CAST(NULL AS BIGINT)), 1000) AS l")
    for rows in (wide, hollow):
        assert (batch_sizes.measure_rows(rows).bytes or 0) >= rows.toArrow().nbytes, "nothing takes no memory"
    assert RowsSize(1, 2) + RowsSize(3, 4) == RowsSize(4, 6) and (RowsSize(1, 2) + RowsSize(1)).bytes is None
