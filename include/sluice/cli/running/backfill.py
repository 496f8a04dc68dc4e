"""`sluice backfill`: replays days with today's code, through Airflow or, with --local, by spark-submit alone."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, time
from typing import Annotated, Any

import typer

from orchestration.backfill import through_airflow as backfills
from orchestration.backfill.through_airflow import BackfillRequest, BackfillRun
from sluice.cli.printing import AsJson, OnlyTables, PipelineName, escaping_console, print_json, print_rows
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.interval import Interval
from sluice.declare.schedule_intervals import data_intervals_replaying, whole_days_replayed
from sluice.errors import LeaseHeld, SluiceError, StopRequested, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import tasks_of_pipeline
from sluice.printable import count_noun
from sluice.runs.lease import holder
from sluice.settings import Settings

INTERRUPTED = 130
SHOWN = 31
_LOCAL_RUN = "local-"
"""What the id of a run without Airflow begins with."""


@dataclass(frozen=True)
class _BackfillOptions:
    """The options of a backfill."""

    per_interval: bool
    local: bool
    wait: bool


def backfill(
    pipeline: PipelineName,
    start: Annotated[str | None, typer.Option("--from", metavar="DAY", help="The first day (UTC).")] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="DAY", help="The last day, included.")] = None,
    table: OnlyTables = None,
    per_interval: Annotated[bool, typer.Option("--per-interval", help="One run an interval, by Airflow's backfill.")] = False,
    local: Annotated[bool, typer.Option("--local", help="Without Airflow: spark-submit, stage by stage.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the runs that would be made.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the end of the runs.")] = True,
    cancel: Annotated[bool, typer.Option("--cancel", help="End the pipeline's backfills instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Replay days: derive every key that their rows touch again, with today's code. Exit code 1 if a run fails."""
    settings = Settings.current()
    records = PipelineRecords.of_known(settings, pipeline)
    if cancel:
        if start or end or table or per_interval or local or dry_run or as_json or not wait:
            raise UsageError(f"--cancel ends all backfills and replays of '{pipeline}' at once, and takes no other option.")
        _refuse_to_cancel_local_backfill(records)
        ended = backfills.cancel_backfills(settings, backfills.find_airflow_with_dag(settings, pipeline), pipeline)
        escaping_console().print(
            f"Ended {_format_run_count(ended)} of '{pipeline}'; what they committed stays." if ended else "Nothing to end."
        )
        return
    if local and not wait:
        raise UsageError("--local runs the jobs itself, so it waits for their end. Leave --no-wait out.")
    how = _BackfillOptions(per_interval, local, wait)
    asked = _plan_backfill(records, start, end, tuple(table or ()), how)
    _announce_backfill(asked, how, listing=dry_run)
    found = [] if dry_run else _run_backfill(settings, asked, how)
    if as_json:
        _print_backfill_json(asked, how, found)
    failed = [run for run in found if run.state != "success"]
    if failed:
        first = failed[0]
        where = f", task '{first.task}': {first.reason}" if first.task else f": {first.reason or first.state}"
        raise SluiceError(
            f"{len(failed)} of {_format_run_count(len(found))} failed; the first is that of {first.interval}{where}"
        )


