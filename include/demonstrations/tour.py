"""`sluice tour`: runs a DAG through a real Airflow, and shows what each run did and whether the tables are right.

It also knows which folders a tour fills, and whether existing ones hold only what a tour left: it empties no others.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from demonstrations.tour_report import (
    TourRun,
    compare_with_truth,
    print_quarantine_reasons,
    print_recompute_verdicts,
    print_rewritten_tables,
    print_rule_failures,
    print_sample_rows,
    print_table_versions,
    print_tour_runs,
    print_truth_verdicts,
)
from orchestration.local import LOGIN, Client, LocalAirflow, airflow_line, local_airflow_password, wait_for_dag_of_checkout
from sluice.cli.monitoring.report import write_report
from sluice.cli.repair.quarantine import count_quarantined_by_reason
from sluice.cli.tables.read import query_delta_table
from sluice.declare import Pipeline
from sluice.declare.assembly import loading
from sluice.durable_files import write_json_durably
from sluice.errors import SluiceError
from sluice.locations import Location, is_on_disk, list_written_files, locate, remove_folder
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import VERIFY, VERIFY_ALL, tasks_of_pipeline
from sluice.printable import count_noun
from sluice.run_modes import INCREMENT
from sluice.runs import run_ledger
from sluice.runs.status.run_times import select_run_rows
from sluice.settings import Settings

Leg = tuple[str, dict[str, object] | None]
"""A run's title, and the maker's options for what it lands before the run; None: nothing."""

LEGS: tuple[Leg, ...] = (("first days", {"days": 3}), ("one more day", {"days": 1}), ("nothing new", None))
"""The tour of a pipeline whose maker has no TOUR and makes deliveries by the day."""

LEGS_WITHOUT_DAYS: tuple[Leg, ...] = (("all there is", {}), ("nothing new", None))

START_SECONDS = 15
TASK_SECONDS = 10
LOG_LINES = 15


def run_tour(settings: Settings, console: Console, name: str, from_path: Path | None) -> None:
    """Land deliveries and run the DAG, leg by leg; print what happened.

    from_path: where a maker takes real deliveries from. Raises SluiceError if a run fails or the tables
    are not what the maker expects. Airflow is stopped in any case.
    """
    records = PipelineRecords(settings, name)
    pipeline = loading.load_pipeline_declaration(settings, name)
    maker = loading.load_delivery_maker(pipeline)
    by_day = "days" in inspect.signature(maker.land).parameters
    legs: tuple[Leg, ...] = getattr(maker, "TOUR", LEGS if by_day else LEGS_WITHOUT_DAYS)
    tasks = len(tasks_of_pipeline(pipeline))
    minutes = max(1, round((START_SECONDS + len(legs) * tasks * TASK_SECONDS) / 60))
    console.print(f"{count_noun(len(legs), 'run')} of the DAG '{name}' through Airflow, {tasks} tasks each.")
    console.print(f"On two cores this takes about {count_noun(minutes, 'minute')}.")
    own = clear_tour_folders(settings, console, name)
    try:
        runs = _run_legs(settings, console, pipeline, maker, legs, from_path)
    finally:
        write_tour_marker(settings, name, own=own)
    print_tour_runs(console, runs)
    print_rule_failures(console, runs)
    print_quarantine_reasons(console, count_quarantined_by_reason(records))
    print_table_versions(console, run_ledger.list_pipeline_tables(records))
    print_rewritten_tables(console, run_ledger.read_run_ledger(records))
    _print_maker_rows(records, console, maker)
    differs = _print_truth_comparison(records, console, maker)
    print_recompute_verdicts(console, runs[-1].compared())
    _print_sight(settings, console, name)
    _print_next_commands(settings, console, pipeline)
    for (title, landing), run in zip(legs, runs, strict=True):
        if landing is None and (changed := run.changed(*run.layers)):
            raise SluiceError(f"The run '{title}' had nothing to read and changed {', '.join(changed)}.")
    if differs:
        raise SluiceError(f"These tables differ from what the maker of the deliveries expects: {', '.join(differs)}.")


def _run_legs(
    settings: Settings,
    console: Console,
    pipeline: Pipeline,
    maker: ModuleType,
    legs: tuple[Leg, ...],
    from_path: Path | None,
) -> list[TourRun]:
    _land_leg(settings, console, pipeline, maker, legs[0], from_path)  # so that wrong use shows before Airflow starts
    with console.status("Starting Airflow ..."):
        airflow = LocalAirflow(settings, idle_schedule=True)
        client = airflow.start()
    try:
        login = f"log in as {LOGIN} / {local_airflow_password(settings)}"
        console.print(f"\nAirflow is at {client.address}, {login}", highlight=False)
        _unpause_dag(settings, client, pipeline.name)
        started, runs = int(time.time()), []
        for number, leg in enumerate(legs, start=1):
            if number > 1:
                _land_leg(settings, console, pipeline, maker, leg, from_path)
            run = f"tour-{started}-{number}"
            console.print(f"\nRun {number}: {leg[0]}", style="bold")
            last = {VERIFY.name: VERIFY_ALL} if number == len(legs) else {}
            client.trigger(pipeline.name, run, {"mode": INCREMENT.name, **last})
            runs.append(_follow_dag_run(client, console, pipeline, run, leg[0]))
        client.pause(pipeline.name, True)  # or `up` would start a scheduled run at once
        return runs
    finally:
        airflow.stop()


def _land_leg(
    settings: Settings,
    console: Console,
    pipeline: Pipeline,
    maker: ModuleType,
    leg: Leg,
    from_path: Path | None,
) -> None:
    """Let the maker put deliveries into the landing folder. Raises UsageError for an unknown option."""
    if leg[1] is None:
        return
    given = dict(leg[1]) if from_path is None else {**leg[1], "from_path": from_path}
    landed = loading.make_deliveries(settings, pipeline.name, maker, given)
    console.print(f"\nLanded {count_noun(landed.files, 'file')}, {landed.deleted:,} removed, up to {landed.until}.")


def _unpause_dag(settings: Settings, client: Client, dag: str) -> None:
    wait_for_dag_of_checkout(settings, client, dag)
    client.end_open_runs(dag)
    client.pause(dag, False)


def _follow_dag_run(client: Client, console: Console, pipeline: Pipeline, run: str, title: str) -> TourRun:
    """Print each task as it ends, and return when the run has ended. Raises SluiceError at the first failure."""
    result, dag, stages = TourRun(title), pipeline.name, [task.name for task in tasks_of_pipeline(pipeline)]
    with console.status("  waiting for Airflow ...") as status:
        while True:
            state = client.run_state(dag, run)  # asked first: if the run has ended, all its tasks have
            tasks = client.tasks(dag, run)
            for name, task in tasks.items():
                if task["state"] in ("failed", "up_for_retry"):
                    raise _task_failure(client, dag, run, name, task)
            for stage in stages:
                task = tasks.get(stage, {})
                if task.get("state") == "running":
                    status.update(f"  {stage} ...")
                if task.get("state") == "success" and stage not in result.seconds:
                    result.seconds[stage] = task["duration"] or 0.0
                    result.reports[stage] = client.result(dag, run, stage) or {}
                    console.print(result.line(stage), highlight=False, soft_wrap=True)
            if state == "success" and len(result.seconds) == len(stages):
                return result
            if state not in ("queued", "running"):
                raise SluiceError(f"The run '{title}' ended as {state}; done: {', '.join(result.seconds)}.")
            time.sleep(0.5)


def _task_failure(client: Client, dag: str, run: str, name: str, task: dict[str, Any]) -> SluiceError:
    log = client.log(dag, run, name, max(1, task.get("try_number") or 1))
    lines = [line for line in log if not line.startswith("::")]  # marks of groups that the UI folds
    tail = "\n".join(f"  {line}" for line in lines[-LOG_LINES:])
    return SluiceError(f"Task '{name}' of '{dag}' failed. The end of its log:\n{tail}")


def _print_truth_comparison(records: PipelineRecords, console: Console, maker: ModuleType) -> list[str]:
    """Print the comparison with the maker's expectations, and return the tables that differ."""
    if not hasattr(maker, "expected"):
        console.print("\nThe maker of these deliveries does not know what the tables must hold.")
        return []
    truth = maker.expected(records.settings.truth / records.pipeline)
    present = {found["table"] for found in run_ledger.list_pipeline_tables(records)}
    verdicts = [
        compare_with_truth(table, rows, run_ledger.read_table_rows(records, table) if table in present else [])
        for table, rows in truth.items()
    ]
    print_truth_verdicts(console, verdicts)
    return [verdict.table for verdict in verdicts if not verdict.equal]


