"""Writes through delta-rs: what they leave is what Spark's leave, for every reader; and the tables that they are not for."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice import optimize
from sluice.delta_log import find_log_damage
from sluice.errors import SluiceError
from sluice.flows.writing.difference import apply_merge_operations
from sluice.flows.writing.ranges import BoundingColumns
from sluice.lake import commit_history, commit_marks, commits, log, small_writes, table_creation
from sluice.lake.batch_sizes import RowsSize
from sluice.lake.flow_report import MergeCounts
from sluice.lake.layout import decide_layout
from sluice.lake.small_writes import OPERATION
from sluice.lake.table_creation import TableShape
from sluice.lake.written_alike import choose_statistics_columns
from sluice.runs import failures
from sluice.table_properties import CONSTRAINT, INSTANTS, MICROSECONDS, STATISTICS

COLUMNS = """k BIGINT, t STRING, at TIMESTAMP, ntz TIMESTAMP_NTZ, day DATE, email STRING, x DOUBLE, f FLOAT, small DECIMAL(9,2),
 wide DECIMAL(38,18), b BINARY, is BOOLEAN, list ARRAY<STRING>, inner STRUCT<a: INT, s: STRING>, note STRING"""
NAMES = ["k", "t", "at", "ntz", "day", "email", "x", "f", "small", "wide", "b", "is", "list", "inner", "note"]
KEYS = ("k", "t", "at")
LONG_AGO, FAR_AHEAD = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)


def row(k: int | None, **others: Any) -> tuple[Any, ...]:
    usual = {
        **{"t": f"key {k}", "at": datetime(2026, 1, 1, tzinfo=UTC), "ntz": datetime(1850, 1, 1), "day": date(1582, 10, 1)},
        **{"email": f"person{k}@example.org", "x": 1.5, "f": 0.5, "small": Decimal("1.25"), "b": b"\x00\xff", "is": True},
        **{
            "wide": Decimal("12345678901234567890.123456789012345678"),
            "list": ["a", None, ""],
            "inner": (1, None),
            "note": "N" * 5_000,
        },
    }
    values = {"k": k, **usual, **others}
    return tuple(values[name] for name in NAMES)


THERE = [
    *(row(k) for k in range(1, 6)),
    row(6, x=math.nan, f=math.nan, at=FAR_AHEAD, t="NaN"),
    row(7, x=-0.0, f=-0.0, at=LONG_AGO, t="zero"),
    row(None, t=None, at=None),
]
CHANGES = [
    ("U", *row(1, x=math.nan, email="changed@example.org", list=None, inner=(2, "inner@example.org"))),
    ("D", *row(2)),
    ("U", *row(None, t=None, at=None, x=-0.0, day=date(9999, 12, 31))),
    ("I", *row(8, t="a\x00b" + "ü" * 70, at=datetime(1600, 1, 1, tzinfo=UTC), x=math.inf)),
    ("I", *row(None, t="NULL beside a text", at=None, wide=None, b=None)),
]


pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]  # which understands the schemas


def schema() -> StructType:
    return table_creation.parse_ddl_schema(COLUMNS)


MakeTable = Callable[[Path], str]


@pytest.fixture(scope="module", name="make_table")
def table_maker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> MakeTable:
    """Makes copies of a table that Spark has written once, in folders that are not there yet. Returns the path of each."""
    made = tmp_path_factory.mktemp("made") / "table"
    shape = TableShape(
        schema=schema(), comment="c", statistics=choose_statistics_columns(schema(), private=("email", "t"), first=KEYS)
    )
    table_creation.create_table(spark, str(made), shape)
    spark.createDataFrame(THERE, schema()).coalesce(1).write.format("delta").mode("append").save(str(made))
    return lambda path: str(shutil.copytree(made, path))


def changed_rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(CHANGES, StructType.fromDDL(f"{OPERATION} STRING, {COLUMNS}"))


def described(rows: DataFrame) -> list[str]:
    return sorted(repr(one) for one in rows.collect())


@pytest.mark.parametrize("at_most", [None, RowsSize(5)], ids=["counted here", "few known before"])
def test_both_ways_leave_what_every_reader_reads_alike(
    spark: SparkSession, make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_most: RowsSize | None
) -> None:
    ours, theirs = make_table(tmp_path / "ours"), make_table(tmp_path / "theirs")
    commit_marks.mark_session_commits(spark, "r1", "increment", "silver_t", [3])
    bounding = BoundingColumns(schema(), ("k", "at"))
    few = apply_merge_operations(spark, ours, changed_rows(spark), KEYS, bounding, at_most=at_most)
    with monkeypatch.context() as none_is_few:
        none_is_few.setattr(small_writes, "MOST_ROWS", 0)
        many = apply_merge_operations(spark, theirs, changed_rows(spark), KEYS, bounding)
    assert few == many == MergeCounts(2, 2, 1)
    assert (commit_history.summarize_new_versions(ours, 1).writers, commit_history.summarize_new_versions(theirs, 1).writers) == (
        "delta-rs",
        "Spark",
    )

    def held(path: str) -> DataFrame:
        return spark.read.format("delta").load(path)

    assert described(held(ours)) == described(held(theirs))
    # Whatever statistics say, a file with such a row is read. Of -0.0 that is so of ours alone: Spark misses it in its own files.
    for condition in ("x > 5", "x = double('NaN')", "x = 0.0", "f > 5", "wide > 1", "at > '2026-06-01'", "k = 8"):
        wanted = sum(one.met is True for one in held(ours).selectExpr(f"{condition} AS met").collect())
        assert held(ours).where(condition).count() == wanted > 0, condition

    def feed(path: str) -> list[str]:
        rows = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 2).load(path)
        return described(rows.drop("_commit_timestamp"))

    assert feed(ours) == feed(theirs)
    commit = commit_history.read_commit_history(ours, 1)[0]
    assert (commit["operation"], commit["note"]["run"], commit["metrics"]["numTargetRowsUpdated"]) == ("MERGE", "r1", 2)
    checksums = [json.loads((Path(path) / "_delta_log" / f"{2:020d}.crc").read_text()) for path in (ours, theirs)]
    assert all(
        checksums[0][name] == checksums[1][name] for name in ("numFiles", "numMetadata", "numProtocol", "metadata", "protocol")
    )
    assert checksums[0]["tableSizeBytes"] == sum(file.stat().st_size for file in map(Path, DeltaTable(ours).file_uris()))
    assert log.read_table_properties(ours) == log.read_table_properties(theirs)
    assert log.read_table_comment(ours) == "c" and DeltaTable(ours).metadata().id == DeltaTable(theirs).metadata().id


def test_few_rows_that_are_too_large_are_merged_by_spark(
    spark: SparkSession, make_table: MakeTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bounding = make_table(tmp_path / "t"), BoundingColumns(schema(), ("k",))
    monkeypatch.setattr(small_writes, "MOST_ROW_BYTES", 1_000)
    done = apply_merge_operations(spark, path, changed_rows(spark), KEYS, bounding, at_most=RowsSize(5))
    assert done == MergeCounts(2, 2, 1) and commit_history.summarize_new_versions(path, 1).writers == "Spark"


def test_no_personal_value_is_in_the_log_in_footers_or_in_an_error(
    spark: SparkSession, make_table: MakeTable, tmp_path: Path
) -> None:
    path = make_table(tmp_path / "table")
    before = {file.name for file in Path(path).glob("*.parquet")}
    apply_merge_operations(spark, path, changed_rows(spark), KEYS, BoundingColumns(schema(), ("k",)))
    said = "".join(file.read_text() for file in (Path(path) / "_delta_log").glob("*.json"))
    assert "example.org" not in said and "key 1" not in said and "beside a text" not in said
    assert "N" * 30 in said and "N" * 33 not in said, "of texts that are not personal only the beginning"
    written = [file for file in Path(path).glob("*.parquet") if file.name not in before]
    for file in written:
        metadata = pq.ParquetFile(file).metadata
        told = {
            metadata.schema.column(position).path
            for group in range(metadata.num_row_groups)
            for position in range(metadata.num_columns)
            if metadata.row_group(group).column(position).is_stats_set
            and metadata.row_group(group).column(position).statistics.has_min_max
        }
        assert told == {"k", "at", "ntz", "day", "small", "note"}, "and none of what is inside a column"
    assert written


def with_features(*names: str) -> dict[str, Any]:
    return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(names)}


def write_log(path: Path, schema: str = "k BIGINT, v STRING", **others: Any) -> str:
    """A table that is a log of one commit."""
    checked = any(name.startswith(CONSTRAINT) for name in others.get("properties", {}))
    protocol = with_features("appendOnly", "invariants", "changeDataFeed", *(["checkConstraints"] if checked else []))
    fields = json.loads(table_creation.parse_ddl_schema(schema).json())
    for field in fields["fields"]:
        field["metadata"] |= others.get("field", {})
    metadata = {
        **{"id": "11111111-1111-1111-1111-111111111111", "format": {"provider": "parquet", "options": {}}, "createdTime": 0},
        **{"schemaString": json.dumps(fields), "partitionColumns": others.get("by", [])},
        "configuration": {STATISTICS: "k", INSTANTS: MICROSECONDS, **others.get("properties", {})},
    }
    actions = [{"protocol": others.get("protocol", protocol)}, {"metaData": metadata}, *others.get("actions", [])]
    (path / "_delta_log").mkdir(parents=True)
    (path / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return str(path)


LARGE = {"path": "a.parquet", "partitionValues": {}, "size": 2**30, "modificationTime": 0, "dataChange": True}


@pytest.mark.parametrize(
    ("table", "known"),
    [
        ({}, True),
        ({"schema": "k BIGINT, x DOUBLE, l ARRAY<DOUBLE>, s STRUCT<a: STRING>"}, True),
        ({"by": ["k"]}, True),
        ({"schema": "k STRING, v INT", "by": ["k"]}, False),
        ({"schema": "k DOUBLE"}, False),
        ({"schema": "k BIGINT, x DOUBLE", "properties": {STATISTICS: "k,x"}}, False),
        ({"schema": "k BIGINT, x DECIMAL(18,2)", "properties": {STATISTICS: "x"}}, False),
        ({"schema": "k BIGINT, x DECIMAL(15,2)", "properties": {STATISTICS: "x"}}, True),
        ({"schema": "k BIGINT, s STRUCT<x: DOUBLE>"}, False),
        ({"schema": "k BIGINT, m MAP<STRING, STRING>"}, False),
        ({"schema": "k BIGINT, v INTERVAL DAY TO SECOND"}, False),
        ({"schema": "k BIGINT, at TIMESTAMP", "properties": {INSTANTS: ""}}, False),
        ({"schema": "k BIGINT, `a b` STRING"}, False),
        ({"properties": {f"{CONSTRAINT}some": "k > 0"}}, True),
        ({"schema": "k BIGINT, a DATE, b DATE", "properties": {f"{CONSTRAINT}some": "a <= b and k != -1"}}, True),
        ({"properties": {f"{CONSTRAINT}some": "k > 0"}, "protocol": with_features("invariants")}, False),
        *(
            (
                {
                    "properties": {f"{CONSTRAINT}some": "k > 0"},
                    "protocol": {"minReaderVersion": 1, "minWriterVersion": version},
                },
                judging,
            )
            for version, judging in ((2, False), (3, True), (4, True))
        ),
        (
            {"schema": "k BIGINT, current_date DATE, d DATE", "properties": {f"{CONSTRAINT}some": "d <= current_date"}},
            False,
        ),
        ({"schema": "k BIGINT, user STRING, `end` STRING", "properties": {f"{CONSTRAINT}some": "user <= end"}}, True),
        ({"schema": "k BIGINT, `interval` BIGINT", "properties": {f"{CONSTRAINT}some": "k > interval"}}, False),
        *(
            ({"schema": "k BIGINT, v STRING, x DOUBLE, n INT, K2 BIGINT", "properties": {f"{CONSTRAINT}some": condition}}, False)
            for condition in (
                *("k > 0 OR k < 0", "abs(k) > 0", "k BETWEEN 1 AND 5", "NOT k > 0", "(k > 0)", "k > 0.5", "x > 0", "x > x"),
                *(
                    "v = 'a'",
                    "v > 1",
                    "k <= v",
                    "k <= n",
                    "K > 0",
                    "k < K2",
                    "nope > 0",
                    "k IS NOT NULL",
                    "`k` > 0",
                    "k <=> 1",
                    "",
                ),
            )
        ),
        ({"properties": {"delta.appendOnly": "true"}}, False),
        ({"properties": {"delta.enableDeletionVectors": "true"}}, False),
        ({"properties": {"delta.checkpointInterval": "5", "delta.enableChangeDataFeed": "false", "owner": "b"}}, True),
        ({"properties": {"delta.compatibility.symlinkFormatManifest.enabled": "true"}}, False),
        ({"schema": "K BIGINT"}, False),
        ({"field": {"delta.generationExpression": "1"}}, False),
        ({"field": {"comment": "c"}}, True),
        ({"protocol": with_features("domainMetadata", "clustering")}, False),
        ({"protocol": with_features("domainMetadata", "rowTracking")}, False),
        (
            {"protocol": {**with_features("deletionVectors"), "minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}},
            False,
        ),
        ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, False),
        ({"actions": [{"add": LARGE}]}, False),
        ({"actions": [{"add": {**LARGE, "size": 10}}]}, True),
        ({"actions": [{"add": {**LARGE, "size": 10, "path": "file:/other/a.parquet"}}]}, False),
        ({"actions": [{"add": {**LARGE, "size": 10, "path": "/other/a.parquet"}}]}, False),
    ],
    ids=str,
)
def test_what_is_not_known_to_be_the_same_is_left_to_spark(tmp_path: Path, table: Mapping[str, Any], known: bool) -> None:
    path = write_log(tmp_path / "table", **table)
    assert small_writes.is_merged_by_delta_rs(path, ("k",), 1, 1, True) is known
    assert not small_writes.is_merged_by_delta_rs(path, ("k",), small_writes.MOST_ROWS + 1, 1, True)
    assert not small_writes.is_merged_by_delta_rs(path, ("k",), 1, small_writes.MOST_ROW_BYTES + 1, True)


def test_a_table_of_somebody_else_whose_columns_with_statistics_are_not_named_is_left_to_spark(tmp_path: Path) -> None:
    path = Path(write_log(tmp_path / "table"))
    file = path / "_delta_log" / f"{0:020d}.json"
    file.write_text(file.read_text().replace(STATISTICS, "other"))
    assert not small_writes.is_merged_by_delta_rs(str(path), ("k",), 1, 1, True)


def merge(path: str, *rows: tuple[str, int | None, str | None]) -> MergeCounts:
    given = pa.table([list(column) for column in zip(*rows, strict=True)], [OPERATION, "k", "v"])
    return small_writes.merge_few_rows(path, given, ("k",), {}, None)


def test_a_row_that_the_table_does_not_take_is_refused_without_its_values(tmp_path: Path) -> None:
    path = write_log(tmp_path / "table", schema="k BIGINT, v STRING NOT NULL")
    merge(path, ("I", 4711, "told@example.org"))
    with pytest.raises(SluiceError, match=r"'v' .* is NOT NULL, and 1 row has") as caught:
        merge(path, ("I", 4712, None), ("U", 4711, "other@example.org"))
    said = str(caught.value).replace(path, "")  # which may have any number
    assert "471" not in said and "example" not in said and caught.value.__cause__ is None
    assert DeltaTable(path).version() == 1


def test_why_a_table_was_not_written_is_found_out_without_the_rows_that_delta_rs_quotes(tmp_path: Path) -> None:
    path = write_log(tmp_path / "gym" / "silver" / "visit")
    merge(path, ("I", 4711, "told@example.org"))
    lost = Path(DeltaTable(path).file_uris()[0])
    lost.unlink()
    with pytest.raises(small_writes.SmallWriteFailed) as caught:
        merge(path, ("U", 4711, "other@example.org"))
    assert "example" not in str(caught.value)
    assert f"{path} has lost its data file {lost.name}" in str(failures.explain_failure(caught.value))
    assert caught.value.__suppress_context__, "no traceback shows the other error"


def test_how_many_rows_delta_rs_would_hold_is_asked_of_the_files_that_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_log(tmp_path / "table")
    merge(path, ("I", 1, "a"))
    merge(path, ("I", 2, "b"), ("I", 3, "c"))
    assert small_writes.fits_in_memory(path, {})
    monkeypatch.setattr(small_writes, "MOST_SCANNED_ROWS", 1)
    assert small_writes.fits_in_memory(path, {"k": (1, 1)})
    assert not small_writes.fits_in_memory(path, {"k": (1, 2)}) and not small_writes.fits_in_memory(path, {})
    assert small_writes.is_merged_by_delta_rs(path, ("k",), 1, 1, is_bounded=True)
    assert not small_writes.is_merged_by_delta_rs(path, ("k",), 1, 1, is_bounded=False)
    monkeypatch.setattr(small_writes, "MOST_SCANNED_ROWS", 3)
    assert small_writes.is_merged_by_delta_rs(path, ("k",), 1, 1, is_bounded=False)
    parts = write_log(tmp_path / "parts", by=["k"])
    merge(parts, ("I", 1, "a"), ("I", 2, "b"), ("I", 3, "c"))
    monkeypatch.setattr(small_writes, "MOST_SCANNED_ROWS", 1)
    assert small_writes.fits_in_memory(parts, {"k": (1, 1)}) and not small_writes.fits_in_memory(parts, {"k": (1, 2)})
    monkeypatch.setattr(small_writes, "MOST_SCANNED_ROWS", 3)
    monkeypatch.setattr(small_writes, "MOST_UNBOUNDED_BYTES", 1)
    assert small_writes.fits_in_memory(path, {"k": (1, 3)}) and not small_writes.fits_in_memory(path, {})


@pytest.mark.parametrize("at_most", [RowsSize(2, None), None], ids=["known to be few", "counted"])
def test_few_operations_on_a_table_of_many_rows_are_merged_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_most: RowsSize | None
) -> None:
    path = write_log(tmp_path / "table")
    merge(path, ("I", 1, "a"), ("I", 2, "b"))
    monkeypatch.setattr(small_writes, "MOST_SCANNED_ROWS", 1)
    monkeypatch.setattr(small_writes, "merge_few_rows", lambda *_: pytest.fail("through delta-rs"))
    operations = spark.createDataFrame([("U", 1, "A"), ("D", 2, "b")], f"{OPERATION} STRING, k BIGINT, v STRING")
    by = BoundingColumns(table_creation.parse_ddl_schema("k BIGINT, v STRING"), ["k"])
    assert apply_merge_operations(spark, path, operations, ("k",), by, at_most=at_most) == MergeCounts(0, 1, 1)
    assert DeltaTable(path).to_pyarrow_table().to_pylist() == [{"k": 1, "v": "A"}]


STRANGE_ROWS = {
    "a text that is not UTF-8": ("note", "CAST(X'61FF' AS STRING)", "hex(note) = '61FF'"),
    "a far date": ("day", "make_date(300000, 1, 1)", "year(day) = 300000"),
}


@pytest.mark.parametrize(
    ("strange", "at_most"),
    [
        pytest.param("a text that is not UTF-8", RowsSize(3, None), id="a text that is not UTF-8, known to be few"),
        pytest.param("a far date", None, id="a far date, counted"),
        pytest.param("a text that is not UTF-8", None, id="a text that is not UTF-8, counted", marks=pytest.mark.slow),
        pytest.param("a far date", RowsSize(3, None), id="a far date, known to be few", marks=pytest.mark.slow),
    ],
)
def test_a_row_that_delta_rs_cannot_write_does_not_stop_the_merge_of_another(
    spark: SparkSession,
    make_table: MakeTable,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    strange: str,
    at_most: RowsSize | None,
) -> None:
    path = make_table(tmp_path / "table")
    column, value, is_kept = STRANGE_ROWS[strange]
    there = spark.read.format("delta").load(path)
    others = there.where("k = 1").withColumn(column, F.expr(value)).unionAll(there.where("k IN (2, 3)"))
    others.coalesce(1).write.format("delta").mode("overwrite").save(path)
    changes = [("U", *row(2, email="changed@example.org")), ("D", *row(3)), ("I", *row(4))]
    operations = spark.createDataFrame(changes, f"{OPERATION} STRING, {COLUMNS}")
    by = BoundingColumns(schema(), ["k"])
    given: list[pa.Table] = []
    done = apply_merge_operations(spark, path, operations, ("k",), by, at_most=at_most, on_few=given.append)
    assert done == MergeCounts(1, 1, 1)
    left = spark.read.format("delta").load(path)
    assert {(one.k, one.email) for one in left.select("k", "email").collect()} == {
        (1, "person1@example.org"),
        (2, "changed@example.org"),
        (4, "person4@example.org"),
    }
    assert left.where("k = 1").where(is_kept).count() == 1
    assert commit_history.summarize_new_versions(path, 1).writers == "Spark" and not given
    said = capsys.readouterr().err
    assert f"could not write {path}" in said and "example.org" not in said


def test_a_row_that_delta_rs_cannot_write_is_appended_and_laid_out_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = write_log(tmp_path / "table")
    merge(path, ("I", 1, "a"))
    strange = spark.sql("SELECT CAST(2 AS BIGINT) AS k, CAST(X'61FF' AS STRING) AS v")
    commits.append_rows(strange, path, None, RowsSize(1, 10))
    decision = decide_layout(path, (), demanded=True)
    assert optimize.lay_out_as_decided(spark, path, (), decision) == (2, 1)
    assert commit_history.summarize_new_versions(path, log.latest_table_version(path) - 1).writers == "Spark"
    held = spark.read.format("delta").load(path).selectExpr("k", "hex(v) AS v").collect()
    assert sorted((row.k, row.v) for row in held) == [(1, "61"), (2, "61FF")]


def test_somebody_else_who_writes_meanwhile_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_log(tmp_path / "table")
    merge(path, ("I", 1, "a"))
    opened = small_writes.open_table_to_change(path)
    merge(path, ("U", 1, "b"))
    monkeypatch.setattr(small_writes, "open_table_to_change", lambda given: opened)
    with pytest.raises(SluiceError, match="Somebody else wrote to the table"):
        merge(path, ("U", 1, "c"))


def test_a_column_with_no_statistics_stays_so_where_none_has_any(tmp_path: Path) -> None:
    path = write_log(tmp_path / "table", properties={STATISTICS: ""})
    merge(path, ("I", 4711, "told@example.org"))
    commits = [file.read_text() for file in sorted((Path(path) / "_delta_log").glob("*.json"))]
    added = [action["add"] for text in commits for action in map(json.loads, text.splitlines()) if "add" in action]
    # Of a file in the log; ids and instants have the digits of the key by chance.
    told = [json.loads(one["stats"]) for one in added]
    assert told and all(one["numRecords"] == 1 for one in told)
    assert all(not one.get(ends) for one in told for ends in ("minValues", "maxValues", "nullCount")), told


def test_checkpoints_are_made_as_spark_makes_them_and_read_by_it(spark: SparkSession, tmp_path: Path) -> None:
    path = write_log(tmp_path / "table")
    spark.createDataFrame([(0, "a")], "k BIGINT, v STRING").write.format("delta").mode("append").save(path)
    for k in range(1, 22):
        if k in (5, 12):  # its version is Spark's: ways alternate
            both = spark.createDataFrame([("I", k, "b"), ("U", k - 1, "c")], f"{OPERATION} STRING, k BIGINT, v STRING")
            with pytest.MonkeyPatch.context() as none_is_few:
                none_is_few.setattr(small_writes, "MOST_ROWS", 0)
                apply_merge_operations(
                    spark, path, both, ("k",), BoundingColumns(table_creation.parse_ddl_schema("k BIGINT"), ("k",))
                )
        else:
            merge(path, ("I", k, "b"), ("U", k - 1, "c"))
    made = sorted(file.name for file in (Path(path) / "_delta_log").glob("*.checkpoint.parquet"))
    assert made == [f"{version:020d}.checkpoint.parquet" for version in (10, 20)]
    assert not (Path(path) / "_delta_log" / "._last_checkpoint.crc").exists()
    assert {tuple(one) for one in spark.read.format("delta").load(path).collect()} == {*((k, "c") for k in range(21)), (21, "b")}


def test_a_missing_version_checksum_is_made_up_for_and_checkpoints_are_made_as_ever(spark: SparkSession, tmp_path: Path) -> None:
    path = write_log(tmp_path / "table")
    spark.createDataFrame([(0, "a")], "k BIGINT, v STRING").write.format("delta").mode("append").save(path)
    checksums = [Path(path) / "_delta_log" / f"{version:020d}.crc" for version in range(4)]
    merge(path, ("I", 1, "a"))
    assert checksums[2].exists()
    checksums[2].unlink()  # as after a kill behind the commit
    for k in range(2, 12):
        merge(path, ("I", k, "a"))
    said = [json.loads(file.read_text()) for file in (checksums[1], checksums[3])]
    assert [one["metadata"] for one in said] == [said[0]["metadata"]] * 2 and said[1]["numFiles"] == 3
    assert (Path(path) / "_delta_log" / f"{10:020d}.checkpoint.parquet").exists()
    assert spark.read.format("delta").load(path).count() == 12


@pytest.mark.parametrize("zorder", [(), ("v", "k")])
def test_a_small_table_is_laid_out_in_one_file_and_has_the_same_rows(tmp_path: Path, zorder: tuple[str, ...]) -> None:
    path = write_log(tmp_path / "table")
    for k in range(5):
        merge(path, ("I", k, "told@example.org"))
    assert small_writes.is_laid_out_by_delta_rs(path, zorder)
    with pytest.MonkeyPatch.context() as few:
        few.setattr(small_writes, "MOST_SORTED_ROWS", 4)
        assert small_writes.is_laid_out_by_delta_rs(path, zorder) is not bool(zorder)
    assert small_writes.lay_out_small_table(path, zorder, '{"sluice": 1, "run": "r1"}') == (5, 1)
    commit = commit_history.read_commit_history(path, 1)[0]
    assert (commit["operation"], commit["note"]["run"]) == ("OPTIMIZE", "r1")
    text = (Path(path) / "_delta_log" / f"{DeltaTable(path).version():020d}.json").read_text()
    assert '"dataChange":true' not in text and "example.org" not in text
    rows = pq.read_table(DeltaTable(path).file_uris()[0]).sort_by("k").to_pylist()
    assert rows == [{"k": k, "v": "told@example.org"} for k in range(5)]


def test_a_commit_that_is_cut_at_the_end_of_a_line_is_found_whoever_wrote_it(tmp_path: Path) -> None:
    path = write_log(tmp_path / "table")
    merge(path, *(("I", k, "a") for k in range(3)))
    merge(path, ("U", 1, "b"), ("D", 2, None))
    merge(path, ("I", 7, "a"))
    small_writes.lay_out_small_table(path, (), None)
    commits_of_delta_rs = sorted((Path(path) / "_delta_log").glob("*.json"))[1:]
    assert [*find_log_damage(path)] == [] and len(commits_of_delta_rs) == 4
    for file in commits_of_delta_rs:
        whole = file.read_text().splitlines(keepends=True)
        for left in range(1, len(whole)):
            file.write_text("".join(whole[:left]))
            assert [damage.version for damage in find_log_damage(path)] == [int(file.stem)], "".join(whole[:left])
        file.write_text("".join(whole))
    assert [*find_log_damage(path)] == []


PROTOCOLS_WITH_CHECKS = (
    with_features("checkConstraints", "invariants"),
    *({"minReaderVersion": 1, "minWriterVersion": version} for version in (3, 4)),
)


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("INT", -(2**31), 2**31 - 1),
        ("STRING", "Z", "a"),
        ("STRING", "z", "ü"),
        ("DATE", date(1582, 10, 4), date(1582, 10, 15)),
        ("TIMESTAMP", LONG_AGO, FAR_AHEAD),
    ],
)
def test_a_check_lets_the_same_rows_in_both_ways(
    spark: SparkSession, tmp_path: Path, kind: str, low: object, high: object
) -> None:
    operators = ("<=", ">=", "<>", "!=", "<", ">", "=")
    shape = f"k BIGINT, a {kind}, b {kind}"
    rows = [(k, *pair) for k, pair in enumerate([(low, high), (high, low), (low, low), (None, low), (high, None)])]
    frame = spark.createDataFrame(rows, shape)
    met = [list(one) for one in frame.selectExpr(*(f"coalesce(a {operator} b, false)" for operator in operators)).collect()]
    given = frame.toArrow()
    for position, operator in enumerate(operators):
        protocol = PROTOCOLS_WITH_CHECKS[position % len(PROTOCOLS_WITH_CHECKS)]
        properties = {f"{CONSTRAINT}some": f"a {operator} b"}
        path = write_log(tmp_path / str(position), schema=shape, properties=properties, protocol=protocol)
        assert small_writes.is_merged_by_delta_rs(path, ("k",), 1, 1, True)
        let_in = []
        for k in range(len(rows)):
            operation = given.slice(k, 1).append_column(OPERATION, pa.array(["I"]))
            try:
                small_writes.merge_few_rows(path, operation, ("k",), {}, None)
            except SluiceError as error:
                assert "do not meet a CHECK" in str(error) and str(low) not in str(error) and error.__cause__ is None
                let_in.append(False)
            else:
                let_in.append(True)
        assert let_in == [one[position] for one in met], operator


def test_a_table_with_a_check_takes_small_merges_and_spark_goes_on_refusing(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "table")
    columns = table_creation.parse_ddl_schema("k BIGINT, v STRING")
    table_creation.create_table(
        spark, path, TableShape(schema=columns, comment="", statistics=("k",), checks={"positive": "k > 0"})
    )
    assert small_writes.is_merged_by_delta_rs(path, ("k",), 1, 1, True)
    merge(path, ("I", 1, "a"), ("I", 2, "b"))
    merge(path, ("U", 1, "c"), ("D", 2, "b"))
    with pytest.raises(SluiceError, match="CHECK"):
        merge(path, ("I", -5, "secret"))
    with pytest.raises(Exception, match="positive"):
        spark.createDataFrame([(-5, "a")], "k BIGINT, v STRING").write.format("delta").mode("append").save(path)
    assert [tuple(one) for one in spark.read.format("delta").load(path).collect()] == [(1, "c")]