def _plan_backfill(
    records: PipelineRecords, start: str | None, end: str | None, tables: tuple[str, ...], how: _BackfillOptions
) -> BackfillRequest:
    """The backfill that the arguments describe. Raises UsageError for wrong names and dates."""
    graph = load_declaration_graph(records.settings, records.pipeline)
    for name in tables:
        graph[name]  # refuses an unknown one, with the nearest
    if not (start and end):
        raise UsageError("Say which days: --from FIRST_DAY --to LAST_DAY, as in --from 2026-01-01 --to 2026-01-31")
    days = Interval.of(start, end)
    if not days.start.time() == days.end.time() == time():
        raise UsageError("A backfill takes whole days (UTC): write --from and --to as 2026-01-31, without a time.")
    now = datetime.now(UTC)
    if days.start >= now:
        raise UsageError(f"{days} lies in the future. Today is {now.date()} (UTC).")
    if not how.per_interval:
        return BackfillRequest(records.pipeline, days, tables, (days,))
    every = data_intervals_replaying(graph.pipeline.schedule, days)
    runs = tuple(one for one in every if one.end < now)
    if len(runs) < len(every):
        first = every[len(runs)]
        over = f"{first.end:%Y-%m-%d %H:%M} UTC"
        escaping_console().print(
            f"Left out, since not over yet: {_format_run_count(len(every) - len(runs))}; "
            f"the first, {whole_days_replayed(first)}, is at {over}."
        )
    if not runs:
        raise UsageError(
            f"No interval in {days} is over yet. One run over the range takes what is there: leave --per-interval out."
        )
    return BackfillRequest(records.pipeline, days, tables, runs)


def _refuse_to_cancel_local_backfill(records: PipelineRecords) -> None:
    """Raises SluiceError if a backfill without Airflow writes the pipeline now: only its own terminal, or `sluice stop`, ends it."""
    found = holder.find_lease_holder(records)
    if found is not None and found.run.startswith(_LOCAL_RUN):
        raise SluiceError(
            f"A backfill with --local goes on, as {found}. End it with Ctrl-C where it was started, or: sluice stop {records.pipeline}"
        )


def _announce_backfill(asked: BackfillRequest, how: _BackfillOptions, *, listing: bool) -> None:
    printed = escaping_console()
    tables = f"tables {', '.join(asked.tables)}, and what they are made from" if asked.tables else "all tables"
    by = "by spark-submit" if how.local else "by Airflow"
    form = "one an interval, one after the other" if how.per_interval else "over the whole range at once"
    printed.print(
        f"{_format_run_count(len(asked.runs)).capitalize()} of '{asked.pipeline}' {by}, {form}: replay of {asked.days}, {tables}."
    )
    if asked.days.end > datetime.now(UTC) and not how.per_interval:
        printed.print("The last day is not over; its deliveries so far are replayed.")
    if how.per_interval and (more := _describe_time_beyond_days(asked)):
        printed.print(more)
    if listing:
        for one in asked.runs[:SHOWN]:
            printed.print(f"  {whole_days_replayed(one)}")
        if len(asked.runs) > SHOWN:
            printed.print(f"  ... and {len(asked.runs) - SHOWN} more")
        printed.print("Nothing was started.")


def _describe_time_beyond_days(asked: BackfillRequest) -> str:
    """What the runs replay besides the days; "" if nothing."""
    first, last = (whole_days_replayed(one) for one in (asked.runs[0], asked.runs[-1]))
    if asked.days.start <= first.start and last.end <= asked.days.end:
        return ""
    return f"The schedule's intervals reach beyond these days: together the runs replay {Interval(first.start, last.end)}."


def _run_backfill(settings: Settings, asked: BackfillRequest, how: _BackfillOptions) -> list[BackfillRun]:
    if how.local:
        found = _run_by_spark_submit(settings, asked)
    else:
        client = backfills.find_airflow_with_dag(settings, asked.pipeline)
        start = (
            backfills.start_backfill_per_interval(settings, client, asked)
            if how.per_interval
            else backfills.start_replay_of_range(client, asked)
        )
        found = _follow_airflow_runs(start) if how.wait else []
        if not how.wait:
            escaping_console().print(f"Started. Look: sluice runs {asked.pipeline}, or {client.address}")
            escaping_console().print(f"End it: {backfills.backfill_cancel_command(asked.pipeline)}")
    if found:
        rows = [
            {
                "run": run.run,
                "interval": str(run.interval),
                "state": run.state,
                "seconds": _round_seconds(run.seconds),
                "rows": run.rows,
            }
            for run in found
        ]
        print_rows(rows, ("run", "interval", "state", "seconds", "rows"), "What each run did (rows: written or taken out)")
    return found


