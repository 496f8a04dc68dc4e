"""`sluice status`: tables, waiting deliveries and last runs, and whether every record is accounted for; read from the lake without a JVM.

It also shows lag, freshness, rows by earlier code, gaps in the schedule, and what the delivery ledger lacks.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Annotated, Any

import typer

from sluice.cli.erasure import request_states
from sluice.cli.monitoring.standing import compute_standing
from sluice.cli.name_lookup import find_replacing_sources, select_pipelines
from sluice.cli.printing import AsJson, OnePipeline, escaping_console, format_duration, format_instant, print_json, print_rows
from sluice.declare.assembly.loading import load_pipeline_declaration
from sluice.errors import SluiceError
from sluice.pipeline_records import PipelineRecords
from sluice.printable import count_noun, format_size
from sluice.record_states import DONE, FAILED
from sluice.runs import run_ledger
from sluice.runs.lease import holder
from sluice.settings import Settings


def status(
    pipeline: OnePipeline = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Exit code 1 if the delivery ledger does not add up or cannot be judged, or a file is missed."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show tables, waiting deliveries and last runs; also whether every delivered record is accounted for, and who writes now."""
    settings = Settings.current()
    found = [compute_status(PipelineRecords(settings, name)) for name in select_pipelines(settings, pipeline)]
    if as_json:
        print_json({"lake": settings.lake, "pipelines": found})
    else:
        escaping_console().print(f"Lake {settings.lake}", soft_wrap=True)
        for state in found:
            _print_status(settings, state)
    if check and not all(state["adds_up"] and state["missed"] == [] for state in found):
        raise typer.Exit(1)


def compute_status(records: PipelineRecords) -> dict[str, Any]:
    """A pipeline's tables, waiting deliveries and last runs, as a plain object."""
    writing = holder.find_lease_holder(records)
    deliveries = run_ledger.read_delivery_ledger(records, replacing=find_replacing_sources(records))
    return {
        "pipeline": records.pipeline,
        "tables": run_ledger.list_pipeline_tables(records),
        "deliveries": dict(Counter(row["state"] for row in deliveries)),
        "runs": _find_last_runs(records),
        "lease": vars(writing) if writing else None,
        "erasure_requests_waiting": request_states.count_waiting_requests(records),
        **compute_standing(records),
    }


def _find_last_runs(records: PipelineRecords) -> list[dict[str, Any]]:
    """The last run of each stage, in the order in which they were recorded."""
    last: dict[str, dict[str, Any]] = {}
    for row in run_ledger.read_run_ledger(records):
        known = last.pop(row["stage"], None)
        # A process that is kept running is one run of many rounds.
        same = known is not None and (known["run"], known["started_at"]) == (row["run"], format_instant(row["started_at"]))
        failed = row["state"] == FAILED or (same and known is not None and known["state"] == FAILED)
        last[row["stage"]] = {
            "stage": row["stage"],
            "run": row["run"],
            "mode": row["mode"],
            "state": FAILED if failed else DONE,
            "started_at": format_instant(row["started_at"]),
            "ended_at": format_instant(row["ended_at"]),
        }
    return list(last.values())


def describe_first_steps(settings: Settings, pipeline: str) -> str:
    """Returns what to do for a pipeline of which nothing is there yet: where deliveries come from, and the command that takes them."""
    try:
        makes = load_pipeline_declaration(settings, pipeline).maker is not None
    except SluiceError:
        makes = False
    come = f"sluice land {pipeline}" if makes else f"put files into {settings.landing / pipeline}"
    return f"Nothing here yet. Deliveries: {come}; then: sluice run {pipeline}"


def _print_status(settings: Settings, state: dict[str, Any]) -> None:
    printed = escaping_console()
    name = state["pipeline"]
    if not (state["tables"] or state["runs"] or state["deliveries"]):
        printed.print(f"\n{name}", style="bold")
        printed.print(describe_first_steps(settings, name), soft_wrap=True)
    else:
        print_rows(state["tables"], ("layer", "table", "rows", "version", "files", "bytes"), title=name)
    if state["runs"]:
        print_rows(state["runs"], ("stage", "state", "mode", "run", "ended_at"), title="Last runs (UTC)")
    if state["deliveries"]:
        counts = ", ".join(f"{count:,} {of}" for of, count in sorted(state["deliveries"].items()))
        printed.print(f"\nDeliveries: {counts}", soft_wrap=True)
    print_standing(state)
    if state["lease"]:
        lease = state["lease"]
        doing = "Kept running by" if lease["kept_running"] else "Writing now:"
        alone = f", the stage '{lease['stage']}' alone" if lease["stage"] else ""
        who = f"run {lease['run']}, process {lease['pid']} on {lease['host']}"
        printed.print(f"{doing} {who}, since {lease['since']}{alone}", soft_wrap=True)
    if state["erasure_requests_waiting"]:
        printed.print(f"Erasure requests waiting: {state['erasure_requests_waiting']}")


