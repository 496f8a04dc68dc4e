"""A keyed merge into 1, 10 and 100 days: the cost of late rows that spread a batch over all days of a table.

    .venv/bin/python benchmarks/silver.py [--full] [--days 1 10] [--rows 20000] [--rounds 3] [--jobs]

A table of heart rates has --rows rows on each of --days days, with one file per day, as OPTIMIZE and ZORDER BY time leave them. A batch has a
twentieth of a day's rows: 95 % of today (half new rows, half corrections), the rest late corrections on three past days. The results are the
seconds of the silver stage, the Spark jobs of its micro-batch, and the number of files that its MERGE rewrote.
Goal: with the most days at most 1.5 times the seconds of the fewest. --full: 1, 10 and 100 days of 200,000 rows, which takes minutes.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _options import BenchmarkOptions, PrintedLines
from _spark_jobs import count_jobs_by_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.lake.workspace import Workspace

GOAL = 1.5
SHORT = {"rows": 5_000, "rounds": 1}
FULL = {"days": [1, 10, 100], "rows": 200_000}
TODAY = datetime(2026, 11, 20, tzinfo=UTC)
LATE = 0.05
DEVICES = 1_000


@dataclass
class Merged:
    """What one merge took."""

    seconds: float
    jobs: int
    called: Counter[str]
    files: int
    metrics: dict[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> int:
        """A metric of the MERGE's commit."""
        return int(self.metrics.get(name, 0))


