"""An empty table that delta-rs makes is the one that Spark makes; what is not known to be so, Spark makes.

Setting properties changes nothing else of a table, whoever made it.
"""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable as SparkTable
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException

from sluice.errors import SluiceError
from sluice.lake import rowless_commits, table_creation
from sluice.lake.commit_marks import _NOTE
from sluice.lake.layout_properties import PropertyChanges
from sluice.lake.rowless_commits import create_empty_table, is_created_by_delta_rs
from sluice.lake.small_writes import SmallWriteFailed
from sluice.lake.table_creation import TableShape, parse_ddl_schema
from sluice.runs import failures
from sluice.table_properties import FINGERPRINT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "id BIGINT NOT NULL COMMENT 'it''s the key', at TIMESTAMP, day DATE, part STRUCT<a: INT, b: ARRAY<STRING>>, sum DECIMAL(10,2)"
)


def _make_shape(ddl: str = DDL, **otherwise: Any) -> TableShape:
    plain = TableShape(schema=parse_ddl_schema(ddl), comment='A "plain" table.', statistics=("id",))
    return replace(plain, **otherwise)


def _is_created_by_delta_rs(session: SparkSession, path: Path, shape: TableShape) -> bool:
    return is_created_by_delta_rs(session, str(path), shape.schema, table_creation._shape_properties(shape), shape.partition_by)


def _read_first_commit(path: Path) -> dict[str, Any]:
    lines = (path / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    found: dict[str, Any] = {}
    for line in lines:
        found |= json.loads(line)
    for name in ("id", "createdTime", "name"):
        found["metaData"].pop(name, None)
    found["metaData"]["schemaString"] = json.loads(found["metaData"]["schemaString"])
    return found


@pytest.mark.parametrize(
    "otherwise",
    [
        {"statistics": ("id", "at")},
        {"change_feed": False, "partition_by": ("day",)},
        {"file_bytes": 1 << 20, "retain": "0 seconds", "statistics": ()},
    ],
    ids=str,
)
def test_the_metadata_is_what_spark_writes(spark: SparkSession, tmp_path: Path, otherwise: dict[str, Any]) -> None:
    shape = _make_shape(**otherwise)
    assert _is_created_by_delta_rs(spark, tmp_path / "small", shape)
    assert table_creation.create_table(spark, str(tmp_path / "small"), shape) and not table_creation.create_table(
        spark, str(tmp_path / "small"), shape
    )
    table_creation._build_table(spark, SparkTable.createIfNotExists(spark).location(str(tmp_path / "spark")), shape)
    ours, theirs = _read_first_commit(tmp_path / "small"), _read_first_commit(tmp_path / "spark")
    assert ours["commitInfo"]["engineInfo"].startswith("delta-rs") and theirs["commitInfo"]["engineInfo"].startswith(
        "Apache-Spark"
    )
    assert ours["commitInfo"]["operation"] == theirs["commitInfo"]["operation"] == "CREATE TABLE"
    assert ours["metaData"] == theirs["metaData"]
    # Version 4 has the features that Spark names one by one: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, Valid Feature Names.
    assert ours["protocol"] == {"minReaderVersion": 1, "minWriterVersion": 4 if shape.change_feed else 2}
    named = {"invariants", "appendOnly", *(("changeDataFeed",) if shape.change_feed else ())}
    assert set(theirs["protocol"].get("writerFeatures", named)) == named and theirs["protocol"]["minReaderVersion"] == 1
    assert (tmp_path / "small" / "_delta_log" / f"{0:020d}.crc").is_file(), "Spark finds columns and protocol without a job"


def test_spark_writes_it_refuses_what_is_null_and_gives_a_change_feed(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    table_creation.create_table(spark, path, _make_shape())
    rows = "SELECT {} AS id, NULL::TIMESTAMP AS at, NULL::DATE AS day, NULL::STRUCT<a: INT, b: ARRAY<STRING>> AS part, 1.25::DECIMAL(10,2) AS sum"
    spark.sql(f"INSERT INTO delta.`{path}` {rows.format('1L')}")
    with pytest.raises(Exception, match="NOT_NULL"):
        spark.sql(f"INSERT INTO delta.`{path}` {rows.format('NULL::BIGINT')}")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0).load(path)
    assert [row["_change_type"] for row in changes.orderBy("_commit_version").collect()] == ["insert", "delete"]


def test_the_first_commit_has_the_mark_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set(_NOTE, '{"run": "r1"}')
    try:
        table_creation.create_table(spark, str(tmp_path / "t"), _make_shape())
    finally:
        spark.conf.unset(_NOTE)
    assert _read_first_commit(tmp_path / "t")["commitInfo"]["userMetadata"] == '{"run": "r1"}'


@pytest.mark.parametrize(
    "otherwise",
    [
        {"cluster_by": ("id",)},
        {"deletion_vectors": True},
        {"checks": {"positive": "id > 0"}},
        {"retain": "1 day 12 hours"},
        {"statistics": ("day", "part")},
        {"ddl": "id BIGINT, n TIMESTAMP_NTZ"},
        {"ddl": "id BIGINT, `a b` INT"},
        {"ddl": "id BIGINT, m MAP<STRING, INT>"},
        {"ddl": "id BIGINT, v VARIANT"},
        {"ddl": "id BIGINT, s STRUCT<`a b`: INT>"},
        {"ddl": "id BIGINT, c VARCHAR(3)"},
        {"ddl": "id BIGINT, g BIGINT, G BIGINT"},
        {"ddl": "id BIGINT, s STRING COLLATE UTF8_LCASE"},
        {"ddl": "id BIGINT, a ARRAY<STRUCT<b: INT NOT NULL>>"},
        {"ddl": "id BIGINT, _Change_Type STRING"},
    ],
    ids=str,
)
def test_what_is_not_known_to_come_out_the_same_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, otherwise: dict[str, Any]
) -> None:
    shape = _make_shape(**otherwise)
    if shape.cluster_by:
        table_creation.create_table(spark, str(tmp_path / "t"), shape)
        assert _read_first_commit(tmp_path / "t")["commitInfo"]["engineInfo"].startswith("Apache-Spark")
    else:
        assert not _is_created_by_delta_rs(spark, tmp_path / "t", shape)


