"""Erases 1, 100 and 10,000 people from a table: Sluice's erasure against one DELETE per person, and against rewriting the table.

    .venv/bin/python benchmarks/erasure.py [--full] [--rows 1000000] [--subjects 100000] [--people 1 100 10000] [--sample 3]

The table has --rows heart rates of --subjects devices and a change feed. Its files are in order of time, as OPTIMIZE and ZORDER BY time leave
them, so that each device has rows in each file: the worst case. The step of Sluice that erases people erases randomly chosen devices. The
results are wall seconds, and CPU seconds of the JVM, because a busy machine changes the former. One DELETE per person is measured for a sample
and multiplied, which favours it: each DELETE adds a version that the next one must read. Goal: 100 people cost at most 0.10 of the DELETEs, by
both measures. --full: 20 million rows.
"""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _options import BenchmarkOptions, PrintedLines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.lake.workspace import Workspace

GOAL, FULL = 0.10, 20_000_000
SHORT = {"rows": 200_000, "subjects": 20_000, "people": [1, 100], "sample": 1}
FILES = 16


@dataclass(frozen=True)
class Took:
    """Seconds and seconds of CPU of one way to erase so many people. measured: of how many of them they were measured."""

    way: str
    people: int
    measured: int
    seconds: float
    cpu: float
    rows: int


def declare_readings() -> Any:
    """A source of readings and the table that is made of it, which the benchmark fills by itself."""
    from sluice.declare import Pipeline, Source, table
    from sluice.declare.assembly.graph import build_declaration_graph

    readings = Source(
        name="readings", schema="device_id BIGINT, at TIMESTAMP, heartrate DOUBLE", subject="device_id", comment="r"
    )

    @table(reads="readings", keys=("device_id", "at"), subject="device_id")
    def heart_rate(readings: DataFrame) -> DataFrame:
        """Heart rates."""
        return readings

    layers = ("pipelines.bench.bronze", __name__)
    return build_declaration_graph(Pipeline(name="bench", description="b", owner="t", layers=layers), [readings, heart_rate])


class Bench:
    """A lake with one table, full."""

    def __init__(self, root: Path, spark: SparkSession, rows: int, subjects: int) -> None:
        """Make it."""
        from sluice.lake import table_creation
        from sluice.lake.table_creation import TableShape
        from sluice.lake.workspace import Workspace
        from sluice.settings import Settings, build_root_settings

        settings = Settings(Path(__file__).resolve().parents[1], **build_root_settings(root))
        self.workspace: Workspace = Workspace(settings, declare_readings(), spark, "bench")
        self.path = self.workspace.path("heart_rate")
        columns = "device_id BIGINT, at TIMESTAMP, heartrate DOUBLE, _delivery BIGINT, _row BIGINT"
        table_creation.create_table(
            spark,
            self.path,
            TableShape(schema=table_creation.parse_ddl_schema(columns), comment="b", statistics=("at", "_delivery", "_row")),
        )
        every = spark.range(0, rows, 1, FILES).selectExpr(
            f"pmod(xxhash64(id), {subjects}) AS device_id",
            "timestamp_seconds(1767225600 + id) AS at",
            "60 + pmod(id, 100) AS heartrate",
            "1L AS _delivery",
            "id AS _row",
        )
        every.withColumn("heartrate", every["heartrate"].cast("double")).write.format("delta").mode("append").save(self.path)
        chosen = random.Random(8)
        self.waiting = chosen.sample(range(subjects), subjects)

    def measured(self, way: str, people: int, work: Callable[[list[int]], None]) -> Took:
        """Erase people that are still there."""
        from sluice.lake import log

        taken, self.waiting = self.waiting[:people], self.waiting[people:]
        before, cpu, started = log.read_table_state(self.path), self._cpu(), time.monotonic()
        work(taken)
        seconds, cpu, after = time.monotonic() - started, self._cpu() - cpu, log.read_table_state(self.path)
        gone = (before.rows or 0) - (after.rows or 0) if before and after else 0
        return Took(way, people, people, round(seconds, 2), round(cpu, 2), gone)

    def merged(self, people: Sequence[int]) -> None:
        """By Sluice: on the suppression list, then one merge by pseudonym."""
        from sluice.erasure.request_record import SuppressedIdentifier
        from sluice.erasure.steps import rows, subject_tables
        from sluice.privacy import secrets, suppression_list
        from sluice.privacy.pseudonyms import compute_pseudonym

        key = secrets.read_secret_key(self.workspace.settings)
        listed = [SuppressedIdentifier("device_id", str(compute_pseudonym(key, "device_id", str(one)))) for one in people]
        suppression_list.suppress_subjects(self.workspace, {f"r{len(self.waiting)}": listed})
        rows.delete_suppressed_rows(self.workspace, subject_tables.find_subject_tables(self.workspace))

    def deleted(self, people: Sequence[int]) -> None:
        """One DELETE each, with the number in the condition."""
        for one in people:
            self.workspace.session.sql(f"DELETE FROM delta.`{self.path}` WHERE device_id = {one}")

    def rewritten(self, people: Sequence[int]) -> None:
        """All of the table anew, without them."""
        from pyspark.sql import functions as F

        from sluice.lake import table_creation, table_frames

        gone = table_creation.make_inline_frame(self.workspace.session, [(one,) for one in people], "device_id BIGINT")
        rest = table_frames.read_table(self.workspace.session, self.path).join(F.broadcast(gone), "device_id", "left_anti")
        rest.write.format("delta").mode("overwrite").save(self.path)

    def _cpu(self) -> float:
        """Seconds of CPU that the JVM has taken."""
        process: Any = self.workspace.session.sparkContext._gateway.proc  # type: ignore[union-attr]
        return sum(cpu_of(process.pid))


