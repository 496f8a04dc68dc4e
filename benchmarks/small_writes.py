"""A small merge or append through delta-rs against the same through Spark, into copies of one table.

    .venv/bin/python benchmarks/small_writes.py [--rounds 5]

Both ways take turns and write the same rows, which Spark has computed, into a table of 2,000 rows and into one of 600,000: 20 and 1,000
operations (a third each inserted, updated, deleted), and 20 and 50,000 appended rows. A time counts only if both tables hold the same rows. The
results are CPU seconds of Python and JVM together.

delta-rs does not write every table: those with conditions, partitions by texts, and the others of docs/decisions.md go through Spark.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from _cpu_seconds import measure_tree
from _options import BenchmarkOptions, PrintedLines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHORT = {"rounds": 1}
GOAL = 0.5
"""A write through delta-rs costs at most this share of one through Spark."""
SIZES = ((20, 2_000), (1_000, 600_000))
APPENDED = {2_000: 20, 600_000: 50_000}
"""By rows of the table, how many are appended."""
SCHEMA = "k BIGINT, who STRING, at TIMESTAMP, v DOUBLE"


def make_table(spark: SparkSession, path: str, rows: int) -> None:
    """A table as flows make them, in four files."""
    from sluice.lake import table_creation

    schema = table_creation.parse_ddl_schema(SCHEMA)
    table_creation.create_table(spark, path, table_creation.TableShape(schema=schema, comment="", statistics=("k", "at")))
    make_rows(spark, 0, rows).repartition(4).write.format("delta").mode("append").save(path)


def make_rows(spark: SparkSession, first: int, number: int) -> DataFrame:
    """So many rows from a key on."""
    return spark.range(first, first + number).selectExpr(
        "id AS k", "concat('member ', id) AS who", "timestamp_seconds(1700000000 + id) AS at", "rand(7) AS v"
    )


def make_operations(spark: SparkSession, changed: int, rows: int, seed: int) -> DataFrame:
    """Updates and deletions of rows all over the table, and rows that are new to it."""
    from pyspark.sql import functions as F

    from sluice.lake.small_writes import DELETE, INSERT, OPERATION, UPDATE

    step = rows // (changed * 2)
    old = spark.range(changed * 2 // 3).selectExpr(f"id * {step} * 3 + {seed} AS id", "id AS place")
    there = old.select(F.when(F.col("place") % 2 == 0, UPDATE).otherwise(DELETE).alias(OPERATION), F.col("id").alias("k"))
    new = spark.range(changed // 3).select(F.lit(INSERT).alias(OPERATION), (F.col("id") + rows + seed * changed).alias("k"))
    columns = ("concat('changed ', k) AS who", "timestamp_seconds(1700000000 + k) AS at", "CAST(k AS DOUBLE) AS v")
    return there.unionByName(new).selectExpr(OPERATION, "k", *columns)


Write = Callable[["SparkSession", str, int], None]
"""Writes once: a session, a table's path, and the number of the round, which makes each round's rows others."""


def make_writes(changed: int, rows: int) -> dict[str, Write]:
    """What is measured of a table of so many rows."""
    from sluice.flows.writing.difference import apply_merge_operations
    from sluice.flows.writing.ranges import BoundingColumns
    from sluice.lake import commits, table_creation
    from sluice.lake.batch_sizes import RowsSize

    bounding, appended = BoundingColumns(table_creation.parse_ddl_schema(SCHEMA), ("k",)), APPENDED[rows]

    def merge(spark: SparkSession, path: str, seed: int) -> None:
        apply_merge_operations(spark, path, make_operations(spark, changed, rows, seed), ("k",), bounding, unique=True)

    def append(spark: SparkSession, path: str, seed: int) -> None:
        fresh = make_rows(spark, rows * 10 + appended * seed, appended)
        commits.append_rows(fresh, path, None, RowsSize(appended, appended * 64))  # known before, as to bronze's flow

    return {f"{changed} rows merged into {rows}": merge, f"{appended} rows appended to {rows}": append}


def measure_write(spark: SparkSession, write: Write, paths: Mapping[str, str], rounds: int) -> dict[str, float]:
    """The median of CPU seconds by way. paths: of the tables, by way. Raises AssertionError where the tables come to differ."""
    from sluice.lake import commit_history, log, small_writes

    took: dict[str, list[float]] = {way: [] for way in paths}
    for seed in range(rounds + 1):
        for way, path in paths.items():
            before, none = log.latest_table_version(path), 0 if way == "Spark" else None
            with (
                mock.patch.object(small_writes, "MOST_ROWS", small_writes.MOST_ROWS if none is None else none),
                mock.patch.object(small_writes, "MOST_APPENDED_ROWS", small_writes.MOST_APPENDED_ROWS if none is None else none),
                measure_tree() as seconds,
            ):
                write(spark, path, seed)
            assert commit_history.summarize_new_versions(path, before).writers == way, f"{way} did not write"
            took[way].append(seconds[0])
        ours, theirs = (spark.read.format("delta").load(path) for path in paths.values())
        assert not ours.exceptAll(theirs).count() and not theirs.exceptAll(ours).count(), "the tables differ"
    return {way: statistics.median(seconds[1:]) for way, seconds in took.items()}  # the first round warms both up


def main() -> int:
    """Write in both ways, compare, and say what each cost. Returns the exit code: 1 where the goal is missed."""
    from sluice.session import start_spark_session
    from sluice.settings import Settings

    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.read_options()
    said = PrintedLines()
    missed = False
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        spark = start_spark_session(Settings.current(), "bench")
        for changed, rows in SIZES:
            paths = {way: str(Path(folder) / f"{way}_{rows}") for way in ("Spark", "delta-rs")}
            make_table(spark, paths["Spark"], rows)
            shutil.copytree(paths["Spark"], paths["delta-rs"])
            for what, write in make_writes(changed, rows).items():
                medians = measure_write(spark, write, paths, asked.rounds)
                ratio = medians["delta-rs"] / medians["Spark"]
                missed |= ratio > GOAL
                each = ", ".join(f"{way} {seconds:.2f}" for way, seconds in medians.items())
                said.add(f"{what}: {each} CPU s; ratio {ratio:.2f} (goal {GOAL})")
    parser.write_findings(asked, "Small merges and appends through delta-rs, beside Spark", said.format())
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