def test_properties_that_the_session_gives_to_new_tables_are_not_lost(spark: SparkSession, tmp_path: Path) -> None:
    name = "spark.databricks.delta.properties.defaults.checkpointInterval"
    spark.conf.set(name, "7")
    try:
        table_creation.create_table(spark, str(tmp_path / "t"), _make_shape())
    finally:
        spark.conf.unset(name)
    assert _read_first_commit(tmp_path / "t")["metaData"]["configuration"]["delta.checkpointInterval"] == "7"


def test_of_two_that_make_it_at_once_one_does(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(20):
        path, shape = str(tmp_path / str(number)), _make_shape()
        start = threading.Barrier(2)

        def make(path: str = path, shape: TableShape = shape, start: threading.Barrier = start) -> str:
            start.wait()
            try:
                create_empty_table(spark, path, shape.schema, shape.comment, table_creation._shape_properties(shape), ())
            except SluiceError as error:
                return str(error)
            return ""

        with ThreadPoolExecutor(2) as pool:
            said = sorted(one.result() for one in [pool.submit(make), pool.submit(make)])
        assert said[0] == "" and "Somebody else wrote to the table" in said[1]
        assert len(list((Path(path) / "_delta_log").glob("*.json"))) == 1


@pytest.mark.parametrize(("says", "kind"), [("(os error 28)", "full disk"), ("(os error 13)", "read-only folder")])
def test_why_it_could_not_be_made_is_what_any_write_would_say(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, kind: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise DeltaError(f"Generic LocalFileSystem error {says}")

    monkeypatch.setattr("sluice.lake.rowless_commits.DeltaTable.create", fail)
    with pytest.raises(SmallWriteFailed) as raised:
        table_creation.create_table(spark, str(tmp_path / "t"), _make_shape())
    assert failures.name_failure(raised.value) == kind


def test_names_that_differ_in_case_alone_are_refused_as_before(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="COLUMN_ALREADY_EXISTS"):
        table_creation.create_table(spark, str(tmp_path / "t"), _make_shape("id BIGINT, ID BIGINT"))


def test_a_folder_that_holds_something_else_gets_no_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "somebody's.txt").write_text("no table")
    with pytest.raises(AnalysisException, match=r"NON_EMPTY_LOCATION|is not a Delta table"):
        table_creation.create_table(spark, str(tmp_path / "t"), _make_shape())
    assert not (tmp_path / "t" / "_delta_log").exists()


@pytest.mark.parametrize("ddl", ["id BIGINT", "id BIGINT, n TIMESTAMP_NTZ"])
@pytest.mark.parametrize("change_feed", [True, False])
@pytest.mark.parametrize("made_by", ["Spark", "Sluice"])
def test_the_protocol_stays(spark: SparkSession, tmp_path: Path, ddl: str, change_feed: bool, made_by: str) -> None:
    path = str(tmp_path / "t")
    shape = TableShape(schema=parse_ddl_schema(ddl), comment="x", statistics=("id",), change_feed=change_feed)
    if made_by == "Spark":
        table_creation._build_table(spark, SparkTable.createIfNotExists(spark).location(path), shape)
    else:
        table_creation.create_table(spark, path, shape)

    def describe() -> tuple[object, ...]:
        table = DeltaTable(path)
        protocol, data = table.protocol(), table.metadata()
        features = [sorted(one or ()) for one in (protocol.reader_features, protocol.writer_features)]
        kept = {name: value for name, value in data.configuration.items() if name != FINGERPRINT}
        described = (data.id, data.description, data.created_time, data.partition_columns, table.schema().to_json(), kept)
        return (protocol.min_reader_version, protocol.min_writer_version, features, *described)

    before = describe()
    rowless_commits.change_table_properties(spark, path, PropertyChanges({FINGERPRINT: "it's"}))
    assert describe() == before
    assert DeltaTable(path).metadata().configuration[FINGERPRINT] == "it's"


@pytest.mark.parametrize("times", [1, 9])
def test_a_commit_of_somebody_else_meanwhile_is_waited_out_and_what_stands_is_said(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    path, left = str(tmp_path / "t"), [times]
    write_deltalake(path, pa.table({"id": [1]}))
    open_table = rowless_commits.open_table_to_change

    def open_before_another_commit(path: str) -> DeltaTable:
        table = open_table(path)
        if left[0]:
            left[0] -= 1
            DeltaTable(path).alter.set_table_properties({"others": str(left[0])}, raise_if_not_exists=False)
        return table

    monkeypatch.setattr(rowless_commits, "open_table_to_change", open_before_another_commit)
    if times == 1:
        rowless_commits.change_table_properties(spark, path, PropertyChanges({FINGERPRINT: "f"}))
        assert DeltaTable(path).metadata().configuration == {FINGERPRINT: "f", "others": "0"}
    else:
        with pytest.raises(
            SluiceError, match=r"when its properties were set, and they were not\. What was committed before stands"
        ):
            rowless_commits.change_table_properties(spark, path, PropertyChanges({FINGERPRINT: "f"}))
        assert FINGERPRINT not in DeltaTable(path).metadata().configuration
