"""JSON records into bronze: the engine against Spark's own readStream.json with the same schema, in CPU seconds and wall seconds.

    .venv/bin/python benchmarks/ingest.py [--records 1000000] [--files 200] [--rounds 1] [--only clean|rescue]

Both read the same files on the same machine with 2 cores; each run has its own process, after a warm-up on a small folder. CPU seconds are
those of all its processes: Python, the JVM, Python workers. "rescue": 5 % of the records have a field of another type, or one that the schema
lacks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types

from _options import BenchmarkOptions, PrintedLines
from of_bulk.visits import COLUMNS, make_record

SHORT = {"records": 50_000, "files": 20}
GOALS = {"clean": 1.8, "rescue": 2.5}
WARM_UP = 2_000
ENGINES = ("spark", "sluice")


def make_odd_fields(number: int) -> dict[str, object]:
    """What does not fit in an odd record: a field of another type, or one more."""
    return {"steps": "many"} if number % 2 else {"firmware": "1.2.3"}


def write_deliveries(folder: Path, records: int, files: int, odd: bool) -> int:
    """Write the files. Returns their bytes."""
    rng = random.Random(5)
    folder.mkdir(parents=True)
    for file in range(files):
        numbers = range(file * records // files, (file + 1) * records // files)
        text = "".join(
            make_record(number, rng, make_odd_fields(number) if odd and number % 20 == 0 else None) + "\n" for number in numbers
        )
        (folder / f"{file:04d}.json").write_text(text)
        os.utime(folder / f"{file:04d}.json", (1_700_000_000 + file,) * 2)
    return sum(path.stat().st_size for path in folder.iterdir())


def by_sluice(data: Path, to: Path) -> None:
    """One call of autoload_to_table."""
    from sluice import autoload_to_table

    autoload_to_table(data, "json", str(to / "table"), to / "checkpoint", schema=COLUMNS).awaitTermination()


def by_spark(data: Path, to: Path) -> None:
    """Spark's file source, which drops what does not fit."""
    from pyspark.sql import SparkSession

    stream = (
        SparkSession.active().readStream.schema(COLUMNS).json(str(data)).writeStream.format("delta").trigger(availableNow=True)
    )
    stream.option("checkpointLocation", str(to / "checkpoint")).start(str(to / "table")).awaitTermination()


class Meter:
    """CPU seconds of this process and all below it, also of those that end meanwhile: their last reading counts."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def read(self) -> float:
        """CPU seconds so far."""
        me = psutil.Process()
        for process in (me, *me.children(recursive=True)):
            try:
                used = process.cpu_times()
                self._seen[process.pid, process.create_time()] = used.user + used.system
            except psutil.Error:
                continue
        return sum(self._seen.values())

    def stop(self) -> None:
        """End the watch."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.read()


def measure_engine(engine: str, data: Path, small: Path, to: Path) -> dict[str, float]:
    """In this process: a warm-up, then the run. Returns cpu and wall in seconds, and the rows that the table has."""
    from sluice import session
    from sluice.settings import Settings

    spark = session.start_spark_session(Settings.current(), "benchmark")
    run = by_sluice if engine == "sluice" else by_spark
    for number in range(2):
        run(small, to / f"warm{number}")
    meter = Meter()
    cpu, wall = meter.read(), time.monotonic()
    run(data, to / "run")
    wall = time.monotonic() - wall
    meter.stop()
    cpu = meter.read() - cpu
    table = spark.read.format("delta").load(str(to / "run" / "table"))
    return {"cpu": cpu, "wall": wall, "rows": table.count()}


def in_a_process(engine: str, data: Path, small: Path) -> dict[str, float]:
    """The same in a fresh process."""
    with tempfile.TemporaryDirectory(dir=data.parent) as to:
        command = [sys.executable, __file__, "--measure", engine, str(data), str(small), to]
        environment = {**os.environ, "SLUICE_SPARK_MASTER": "local[2]"}
        ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        return dict(json.loads(ended.stdout.splitlines()[-1]))


def compare_engines(kind: str, folder: Path, records: int, files: int, rounds: int, said: PrintedLines) -> None:
    """Measure both engines in turn and say a line for each, and the ratio."""
    data, small = folder / kind, folder / f"{kind}-small"
    size = write_deliveries(data, records, files, odd=kind == "rescue")
    write_deliveries(small, min(records, WARM_UP), 4, odd=kind == "rescue")
    found: dict[str, list[dict[str, float]]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine in ENGINES:
            found[engine].append(in_a_process(engine, data, small))
    said.add(f"{kind}: {records:,} records, {files} files, {size / 1e6:.0f} MB")
    cpu = {}
    for engine, runs in found.items():
        cpu[engine], wall = (statistics.median(run[what] for run in runs) for what in ("cpu", "wall"))
        assert all(run["rows"] == records for run in runs), f"{engine}: {[run['rows'] for run in runs]} rows of {records}"
        said.add(f"  {engine:7} {cpu[engine]:7.1f} s CPU {wall:7.1f} s wall {1e6 * cpu[engine] / records:7.1f} us CPU a record")
    ratio = cpu["sluice"] / cpu["spark"]
    verdict = "reached" if ratio <= GOALS[kind] else "MISSED"
    said.add(f"  ratio   {ratio:7.2f} of CPU; goal at most {GOALS[kind]}: {verdict}")


def main() -> None:
    """Compare, or, as a process of its own, measure."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=tuple(GOALS))
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    options = parser.read_options()
    said = PrintedLines()
    if options.measure:
        engine, *places = options.measure
        print(json.dumps(measure_engine(engine, *(Path(place) for place in places))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind in [options.only] if options.only else GOALS:
            compare_engines(kind, Path(folder), options.records, options.files, options.rounds, said)
    parser.write_findings(options, "JSON records into bronze, beside readStream.json", said.format())


if __name__ == "__main__":
    main()
