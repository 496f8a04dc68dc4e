"""`sluice run --keep-running`: what is said of a process that keeps a pipeline running, a line for each look that did something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sluice.cli.printing import print_json
from sluice.errors import UsageError

if TYPE_CHECKING:
    from sluice.declare.assembly.graph import Graph
    from sluice.runs import job
    from sluice.runs.keep_running.keeping import Round
    from sluice.settings import Settings


def check(graph: Graph, stage: str | None, mode: str, tables: bool) -> None:
    """Raises UsageError for what a process that is kept running does not do."""
    from sluice.runs import modes

    if mode != "increment" or tables:
        raise UsageError(
            f"What is kept running takes what is new; --mode {mode if mode != 'increment' else 'refresh'} is run once, "
            "without --keep-running and processing-time."
        )
    layers = modes.names(graph)[: len(graph.pipeline.layers)]
    if stage and stage not in layers:
        raise UsageError(f"Stage '{stage}' is not kept running; layers are: {', '.join(layers)}.")


def run(settings: Settings, graph: Graph, asked: job.Request, every: float, as_json: bool) -> None:
    """Keep a pipeline running until somebody asks it to stop. Raises SluiceError as `keep` does."""
    from sluice.runs.keep_running import keeping

    def begun() -> None:
        what = f"{asked.pipeline} {asked.stage}".strip()
        if not as_json:
            ending = f"Ctrl-C ends it, or: sluice stop {asked.pipeline}"
            print(f"{what} is kept running: it looks every {every:g} s, run {asked.run}. {ending}", flush=True)

    def heard(round_: Round) -> None:
        if as_json:
            print_json({**vars(round_), "at": datetime.now(UTC).isoformat(timespec="seconds")})
        else:
            _say(round_)

    did = keeping.keep(settings, graph, asked, every, heard, begun)
    if as_json:
        print_json({"pipeline": asked.pipeline, "run": asked.run, "stopped": True, "rounds": did})
    else:
        print(f"{asked.pipeline} was stopped on request; {did} looks did something. The next run goes on from there.", flush=True)


def _say(round_: Round) -> None:
    at = f"{datetime.now(UTC):%H:%M:%S}"
    if said := list(_flows(round_.reports)):
        print(f"{at}  {', '.join(said)}; {round_.seconds:.1f} s", flush=True)
    for name, why in round_.errors.items():
        again = f"failed {round_.failures} times in a row, again in {max(round_.again, 0):.0f} s"
        print(f"{at}  {name} {again}: {why}", file=sys.stderr, flush=True)
    for name, why in round_.differing.items():
        print(f"{at}  {name} differs: {why}", file=sys.stderr, flush=True)


def _flows(reports: list[dict[str, Any]]) -> Iterator[str]:
    """What each table got, as "readings +120 (2 deliveries)" or "device_day +3 ~2 -1"."""
    for report in reports:
        for flow in report["flows"]:
            rows = [f"{sign}{flow[of]}" for sign, of in (("+", "inserted"), ("~", "updated"), ("-", "deleted")) if flow[of]]
            if not rows and flow["rows_out"]:
                rows = [f"+{flow['rows_out']}"]
            aside = [f"{flow[of]} {of}" for of in ("quarantined", "suppressed") if flow[of]]
            aside += [f"{flow['deliveries']} deliveries"] if flow["deliveries"] and report["stage"] == "bronze" else []
            told = " ".join([*rows, *([f"({', '.join(aside)})"] if aside else [])])
            yield f"{flow['flow']} {told or report['stage']}"
