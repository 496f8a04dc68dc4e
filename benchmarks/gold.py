"""10,000 changed rows against histories of 1, 10 and 50 million: views kept by affected keys, against the same views recomputed in full.

    .venv/bin/python benchmarks/gold.py [--full] [--millions 0.1 1 10] [--rounds 3] [--views device_day ...] [--jobs]

A table of heart rates has 100,000 rows a day of 1,000 devices, with one file per day, as OPTIMIZE and ZORDER BY time leave them. A MERGE
brings a batch of 10,000 changed rows: 96 % on the last two days (half new rows, half corrections), the rest late rows on three days of the
last month. Three views follow it: a group-by per device and day, a join with an aggregate, and a 7-day moving sum with its declared reach.
In the same round, each view is also recomputed in full after the same change: by the same flow (`recompute="full"`), and as a plain batch
job would do it, which overwrites the table with the transform's rows. The results, by view and size, are CPU seconds (user and system, of the
JVM and of Python) and wall seconds as medians of the rounds, their ratios as medians of the pairs, and whether the three tables are equal.
Goals: at 50 million rows at most 0.15 of the CPU seconds of the full recompute; from 1 to 50 million at most 1.5 times the seconds; at every
size at most 1.1 times the full recompute. --full: also 50 million rows, which takes about half an hour and 2 GB of disk.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _options import BenchmarkOptions, PrintedLines
from _spark_jobs import count_jobs_by_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.lake.flow_report import FlowReport

MILLION = 1_000_000
DEFAULT, FULL = [0.1, 1.0, 10.0], [0.1, 1.0, 10.0, 50.0]
A_DAY, DEVICES = 100_000, 1_000
CHANGED, LATE = 10_000, 0.04
LATE_BY = (4, 9, 26)
TODAY = datetime(2026, 11, 20, tzinfo=UTC)
SPACING = 86_400_000 // (A_DAY // DEVICES)
AT_MOST, GROWTH, NEVER_OVER = 0.15, 1.5, 1.1
TICK = os.sysconf("SC_CLK_TCK")
WAYS = ("keys", "full", "plain")
VIEWS = ("device_day", "member_day", "device_week")
SHORT = {"millions": [0.1], "rounds": 1}
HEART_RATE = "device_id BIGINT, time TIMESTAMP, heartrate INT, received_at BIGINT"
REGISTRATIONS = "device_id BIGINT, member_id BIGINT"


@dataclass
class Spent:
    """What one way took, round for round."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    called: Counter[str] = field(default_factory=Counter)
    said: str = ""


def _declare_views() -> dict[str, Any]:
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    from sluice.declare import TimeReach, materialized_view

    @materialized_view(reads="heart_rate", keys=("device_id", "date"), zorder_by="date")
    def device_day(heart_rate: DataFrame) -> DataFrame:
        """Each device's day."""
        return heart_rate.groupBy("device_id", F.to_date("time").alias("date")).agg(
            F.count("*").alias("readings"), F.min("heartrate").alias("lowest"), F.max("heartrate").alias("highest")
        )

    @materialized_view(reads=("heart_rate", "registrations"), keys=("member_id", "date"), zorder_by="date")
    def member_day(heart_rate: DataFrame, registrations: DataFrame) -> DataFrame:
        """Each member's day."""
        worn = heart_rate.join(registrations, "device_id")
        return worn.groupBy("member_id", F.to_date("time").alias("date")).agg(
            F.count("*").alias("readings"), F.sum("heartrate").alias("beats"), F.count_distinct("device_id").alias("devices")
        )

    @materialized_view(
        reads="heart_rate",
        keys=("device_id", "date"),
        zorder_by="date",
        reach={"heart_rate": TimeReach("date", after="6 days", input="to_date(time)")},
    )
    def device_week(heart_rate: DataFrame) -> DataFrame:
        """Each device's last seven days, a day after the other."""
        daily = heart_rate.groupBy("device_id", F.to_date("time").alias("date")).agg(F.sum("heartrate").alias("beats"))
        week = Window.partitionBy("device_id").orderBy(F.unix_date("date")).rangeBetween(-6, 0)
        return daily.select("device_id", "date", "beats", F.sum("beats").over(week).alias("beats_of_the_week"))

    return {"device_day": device_day, "member_day": member_day, "device_week": device_week}