def print_standing(state: dict[str, Any]) -> None:
    """Print the state of a pipeline, whose name is under `pipeline`. Apart from the accounts, only problems are printed."""
    _print_lag(state["flows"])
    _print_freshness(state["freshness"])
    if state["stale"]:
        rows = [{"table": one["table"], "dates": one["shown"]} for one in state["stale"]]
        print_rows(rows, ("table", "dates"), title="Made by earlier code")
    if state["restored"]:
        rows = [{"table": one["table"], "to version": one["version"], "at": one["at"]} for one in state["restored"]]
        print_rows(rows, ("table", "to version", "at"), title="Restored, without what was taken since (UTC)")
    if state["gaps"]:
        print_rows(state["gaps"], ("scheduled", "its runs", "command"), title="Gaps in the schedule")
    if state["rescued_fields"]:
        print_rows(state["rescued_fields"], ("source", "keep"), title="Fields in _rescued_data that could be columns")
    if state["missed"]:
        print_rows(
            state["missed"], ("delivery", "source", "file", "reason"), title="Missed: not read, and tried again by every run"
        )
    _print_accounts(state["accounts"])
    for problem in state["problems"]:
        escaping_console().print(problem, soft_wrap=True)


def _print_lag(flows: list[dict[str, Any]]) -> None:
    behind = [flow for flow in flows if flow["deliveries"] or flow["versions"] or flow["stuck"] or flow["warnings"]]
    if not behind:
        return
    rows = [
        {
            "table": flow["table"],
            "deliveries": flow["deliveries"] or None,
            "versions": flow["versions"] or None,
            "records": flow["records"] or None,
            "bytes": format_size(flow["bytes"]) if flow["bytes"] else None,
            "behind": _format_seconds(flow["seconds_behind"]),
            "note": _lag_note(flow),
        }
        for flow in behind
    ]
    print_rows(rows, ("table", "deliveries", "versions", "records", "bytes", "behind", "note"), title="Waiting")


def _lag_note(flow: dict[str, Any]) -> str | None:
    said = flow["stuck"] or (f"starts anew: {flow['starts_anew']}" if flow["starts_anew"] else None)
    return "; ".join([*([said] if said else []), *flow["warnings"]]) or None


def _print_freshness(published: list[dict[str, Any]]) -> None:
    rows = [
        {
            "table": table["table"],
            "latest data": table["data_at"] or "never",
            "age": _format_seconds(table["age_seconds"]),
            "target": _format_seconds(table["target_seconds"]),
            "": "late" if table["late"] else None,
            "last checked": table["checked_at"],
        }
        for table in published
        if table["age_seconds"] is not None
    ]
    if rows:
        print_rows(rows, ("table", "latest data", "age", "target", "", "last checked"), title="Freshness (UTC)")


def _print_accounts(accounts: list[dict[str, Any]]) -> None:
    if not accounts:
        return
    rows = [{**account, "": "OK" if account["adds_up"] else _describe_imbalance(account)} for account in accounts]
    columns = ("source", "landed", "bronze", "marked", "aside", "suppressed", "discarded", "erased", "")
    shown = [{**row, "erased": row["erased"] + row["erased_aside"], "marked": row["marked"] or None} for row in rows]
    print_rows(shown, columns, title="Records")
    differing = [row for account in accounts for row in account["deliveries"]]
    if differing:
        print_rows(differing[:20], ("table", "delivery", "counted", "there"), title="Deliveries that differ")


def _describe_imbalance(account: dict[str, Any]) -> str:
    said = [f"{table} has {count_noun(abs(by), 'row')} too {'many' if by > 0 else 'few'}" for table, by in account["off"].items()]
    if account["hidden"]:
        said.append(
            f"{count_noun(account['hidden'], 'row', 'is marked as that', 'are marked as those')} "
            "of erased people, and nobody was erased: no table sees them"
        )
    return ", ".join(said)


def _format_seconds(seconds: int | None) -> str | None:
    return None if seconds is None else format_duration(timedelta(seconds=seconds))
