"""`sluice tour`: runs of a DAG through a real Airflow, what each did, and whether the tables are right."""

from __future__ import annotations

import inspect
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from rich.console import Console

from orchestration.local import LOGIN, Client, LocalAirflow, airflow_line, password
from sluice.cli.repair.quarantine import by_reason
from sluice.cli.tables.read import query
from sluice.cli.tour.folders import leave_marker, starts_afresh
from sluice.cli.tour.report import (
    Run,
    print_quarantine,
    print_recomputes,
    print_rules,
    print_runs,
    print_shown,
    print_tables,
    print_verdicts,
)
from sluice.cli.tour.truth import compare
from sluice.declare import Landed, Pipeline
from sluice.declare.assembly import loading
from sluice.errors import SluiceError, UsageError
from sluice.runs import ledger
from sluice.runs.modes import AFTER_LAYERS
from sluice.settings import Settings

Leg = tuple[str, dict[str, object] | None]
"""A run's title, and what the maker is told to land before it; None: nothing."""

LEGS: tuple[Leg, ...] = (("first days", {"days": 3}), ("one more day", {"days": 1}), ("nothing new", None))
"""The tour of a pipeline whose maker has no TOUR of its own, and makes deliveries by the day."""

LEGS_WITHOUT_DAYS: tuple[Leg, ...] = (("all there is", {}), ("nothing new", None))

START_SECONDS = 15
TASK_SECONDS = 18
LOG_LINES = 15
VERIFY_ALL = "all tables"
"""What the trigger form is told for the last run."""


def tour(settings: Settings, console: Console, name: str, from_path: Path | None) -> None:
    """Land deliveries and run the DAG, leg by leg; print what happened.

    from_path: where a maker takes real deliveries from. Raises SluiceError where a run fails or the tables
    are not what the maker says. Airflow is stopped either way.
    """
    pipeline = loading.pipeline(settings, name)
    maker = loading.maker(pipeline)
    by_day = "days" in inspect.signature(maker.land).parameters
    legs: tuple[Leg, ...] = getattr(maker, "TOUR", LEGS if by_day else LEGS_WITHOUT_DAYS)
    tasks = len(pipeline.layer_names) + len(AFTER_LAYERS)
    minutes = max(1, round((START_SECONDS + len(legs) * tasks * TASK_SECONDS) / 60))
    console.print(f"{len(legs)} runs of the DAG '{name}' through Airflow, {tasks} Spark jobs each.")
    console.print(f"On two cores this takes about {minutes} minutes.")
    own = starts_afresh(settings, console, name)
    try:
        runs = _runs(settings, console, pipeline, maker, legs, from_path)
    finally:
        leave_marker(settings, name, own=own)
    print_runs(console, runs)
    print_rules(console, runs)
    print_quarantine(console, by_reason(settings, name))
    print_tables(console, ledger.tables(settings, name))
    _show(settings, console, name, maker)
    differs = _against_truth(settings, console, name, maker)
    print_recomputes(console, runs[-1].compared())
    _print_next(settings, console, pipeline)
    for (title, landing), run in zip(legs, runs, strict=True):
        if landing is None and (changed := run.changed(*run.layers)):
            raise SluiceError(f"The run '{title}' had nothing to read and changed {', '.join(changed)}.")
    if differs:
        raise SluiceError(f"Not what the maker of the deliveries says they must be: {', '.join(differs)}.")


