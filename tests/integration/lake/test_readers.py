"""Every table of the gym, versions of its past, and values of every kind are the same rows to every engine of `docs/readers.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from tests import readers
from tests.conftest import ROOT, Lakehouse, gym_at

from sluice import delta_log, optimize
from sluice.declare import Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.erasure.steps import rows
from sluice.lake import commit_history, log, small_writes

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

ERASED = {"readings": "device_id", "workout_summary": "user_id", "device_day": "device_id"}
"""A table of bronze and two views, and by which column rows are taken out of them."""

MOST_ROWS = 100
"""The kernel on a JVM is asked for each value over a socket: of a larger table it reads so many rows here."""


@pytest.fixture(scope="module")
def engines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, readers.Reader]:
    """The columns of the matrix beside Spark's, by the names that it has for them."""
    return {
        "DuckDB": readers.duckdb_reader(tmp_path_factory.mktemp("extensions")),
        "Polars": readers.read_by_polars,
        "delta-rs": readers.read_by_delta_rs,
        "Delta Kernel": readers.kernel_reader(spark),
    }


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, gym_of_two_days: Path) -> Lakehouse:
    """Two days of the gym. Of some tables rows were taken out as erasures take them out, by delta-rs and by Spark; then came an OPTIMIZE."""
    settings = gym_at(tmp_path_factory.mktemp("gym"), gym_of_two_days)
    lake = Lakehouse(settings, spark, load_declaration_graph(settings, "gym"))
    workspace = lake.workspace()
    for name, key in ERASED.items():
        path = workspace.path(name)
        values = sorted({value for (value,) in lake.rows(name, key)})
        for value, writer in zip(values[:2], ("delta-rs", "Spark"), strict=True):
            with pytest.MonkeyPatch.context() as patch:
                if writer == "Spark":
                    patch.setattr(small_writes, "MOST_ROWS", -1)
                gone = spark.createDataFrame([(value,)], f"{key} BIGINT")
                assert rows.delete_by_merge(workspace, path, gone, f"t.{key} = s.{key}")
            version = log.latest_table_version(path) or 0
            assert commit_history.summarize_new_versions(path, version - 1).writers == writer, name
        optimize.optimize_table(workspace, lake.graph.datasets.get(name) or lake.graph.sources[name], demanded=True)
    return lake


def check_engines_agree(spark: SparkSession, engines: Mapping[str, readers.Reader], path: str, version: int | None) -> int:
    """Compare what each engine reads with what Spark reads. Returns how many rows that are."""
    expected = readers.comparable_rows(readers.spark_reader(spark)(path, version))
    for engine, read in engines.items():
        rows = iter(read(path, version))
        if engine == "Delta Kernel" and expected.total() > MOST_ROWS:
            some = readers.comparable_rows(row for row, _ in zip(rows, range(MOST_ROWS), strict=False))
            assert some.total() == MOST_ROWS and not some - expected, (engine, path, version)
        else:
            assert readers.comparable_rows(rows) == expected, (engine, path, version)
    return expected.total()


def test_every_engine_reads_every_table_of_the_gym(
    gym: Lakehouse, spark: SparkSession, engines: Mapping[str, readers.Reader]
) -> None:
    tables = {name: path for name, path in gym.workspace().lake.record_tables().items() if delta_log.is_delta_table(path)}
    rows = {name: check_engines_agree(spark, engines, path, None) for name, path in tables.items()}
    assert {"readings", "heart_rate", "members_history", "device_day", "heart_rate_10min"} <= {
        name for name in rows if rows[name]
    }
    merged = [
        name
        for name, path in tables.items()
        if "MERGE" in {commit["operation"] for commit in commit_history.read_commit_history(path)}
    ]
    assert "readings" in merged, "the erasure took rows out of bronze"


@pytest.mark.thorough
def test_every_engine_reads_the_past_of_a_table(
    gym: Lakehouse, spark: SparkSession, engines: Mapping[str, readers.Reader]
) -> None:
    path = gym.workspace().path("workout_summary")
    newest = log.latest_table_version(path)
    assert newest is not None
    rows = [check_engines_agree(spark, engines, path, version) for version in range(newest + 1)]
    assert len(set(rows)) > 2, "the versions differ"


shapes = Source(
    name="shapes", format="json", path="shapes", pattern="*.jsonl", comment="Values of many kinds, and columns that grow."
)


