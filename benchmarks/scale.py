"""How costs grow with files, deliveries, commits, partitions, rows, views and the gym: each cost at several sizes, with its slope.

    .venv/bin/python benchmarks/scale.py [--short] [--only rows views] [--rows 20000 1000000] [--write benchmarks/results.md]

Files, deliveries, commits and partitions are measured without a JVM: what a run spends on them in addition to its work on rows. Rows, views and
the gym are real runs of `sluice run`, each in its own process. CPU seconds are those of a process and of all processes that it starts. A slope
of 1 means that ten times as many cost ten times as much; 0 means that they cost the same.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from _checkout import HERE, make_checkout, use_roots_below
from _cpu_seconds import adopt_orphans, measure_sluice
from _options import BenchmarkOptions
from _peak_memory import watch_peak_memory
from _results import format_table
from of_bulk.visits import land_records
from sluice import open_tables
from sluice.declare import Source
from sluice.delta_rs_commits import complete_commit
from sluice.ingest.deliveries import discovery
from sluice.lake import commit_history, log
from sluice.lake.layout import decide_layout
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

SIZES: dict[str, list[int]] = {
    "files": [100, 1_000, 10_000, 100_000],
    "deliveries": [100, 1_000, 10_000, 100_000],
    "commits": [10, 100, 1_000, 3_000],
    "partitions": [10, 100, 1_000, 10_000],
    "rows": [20_000, 200_000, 1_000_000],
    "views": [1, 10, 40],
    "gym": [1, 10, 100],
}
SHORT: dict[str, list[int]] = {
    "files": [100, 1_000, 10_000],
    "deliveries": [100, 1_000, 10_000],
    "commits": [10, 100, 300],
    "partitions": [10, 100, 1_000],
    "rows": [20_000],
    "views": [1],
    "gym": [],
}


@dataclass(frozen=True)
class Measured:
    """What one thing took at one size. memory: bytes of the largest process at its highest; 0 where it was not looked at."""

    what: str
    size: int
    cpu_seconds: float
    memory: int = 0


def measure_cpu(work: Callable[[], object], times: int = 3) -> float:
    """The least CPU seconds of this process for some work, of several times."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def open_anew(path: str) -> object:
    """A table with all its files, as a process opens it that has not seen it before."""
    return open_tables.open_table_to_change(path).get_add_actions(flatten=True)


# ----------------------------------------------------------------------------------------- without a JVM


def measure_files(root: Path, size: int) -> Iterator[Measured]:
    """Small files in a landing folder: they are discovered, and then the same folder is looked at with nothing new."""
    source, landing, deliveries = Source(name="records"), root / "landing", str(root / "deliveries")
    for number in range(size):
        path = landing / "records" / f"{number // 1000}" / f"{number}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"id": {number}}}\n')
        os.utime(path, (1_600_000_000 + number,) * 2)

    def discover() -> int:
        return discovery.discover_deliveries([source], landing, deliveries, "bench").raise_first_refusal().recorded

    yield Measured("small files are discovered", size, measure_cpu(discover, 1))
    assert discover() == 0, "nothing is new"
    yield Measured("known files, nothing new", size, measure_cpu(discover))


def measure_deliveries(root: Path, size: int) -> Iterator[Measured]:
    """Runs of ten deliveries each, in the ledger: the last one is recorded, all are read."""
    records = PipelineRecords(Settings.current(), root.name)
    row = {"pipeline": root.name, "stage": "bronze", "mode": "increment", "flow": "records", "state": "done", "seconds": 1.0}
    tens = [{**row, "run": f"r{number}"} for number in range(10)]
    several = [{**row, "run": f"r{number}"} for number in range(size - 10)]
    run_ledger.append_run_rows(records, several)
    yield Measured(
        "rows of the run ledger, ten more are recorded", size, measure_cpu(lambda: run_ledger.append_run_rows(records, tens), 5)
    )
    yield Measured("rows of the run ledger, all are read", size, measure_cpu(lambda: run_ledger.read_run_ledger(records)))


def measure_commits(root: Path, size: int) -> Iterator[Measured]:
    """Commits of a table of one file, each of which replaces it, with a checkpoint every ten, as Sluice's tables have."""
    path, rows = str(root / "table"), pa.table({"id": pa.array(range(100)), "value": pa.array([1.5] * 100)})
    write_deltalake(path, rows, configuration={"delta.checkpointInterval": "10"})
    table = DeltaTable(path)
    for _ in range(size - 1):
        write_deltalake(table, rows, mode="overwrite")
        complete_commit(path, table)

    yield Measured("commits of a table, it is opened", size, measure_cpu(lambda: open_anew(path)))
    yield Measured("commits of a table, its state is asked again", size, measure_cpu(lambda: log.read_table_state(path)))
    yield Measured(
        "commits of a table, its whole history is read", size, measure_cpu(lambda: commit_history.read_commit_history(path))
    )


def measure_partitions(root: Path, size: int) -> Iterator[Measured]:
    """A table of one small file a partition: it is opened, and OPTIMIZE decides."""
    path = str(root / "table")
    write_deltalake(path, pa.table({"id": pa.array(range(size)), "part": pa.array(range(size))}), partition_by=["part"])

    yield Measured("partitions of a table, it is opened", size, measure_cpu(lambda: open_anew(path)))
    yield Measured("partitions of a table, OPTIMIZE decides", size, measure_cpu(lambda: decide_layout(path, ())))


