"""Derived from TPC-H: 8 tables kept from feeds of changes, and the 22 queries as views, by Sluice, by one plain Spark driver, and by DuckDB.

    .venv/bin/python benchmarks/tpch.py [--scale 0.01] [--rounds 1] [--refreshes 3] [--recompute keys] [--write FILE]

tpchgen-cli makes the data; it is fetched from PyPI unless it is on the PATH. The first delivery has all tables, as Parquet files. Each refresh
inserts 0.1 % of the orders with their lines, deletes as many, and corrects 0.1 % of the customers; the last delivery is empty. After each
delivery every contestant, in turn, brings its tables and views up to date in its own process. A time counts only if all tables and views
equal DuckDB's, row for row. CPU seconds are those of the process and of all processes that it starts, including JVMs.

Sluice: `sluice run`; tables by auto_cdc, queries by @materialized_view. plain Spark: a driver that merges the new files into 8 Delta tables
and overwrites 22, with the same Spark settings. DuckDB: reads all files and makes everything again, in a database.
At scales up to about 0.03 Sluice treats every view as small and recomputes it; --recompute keys measures what following keys would cost there.

This is no TPC-H result: queries have neither ORDER BY nor LIMIT, the refreshes are this program's own, and nobody audited it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _checkout import HERE, make_checkout, use_roots_below
from _cpu_seconds import adopt_orphans, measure_command
from _options import BenchmarkOptions
from _results import Medians, format_table
from of_tpch.comparison import check_equality
from of_tpch.deliveries import MOST_REFRESHES, Deliveries, generate_tables, land_delivery
from of_tpch.in_duckdb import DATABASE
from of_tpch.queries import ALL_QUERIES, CHOSEN, SCALE, list_queries
from sluice.open_tables import open_table_snapshot
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

SLUICE, PLAIN, DUCKDB = CONTESTANTS = ("Sluice", "plain Spark", "DuckDB")
SHORT = {"scale": "0.01", "refreshes": 1, "queries": ["q01", "q03", "q06", "q10", "q12", "q18"]}
CHANGED = ("customer", "orders", "lineitem")
"""The tables that refreshes change."""
NOTHING_NEW = "nothing new"
WHY = """\
Where a refresh misses it: most of these queries aggregate everything into a few rows. No keys of such a view can be told apart by what a
change touches, so it is computed in full, as plain Spark does; Sluice keeps no sums to which a change could be added."""
NOT_GIVEN = """\
What plain Spark does not give: a file that is cut or comes twice, a change that comes late, a row that does not fit, a run that is killed
between two tables, a delivery that is taken back; views whose unchanged rows are not written again; a record of what ran; erasure.
What DuckDB does not give: the same; Delta tables that others read meanwhile; anything that is kept from one time to the next.
What Sluice does not give: the seconds that these cost."""


@dataclass
class Found:
    """What was measured, and how views were brought up to date: by step and view, what the run ledger says of it, and its seconds."""

    cpu: Medians = field(default_factory=lambda: Medians("CPU seconds", CONTESTANTS))
    wall: Medians = field(default_factory=lambda: Medians("wall seconds", CONTESTANTS))
    stages: Medians = field(default_factory=lambda: Medians("wall seconds of flows", ("bronze", "silver", "gold")))
    views: dict[str, dict[str, tuple[str, float]]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)


class Round:
    """A lake, a folder of each contestant, and a landing folder that all read."""

    def __init__(self, folder: Path) -> None:
        """Make them the root folders of this process and of those that it starts."""
        self.folder, self.landing = folder, folder / "landing"
        use_roots_below(folder)
        self.records = PipelineRecords(Settings.current(), "tpch")
        module = [sys.executable, "-m"]
        self.commands = {
            SLUICE: [*module, "sluice.cli", "run", "tpch"],
            PLAIN: [*module, "of_tpch.plain_spark", str(self.landing), str(folder / "plain")],
            DUCKDB: [*module, "of_tpch.in_duckdb", str(self.landing), str(folder / "duckdb")],
        }

    def measure(self, step: str, contestants: Sequence[str], found: Found) -> None:
        """Let the contestants take what was delivered, one after the other, and compare."""
        for contestant in contestants:
            began = time.monotonic()
            found.cpu.add(step, contestant, measure_command(self.commands[contestant]))
            found.wall.add(step, contestant, time.monotonic() - began)
            print(f"{step}, {contestant}: {found.cpu.amounts[step][contestant][-1]:.1f} CPU s", flush=True)
        database = str(self.folder / "duckdb" / DATABASE)
        check_equality(
            lambda name: open_table_snapshot(str(self.folder / "plain" / name)).query_rows("SELECT * FROM t"), database
        )
        views = {query.name for query in list_queries()}
        found.rows = check_equality(
            lambda name: open_table_snapshot(self.records.table_path("gold" if name in views else "silver", name)).query_rows(
                "SELECT * FROM t"
            ),
            database,
        )
        self._note_flows(step, found)

    def _note_flows(self, step: str, found: Found) -> None:
        rows = run_ledger.read_run_ledger(self.records)
        latest = [row for row in rows if row["run"] == rows[-1]["run"]]
        for stage in found.stages.contestants:
            found.stages.add(step, stage, sum(row["seconds"] or 0.0 for row in latest if row["stage"] == stage))
        found.views[step] = {
            row["flow"]: (row["recomputed"] or "not at all", row["seconds"] or 0.0) for row in latest if row["stage"] == "gold"
        }


def ask_for_bounds() -> dict[str, dict[str, list[str]]]:
    """By view and input, the columns by which a change of the input bounds what is made anew; none where nothing does."""
    command = [sys.executable, "-m", "sluice.cli", "check", "tpch", "--plans", "--json"]
    told: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    found: dict[str, dict[str, list[str]]] = {}
    for bound in told["plans"][0]["bounds"]:
        by_join = [f"{column} (by a join)" for column in bound["joined"]]
        found.setdefault(bound["view"], {})[bound["input"]] = [*sorted(bound["columns"]), *by_join]
    return found


def format_views(found: Found, bounds: dict[str, dict[str, list[str]]]) -> str:
    """The views that a refresh can touch, those that are bounded for all changes first, with what became of them in each step."""
    steps = [step for step in found.views if step != NOTHING_NEW]
    touched = [query for query in list_queries() if any(name in CHANGED for name in query.reads)]
    bounded = {query.name: [bounds[query.name].get(name, []) for name in CHANGED if name in query.reads] for query in touched}
    parts = []
    for title, wanted in (
        ("bounded for every table that changes", [query for query in touched if all(bounded[query.name])]),
        ("not bounded for some of them", [query for query in touched if not all(bounded[query.name])]),
    ):
        rows = [
            [
                f"{query.name} {query.title}",
                found.rows[query.name],
                *(", ".join(bounds[query.name].get(name, [])) or "-" if name in query.reads else "" for name in CHANGED),
                *("{} ({:.1f} s)".format(*found.views[step].get(query.name, ("not at all", 0.0))) for step in steps),
            ]
            for query in wanted
        ]
        changes = [f"by changes of {name}" for name in CHANGED]
        parts.append(f"Views that are {title}: {len(wanted)}.\n\n{format_table(['view', 'rows', *changes, *steps], rows)}")
    others = ", ".join(query.name for query in list_queries() if query not in touched)
    return "\n\n".join([*parts, f"Views that read none of them: {others}."])


def measure_rounds(root: Path, made: Path, rounds: int, refreshes: int) -> Found:
    """All rounds; who is first changes from delivery to delivery."""
    found = Found()
    for number in range(rounds):
        one = Round(root / f"round{number}")
        for delivery in range(refreshes + 2):
            step = "first load" if delivery == 0 else f"refresh {delivery}"
            if delivery <= refreshes:
                land_delivery(made / str(delivery), one.landing)
            else:
                step = NOTHING_NEW
            one.measure(step, CONTESTANTS if (number + delivery) % 2 else CONTESTANTS[::-1], found)
            print(f"{step}, round {number + 1}: all tables and views are equal", flush=True)
    return found


def main() -> int:
    """Make the data, measure, and say what came out. Returns the exit code; where a table differs, an error is raised."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--scale", default="0.01", help="1 are about 1 GB as text")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--refreshes", type=int, default=3, choices=range(1, MOST_REFRESHES + 1))
    parser.add_argument("--recompute", default="auto", choices=("auto", "keys", "strict", "full"), help="of all views")
    parser.add_argument("--queries", nargs="+", default=[], choices=[query.name for query in ALL_QUERIES], help="these only")
    asked = parser.read_options()
    adopt_orphans()
    os.environ |= {SCALE: asked.scale, CHOSEN: " ".join(asked.queries), "TPCH_RECOMPUTE": asked.recompute}
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        root = Path(folder)
        make_checkout(root, "tpch", HERE / "of_tpch" / "pipeline")
        generate_tables(asked.scale, root)
        deliveries = Deliveries(root / "tables")
        for number in range(asked.refreshes + 1):
            counts = deliveries.write(number, root / "made" / str(number))
            print(f"delivery {number}: {', '.join(f'{name} {count:,}' for name, count in counts.items())}", flush=True)
        found = measure_rounds(root, root / "made", asked.rounds, asked.refreshes)
        bounds = ask_for_bounds()
    goals = [found.cpu.describe_goal(step, PLAIN, 0.3) for step in found.cpu.amounts if step.startswith("refresh")]
    text = "\n\n".join([
        *(table.format() for table in (found.cpu, found.wall)),
        "\n".join([*goals, WHY]),
        "Sluice's flows, together:",
        found.stages.format(ratios=False),
        format_views(found, bounds),
        NOT_GIVEN,
    ])
    print(f"\n{text}")
    parser.write_findings(asked, "TPC-H derived", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