@table(reads="shapes", keys="id", partition_by=("place", "day"))
def shape(shapes: DataFrame) -> DataFrame:
    """A record, in a partition whose value needs escaping in a path."""
    return shapes.selectExpr(
        "cast(id as bigint) as id",
        "place",
        "cast(day as date) as day",
        "cast(price as decimal(20, 6)) as price",
        "cast(size as double) as size",
        "cast(at as timestamp) as at",
        "cast(at as timestamp_ntz) as at_the_wall",
        "cast(text as binary) as bytes",
        "array(text, null) as texts",
        "array(struct(price, text)) as pairs",
        "struct(day as inner, array(size) as sizes) as nested",
        "cast(id as smallint) as small",
        "cast(size as float) as single",
        "size > 1 as large",
        "text",
    )


@materialized_view(reads="shape", keys="place")
def place_total(shape: DataFrame) -> DataFrame:
    """Sums by place."""
    return shape.groupBy("place").agg({"price": "sum", "id": "count"}).toDF("place", "price", "shapes")


@pytest.mark.thorough
def test_every_engine_reads_every_kind_of_value_in_columns_that_grew(
    settings: Settings, spark: SparkSession, engines: Mapping[str, readers.Reader]
) -> None:
    pipeline = Pipeline(name="forms", description="f", owner="t", layers=("forms.bronze", __name__))
    lake = Lakehouse(settings, spark, build_declaration_graph(pipeline, [shapes, shape, place_total]))
    first = {
        "id": 1,
        "place": "a/b=c %41 ü'",
        "day": "1969-12-31",
        "price": 3,
        "size": 1,
        "at": "1600-02-29 12:34:56.789012",
        "text": "x",
    }
    lake.land("shapes/1.jsonl", json.dumps(first) + "\n" + json.dumps({**first, "id": 2, "place": None, "text": None}) + "\n")
    lake.run()
    wide = {
        **first,
        "id": 3,
        "place": " ",
        "price": 0.25,
        "size": 1e300,
        "at": "9999-12-31 23:59:59.999999",
        "text": "né\n\"'",
        "new": {"a": [1]},
    }
    lake.land("shapes/2.jsonl", json.dumps(wide) + "\n" + json.dumps({**wide, "id": 1, "day": None, "size": None}) + "\n")
    lake.run()
    tables = lake.workspace().lake.record_tables()
    rows = {name: check_engines_agree(spark, engines, path, None) for name, path in tables.items()}
    assert (rows["shapes"], rows["shape"], rows["place_total"]) == (4, 3, 3)
    newest = log.latest_table_version(tables["shapes"]) or 0
    assert [check_engines_agree(spark, engines, tables["shapes"], version) for version in (newest, newest - 1)] == [4, 2]


def test_a_table_with_deletion_vectors_is_read_whole_or_refused(
    spark: SparkSession, engines: Mapping[str, readers.Reader], tmp_path: Path
) -> None:
    path = str(tmp_path / "deleted")
    properties = "'delta.enableDeletionVectors' = 'true'"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT) USING delta TBLPROPERTIES ({properties})")
    spark.range(100).selectExpr("int(id) as id").coalesce(1).write.format("delta").mode("append").save(path)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 7")
    assert '"deletionVector"' in (tmp_path / "deleted" / "_delta_log" / f"{2:020}.json").read_text()
    read, refused = set(), set()
    for engine, reader in engines.items():
        try:
            rows = readers.comparable_rows(reader(path, None))
        except Exception:
            refused.add(engine)
        else:
            assert rows.total() == 99, engine
            read.add(engine)
    assert (read, refused) == (engines_of_matrix("deletion vectors", "yes"), engines_of_matrix("deletion vectors", "refused")), (
        read,
        refused,
    )


def test_the_change_feed_is_the_same_to_whom_the_matrix_says_yes(gym: Lakehouse, spark: SparkSession) -> None:
    path = gym.workspace().path("device_day")
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(path)
    left = ("_commit_timestamp",)
    expected = readers.comparable_rows(feed.drop(*left).toArrow().to_pylist())
    rows = pa.table(DeltaTable(path).load_cdf(starting_version=1).read_all()).drop_columns(list(left)).to_pylist()
    assert readers.comparable_rows(rows) == expected and expected.total() > 5
    assert engines_of_matrix("change feed", "yes") == {"delta-rs"}


def engines_of_matrix(row: str, said: str) -> set[str]:
    """The engines with this word in a row of the matrix in docs/readers.md."""
    lines = [
        line.strip("|\n ").split("|") for line in (ROOT / "docs" / "readers.md").read_text().splitlines() if line.startswith("|")
    ]
    heads, *rest = [[re.sub(r"[`*]", "", cell).strip() for cell in line] for line in lines]
    (found,) = [line for line in rest if line[0] == row]
    return {head for head, cell in zip(heads[2:], found[2:], strict=True) if cell.startswith(said)}