class Bench:
    """A history of so many rows, and the views of it, each kept in three ways."""

    def __init__(self, root: Path, spark: SparkSession, rows: int, views: list[str]) -> None:
        """Make it, with every view up to date."""
        from sluice.declare import Pipeline, Source
        from sluice.declare.assembly.graph import build_declaration_graph
        from sluice.settings import Settings, build_root_settings

        self.settings = Settings(Path(__file__).resolve().parents[1], **build_root_settings(root))
        self.spark, self.days, self.batches, self.root = spark, max(1, rows // A_DAY), 0, root
        pipeline = Pipeline(name="bench", description="A benchmark.", owner="nobody", layers=("bench.silver", "bench.gold"))
        ddl = {"heart_rate": HEART_RATE, "registrations": REGISTRATIONS}
        silver = [Source(name=name, format="json", schema=text, comment="Stands for silver.") for name, text in ddl.items()]
        declared = {name: replace(view, declared_in="bench.gold") for name, view in _declare_views().items() if name in views}
        self.views = declared
        self.graphs = {
            name: {
                "keys": build_declaration_graph(pipeline, [*silver, view]),
                "full": build_declaration_graph(pipeline, [*silver, replace(view, name=f"{name}_full", recompute="full")]),
            }
            for name, view in declared.items()
        }
        self.path = self._at(self.graphs[views[0]]["keys"]).path
        self._fill(ddl)
        for name in views:
            self.spent_on(name, "keys")
            self.spent_on(name, "full")

    def _at(self, graph: Any) -> Any:
        from sluice.lake.workspace import Workspace

        return Workspace(self.settings, graph, self.spark, f"run{self.batches}")

    def _fill(self, ddl: dict[str, str]) -> None:
        from pyspark.sql import functions as F

        from sluice.lake import table_creation
        from sluice.lake.table_creation import TableShape

        for name, text in ddl.items():
            schema = table_creation.parse_ddl_schema(text)
            first = tuple(column for column in ("time", "device_id") if column in schema.names)
            table_creation.create_table(self.spark, self.path(name), TableShape(schema=schema, comment="", statistics=first))
        day, place = F.floor(F.col("id") / A_DAY), F.col("id") % A_DAY
        millis = int(TODAY.timestamp() * 1000) - day * 86_400_000 + SPACING * F.floor(place / DEVICES)
        rows = self.spark.range(0, self.days * A_DAY, 1, self.days).select(
            (place % DEVICES).alias("device_id"),
            F.timestamp_millis(millis).alias("time"),
            (60 + F.col("id") * 7 % 60).cast("int").alias("heartrate"),
            F.lit(0).cast("bigint").alias("received_at"),
        )
        rows.write.format("delta").mode("append").save(self.path("heart_rate"))
        worn = self.spark.range(0, DEVICES, 1, 1).select(
            F.col("id").alias("device_id"), F.floor(F.col("id") / 2).alias("member_id")
        )
        worn.write.format("delta").mode("append").save(self.path("registrations"))

    def change(self) -> None:
        """A batch of changed rows."""
        from delta.tables import DeltaTable
        from pyspark.sql import functions as F

        self.batches += 1
        late = [day for day in LATE_BY if day < self.days] or [0]
        of_late = F.element_at(F.array(*map(F.lit, late)), (F.col("id") % len(late) + 1).cast("int"))
        day = F.when(F.col("id") < int(CHANGED * LATE), of_late).otherwise(F.col("id") % min(2, self.days))
        # Between the readings that are there, or on them.
        place = (F.col("id") * 7919 + self.batches * 31) % A_DAY
        shift = F.when(F.col("id") % 2 == 0, self.batches).otherwise(0)
        millis = int(TODAY.timestamp() * 1000) - day * 86_400_000 + SPACING * F.floor(place / DEVICES) + shift
        rows = self.spark.range(0, CHANGED, 1, 1).select(
            (place % DEVICES).alias("device_id"),
            F.timestamp_millis(millis).alias("time"),
            F.lit(100 + self.batches).alias("heartrate"),
            F.lit(self.batches).cast("bigint").alias("received_at"),
        )
        days = sorted({TODAY - timedelta(days=number) for number in (0, 1, *late) if number < self.days})
        near = " OR ".join(f"t.time >= '{one}' AND t.time < '{one + timedelta(days=1)}'" for one in days)
        merging = (
            DeltaTable
            .forPath(self.spark, self.path("heart_rate"))
            .alias("t")
            .merge(
                rows.dropDuplicates(["device_id", "time"]).alias("s"),
                f"t.device_id = s.device_id AND t.time = s.time AND ({near})",
            )
        )
        merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        # Whoever comes first would read the new state of the table's log for all.
        self.spark.read.format("delta").load(self.path("heart_rate")).agg(F.max("received_at")).collect()

    def spent_on(self, name: str, way: str) -> tuple[float, float, Counter[str], str]:
        """CPU and wall seconds, Spark jobs by what called them, and what the report says, of bringing a view up to date."""
        before, cpu, began = count_jobs_by_line(self.spark), _read_cpu_seconds(self.spark), time.monotonic()
        said = self._plain(name) if way == "plain" else self._flow(name, way)
        cpu, wall = _read_cpu_seconds(self.spark) - cpu, time.monotonic() - began
        time.sleep(0.3)  # what is known of jobs comes by a bus
        return cpu, wall, count_jobs_by_line(self.spark) - before, said

    def _flow(self, name: str, way: str) -> str:
        from sluice.runs.execution import stages

        reports: list[FlowReport] = stages.run_pipeline_stage(self._at(self.graphs[name][way]), "gold")
        return str(reports[0].recomputed)

    def _plain(self, name: str) -> str:
        view = self.views[name]
        inputs = [self.spark.read.format("delta").load(self.path(one)) for one in view.reads]
        view(*inputs).write.format("delta").mode("overwrite").save(str(self.root / f"plain_{name}"))
        return ""

    def equal(self, name: str) -> bool:
        """Whether the view's three tables hold the same rows."""
        graphs = self.graphs[name]
        paths = [
            self._at(graphs["keys"]).path(name),
            self._at(graphs["full"]).path(f"{name}_full"),
            str(self.root / f"plain_{name}"),
        ]
        one, *others = (self.spark.read.format("delta").load(path) for path in paths)
        return all(one.exceptAll(other).isEmpty() and other.exceptAll(one).isEmpty() for other in others)


def _read_cpu_seconds(spark: SparkSession) -> float:
    """User and system seconds so far, of the JVM and of this process, which reads logs."""
    pid = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK + time.process_time()


def measure_views(root: Path, spark: SparkSession, rows: int, views: list[str], rounds: int) -> dict[str, dict[str, Spent]]:
    """What each view took in each way, at one size; one round more goes first, to warm up."""
    bench = Bench(root / str(rows), spark, rows, views)
    found = {name: {way: Spent() for way in WAYS} for name in views}
    for number in range(rounds + 1):
        bench.change()
        for name in views:
            for way in WAYS if number % 2 else reversed(WAYS):
                cpu, wall, called, said = bench.spent_on(name, way)
                if number:
                    one = found[name][way]
                    one.cpu.append(cpu)
                    one.wall.append(wall)
                    one.jobs.append(called.total())
                    one.called, one.said = called, said
    for name in views:
        assert bench.equal(name), f"{name} is not what its transform gives"
    return found


def _compute_median_ratio(one: list[float], other: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(one, other, strict=True))


def _format_view(rows: int, name: str, ways: dict[str, Spent]) -> str:
    cpu, wall = ({way: statistics.median(getattr(spent, of)) for way, spent in ways.items()} for of in ("cpu", "wall"))
    ratio = _compute_median_ratio(ways["keys"].cpu, ways["full"].cpu)
    return (
        f"{rows / MILLION:6.1f} {name:12} {cpu['keys']:8.2f} {cpu['full']:8.2f} {cpu['plain']:8.2f} {ratio:7.2f} "
        f"{_compute_median_ratio(ways['keys'].cpu, ways['plain'].cpu):7.2f} {wall['keys']:9.2f} {wall['full']:8.2f} {wall['plain']:8.2f} "
        f"{ways['keys'].jobs[-1]:6}  {ways['keys'].said}"
    )


HEADER = (
    f"{'mio.':>6} {'view':12} {'CPU keys':>8} {'full':>8} {'plain':>8} {'k/full':>7} {'k/plain':>7} "
    f"{'wall keys':>9} {'full':>8} {'plain':>8} {'jobs':>6}  said"
)


def judge_goals(found: dict[int, dict[str, dict[str, Spent]]]) -> Iterator[str]:
    """From which size on keys win, and what became of the goals, as far as they were measured."""
    for name in next(iter(found.values())):
        ratios = {rows: _compute_median_ratio(views[name]["keys"].cpu, views[name]["full"].cpu) for rows, views in found.items()}
        wins = [rows for rows, ratio in ratios.items() if ratio < 1 and found[rows][name]["keys"].said.startswith("keys")]
        yield (
            f"{name}: affected keys win from {min(wins) / MILLION} million rows on"
            if wins
            else f"{name}: affected keys never win"
        )
        worst = max(ratios.values())
        yield f"  at most {NEVER_OVER} times the full recompute at any size: {worst:.2f}, {_say_reached(worst <= NEVER_OVER)}"
        first, last = MILLION, max(found)
        if first in found and last > first:
            cpu = {rows: statistics.median(found[rows][name]["keys"].cpu) for rows in (first, last)}
            growth = cpu[last] / cpu[first]
            yield f"  growth of CPU from 1 to {last / MILLION} million at most {GROWTH}: {growth:.2f}, {_say_reached(growth <= GROWTH)}"
        if last >= 50 * MILLION:
            yield f"  at 50 million at most {AT_MOST} of the full CPU: {ratios[last]:.2f}, {_say_reached(ratios[last] <= AT_MOST)}"


def _say_reached(so: bool) -> str:
    return "reached" if so else "MISSED"


def main() -> None:
    """Measure, print a line for each view and size, and what became of the goals."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--millions", type=float, nargs="+", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--views", nargs="+", choices=VIEWS, default=list(VIEWS))
    parser.add_argument("--jobs", action="store_true", help="also which lines of code started the Spark jobs")
    options = parser.read_options()
    said = PrintedLines()
    from sluice import session
    from sluice.settings import Settings

    # Jobs are counted by what the status store knows, which forgets all but the last 1,000.
    given = {"spark.ui.retainedJobs": "100000", "spark.master": "local[2]"}
    spark = session.start_spark_session(Settings.current(), "benchmark", given)
    spark.sparkContext.setLogLevel("ERROR")
    found: dict[int, dict[str, dict[str, Spent]]] = {}
    said.add(HEADER)
    with tempfile.TemporaryDirectory() as folder:
        for millions in FULL if options.full else options.millions:
            rows = int(millions * MILLION)
            found[rows] = measure_views(Path(folder), spark, rows, options.views, options.rounds)
            for name, ways in found[rows].items():
                said.add(_format_view(rows, name, ways))
                if options.jobs:
                    print("".join(f"      {count:3} {called}\n" for called, count in ways["keys"].called.most_common()))
    said.add("\n".join(judge_goals(found)))
    parser.write_findings(options, "Views by affected keys, beside the same made anew", said.format())


if __name__ == "__main__":
    main()
