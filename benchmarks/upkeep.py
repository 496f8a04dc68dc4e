"""OPTIMIZE by need, against `OPTIMIZE ZORDER` of the whole table each night, and against no OPTIMIZE, for tables that grow day by day.

    .venv/bin/python benchmarks/upkeep.py [--short] [--days 60] [--vacuum-files 10000] [--write benchmarks/results.md]

Commits like those of flows fill two tables: measurements like gym's heart_rate at a tenth of its size, in the order of time in which they
arrive; and a table like TPC-H's lineitem at SF 0.1, which is loaded once and then gets rows in all its parts each day. By need: the stage
`optimize` decides and works at the end of each day. Each night: Delta on Spark lays out the same table as a whole, the table gets one more day,
and Delta lays it out again; only the latter is measured. Afterwards all three must hold the same rows.

The results are rewritten bytes and CPU seconds (Python and JVM) per day: by need the average of all days, each night those of one night; and
the files and bytes that a query for one value, and for one day, opens by the least and greatest values in the log.

Then VACUUM of a table with many files that it no longer needs: by the inventory of its log, and in both ways of Delta on Spark.

The days before the measured one are not laid out nightly, which would only cost more. 20 days take less than 3 minutes.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from _cpu_seconds import measure_tree
from _options import BenchmarkOptions
from _results import format_table
from _vacuum_ways import measure_vacuum_ways

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOAL = 0.05
"""By need, a day writes at most this share of the bytes that a night of the whole writes."""
DAYS = 60
SHORT = {"days": 6, "vacuum_files": 1_000, "vacuum_rounds": 1}
LOSSES = """What OPTIMIZE by need does not give: as few files as a table that is written whole each night. Where each day brings any value, a
question opens a file of each rewrite and of each day since the last one. Where small files in order are joined, a question of one value opens
as many files as before, and more bytes, since the one that it opens is larger. Tables of these sizes are one file or two, so no way of
laying them out saves bytes: what is saved is files to open."""
_DAY = 86_400
_FIRST = 1_760_000_000


@dataclass(frozen=True)
class GrowingTable:
    """A table of the benchmark. make_rows: of a day, 0 being the first load. asked_by: the columns of its questions."""

    name: str
    zorder: tuple[str, ...]
    asked_by: tuple[str, ...]
    make_rows: Callable[[int], pa.Table]


def make_heart_rates(day: int) -> pa.Table:
    """A day of ten devices, one value in 15 minutes of each: about a tenth of gym's."""
    times = np.tile(np.arange(0, _DAY, 900), 10) + _FIRST + day * _DAY
    chance = np.random.default_rng(day)
    return pa.table({
        "device_id": pa.array(np.repeat(np.arange(10), _DAY // 900)),
        "time": pa.array(times),
        "heartrate": pa.array(chance.integers(40, 190, len(times))),
    })


def make_line_items(day: int) -> pa.Table:
    """540,000 at first, then 1,000 a day, each of any part and shipped on any of 2,500 days."""
    rows, chance = 1_000 if day else 540_000, np.random.default_rng(day)
    return pa.table({
        "l_orderkey": pa.array(np.arange(rows) + day * 1_000_000),
        "l_partkey": pa.array(chance.integers(1, 20_000, rows)),
        "l_shipdate": pa.array(chance.integers(8_000, 10_500, rows).astype("int32")).cast(pa.date32()),
        "l_quantity": pa.array(chance.integers(1, 50, rows)),
        "l_extendedprice": pa.array(chance.integers(90_000, 10_000_000, rows)),
        "l_comment": pa.array([f"{n:x}" for n in chance.integers(0, 2**62, rows)]),
    })


TABLES = (
    GrowingTable("heart_rate", ("time",), ("time", "device_id"), make_heart_rates),
    GrowingTable("lineitem", ("l_partkey",), ("l_partkey", "l_shipdate"), make_line_items),
)


def start_bench_session() -> SparkSession:
    """The session of all, which starts once."""
    from sluice.session import start_spark_session
    from sluice.settings import Settings

    return start_spark_session(Settings.current(), "bench")


def append_day(path: str, table: GrowingTable, day: int) -> None:
    """As flows append, with statistics as Sluice's tables have them."""
    rows = table.make_rows(day)
    properties = {"delta.dataSkippingStatsColumns": ",".join(rows.schema.names[:3]), "delta.enableChangeDataFeed": "true"}
    write_deltalake(path, rows, mode="append", configuration=properties)


def lay_out_by_need(spark: SparkSession, path: str, table: GrowingTable) -> int:
    """What the stage does. Returns the bytes that were rewritten."""
    from sluice.lake.layout import decide_layout
    from sluice.optimize import lay_out_as_decided

    decision = decide_layout(path, table.zorder)
    assert bool(decision.groups) == decision.needed, "a decision of whole partitions"
    if decision.needed:
        lay_out_as_decided(spark, path, table.zorder, decision)
    return sum(group.size for group in decision.groups)


def count_content(path: str) -> list[dict[str, object]]:
    """How many rows, and sums of what they hold."""
    table = DeltaTable(path)
    sums = ", ".join(f"sum({field.name}) AS {field.name}" for field in table.schema().fields if field.type.type == "long")
    found = QueryBuilder().register("t", table).execute(f"SELECT count(*) AS n, {sums} FROM t").read_all()
    rows: list[dict[str, object]] = pa.table(found).to_pylist()
    return rows


def measure_table(table: GrowingTable, days: int, folder: Path) -> tuple[list[list[str]], list[list[str]], bool]:
    """Rows of the two tables of results, and whether the goal is met."""
    from sluice.lake import file_statistics

    never, by_need, nightly = (str(folder / f"{table.name}_{way}") for way in ("never", "by_need", "nightly"))
    spark = start_bench_session()
    written = rewrites = 0
    cpu = 0.0
    for day in range(days):
        append_day(never, table, day)
        append_day(by_need, table, day)
        with measure_tree() as seconds:
            done = lay_out_by_need(spark, by_need, table)
        written, rewrites, cpu = written + done, rewrites + bool(done), cpu + seconds[0]
    shutil.copytree(never, nightly)
    statement = f"OPTIMIZE delta.`{nightly}` ZORDER BY ({', '.join(table.zorder)})"
    spark.sql(statement).collect()  # warms the JVM up; so the table is laid out as of the night before
    for path in (never, by_need, nightly):
        append_day(path, table, days)
    with measure_tree() as seconds:
        done = lay_out_by_need(spark, by_need, table)
    written, rewrites, cpu = written + done, rewrites + bool(done), cpu + seconds[0]
    before = {one.path for one in file_statistics.list_data_files(nightly)}
    with measure_tree() as seconds:
        spark.sql(statement).collect()
    whole = sum(one.size for one in file_statistics.list_data_files(nightly) if one.path not in before)
    assert count_content(never) == count_content(by_need) == count_content(nightly), "the tables differ"
    came = sum(one.size for one in file_statistics.list_data_files(never))
    share = written / (days + 1) / whole
    costs = [
        [
            f"{table.name}, by need",
            f"{written / (days + 1):,.0f}",
            f"{written / came:.2f}",
            f"{cpu / (days + 1):.3f}",
            f"{rewrites} of {days + 1}",
            f"{share:.3f}",
        ],
        [f"{table.name}, the whole each night", f"{whole:,}", "", f"{seconds[0]:.3f}", "each", "1"],
    ]
    return costs, describe_questions(table, {"never": never, "by need": by_need, "each night": nightly}), share <= GOAL


def describe_questions(table: GrowingTable, paths: dict[str, str]) -> list[list[str]]:
    """What questions of one value open, of each way, and of the files that there are."""
    from sluice.lake import file_statistics
    from sluice.lake.layout import measure_asked_questions

    found = []
    for way, path in paths.items():
        files = file_statistics.list_data_files(path)
        for column, cost in measure_asked_questions(path, table.asked_by).items():
            opened, size = (f"{cost.files:.1f}", f"{cost.bytes:,.0f}") if cost else ("all", "all")
            found.append([
                f"{table.name}, laid out {way}",
                column,
                opened,
                f"{len(files)}",
                size,
                f"{sum(one.size for one in files):,}",
            ])
    return found


def main() -> int:
    """Lay out in each way, compare, and say what each cost. Returns the exit code: 1 where the goal is missed."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--vacuum-files", type=int, default=10_000, help="how many files VACUUM removes, in hundreds")
    parser.add_argument("--vacuum-rounds", type=int, default=3)
    asked = parser.read_options()
    costs, questions, met, began = list[list[str]](), list[list[str]](), list[bool](), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        for table in TABLES:
            cost, question, one_met = measure_table(table, asked.days, Path(folder))
            costs, questions, met = [*costs, *cost], [*questions, *question], [*met, one_met]
        took = time.monotonic() - began
        vacuumed = measure_vacuum_ways(start_bench_session(), Path(folder), asked.vacuum_files, asked.vacuum_rounds)
    header = (
        "table and way",
        "bytes rewritten a day",
        "of the bytes that came",
        "CPU seconds a day",
        "days with a rewrite",
        "of a night's bytes",
    )
    goals = ", ".join(f"{table.name} {'met' if one else 'missed'}" for table, one in zip(TABLES, met, strict=True))
    parts = [
        f"{asked.days} days and one more, in {took:.0f} s. Goal: by need a day writes at most {GOAL} of the bytes of a night: {goals}.",
        format_table(header, costs),
        "What a question of one value opens, by the log's least and greatest values:",
        format_table(("table and way", "question by", "files opened", "of files", "bytes", "of bytes"), questions),
        LOSSES,
        f"VACUUM, medians of {asked.vacuum_rounds}:",
        vacuumed,
    ]
    text = "\n\n".join(parts)
    print(text)
    parser.write_findings(asked, "OPTIMIZE by need, and VACUUM", text)
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
