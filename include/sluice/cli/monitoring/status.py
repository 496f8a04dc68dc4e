"""`sluice status`: what there is, what waits and what happened last, and whether it adds up; read from the lake without a JVM."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from sluice.cli.erasure import people
from sluice.cli.monitoring import standing
from sluice.cli.places import chosen, replacing
from sluice.cli.printing import AsJson, console, print_json, print_rows, second
from sluice.runs import ledger
from sluice.runs.lease import holder
from sluice.settings import Settings


def status(
    pipeline: Annotated[str | None, typer.Argument(metavar="[PIPELINE]", help="One pipeline; otherwise all.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 where the delivery ledger does not add up, or a file is missed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what there is, what waits and what ran last. Also whether every record that came is accounted for, and who writes now."""
    settings = Settings.current()
    found = [_of(settings, name) for name in chosen(settings, pipeline)]
    if as_json:
        print_json({"lake": settings.lake, "pipelines": found})
    else:
        console().print(f"Lake {settings.lake}", soft_wrap=True)
        for state in found:
            _print(state)
    if check and not all(state["adds_up"] and not state["missed"] for state in found):
        raise typer.Exit(1)


def _of(settings: Settings, pipeline: str) -> dict[str, Any]:
    writing = holder.of(settings, pipeline)
    deliveries = ledger.deliveries(settings, pipeline, replacing=replacing(settings, pipeline))
    return {
        "pipeline": pipeline,
        "tables": ledger.tables(settings, pipeline),
        "deliveries": dict(Counter(row["state"] for row in deliveries)),
        "runs": _last_runs(settings, pipeline),
        "lease": vars(writing) if writing else None,
        "erasure_requests_waiting": people.waiting(settings, pipeline),
        **standing.of(settings, pipeline),
    }


def _last_runs(settings: Settings, pipeline: str) -> list[dict[str, Any]]:
    """The last run of each stage, in the order in which they were recorded."""
    last: dict[str, dict[str, Any]] = {}
    for row in ledger.runs(settings, pipeline):
        known = last.pop(row["stage"], None)
        # A process that is kept running is one run of many rounds.
        same = known is not None and (known["run"], known["started_at"]) == (row["run"], second(row["started_at"]))
        failed = row["state"] == "failed" or (same and known is not None and known["state"] == "failed")
        last[row["stage"]] = {
            "stage": row["stage"],
            "run": row["run"],
            "mode": row["mode"],
            "state": "failed" if failed else "done",
            "started_at": second(row["started_at"]),
            "ended_at": second(row["ended_at"]),
        }
    return list(last.values())


def _print(state: dict[str, Any]) -> None:
    printed = console()
    name = state["pipeline"]
    if not (state["tables"] or state["runs"] or state["deliveries"]):
        printed.print(f"\n{name}", style="bold")
        printed.print(f"Nothing here yet. Deliveries: sluice land {name}; then: sluice run {name}", soft_wrap=True)
    else:
        print_rows(state["tables"], ("layer", "table", "rows", "version", "files", "bytes"), title=name)
    if state["runs"]:
        print_rows(state["runs"], ("stage", "state", "mode", "run", "ended_at"), title="Last runs (UTC)")
    if state["deliveries"]:
        counts = ", ".join(f"{count:,} {of}" for of, count in sorted(state["deliveries"].items()))
        printed.print(f"\nDeliveries: {counts}", soft_wrap=True)
    standing.show(state)
    if state["lease"]:
        lease = state["lease"]
        doing = "Kept running by" if lease["kept_running"] else "Writing now:"
        alone = f", the stage '{lease['stage']}' alone" if lease["stage"] else ""
        who = f"run {lease['run']}, process {lease['pid']} on {lease['host']}"
        printed.print(f"{doing} {who}, since {lease['since']}{alone}", soft_wrap=True)
    if state["erasure_requests_waiting"]:
        printed.print(f"Erasure requests waiting: {state['erasure_requests_waiting']}")
