"""A large load of JSON records through three layers and a small one after it, beside a plain Spark driver, Polars and DuckDB.

    .venv/bin/python benchmarks/bulk.py [--records 1000000] [--files 4] [--rounds 1] [--write benchmarks/results.md]

Contestants take turns, each in its own process, with the same Spark settings. A time counts only if silver and gold are equal, row for row.
CPU seconds are those of the process and of all processes that it starts, including JVMs and Python workers.

The plain Spark driver reads by readStream.json into bronze, merges the latest row of each key into silver by foreachBatch, and overwrites
gold. Polars and DuckDB are the programs of `increments.py`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import duckdb

from _checkout import HERE, make_checkout, use_roots_below
from _cpu_seconds import adopt_orphans, measure_command
from _options import BenchmarkOptions
from _results import Medians
from of_bulk.visits import land_records
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

SLUICE, PLAIN, POLARS, DUCKDB = CONTESTANTS = ("Sluice", "plain Spark", "Polars", "DuckDB")
SHORT = {"records": 50_000}
INCREMENT = 500
"""One record in so many comes once more, and as many new ones."""
WHY = """\
Where a first load is dearer: each record is looked at by Python for what does not fit; silver keeps its changes beside its rows; verify
compares a table with its recompute. The start of the JVM and of three layers is most of an increment, for both."""
NOT_GIVEN = """\
What plain Spark does not give: records that do not fit, which it drops or makes NULL; a file that is cut or comes again; what is counted by
delivery; a run that is killed between two tables; rows of silver that are not by arrival; erasure. Nor do Polars and DuckDB, whose rows
must also fit into the memory of one process; DuckDB's tables are open to one process, and to no other engine."""


def check_equal_tables(records: PipelineRecords, places: Path) -> dict[str, int]:
    """Raise AssertionError where a table of silver or gold differs. places: below it, the others' tables. Returns the rows of each."""
    counted = {}
    for layer, name, columns in (
        ("silver", "visits", "id, device, heart_rate, steps, at, day, active, gym, note, score"),
        ("gold", "device_day", "device, day, visits, steps"),
    ):
        named = ", ".join(f'"{column}"' for column in columns.split(", "))
        asked = f"SELECT {named} FROM {{}} ORDER BY 1, 2"
        paths = (records.table_path(layer, name), str(places / "plain" / name), str(places / "polars" / name))
        first, *found = [open_table_snapshot(path).query_rows(asked.format("t")) for path in paths]
        with duckdb.connect(str(places / "duckdb"), read_only=True) as database:
            database.execute("SET TimeZone = 'UTC'")
            found.append(database.execute(asked.format(name)).to_arrow_table())
        for contestant, rows in zip(CONTESTANTS[1:], found, strict=True):
            assert rows.cast(first.schema).equals(first), f"{contestant}: {name} differs, {len(rows)} rows and {len(first)}"
        counted[name] = len(first)
    return counted


def main() -> int:
    """Land, measure, compare."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=CONTESTANTS)
    asked = parser.read_options()
    adopt_orphans()
    cpu, wall = Medians("CPU seconds", CONTESTANTS), Medians("wall seconds", CONTESTANTS)
    contestants = (asked.only,) if asked.only else CONTESTANTS
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        root = Path(folder)
        make_checkout(root, "bulk", HERE / "of_bulk" / "pipeline")
        for number in range(asked.rounds):
            places = root / f"round{number}"
            use_roots_below(places)
            landing, few = places / "landing", max(1, asked.records // INCREMENT)
            files_of_source = landing / "bulk" / "visits_raw"
            commands = {
                SLUICE: [sys.executable, "-m", "sluice.cli", "run", "bulk"],
                PLAIN: [sys.executable, "-m", "of_bulk.plain_spark", str(landing), str(places / "plain")],
                POLARS: [sys.executable, "-m", "of_increments.in_polars", str(files_of_source), str(places / "polars")],
                DUCKDB: [sys.executable, "-m", "of_increments.in_duckdb", str(files_of_source), str(places / "duckdb")],
            }
            for step, numbers, files in (
                ("first load", range(asked.records), asked.files),
                ("increment", range(asked.records - few, asked.records + few), 1),
            ):
                size = land_records(files_of_source, step.replace(" ", "_"), numbers, files)
                print(f"{step}: {len(numbers):,} records, {size / 1e6:.0f} MB in {files} files", flush=True)
                for contestant in contestants[:: -1 if number % 2 else 1]:
                    began = time.monotonic()
                    cpu.add(step, contestant, measure_command(commands[contestant]))
                    wall.add(step, contestant, time.monotonic() - began)
                    print(
                        f"  {contestant}: {cpu.amounts[step][contestant][-1]:.1f} CPU s, {wall.amounts[step][contestant][-1]:.1f} s",
                        flush=True,
                    )
                if not asked.only:
                    counted = check_equal_tables(PipelineRecords(Settings.current(), "bulk"), places)
                    print(f"  equal: {', '.join(f'{name} {rows:,}' for name, rows in counted.items())}", flush=True)
        if asked.only:
            return 0
    goals = "\n".join(cpu.describe_goal(step, PLAIN, 1.0) for step in cpu.amounts)
    text = "\n\n".join([cpu.format(), wall.format(), goals, WHY, NOT_GIVEN])
    print(f"\n{text}")
    parser.write_findings(asked, "A large load", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
