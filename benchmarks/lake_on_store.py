"""The cost of a day of the gym with its lake on an object store, against a lake on a disk: CPU seconds and requests, stage by stage.

    .venv/bin/python benchmarks/lake_on_store.py [--pipeline gym] [--rounds 3] [--scale 1] [--write FILE]

It needs `make setup-store`. A first day is landed and run on both; of the pipeline `bulk`, which has a source, a table and a view, 20,000 records
and then 2,000. Each round lands one more day and runs each stage in its own process, on the
disk and on the store in turn. The store is moto's S3 server on this machine; its own CPU seconds do not count, and its log lists the requests.
Both lakes must have the same rows. A real store answers a request in some 20 to 50 ms, so the number of requests shows how long a run would
take there, and what it would cost.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from _checkout import HERE, make_checkout
from _cpu_seconds import adopt_orphans, measure_sluice
from _options import BenchmarkOptions
from _results import Medians, format_table
from demonstrations import store_server
from demonstrations.store_server import S3Server
from of_bulk.visits import land_records
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import KNOWN_LAYERS, stages_after_layers
from sluice.root_folders import build_root_variables
from sluice.runs import run_ledger
from sluice.settings import Settings

SHORT = {"rounds": 1, "pipeline": "bulk"}
GOAL = 2.0
"""The CPU seconds on the store as a multiple of those on the disk."""
GYM, BULK = PIPELINES = ("gym", "bulk")
DISK, STORE = "disk", "store"
METHODS = ("GET", "HEAD", "LIST", "PUT", "POST", "DELETE")
_REQUEST = re.compile(r'"(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP/1.1" \d+')


@dataclass
class StoreLog:
    """The log of the server. at: how far it was read."""

    path: Path
    at: int = 0

    def count_new_requests(self) -> Counter[str]:
        """The requests since the last call, by method; a GET of a listing is a LIST."""
        with self.path.open("rb") as log:
            log.seek(self.at)
            text = log.read().decode(errors="replace")
            self.at = log.tell()
        return Counter("LIST" if method == "GET" and "list-type=" in url else method for method, url in _REQUEST.findall(text))


@dataclass
class Contest:
    """seconds: CPU, of both. requests: of the store, by stage and method, of all rounds."""

    seconds: Medians = field(default_factory=lambda: Medians("CPU seconds of", (STORE, DISK)))
    requests: dict[str, Counter[str]] = field(default_factory=dict)


@contextmanager
def orphaned_server(log: Path) -> Iterator[S3Server]:
    """A server that is no child of this process: the CPU seconds of children count, and it ends last."""
    command = f'"{sys.executable}" "{store_server.STORE_PROCESS}" {store_server.ANY_PORT} >"{log}" 2>&1 & echo $!'
    started = subprocess.run(["sh", "-c", command], check=True, stdout=subprocess.PIPE, text=True)
    try:
        yield store_server.wait_for_s3_server(log)
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(started.stdout), signal.SIGKILL)


def use_lake(place: str, folder: Path, bucket: str) -> None:
    """Make the root folders of a contestant those of this process and of the ones that it starts."""
    os.environ |= build_root_variables(folder / place)
    if place == STORE:
        os.environ["SLUICE_LAKE"] = f"{bucket}/lake"


def land_day(pipeline: str, number: int, scale: float) -> None:
    """Land one more day of the gym, or as many records as are usual for the small pipeline."""
    if pipeline == GYM:
        measure_sluice("land", GYM, "--days", "1", "--scale", str(scale))
    else:
        came = 20_000 + 2_000 * number
        numbers = range(came - 2_000 if number else 0, came)
        land_records(Path(PipelineRecords(Settings.current(), BULK).landing) / "visits_raw", f"day{number}_", numbers, files=1)


def read_tables(pipeline: str) -> dict[str, int]:
    """How many rows each table has."""
    records = PipelineRecords(Settings.current(), pipeline)
    tables = {row["table"]: row["path"] for row in run_ledger.list_pipeline_tables(records)}
    return {
        name: open_table_snapshot(path).query_rows("SELECT count(*) AS n FROM t")["n"][0].as_py() for name, path in tables.items()
    }


def run_rounds(pipeline: str, folder: Path, bucket: str, log: StoreLog, rounds: int, scale: float) -> Contest:
    """Land and run, stage by stage. Raises RuntimeError where the tables differ."""
    found = Contest()
    stages = [stage.name for stage in (*KNOWN_LAYERS, *stages_after_layers())]  # of both pipelines
    for place in (DISK, STORE):
        use_lake(place, folder, bucket)
        land_day(pipeline, 0, scale)
        measure_sluice("run", pipeline)
    for number in range(rounds):
        rows = []
        for place in (DISK, STORE) if number % 2 else (STORE, DISK):
            use_lake(place, folder, bucket)
            land_day(pipeline, number + 1, scale)
            log.count_new_requests()
            for stage in stages:
                seconds = measure_sluice("run", pipeline, "--stage", stage)
                found.seconds.add(stage, place, seconds)
                if place == STORE:
                    time.sleep(0.5)  # the server writes its log a moment later
                    found.requests.setdefault(stage, Counter()).update(log.count_new_requests())
                print(f"{place}, {stage}: {seconds:.1f} CPU s", flush=True)
            rows.append(read_tables(pipeline))
        if rows[0] != rows[1]:
            raise RuntimeError(f"The lakes differ: {rows}")
    return found


def main() -> int:
    """Compare. Returns the exit code: 1 where the goal is missed."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--pipeline", choices=PIPELINES, default=GYM)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    asked = parser.read_options()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as name, orphaned_server(Path(name) / "store.log") as server:
        adopt_orphans()
        os.environ.update(server.variables())
        if asked.pipeline == BULK:
            make_checkout(Path(name) / "checkout", BULK, HERE / "of_bulk" / "pipeline")
        log = StoreLog(Path(name) / "store.log")
        found = run_rounds(asked.pipeline, Path(name), f"s3://{server.make_bucket()}", log, asked.rounds, asked.scale)
    stages = list(found.requests)
    took = {place: sum(found.seconds.median(stage, place) for stage in stages) for place in (STORE, DISK)}
    ratio = took[STORE] / took[DISK]
    table = format_table(
        ["requests of", *METHODS, "all"],
        [
            [stage, *(round(counts[method] / asked.rounds) for method in METHODS), round(counts.total() / asked.rounds)]
            for stage, counts in [*found.requests.items(), ("all stages", sum(found.requests.values(), Counter()))]
        ],
    )
    text = (
        f"All stages: {took[STORE]:.1f} on the store, {took[DISK]:.1f} on the disk, ratio {ratio:.2f}, goal {GOAL}. "
        "Both lakes have the same rows.\n\n"
        f"{found.seconds.format()}\n\n{table}\n\n"
        "What the disk does not give: a lake that several machines reach. What this store does not show: the time that requests travel."
    )
    print(text)
    parser.write_findings(asked, "A lake on an object store", text)
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
