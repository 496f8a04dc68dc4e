"""`sluice status`: what there is, what waits and what happened last, and whether it adds up; read from the lake without a JVM."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

import typer

from sluice.cli.erasure import people
from sluice.cli.monitoring import standing
from sluice.cli.places import find_replacing_sources, select_pipelines
from sluice.cli.printing import AsJson, escaping_console, format_instant, print_json, print_rows
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
    found = [_compute_status(settings, name) for name in select_pipelines(settings, pipeline)]
    if as_json:
        print_json({"lake": settings.lake, "pipelines": found})
    else:
        escaping_console().print(f"Lake {settings.lake}", soft_wrap=True)
        for state in found:
            _print_status(state)
    if check and not all(state["adds_up"] and not state["missed"] for state in found):
        raise typer.Exit(1)


def _compute_status(settings: Settings, pipeline: str) -> dict[str, Any]:
    writing = holder.find_lease_holder(settings, pipeline)
    deliveries = ledger.read_delivery_ledger(settings, pipeline, replacing=find_replacing_sources(settings, pipeline))
    return {
        "pipeline": pipeline,
        "tables": ledger.list_pipeline_tables(settings, pipeline),
        "deliveries": dict(Counter(row["state"] for row in deliveries)),
        "runs": _find_last_runs(settings, pipeline),
        "lease": vars(writing) if writing else None,
        "erasure_requests_waiting": people.count_waiting_requests(settings, pipeline),
        **standing.compute_standing(settings, pipeline),
    }


def _find_last_runs(settings: Settings, pipeline: str) -> list[dict[str, Any]]:
    """The last run of each stage, in the order in which they were recorded."""
    last: dict[str, dict[str, Any]] = {}
    for row in ledger.read_run_ledger(settings, pipeline):
        known = last.pop(row["stage"], None)
        # A process that is kept running is one run of many rounds.
        same = known is not None and (known["run"], known["started_at"]) == (row["run"], format_instant(row["started_at"]))
        failed = row["state"] == "failed" or (same and known is not None and known["state"] == "failed")
        last[row["stage"]] = {
            "stage": row["stage"],
            "run": row["run"],
            "mode": row["mode"],
            "state": "failed" if failed else "done",
            "started_at": format_instant(row["started_at"]),
            "ended_at": format_instant(row["ended_at"]),
        }
    return list(last.values())


def _print_status(state: dict[str, Any]) -> None:
    printed = escaping_console()
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
    standing.print_standing(state)
    if state["lease"]:
        lease = state["lease"]
        doing = "Kept running by" if lease["kept_running"] else "Writing now:"
        alone = f", the stage '{lease['stage']}' alone" if lease["stage"] else ""
        who = f"run {lease['run']}, process {lease['pid']} on {lease['host']}"
        printed.print(f"{doing} {who}, since {lease['since']}{alone}", soft_wrap=True)
    if state["erasure_requests_waiting"]:
        printed.print(f"Erasure requests waiting: {state['erasure_requests_waiting']}")