def _follow_airflow_runs(started: backfills.StartedBackfill) -> list[BackfillRun]:
    found: list[BackfillRun] = []
    printed = escaping_console()
    try:
        with printed.status("Waiting for Airflow ...") as status:
            for event in backfills.follow_backfill_runs(started):
                if isinstance(event, str):
                    status.update(event)
                    continue
                found.append(event)
                printed.print(_describe_run(event), soft_wrap=True)
    except KeyboardInterrupt:
        printed.print(f"\nThe runs go on by themselves. To end them: {backfills.backfill_cancel_command(started.dag)}")
        raise typer.Exit(INTERRUPTED) from None
    return found


def _run_by_spark_submit(settings: Settings, asked: BackfillRequest) -> list[BackfillRun]:
    tasks = tasks_of_pipeline(load_declaration_graph(settings, asked.pipeline).pipeline)
    found: list[BackfillRun] = []
    for one in asked.runs:
        last = one == asked.runs[-1]
        # As in Airflow: file layout once, at the end.
        wanted = [stage.name for stage in tasks if last or not stage.once_in_backfill]
        run = _submit_interval(settings, asked, wanted, whole_days_replayed(one), last=last)
        escaping_console().print(_describe_run(run), soft_wrap=True)
        found.append(run)
    return found


def _submit_interval(
    settings: Settings, asked: BackfillRequest, stages: list[str], interval: Interval, *, last: bool
) -> BackfillRun:
    run, rows, seconds = f"{_LOCAL_RUN}{uuid.uuid4().hex[:12]}", 0, 0.0
    printed = escaping_console()
    done: list[str] = []
    try:
        with printed.status(f"{stages[0]} of {interval} ...") as status:
            for stage, took, report in backfills.replay_by_spark_submit(
                PipelineRecords(settings, asked.pipeline), run, stages, interval, asked.tables, runs_follow=not last
            ):
                changed = sum(flow.get("rows_out") or 0 for flow in report.get("flows", ()))
                printed.print(f"  {stage:<20}{took:>6.1f} s   {count_noun(changed, 'row')}")
                rows, seconds = rows + changed, seconds + took
                done.append(stage)
                status.update(f"{stages[min(len(done), len(stages) - 1)]} of {interval} ...")
    except KeyboardInterrupt:
        printed.print("\nStopped before the job's next batch. What is committed stays; the same command does all of it again.")
        raise typer.Exit(INTERRUPTED) from None
    except (UsageError, LeaseHeld):
        raise
    except StopRequested:
        raise SluiceError(
            "Somebody asked the job to stop. What is committed stays; the same command does all of it again."
        ) from None
    except SluiceError as error:
        return BackfillRun(run, interval, "failed", seconds, rows, stages[len(done)], str(error))
    return BackfillRun(run, interval, "success", seconds, rows)


def _describe_run(run: BackfillRun) -> str:
    told = count_noun(run.rows, "row") if run.state == "success" and run.rows is not None else run.reason
    task = f"task '{run.task}': " if run.task else ""
    seconds = f"{run.seconds:.0f} s" if run.seconds is not None else ""
    return f"  {run.interval!s:<24}  {run.state:<8} {seconds:>6}   {task}{told}".rstrip()


def _print_backfill_json(asked: BackfillRequest, how: _BackfillOptions, found: list[BackfillRun]) -> None:
    runs = [{**asdict(run), "interval": str(run.interval)} for run in found]
    planned = [str(whole_days_replayed(one)) for one in asked.runs]
    told: dict[str, Any] = {"pipeline": asked.pipeline, "days": str(asked.days), "tables": list(asked.tables)}
    print_json({**told, "per_interval": how.per_interval, "planned": planned, "runs": runs})


def _format_run_count(count: int) -> str:
    return count_noun(count, "run")


def _round_seconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 1)
