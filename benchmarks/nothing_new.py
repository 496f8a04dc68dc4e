"""The cost of a run with nothing new: a quiet pipeline's run against the same run that looks for itself, as CPU seconds of `sluice run`.

    .venv/bin/python benchmarks/nothing_new.py [--pipeline gym] [--rounds 3] [--write FILE]

A day is landed and run first. Then runs of all stages take turns, each in its own process: one that finds the pipeline quiet, and one whose mark
was removed, so that Spark starts and every stage looks. CPU seconds are those of the process and of all processes that it started. Both must
leave every table at its version and record the same flows as done. A quiet run leaves out one thing: the turn of `verify`.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile

from _cpu_seconds import adopt_orphans, measure_sluice
from _options import BenchmarkOptions
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.root_folders import build_root_variables
from sluice.runs import quiet, run_ledger
from sluice.settings import Settings

SHORT = {"rounds": 1}
GOAL = 0.25
"""A quiet run costs at most this share of the other."""


def read_outcome(settings: Settings, pipeline: str) -> tuple[dict[str, int | None], set[tuple[str, str, str]]]:
    """The version of every table, and what the run ledger says of the layers' flows in the latest run."""
    graph = load_declaration_graph(settings, pipeline)
    versions = {one.name: log.latest_table_version(PipelineLake(settings, graph).path(one.name)) for one in graph}
    rows = run_ledger.read_run_ledger(PipelineRecords(settings, pipeline))
    latest = [row for row in rows if row["run"] == rows[-1]["run"] and row["stage"] in graph.pipeline.layer_names]
    return versions, {(row["stage"], row["flow"], row["state"]) for row in latest}


def main() -> int:
    """Land, run, and compare. Returns the exit code: 1 where the outcomes differ or the goal is missed."""
    parser = BenchmarkOptions(__file__, __doc__, SHORT)
    parser.add_argument("--pipeline", default="gym")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.read_options()
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="sluice-bench-") as folder:
        os.environ |= build_root_variables(folder)
        settings = Settings.current()
        measure_sluice("land", asked.pipeline, "--days", "1", "--scale", "0.2")
        # The first run makes the keys of pseudonyms, which is a change of its input: only the second one leaves the mark.
        for run in ("first run", "second run"):
            print(f"{run}: {measure_sluice('run', asked.pipeline):.1f} CPU s", flush=True)
        took: dict[str, list[float]] = {"quiet": [], "looks": []}
        outcomes = []
        for _ in range(asked.rounds):
            for kind, seconds in took.items():
                if kind == "looks":
                    quiet.remove_quiet_mark(PipelineRecords(settings, asked.pipeline))
                seconds.append(measure_sluice("run", asked.pipeline))
                outcomes.append(read_outcome(settings, asked.pipeline))
                print(f"{kind}: {seconds[-1]:.1f} CPU s", flush=True)
        same = all(one == outcomes[0] for one in outcomes)
        ratio = statistics.median(took["quiet"]) / statistics.median(took["looks"])
        text = f"Medians of {asked.rounds}: quiet {statistics.median(took['quiet']):.1f}, looks {statistics.median(took['looks']):.1f} CPU seconds, "
        text += f"ratio {ratio:.2f}, goal {GOAL}. Tables and records {'are the same' if same else 'DIFFER'}."
        print(text)
        parser.write_findings(asked, "A run with nothing new", text)
        return 0 if same and ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
