"""The speed of the scan: MB/s per core, by kind of file, for few and for many people.

    .venv/bin/python benchmarks/erasure_scan.py [--megabytes 64] [--people 1,100,10000]

One process scans each kind of file; for the last line two processes scan all of them. The files are made in a temporary folder and removed.
"""

from __future__ import annotations

import gzip
import json
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import residue
from _options import BenchmarkOptions, PrintedLines
from residue import needles
from sluice.erasure.personal_places import containers

FIRST = 7_000_000_001


SHORT = {"megabytes": 16, "people": "1,100"}


def main() -> None:
    arguments = BenchmarkOptions(__file__, __doc__, SHORT)
    arguments.add_argument("--megabytes", type=int, default=64, help="of each kind, as it lies on disk, about")
    arguments.add_argument("--people", default="1,100,10000")
    given = arguments.read_options()
    said = PrintedLines()
    with tempfile.TemporaryDirectory() as folder:
        for kind, make in KINDS.items():
            (Path(folder) / kind).mkdir()
            make(Path(folder) / kind, given.megabytes)
        for people in map(int, given.people.split(",")):
            _measure_scans(Path(folder), people, said)
    arguments.write_findings(given, "How fast the scan for identifiers is", said.format())


def _measure_scans(folder: Path, people: int, said: PrintedLines) -> None:
    # Nobody of these is in the files: what is measured is the search, not the counting of what it finds.
    identifiers = [("user_id", str(FIRST + 900_000_000 + 7 * number)) for number in range(people)]
    started = time.monotonic()
    wanted = needles.build_needles(identifiers)
    said.add(f"{people} people, {len(wanted)} needles, made in {time.monotonic() - started:.1f} s")
    for kind in KINDS:
        _scan_and_print(kind, [residue.ScanRoot(kind, str(folder / kind))], wanted, 1, said)
    _scan_and_print("all, two processes", [residue.ScanRoot("all", str(folder))], wanted, 2, said)


def _scan_and_print(
    name: str, roots: list[residue.ScanRoot], wanted: list[residue.Needle], processes: int, said: PrintedLines
) -> None:
    cpu = time.process_time()
    result = residue.scan_roots(roots, wanted, processes=processes)
    # Of one process its own time counts, whatever else the machine does meanwhile.
    seconds = time.process_time() - cpu if processes == 1 else result.seconds * processes
    if result.hits or result.unread:
        raise SystemExit(f"{name}: {len(result.hits)} hits, {len(result.unread)} files not read; there must be none")
    searched = sum(read.bytes for read in result.decoders.values())
    speeds = [size / 1e6 / seconds for size in (result.bytes, searched)]
    said.add(
        f"{name:22} {result.bytes / 1e6:8.0f} MB  {seconds:6.1f} s  {speeds[0]:7.0f} MB/s per core on disk  {speeds[1]:7.0f} decoded"
    )


def _make_readings(count: int) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table({
        "device_id": FIRST + rng.integers(0, 100_000, count),
        "time": 1.79e9 + rng.random(count) * 1e6,
        "heartrate": rng.normal(80, 20, count).round(1),
        "who": pa.array([f"{number:010d}" for number in rng.integers(0, 10**9, count)]),
    })


def _write_parquet(folder: Path, megabytes: int) -> None:
    rows = _make_readings(500_000)
    target = folder / "0.parquet"
    pq.write_table(rows, target, compression="snappy")
    content = target.read_bytes()
    for number in range(1, max(1, megabytes * 1_000_000 // len(content))):
        (folder / f"{number}.parquet").write_bytes(content)


def _make_json_lines(megabytes: int) -> bytes:
    rows = _make_readings(20_000).to_pylist()
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    return content * max(1, megabytes * 1_000_000 // len(content))


def _write_json_lines(folder: Path, megabytes: int) -> None:
    (folder / "a.jsonl").write_bytes(_make_json_lines(megabytes))


def _write_gzip(folder: Path, megabytes: int) -> None:
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(_make_json_lines(megabytes * 3), compresslevel=1))


def _write_state_store(folder: Path, megabytes: int) -> None:
    entries = [(f"{number:012d}".encode(), bytes(24)) for number in range(20_000)]
    content = containers.build_rocksdb_table(entries)
    for number in range(max(1, megabytes * 100_000 // len(content))):
        (folder / f"{number:06d}.sst").write_bytes(content)


def _write_small_files(folder: Path, megabytes: int) -> None:
    for number in range(megabytes * 20):
        (folder / f"{number:020d}.json").write_text(json.dumps({"add": {"path": f"part-{number}", "size": number}}) * 10)


def _write_sqlite(folder: Path, megabytes: int) -> None:
    connection = sqlite3.connect(folder / "a.db")
    connection.execute("CREATE TABLE run (id INTEGER, conf TEXT)")
    connection.executemany("INSERT INTO run VALUES (?, ?)", ((number, "x" * 100) for number in range(megabytes * 9_000)))
    connection.commit()
    connection.close()


KINDS: Mapping[str, Callable[[Path, int], None]] = {
    "parquet": _write_parquet,
    "json": _write_json_lines,
    "gzip": _write_gzip,
    "rocksdb": _write_state_store,
    "small files": _write_small_files,
    "sqlite": _write_sqlite,
}

if __name__ == "__main__":
    main()
