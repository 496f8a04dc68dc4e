"""`sluice restore` brings a table back to a version, without people erased since; `sluice repair` repairs logs damaged by a loss of power."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import split_table_name
from sluice.cli.printing import AsJson, LeaseWait, PipelineName, confirm_repair, escaping_console, print_json
from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import load_pipeline_lake
from sluice.own_records import SET_ASIDE, name_own_record
from sluice.pipeline_stages import DELETIONS
from sluice.printable import count_noun, match_number
from sluice.runs.lease import lock
from sluice.runs.repair import lost_commits, restoring
from sluice.runs.repair.lost_commits import LogRepair
from sluice.settings import Settings

_TO = "A version, as in `sluice history`; or a date or instant (UTC)."


def repair(
    pipeline: PipelineName,
    table: Annotated[str | None, typer.Option(metavar="TABLE", help="Only this table.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Repair damaged logs: set aside a log's damaged files, and let the flows that write or read the table start anew."""
    settings = Settings.current()
    lake = load_pipeline_lake(settings, pipeline)
    found = lost_commits.find_log_repairs(lake, table)
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
        confirm_repair(f"Repairing logs of '{pipeline}'", "Repair?", yes)
        with lock.hold_lease_without_spark(lake.records, "repair", "Repair when it has ended."):
            for one in able:
                lost_commits.repair_table_log(lake, one)
    if as_json:
        print_json({"pipeline": pipeline, "repaired": bool(able), "tables": [_log_repair_as_object(one) for one in found]})
    refused = [one.refused for one in found if one.refused]
    if refused:
        raise SluiceError(" ".join(refused))
    if not as_json:
        following = "repair" if any(one.later for one in found) else "run"
        first = f"sluice run {pipeline} --stage {DELETIONS.name}; then: " if any(one.erased_again for one in found) else ""
        escaping_console().print(f"Done. Run: {first}sluice {following} {pipeline}", soft_wrap=True)


def _describe_log_repair(pipeline: str, found: LogRepair) -> str:
    """What is damaged, what the repair will do, and what is left to do afterwards."""
    since = f" Commits after {found.since:%Y-%m-%d %H:%M:%S} UTC are lost." if found.since else ""
    lines = [f"{pipeline}.{found.table}: {', '.join(map(str, found.damage))}.{since}"]
    if found.refused:
        return lines[0]
    instead = "; a commit that changes nothing takes their place" if any(one.is_commit for one in found.damage) else ""
    lines.append(f"  The damaged files go to {name_own_record(SET_ASIDE)}{instead}.")
    if found.later:
        later = ", ".join(map(str, found.later))
        lines.append(
            f"  The next repair takes {later}: without the cut checkpoint it finds what was lost. Repeat: sluice repair {pipeline}"
        )
        return "\n".join(lines)
    names = [name for name in found.anew if name not in found.streams]
    if names:
        lines.append(f"  These flows start anew in the next run: {', '.join(names)}.")
    for name in found.streams:
        remedy = f"sluice run {pipeline} --mode refresh --table {name}"
        lines.append(f"  '{name}' is a stream with state, which does not start over by itself. Start it over: {remedy}")
    for source, numbers in found.lost.items():
        told = ", ".join(map(str, numbers))
        lines.append(f"  Deliveries of '{source}' that are read again from the landing folder: {told}.")
    if found.erased_again:
        told = ", ".join(found.erased_again)
        lines.append(f"  People of these erasure requests may be back and are erased again before anything is read: {told}.")
    if not found.anew and instead:
        lines.append("  No flow makes this table, so its rows of that time are lost.")
    return "\n".join(lines)


def _log_repair_as_object(found: LogRepair) -> dict[str, Any]:
    return {
        "table": found.table,
        "damaged": [str(one) for one in found.damage],
        "since": found.since,
        "anew": [name for name in found.anew if name not in found.streams],
        "streams": list(found.streams),
        "read_again": {source: list(numbers) for source, numbers in found.lost.items()},
        "erased_again": list(found.erased_again),
        "refused": found.refused,
        "next_repair": [str(one) for one in found.later],
    }


def restore(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="<pipeline>.<table>, above bronze.")],
    to: Annotated[str, typer.Option("--to", metavar="VERSION|DATE", help=_TO)],
    wait: LeaseWait = 0.0,
    as_json: AsJson = False,
) -> None:
    """Bring a table back to a version, without people erased since. Tables that read it follow in the next run."""
    settings = Settings.current()
    pipeline, table = split_table_name(settings, name)
    lake = load_pipeline_lake(settings, pipeline)
    report = restoring.run_table_restore(lake, table, to, wait)
    if as_json:
        print_json(report)
        return
    flow = report["flows"][0]
    escaping_console().print(f"{name}: {flow['note']}", soft_wrap=True)
    if not report["committed"]:
        return
    counts = ", ".join(f"{count_noun(flow[of], 'row')} {of}" for of in ("inserted", "updated", "deleted") if flow[of])
    left = (
        f"; {count_noun(flow['suppressed'], 'row')} of people who were erased since {match_number(flow['suppressed'], 'stays', 'stay')} out"
        if flow["suppressed"]
        else ""
    )
    escaping_console().print(f"{counts}{left}.", soft_wrap=True)
    escaping_console().print(
        f"{restoring.describe_restore_effects(lake.graph[table])}All of it: sluice run {pipeline} --mode refresh --table {table}.\n"  # type: ignore[arg-type]
        f"What reads it follows in the next run: sluice run {pipeline}",
        soft_wrap=True,
    )