def _print_maker_rows(records: PipelineRecords, console: Console, maker: ModuleType) -> None:
    """Print the rows that the maker wants to show. TO_SHOW: a title, a table, and a query over it, in which its name is t."""
    if hasattr(maker, "TO_SHOW"):
        title, table, text = maker.TO_SHOW
        present = {found["table"] for found in run_ledger.list_pipeline_tables(records)}
        print_sample_rows(
            console, title, query_delta_table(run_ledger.find_table_path(records, table), text) if table in present else []
        )


def _print_sight(settings: Settings, console: Console, name: str) -> None:
    """Print where the time of the longest run went, and the path of the report page."""
    rows = run_ledger.read_run_ledger(PipelineRecords(settings, name))
    runs = [run for one in dict.fromkeys(row["run"] for row in rows) if (run := select_run_rows(rows, one)) is not None]
    if runs:
        longest = max(runs, key=lambda run: run.seconds)
        console.print(f"\nWhere the time went: {longest.headline}", highlight=False, soft_wrap=True)
    console.print(f"A page to look at: {write_report(settings, name)}", highlight=False, soft_wrap=True)


def _print_next_commands(settings: Settings, console: Console, pipeline: Pipeline) -> None:
    shown = pipeline.publishes[0] if pipeline.publishes else "..."
    console.print("\nAirflow has stopped. Next:")
    sluice = f"{Path(sys.prefix).name}/bin/sluice"
    up = "make up AIRFLOW=2" if airflow_line() == 2 else "make up"
    for command, what in (
        (f'{sluice} sql "SELECT * FROM {pipeline.name}.{shown} LIMIT 5"', ""),
        (f"{sluice} history {pipeline.name}", ""),
        (f"{sluice} why {pipeline.name}", "   # where the time of the last run went"),
        (up, f"   # Airflow's UI; log in as {LOGIN} / {local_airflow_password(settings)}"),
    ):
        console.print(f"  {command}{what}", highlight=False, soft_wrap=True)


