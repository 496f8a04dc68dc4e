"""`sluice repair`: tables whose log was damaged when power was lost."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from sluice.cli.printing import AsJson, PipelineName, escaping_console, print_json
from sluice.cli.repair import own_lease
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import SluiceError, UsageError
from sluice.runs.repair import lost_commits
from sluice.runs.repair.lost_commits import LogRepair
from sluice.settings import Settings


def repair(
    pipeline: PipelineName,
    table: Annotated[str | None, typer.Option(metavar="TABLE", help="Only this table.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put damaged logs right: set aside what was lost of a table's log, and let the flows that write or read the table start anew."""
    settings = Settings.current()
    graph = load_declaration_graph(settings, pipeline)
    found = lost_commits.find_log_repairs(settings, graph, table)
    if as_json and not (found and yes):
        print_json({"pipeline": pipeline, "repaired": False, "tables": [_log_repair_as_object(one) for one in found]})
        return
    if not found:
        escaping_console().print(f"No log of '{pipeline}' is damaged.")
        return
    if not as_json:
        for one in found:
            escaping_console().print(_describe_log_repair(pipeline, one), soft_wrap=True)
    able = [one for one in found if not one.refused]
    if able:
        _confirm_log_repair(pipeline, yes)
        with own_lease.hold_lease_without_spark(settings, pipeline, "repair", "Repair when it has ended."):
            for one in able:
                lost_commits.repair_table_log(settings, graph, one)
    if as_json:
        print_json({"pipeline": pipeline, "repaired": bool(able), "tables": [_log_repair_as_object(one) for one in found]})
    refused = [one.refused for one in found if one.refused]
    if refused:
        raise SluiceError(" ".join(refused))
    if not as_json:
        escaping_console().print(f"Done. Run: sluice run {pipeline}", soft_wrap=True)


def _describe_log_repair(pipeline: str, found: LogRepair) -> str:
    """What is damaged, what will be done about it, and what is left to do."""
    since = f" What was committed after {found.since:%Y-%m-%d %H:%M:%S} UTC is lost from it." if found.since else ""
    lines = [f"{pipeline}.{found.table}: {', '.join(map(str, found.damage))}.{since}"]
    if found.refused:
        return lines[0]
    lines.append(f"  The damaged files go to _sluice/{lost_commits.SET_ASIDE}; a commit that changes nothing takes their place.")
    names = [name for name in found.anew if name not in found.streams]
    if names:
        lines.append(f"  These flows start anew in the next run: {', '.join(names)}.")
    for name in found.streams:
        remedy = f"sluice run {pipeline} --mode refresh --table {name}"
        lines.append(f"  '{name}' is a stream with state, which is not made anew by itself. Start it over: {remedy}")
    for source, numbers in found.lost.items():
        told = ", ".join(map(str, numbers))
        lines.append(f"  Deliveries of '{source}' that are read again from the landing folder: {told}.")
    if not found.anew:
        lines.append("  No flow makes this table: what it held of that time is not known any more.")
    return "\n".join(lines)


def _log_repair_as_object(found: LogRepair) -> dict[str, Any]:
    return {
        "table": found.table,
        "damaged": [str(one) for one in found.damage],
        "since": found.since,
        "anew": [name for name in found.anew if name not in found.streams],
        "streams": list(found.streams),
        "read_again": {source: list(numbers) for source, numbers in found.lost.items()},
        "refused": found.refused,
    }


def _confirm_log_repair(pipeline: str, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"Repairing logs of '{pipeline}' asks first, and there is nobody to ask here. Give --yes.")
    if not typer.confirm("Repair?"):
        raise typer.Exit(1)