def cpu_of(pid: int) -> list[float]:
    """The CPU seconds of a process and of those that it has started, such as a shell's Java."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(stat.parent.name) == pid or int(fields[1]) == pid:
            found.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
    return found


def measure_all_ways(bench: Bench, people: Sequence[int], sample: int) -> list[Took]:
    """All ways, after one that warms the JVM up."""
    bench.measured("warm-up", 1, bench.merged)
    bench.measured("warm-up", 1, bench.deleted)
    found = []
    for number in sorted(people):
        found.append(bench.measured("erasure", number, bench.merged))
    one = bench.measured("a DELETE each", sample, bench.deleted)
    for number in sorted(people):
        times = number / one.people
        found.append(
            Took(one.way, number, one.measured, round(one.seconds * times, 2), round(one.cpu * times, 2), round(one.rows * times))
        )
    found.append(bench.measured("the table anew", min(people), bench.rewritten))
    return found


def ratios_to_single_deletes(found: list[Took]) -> dict[str, Any]:
    """The cost of an erasure relative to one DELETE per person, by number of people."""
    ratios = {}
    for one in (took for took in found if took.way == "erasure"):
        other = next(took for took in found if took.way == "a DELETE each" and took.people == one.people)
        ratios[one.people] = {"seconds": round(one.seconds / other.seconds, 4), "cpu": round(one.cpu / other.cpu, 4)}
    return {"took": [asdict(took) for took in found], "of_a_DELETE_each": ratios, "goal": {100: GOAL}}


def main() -> None:
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--subjects", type=int, default=100_000)
    parser.add_argument("--people", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--sample", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="20 million rows")
    given = parser.read_options()

    from sluice import session
    from sluice.settings import Settings

    spark = session.start_spark_session(Settings.current(), "bench-erasure", {"spark.driver.memory": "4g"})
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        bench = Bench(Path(folder), spark, FULL if given.full else given.rows, given.subjects)
        found = measure_all_ways(bench, given.people, given.sample)
    said = PrintedLines()
    for took in found:
        how = "" if took.measured == took.people else f"  (of {took.measured}, multiplied)"
        said.add(
            f"{took.way:>15}  {took.people:>7,} people  {took.seconds:>10,.2f} s  {took.cpu:>10,.2f} s CPU  {took.rows:>10,} rows{how}"
        )
    compared = ratios_to_single_deletes(found)
    said.add(f"of a DELETE each: {json.dumps(compared['of_a_DELETE_each'])}, goal for 100 people {GOAL}")
    print(json.dumps(compared))
    parser.write_findings(given, "Erasing people from a table", said.format())


if __name__ == "__main__":
    main()