def clear_tour_folders(settings: Settings, console: Console, name: str) -> bool:
    """Empty the folders that hold only what an earlier tour left. Returns whether all are empty now."""
    folders = _tour_folders(settings, name)
    if not any(folder.exists() and any(folder.iterdir()) for folder in folders):
        return True
    marker = _tour_marker_path(settings, name)
    names = ", ".join(str(folder) for folder in folders)
    if marker.exists() and json.loads(marker.read_text()) == _fingerprint_tour_folders(settings, name):
        for folder in folders:
            remove_folder(folder)
        console.print(f"Emptied what the last tour left: {names}", highlight=False, soft_wrap=True)
        return True
    console.print(f"These hold more than a tour left, so this one continues from them: {names}", highlight=False, soft_wrap=True)
    console.print("Remove them all for a tour from the start.")
    return False


def write_tour_marker(settings: Settings, name: str, *, own: bool) -> None:
    """Record what the tour leaves if all of it is its own, so that the next tour can see whether it was used since."""
    marker = _tour_marker_path(settings, name)
    if not own:
        marker.unlink(missing_ok=True)
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(marker, _fingerprint_tour_folders(settings, name))


def _tour_folders(settings: Settings, name: str) -> list[Location]:
    return [locate(settings.lake, name), settings.restricted / name, settings.landing / name, settings.truth / name]


def _tour_marker_path(settings: Settings, name: str) -> Path:
    return settings.state / "tours" / f"{name}.json"


def _fingerprint_tour_folders(settings: Settings, name: str) -> dict[str, object]:
    """The folders, and how much is in them, which every use of a lake or landing folder changes."""
    folders = _tour_folders(settings, name)
    changes = [at for folder in folders for at in _list_change_instants(folder)]
    return {"folders": [str(folder) for folder in folders], "files": len(changes), "newest": max(changes, default=0)}


def _list_change_instants(folder: Location) -> Iterator[int]:
    """The time of each file's last change, in nanoseconds since 1970."""
    if is_on_disk(folder):
        yield from (path.stat().st_ctime_ns for path in folder.rglob("*") if path.is_file())
    else:
        yield from (int(seconds * 1e9) for _, seconds in list_written_files(folder))
