"""The memory and CPU seconds of a discovery on a store that finds 100 new objects among a million known ones.

    .venv/bin/python benchmarks/known_objects.py [--known 1000000] [--new 100]

The ledger of deliveries has a real row for each known object, written by delta-rs. A server makes up the store's pages from numbers
(`demonstrations.numbered_store`); the usual client asks for them by the usual protocol. The discovery runs in its own process; its memory is
the highest value, less what the process had before the discovery began.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from _options import BenchmarkOptions, PrintedLines
from demonstrations.numbered_store import hold_record, name_object, running_numbered_store, tag_object, tell_written_second
from sluice.declare import Source
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import discovery
from sluice.locations import locate

SHORT = {"known": 100_000, "new": 100}
_PREFIX, _LANDING = "landing/shop/a", "s3://numbers/landing/shop"
_TOGETHER = 100_000
FEW = 1_000
"""So many known ones show what a discovery holds whatever it knows: libraries, buffers, a page."""
_AT = datetime(2026, 1, 1, tzinfo=UTC)


def write_known_deliveries(path: str, known: int) -> None:
    """A ledger of deliveries in which the first so many objects are delivered."""

    def describe(numbers: range) -> Iterator[dict[str, object]]:
        for number in numbers:
            yield {
                **{"delivery": number + 1, "source": "a", "file": name_object(number), "event": "delivered"},
                **{"size": len(hold_record(number)), "modified_at": datetime.fromtimestamp(tell_written_second(number), UTC)},
                **{"sha256": sha256(hold_record(number)).hexdigest(), "discovered_at": _AT, "run": "r", "device": 0},
                "etag": tag_object(number),
            }

    for first in range(0, known, _TOGETHER):
        rows = list(describe(range(first, min(first + _TOGETHER, known))))
        write_deltalake(path, pa.Table.from_pylist(rows, schema=delivery_tables.DELIVERIES), mode="append")


def read_highest_memory() -> int:
    """The most bytes that this process has held. Not `ru_maxrss`, which begins with what the process that started it held."""
    (line,) = (one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def discover_once(deliveries: str) -> dict[str, float]:
    """What one discovery took: deliveries found, seconds, CPU seconds, and mebibytes at the highest above those before it."""
    source = Source(name="a")
    before = read_highest_memory()
    began, cpu = time.monotonic(), time.process_time()
    found = discovery.discover_deliveries([source], locate(_LANDING), deliveries, "bench").raise_first_refusal().recorded
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    mebibytes = (read_highest_memory() - before) / 2**20
    return {"found": found, "seconds": seconds, "cpu": cpu, "mebibytes": mebibytes}


def measure_discovery(known: int, new: int) -> dict[str, float]:
    """What a discovery takes that finds so many new objects beside known ones, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder, running_numbered_store(_PREFIX, known + new) as server:
        deliveries = str(Path(folder) / "deliveries")
        write_known_deliveries(deliveries, known)
        command = [sys.executable, __file__, "--discover", deliveries]
        done = subprocess.run(command, env={**os.environ, **server.variables()}, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    assert found["found"] == new, found
    return found


def main() -> None:
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--known", type=int, default=1_000_000)
    parser.add_argument("--new", type=int, default=100)
    options = parser.read_options()
    said = PrintedLines()
    few = measure_discovery(FEW, options.new)
    found = measure_discovery(options.known, options.new)
    for known, one in ((FEW, few), (options.known, found)):
        said.add(
            f"{known:,} known objects and {options.new} new ones: {one['mebibytes']:.0f} MiB, {one['cpu']:.1f} CPU s, {one['seconds']:.1f} s"
        )
    each = (found["mebibytes"] - few["mebibytes"]) * 2**20 / (options.known - FEW)
    said.add(f"{each:.0f} bytes of memory for each known object")
    parser.write_findings(options, "Discovery beside many known objects", said.format())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--discover"]:
        print(json.dumps(discover_once(sys.argv[2])))
    else:
        main()