def _runs(
    settings: Settings,
    console: Console,
    pipeline: Pipeline,
    maker: ModuleType,
    legs: tuple[Leg, ...],
    from_path: Path | None,
) -> list[Run]:
    _land_leg(settings, console, pipeline, maker, legs[0], from_path)  # wrong use shows before Airflow starts
    with console.status("Starting Airflow ..."):
        airflow = LocalAirflow(settings, idle_schedule=True)
        client = airflow.start()
    try:
        login = f"log in as {LOGIN} / {password(settings)}"
        console.print(f"\nAirflow is at {client.address}, {login}", highlight=False)
        _unpause(client, pipeline.name)
        started, runs = int(time.time()), []
        for number, leg in enumerate(legs, start=1):
            if number > 1:
                _land_leg(settings, console, pipeline, maker, leg, from_path)
            run = f"tour-{started}-{number}"
            console.print(f"\nRun {number}: {leg[0]}", style="bold")
            last = {"verify": VERIFY_ALL} if number == len(legs) else {}
            client.trigger(pipeline.name, run, {"mode": "increment", **last})
            runs.append(_follow(client, console, pipeline, run, leg[0]))
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
    """Have the maker put deliveries into the landing folder. Raises UsageError for an unknown option."""
    if leg[1] is None:
        return
    given = dict(leg[1]) if from_path is None else {**leg[1], "from_path": from_path}
    for option in given.keys() - inspect.signature(maker.land).parameters.keys():
        raise UsageError(f"The maker of '{pipeline.name}' takes no --{option.removesuffix('_path')}.")
    landed = maker.land(settings.landing / pipeline.name, settings.truth / pipeline.name, **given)
    if not isinstance(landed, Landed):
        raise SluiceError(f"The maker of '{pipeline.name}' gave back no Landed(files, deleted, until).")
    console.print(f"\nLanded {landed.files:,} files, {landed.deleted:,} taken away, up to {landed.until}.")


def _unpause(client: Client, dag: str) -> None:
    deadline = time.monotonic() + 60
    while not client.has_dag(dag):
        if time.monotonic() > deadline:
            raise SluiceError(f"Airflow found no DAG '{dag}' within a minute. There must be a dags/{dag}.py.")
        time.sleep(0.5)
    client.end_open_runs(dag)
    client.pause(dag, False)


def _follow(client: Client, console: Console, pipeline: Pipeline, run: str, title: str) -> Run:
    """Print each task as it ends; return when the run has. Raises SluiceError at the first failure."""
    result, dag, stages = Run(title), pipeline.name, (*pipeline.layer_names, *AFTER_LAYERS)
    with console.status("  waiting for Airflow ...") as status:
        while True:
            state = client.run_state(dag, run)  # asked first: when it has ended, all tasks have
            tasks = client.tasks(dag, run)
            for name, task in tasks.items():
                if task["state"] in ("failed", "up_for_retry"):
                    raise _failure(client, dag, run, name, task)
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


def _failure(client: Client, dag: str, run: str, name: str, task: dict[str, Any]) -> SluiceError:
    log = client.log(dag, run, name, max(1, task.get("try_number") or 1))
    lines = [line for line in log if not line.startswith("::")]  # marks of groups that the UI folds
    tail = "\n".join(f"  {line}" for line in lines[-LOG_LINES:])
    return SluiceError(f"Task '{name}' of '{dag}' failed. The end of its log:\n{tail}")


def _against_truth(settings: Settings, console: Console, name: str, maker: ModuleType) -> list[str]:
    """Print the comparison with what the maker knows, and return the tables that differ."""
    if not hasattr(maker, "expected"):
        console.print("\nThe maker of these deliveries does not know what the tables must hold.")
        return []
    truth = maker.expected(settings.truth / name)
    present = {found["table"] for found in ledger.tables(settings, name)}
    verdicts = [
        compare(table, rows, ledger.rows(settings, name, table) if table in present else []) for table, rows in truth.items()
    ]
    print_verdicts(console, verdicts)
    return [verdict.table for verdict in verdicts if not verdict.equal]


def _show(settings: Settings, console: Console, name: str, maker: ModuleType) -> None:
    """Print the rows that the maker wants to be seen. TO_SHOW: a title, a table, and a query over it, in which it is called t."""
    if hasattr(maker, "TO_SHOW"):
        title, table, text = maker.TO_SHOW
        present = {found["table"] for found in ledger.tables(settings, name)}
        print_shown(console, title, query(ledger.path_of(settings, name, table), text) if table in present else [])


def _print_next(settings: Settings, console: Console, pipeline: Pipeline) -> None:
    shown = pipeline.publishes[0] if pipeline.publishes else "..."
    console.print("\nAirflow has stopped. Next:")
    sluice = f"{Path(sys.prefix).name}/bin/sluice"
    up = "make up AIRFLOW=2" if airflow_line() == 2 else "make up"
    for command, what in (
        (f'{sluice} sql "SELECT * FROM {pipeline.name}.{shown} LIMIT 5"', ""),
        (f"{sluice} history {pipeline.name}", ""),
        (up, f"   # Airflow's UI; log in as {LOGIN} / {password(settings)}"),
    ):
        console.print(f"  {command}{what}", highlight=False, soft_wrap=True)
