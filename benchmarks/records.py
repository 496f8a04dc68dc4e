"""The cost of recording runs, as their number grows: Sluice's record tables against plain appends through delta-rs, in CPU seconds.

    .venv/bin/python benchmarks/records.py [--runs 60] [--write FILE]

A run is recorded as for a pipeline of nine sources: one append to `deliveries`, nine to `outcomes`, seven to `runs`, and the joining of small
files. The other contestant makes the same appends by `write_deltalake(path, mode="append")`, with delta-rs' own settings, and counts its entries
by reading the highest one. It does not write version checksums, flush to the disk or join files. Both must hold the same rows.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from _options import BenchmarkOptions
from _results import Medians
from sluice import record_tables
from sluice.entries import COUNTED, ENTRY
from sluice.ingest.delivery_tables import DELIVERIES, OUTCOMES
from sluice.open_tables import read_snapshot_rows
from sluice.own_records import locate_record_beside
from sluice.pipeline_records import PipelineRecords
from sluice.runs.run_ledger import RUN_OBJECTS, RUNS
from sluice.settings import Settings

SOURCES, STAGES, FLOWS = 9, 7, 8
SHORT = {"runs": 30}
GROWTH = 1.5
"""Recording the last run costs at most so many times what recording the third one did."""

Append = Callable[[str, list[dict[str, Any]], pa.Schema], None]


def append_plainly(path: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    """Append to a table as delta-rs does by itself."""
    if ENTRY in schema.names:
        tables = [locate_record_beside(path, one) for one in COUNTED]
        last = max((read_highest_entry(table) for table in tables if DeltaTable.is_deltatable(table)), default=0)
        rows = [{**row, ENTRY: number} for number, row in enumerate(rows, start=last + 1)]
    write_deltalake(path, pa.Table.from_pylist(rows, schema=schema), mode="append")


def read_highest_entry(path: str) -> int:
    """The highest entry of a table, by a query."""
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(f"SELECT max({ENTRY}) AS last FROM t"))
    return int(found["last"][0].as_py() or 0)


def record_run(records: PipelineRecords, number: int, append: Append) -> None:
    """Record one run of a pipeline in which each source has a file."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    first = number * SOURCES
    deliveries = [
        {"delivery": first + place, "source": f"s{place}", "file": f"{number}.csv", "event": "delivered", "discovered_at": now}
        for place in range(SOURCES)
    ]
    append(records.delivery_ledger, deliveries, DELIVERIES)
    for row in deliveries:
        outcome = {name: row[name] for name in ("delivery", "source", "file")} | {"state": "ingested", "recorded_at": now}
        append(records.outcome_ledger, [outcome], OUTCOMES)
    for stage in range(STAGES):
        flows = [
            {"run": str(number), "stage": str(stage), "flow": str(flow), "started_at": now, **dict.fromkeys(RUN_OBJECTS, "{}")}
            for flow in range(FLOWS)
        ]
        append(records.run_ledger, flows, RUNS)


def join_as_optimize_does(records: PipelineRecords) -> None:
    """What the stage `optimize` does with record tables."""
    for name in ("deliveries", "outcomes", "runs"):
        if record_tables.has_many_small_files(records.bookkeeping(name)):
            record_tables.join_small_files(records.bookkeeping(name))


def read_recorded_rows(records: PipelineRecords) -> list[list[str]]:
    """All rows of the tables, in an order of their own."""
    return [sorted(map(repr, read_snapshot_rows(records.bookkeeping(name)))) for name in ("deliveries", "outcomes", "runs")]


def main() -> int:
    """Record, compare. Returns the exit code: 1 where the rows differ or the cost grows too much."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--runs", type=int, default=60)
    asked = parser.read_options()
    measured = sorted(run for run in {3, 10, 30, asked.runs} if run <= asked.runs)
    found = Medians("CPU seconds to record run", ("Sluice", "plain delta-rs"))
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        places = {
            name: PipelineRecords(replace(Settings.current(), lake=str(Path(folder) / name.split()[0])), "bench")
            for name in found.contestants
        }
        for number in range(asked.runs):
            for name, records in places.items():
                began = process_time()
                record_run(records, number, record_tables.append_record_rows if name == "Sluice" else append_plainly)
                if name == "Sluice":
                    join_as_optimize_does(records)
                for run in measured:
                    if run - 3 <= number < run:  # of three runs, since a join is in some of them
                        found.add(str(run), name, process_time() - began)
        same = read_recorded_rows(places["Sluice"]) == read_recorded_rows(places["plain delta-rs"])
    growth = found.median(str(measured[-1]), "Sluice") / found.median("3", "Sluice")
    text = f"{found.format()}\n\nRun {measured[-1]} costs Sluice {growth:.2f} times what run 3 did; at most {GROWTH} is the goal."
    print(text + f"\nThe rows {'are the same' if same else 'DIFFER'}.")
    parser.write_findings(asked, "What it costs to record a run of nine sources", text)
    return 0 if same and growth <= GROWTH else 1


if __name__ == "__main__":
    sys.exit(main())
