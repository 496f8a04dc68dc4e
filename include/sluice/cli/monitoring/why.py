"""`sluice why`: where the time of a run went, and what would help; read from the run ledger without a JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from sluice.cli.name_lookup import select_pipelines
from sluice.cli.printing import AsJson, Limit, escaping_console, format_instant, print_json, print_rows
from sluice.errors import UsageError, nearest_name_hint
from sluice.flows.progress.stream_numbers import STREAM_SECONDS
from sluice.pipeline_records import PipelineRecords
from sluice.printable import format_seconds, format_size
from sluice.runs import run_ledger
from sluice.runs.run_ledger import Row
from sluice.runs.status.diagnosis import diagnose_run
from sluice.runs.status.run_times import OTHER, RunTimes, select_run_rows
from sluice.settings import Settings
from sluice.step_times import FLOW_STEPS, STAGE_STEPS

_OF_TABLE = ("seconds", *FLOW_STEPS, OTHER, "jobs", "rows_in", "rows_out", "read", "written", "written_by", "files", "recomputed")


def why(
    of: Annotated[
        str | None,
        typer.Argument(metavar="[PIPELINE | PIPELINE.TABLE]", help="A pipeline or table; otherwise the pipeline that ran last."),
    ] = None,
    run: Annotated[str | None, typer.Option("--run", help="This run; otherwise the last one.")] = None,
    limit: Limit = 12,
    as_json: AsJson = False,
) -> None:
    """Say where the time of a run went, and what would help. For a table, show its last runs."""
    settings = Settings.current()
    pipeline, _, table = (of or "").partition(".")
    known = {
        name: run_ledger.read_run_ledger(PipelineRecords(settings, name)) for name in select_pipelines(settings, pipeline or None)
    }
    latest = max((rows[-1] for rows in known.values() if rows), key=lambda row: row["ended_at"], default=None)
    if latest is None:
        if as_json:
            print_json({"run": None})
        else:
            escaping_console().print("Nothing has been run yet. Run: sluice run PIPELINE", soft_wrap=True)
        return
    rows = known[latest["pipeline"]]
    runs = list(dict.fromkeys(row["run"] for row in rows))
    if run is not None and run not in runs:
        raise UsageError(f"'{latest['pipeline']}' has no run '{run}'.{nearest_name_hint(run, runs)} sluice runs lists them.")
    found = _select_table_runs(rows, table) if table else None
    chosen = select_run_rows(rows, run or (found[-1]["run"] if found else None))
    if chosen is None:
        raise UsageError(f"There is no run '{run}'.")
    if found is not None:
        _print_table(latest["pipeline"], table, found[-limit:][::-1], chosen, as_json)
    elif as_json:
        print_json({**_describe_run(chosen), "stages": chosen.stages, "tables": chosen.tables, **_describe_findings(chosen)})
    else:
        _print_run(chosen, limit)


def _select_table_runs(rows: list[Row], table: str) -> list[Row]:
    found = [row for row in rows if row["flow"] == table and row["seconds"]]
    if not found:
        raise UsageError(
            f"No run has done anything to a table '{table}'.{nearest_name_hint(table, {row['flow'] for row in rows})}"
        )
    return found


def _describe_run(run: RunTimes) -> dict[str, Any]:
    first = run.rows[0]
    return {
        "pipeline": first["pipeline"],
        "run": run.run,
        "mode": first["mode"],
        "started_at": format_instant(first["started_at"]),
        "seconds": run.seconds,
    }


def _describe_findings(run: RunTimes) -> dict[str, Any]:
    return {"findings": [asdict(finding) for finding in diagnose_run(run)]}


def _print_run(run: RunTimes, limit: int) -> None:
    printed = escaping_console()
    head = _describe_run(run)
    printed.print(
        f"{head['pipeline']}, run {head['run']} ({head['mode']}), {head['started_at']} UTC: {head['seconds']} s", style="bold"
    )
    print_rows(run.stages, ("stage", "state", "seconds", "cpu_seconds", *STAGE_STEPS, OTHER), title="Seconds by stage")
    if run.tables:
        title = "Seconds by table (several run side by side, so they do not add up to those of the stage)"
        print_rows(run.tables[:limit], ("table", "stage", *_OF_TABLE), title=title)
        if len(run.tables) > limit:
            printed.print(f"... and {len(run.tables) - limit} that took less; --limit shows more")
        _print_streams("table", run.tables[:limit])
    _print_findings(run)


def _print_table(pipeline: str, table: str, rows: list[Row], last: RunTimes, as_json: bool) -> None:
    """rows: the run ledger's rows of the table, newest first. last: the run whose findings are printed."""
    shown = [
        {**one, "run": row["run"], "ended_at": format_instant(row["ended_at"])}
        for row in rows
        for one in RunTimes(row["run"], [row]).tables
    ]
    ours = RunTimes(last.run, [row for row in last.rows if row["flow"] == table])
    if as_json:
        print_json({"pipeline": pipeline, "table": table, "runs": shown, **_describe_findings(ours)})
        return
    print_rows(shown, ("ended_at", "run", "stage", *_OF_TABLE), title=f"{pipeline}.{table}: seconds of its last runs (UTC)")
    _print_streams("run", shown)
    _print_findings(ours)


def _print_streams(what: str, tables: Sequence[Mapping[str, Any]]) -> None:
    """Prints a line for each stream with a batch. what: the column that distinguishes the lines."""
    rows = [{what: one[what], **_describe_stream(one["stream"])} for one in tables if one["stream"]]
    if rows:
        print_rows(rows, (what, *dict.fromkeys(name for row in rows for name in row if name != what)), title="Streams")


def _describe_stream(numbers: Mapping[str, float]) -> dict[str, Any]:
    """Describes a stream's numbers. Seconds are sums of all batches, except those of the longest batch."""
    seconds = numbers.get("seconds", 0.0)
    state, lag = numbers.get("state_bytes"), numbers.get("watermark_lag_seconds")
    found = {
        "batches": round(numbers["batches"]),
        "input rows": round(numbers.get("input_rows", 0)),
        "a second": round(numbers.get("input_rows", 0) / seconds, 1) if seconds else None,
        "seconds": seconds,
        "longest": numbers.get("longest_batch_seconds"),
        **{name.removesuffix("_seconds"): numbers.get(name) for name in STREAM_SECONDS.values()},
        "state rows": round(numbers["state_rows"]) if "state_rows" in numbers else None,
        "state": format_size(round(state)) if state else None,
        "dropped": numbers.get("dropped_rows"),
        "watermark behind": format_seconds(lag) if lag else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _print_findings(run: RunTimes) -> None:
    printed = escaping_console()
    found = diagnose_run(run)
    printed.print(
        "\nWhat would help" if found else "\nNothing stands out: no declaration or setting would help much.", style="bold"
    )
    for finding in found:
        printed.print(f"* {finding.subject}: {finding.found}.\n  {finding.rule}: {finding.remedy}.", soft_wrap=True)