class Bench:
    """A lake with one source and one table of so many days."""

    def __init__(self, root: Path, spark: SparkSession, days: int, rows: int) -> None:
        """Make it, with the table full."""
        from sluice.settings import Settings, build_root_settings

        self.spark, self.days, self.rows, self.landed = spark, days, rows, 0
        self.settings = Settings(
            root=Path(__file__).resolve().parents[1],
            **build_root_settings(root),
        )
        self.graph = _declare_readings()
        self.land([{"device_id": -1, "time": TODAY.isoformat(), "heartrate": 60.0, "received_at": 0}])
        self.run("bronze")
        self.run("silver")
        self._fill()

    def workspace(self) -> Workspace:
        """What a run of its own sees."""
        from sluice.lake.workspace import Workspace

        return Workspace(self.settings, self.graph, self.spark, f"run{self.landed}")

    def run(self, stage: str) -> None:
        """Run a stage."""
        from sluice.runs.execution import stages

        stages.run_pipeline_stage(self.workspace(), stage)

    def land(self, records: list[dict[str, object]]) -> None:
        """Land a file."""
        self.landed += 1
        folder = self.settings.landing / "bench" / "readings"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.landed}.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(path, (1_600_000_000 + self.landed,) * 2)

    def batch(self, number: int) -> list[dict[str, object]]:
        """A delivery: rows of today, half of them new, and late ones on three past days; a key comes once."""
        size = self.rows // 20
        past = sorted({max(1, self.days * part // 4) for part in (1, 2, 3)}) if self.days > 1 else [1, 2, 3]
        found = []
        for at in range(size):
            day = past[at % len(past)] if at < size * LATE else 0
            place = (at * 7 + number) % self.rows
            device = place % DEVICES if at % 2 or day else 1_000_000 * number + at
            time = TODAY - timedelta(days=day) + timedelta(milliseconds=self.spacing * (place // DEVICES))
            found.append({"device_id": device, "time": time.isoformat(), "heartrate": 100.0 + number, "received_at": number})
        return found

    @property
    def spacing(self) -> int:
        """Milliseconds between two rows of a device."""
        return 86_400_000 // (self.rows // DEVICES)

    def _fill(self) -> None:
        from pyspark.sql import functions as F

        day, place = F.floor(F.col("id") / self.rows), F.col("id") % self.rows
        millis = int(TODAY.timestamp() * 1000) - day * 86_400_000 + self.spacing * F.floor(place / DEVICES)
        rows: DataFrame = self.spark.range(0, self.days * self.rows, 1, self.days).select(
            (place % DEVICES).alias("device_id"),
            F.timestamp_millis(millis).alias("time"),
            F.lit(60.0).alias("heartrate"),
            F.lit(0).cast("bigint").alias("received_at"),
            F.lit(1).cast("bigint").alias("_delivery"),
            (F.col("id") + 10).alias("_row"),
        )
        rows.write.format("delta").mode("append").save(self.workspace().path("heart_rate"))

    def merge(self) -> Merged:
        """Land a batch, ingest it, and measure the silver stage. The table is afterwards as it was before."""
        from delta.tables import DeltaTable

        from sluice.lake import commit_history, log

        self.land(self.batch(self.landed))
        self.run("bronze")
        path = self.workspace().path("heart_rate")
        before, version = count_jobs_by_line(self.spark), log.latest_table_version(path) or 0
        began = time.monotonic()
        self.run("silver")
        seconds = time.monotonic() - began
        time.sleep(0.5)  # what is known of jobs comes by a bus
        called = count_jobs_by_line(self.spark) - before
        merged = [commit for commit in commit_history.read_commit_history(path, 2) if commit["version"] > version]
        assert len(merged) == 1, f"{len(merged)} commits"
        # A MERGE of little leaves the days that it touched in one file; until it is laid out again, that is not what is measured here.
        DeltaTable.forPath(self.spark, path).restoreToVersion(version)
        state = log.read_table_state(path)
        return Merged(seconds, called.total(), called, state.files if state else 0, merged[0]["metrics"])


def _declare_readings() -> Any:
    from sluice.declare import Pipeline, Source, expect_or_quarantine, table
    from sluice.declare.assembly.graph import build_declaration_graph

    @table(reads="readings", keys=("device_id", "time"), sequence_by="received_at", zorder_by="time", subject="device_id")
    @expect_or_quarantine("positive", "heartrate > 0")
    def heart_rate(readings: DataFrame) -> DataFrame:
        """Heart rates."""
        return readings.select("device_id", "time", "heartrate", "received_at")

    schema = "device_id BIGINT, time TIMESTAMP, heartrate DOUBLE, received_at BIGINT"
    pipeline = Pipeline(name="bench", description="A benchmark.", owner="nobody", layers=("bench.bronze", "bench.silver"))
    source = Source(name="readings", schema=schema, subject="device_id")
    return build_declaration_graph(pipeline, [source, replace(heart_rate, declared_in="bench.silver")])


def measure_merges(root: Path, spark: SparkSession, days: int, rows: int, rounds: int) -> list[Merged]:
    """The merges of so many rounds into a table of so many days; one more goes first, to warm up."""
    bench = Bench(root / str(days), spark, days, rows)
    bench.merge()
    return [bench.merge() for _ in range(rounds)]


def main() -> None:
    """Measure, and print a line for each number of days."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--days", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", action="store_true", help="also which lines of code started them")
    options = parser.read_options()
    said = PrintedLines()
    if options.full:
        options.days, options.rows = FULL["days"], FULL["rows"]
    from sluice import session
    from sluice.settings import Settings

    # Jobs are counted by what the status store knows, which forgets all but the last 1,000.
    spark = session.start_spark_session(Settings.current(), "benchmark", {"spark.ui.retainedJobs": "100000"})
    spark.sparkContext.setLogLevel("ERROR")
    medians = []
    with tempfile.TemporaryDirectory() as folder:
        for days in options.days:
            found = measure_merges(Path(folder), spark, days, options.rows, options.rounds)
            medians.append(statistics.median(one.seconds for one in found))
            last = found[-1]
            said.add(
                f"{days:4} days of {options.rows:,} rows: {medians[-1]:5.2f} s (median of {len(found)}), {last.jobs} Spark jobs; "
                f"+{last.of('numTargetRowsInserted'):,} ~{last.of('numTargetRowsUpdated'):,} rows; "
                f"rewrote {last.of('numTargetFilesRemoved')} of {last.files} files"
            )
            if options.jobs:
                print("".join(f"      {count:3} {name}\n" for name, count in last.called.most_common()))
    ratio = medians[-1] / medians[0]
    said.add(
        f"ratio of {options.days[-1]} days to {options.days[0]}: {ratio:.2f}; goal at most {GOAL}: {'reached' if ratio <= GOAL else 'MISSED'}"
    )
    parser.write_findings(options, "A keyed merge into days", said.format())


if __name__ == "__main__":
    main()