# -------------------------------------------------------------------------------------------- real runs


def measure_rows(root: Path, size: int) -> Iterator[Measured]:
    """JSON records through bronze, silver and gold: all of them first, then one in a hundred again with as many new ones, at most 2,000."""
    make_checkout(root / "checkout", "bulk", HERE / "of_bulk" / "pipeline")
    use_roots_below(root)
    few = min(size // 100, 2_000)
    for step, numbers, files in (("a first load", range(size), 4), ("an increment", range(size - few, size + few), 1)):
        land_records(root / "landing" / "bulk" / "visits_raw", step.replace(" ", "_"), numbers, files)
        yield _measure_run(f"rows, {step}" + (" of 2 % (at most 4,000)" if files == 1 else ""), size, "bulk")


def measure_views(root: Path, size: int) -> Iterator[Measured]:
    """A pipeline with so many views of one table of 20,000 rows: a first load, and an increment that concerns them all."""
    folder = root / "pipeline"
    shutil.copytree(HERE / "of_bulk" / "pipeline", folder)
    gold = (folder / "gold.py").read_text()
    head, _, declared = gold.partition("DEVICE_DAY =")
    several = [f"DEVICE_DAY_{number} =" + declared.replace('"device_day"', f'"device_day_{number}"') for number in range(size)]
    (folder / "gold.py").write_text(head + "".join(several))
    make_checkout(root / "checkout", "bulk", folder)
    use_roots_below(root)
    for step, numbers in (("a first load", range(20_000)), ("an increment", range(19_800, 20_200))):
        land_records(root / "landing" / "bulk" / "visits_raw", step.replace(" ", "_"), numbers, 1)
        yield _measure_run(f"views, {step}", size, "bulk")


def measure_gym(root: Path, size: int) -> Iterator[Measured]:
    """Two days of the gym, every source, table and view of it, with so many times its devices and members."""
    subprocess.run([sys.executable, "-m", "sluice.cli", "land", "gym", "--days", "1", "--scale", str(size)], check=True)
    yield _measure_run("gym's size, its first day", size, "gym")
    subprocess.run([sys.executable, "-m", "sluice.cli", "land", "gym", "--days", "1"], check=True)
    yield _measure_run("gym's size, its second day", size, "gym")


def _measure_run(what: str, size: int, pipeline: str) -> Measured:
    with watch_peak_memory() as memory:
        seconds = measure_sluice("run", pipeline)
    return Measured(what, size, seconds, memory.largest)


WITHOUT_JVM = ("files", "deliveries", "commits", "partitions")
WARM_UP = 20
"""The size at which these are done once before they are measured: what is imported at the first call would count."""
MEASURES: dict[str, Callable[[Path, int], Iterator[Measured]]] = {
    "files": measure_files,
    "deliveries": measure_deliveries,
    "commits": measure_commits,
    "partitions": measure_partitions,
    "rows": measure_rows,
    "views": measure_views,
    "gym": measure_gym,
}


def compute_slope(before: Measured, after: Measured) -> float:
    """By which power of the size the cost grows from one size to the next."""
    return math.log(after.cpu_seconds / before.cpu_seconds) / math.log(after.size / before.size)


def format_measured(measured: Iterable[Measured]) -> str:
    """A line for each thing and size, with the slope since the size before."""
    rows = []
    for _, group in groupby(sorted(measured, key=lambda one: one.what), key=lambda one: one.what):
        sizes = sorted(group, key=lambda one: one.size)
        for before, one in zip([None, *sizes], sizes, strict=False):
            slope = f"{compute_slope(before, one):.2f}" if before else ""
            memory = f"{one.memory / 2**20:,.0f}" if one.memory else ""
            rows.append((one.what, f"{one.size:,}", f"{one.cpu_seconds:.4g}", slope, memory))
    return format_table(("what", "size", "CPU seconds", "slope", "MiB of the largest process"), rows)


def main() -> int:
    """Measure, print, and keep what was found."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--only", nargs="+", choices=tuple(MEASURES), default=tuple(MEASURES))
    for name in MEASURES:
        parser.add_argument(f"--{name}", nargs="+", type=int, default=SIZES[name], metavar="SIZE")
    asked = parser.read_options()
    adopt_orphans()
    found: list[Measured] = []
    for name in asked.only:
        for size in ([WARM_UP] if name in WITHOUT_JVM else []) + list(getattr(asked, name)):
            with tempfile.TemporaryDirectory(prefix="sluice-scale-") as folder:
                root = Path(folder) / "scale"
                root.mkdir()
                before = dict(os.environ)
                use_roots_below(root)
                for one in MEASURES[name](root, size):
                    if size == WARM_UP:
                        continue
                    found.append(one)
                    print(f"{one.what}: {one.size:,}: {one.cpu_seconds:.3f} CPU s, {one.memory / 2**20:,.0f} MiB", flush=True)
                os.environ.clear()
                os.environ |= before
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    text = f"Load of the machine at the end (1, 5, 15 minutes): {load}.\n\n{format_measured(found)}"
    print(f"\n{text}")
    parser.write_findings(asked, "What grows with what", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
