"""Backfills through the running Airflow: one replay of a whole range, or one run an interval. Imports no Airflow."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestration.backfill.checks import (
    backfill_cancel_command,
    find_active_backfills,
    find_airflow_with_dag,
    refuse_open_runs,
    refuse_paused_dag,
    refuse_second_backfill,
)
from orchestration.backfill.process import refuse_second_process, start_backfill_process, stop_backfill_process
from orchestration.backfill.runs import (
    ENDED,
    BackfillRun,
    DagRunEntry,
    backfill_run_outcome,
    describe_running_task,
    read_dag_run,
    read_dag_runs_by_start,
)
from orchestration.backfill.without_airflow import replay_by_spark_submit
from orchestration.dag_run import data_intervals_replaying, whole_days_replayed
from orchestration.line import airflow_line
from orchestration.rest.client import OPEN_STATES, Client, dag_run_path
from sluice.declare.interval import Interval
from sluice.errors import SluiceError
from sluice.settings import Settings

__all__ = [
    "BackfillRequest",
    "BackfillRun",
    "StartedBackfill",
    "backfill_cancel_command",
    "cancel_backfills",
    "data_intervals_replaying",
    "find_airflow_with_dag",
    "follow_backfill_runs",
    "replay_by_spark_submit",
    "start_backfill_per_interval",
    "start_replay_of_range",
    "whole_days_replayed",
]

POLL_SECONDS = 1.0


@dataclass(frozen=True)
class BackfillRequest:
    """A backfill of days. tables: empty means all. runs: the data intervals of its runs; one for a run over the whole range."""

    pipeline: str
    days: Interval
    tables: tuple[str, ...]
    runs: tuple[Interval, ...]


@dataclass(frozen=True)
class StartedBackfill:
    """A backfill that runs by itself. find: its runs in Airflow, by data interval. goes_on: whether more runs may come."""

    dag: str
    client: Client
    runs: tuple[Interval, ...]
    find: Callable[[], dict[Interval, DagRunEntry]]
    goes_on: Callable[[], bool]


def start_replay_of_range(client: Client, asked: BackfillRequest) -> StartedBackfill:
    """Trigger one run that replays the whole range. Raises SluiceError if the DAG is paused or does not exist."""
    refuse_paused_dag(client, asked.pipeline)
    first, last = str(asked.days.start.date()), str(asked.days.days()[-1].start.date())
    run = f"replay-{first}-{last}-{uuid.uuid4().hex[:8]}"  # whoever else asks for these days has a run of their own
    conf = {"mode": "replay", "from_date": first, "to_date": last, "tables": list(asked.tables)}
    client.trigger(asked.pipeline, run, conf)
    return StartedBackfill(
        asked.pipeline, client, asked.runs, lambda: {asked.days: read_dag_run(client, asked.pipeline, run)}, lambda: False
    )


def start_backfill_per_interval(settings: Settings, client: Client, asked: BackfillRequest) -> StartedBackfill:
    """Let Airflow make a run for each interval, one after the other, also for those that ran already; only the last run does upkeep.

    Raises SluiceError if the runs could not start.
    """
    dag, runs = asked.pipeline, asked.runs
    conf: dict[str, Any] = {"tables": list(asked.tables), "upkeep_from": runs[-1].end.isoformat()}
    begun = datetime.now(UTC)

    def find() -> dict[Interval, DagRunEntry]:
        found = read_dag_runs_by_start(client, dag, runs[0].start, runs[-1].start)
        return {one: found[one.start] for one in runs if one.start in found}

    if airflow_line() == 2:
        refuse_second_process(settings, dag)
        if client.is_paused(dag):
            refuse_open_runs(dag, client.runs(dag, *OPEN_STATES))
        process = start_backfill_process(settings, dag, runs[0].start, runs[-1].start, conf)

        def find_since() -> dict[Interval, DagRunEntry]:
            # Until the process takes it up, a day's earlier run still looks as before.
            return {one: entry for one, entry in find().items() if (entry.started or begun) >= begun}

        return StartedBackfill(dag, client, runs, find_since, lambda: process.poll() is None)
    refuse_paused_dag(client, dag)
    refuse_second_backfill(client, dag)
    refuse_open_runs(dag, [entry.told for entry in find().values() if entry.state in OPEN_STATES])
    wanted = {
        "dag_id": dag,
        "from_date": runs[0].start.isoformat(),
        "to_date": runs[-1].start.isoformat(),
        "dag_run_conf": conf,
        "reprocess_behavior": "completed",
        "max_active_runs": 1,
    }
    try:
        client.request("POST", "/backfills", wanted)
    except SluiceError:
        # A request whose answer was lost is repeated, and then refused because of the backfill that it began.
        if not any(_is_wanted_backfill(found, wanted) for found in find_active_backfills(client, dag)):
            raise
    return StartedBackfill(dag, client, runs, find, lambda: False)


def _is_wanted_backfill(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    days = [(datetime.fromisoformat(found[of]), datetime.fromisoformat(wanted[of])) for of in ("from_date", "to_date")]
    return all(one == other for one, other in days) and found["dag_run_conf"] == wanted["dag_run_conf"]


def follow_backfill_runs(started: StartedBackfill) -> Iterator[BackfillRun | str]:
    """The progress of the runs: a BackfillRun when one has ended, and in between lines that say what is running."""
    waiting = list(started.runs)
    while True:
        more = started.goes_on()  # asked first: if nothing more comes, the list below is complete
        found = started.find()
        for interval in list(waiting):
            entry = found.get(interval)
            if entry is None and more:
                continue
            if entry is None or entry.state in ENDED or not (more or entry.is_open):
                waiting.remove(interval)
                yield backfill_run_outcome(started.client, started.dag, whole_days_replayed(interval), entry)
        if not waiting:
            while started.goes_on():  # of Airflow 2: it has yet to unpause the schedule
                time.sleep(POLL_SECONDS)
            return
        done = len(started.runs) - len(waiting)
        going = next((entry for one in waiting if (entry := found.get(one)) and entry.state == "running"), None)
        what = describe_running_task(started.client, started.dag, going) if going else "waiting for Airflow"
        yield f"{done} of {len(started.runs)} runs done; {what} ..." if len(started.runs) > 1 else f"{what} ..."
        time.sleep(POLL_SECONDS)


def cancel_backfills(settings: Settings, client: Client, dag: str) -> int:
    """End the DAG's backfills and replays: waiting runs do not start, running ones are asked to stop. Returns how many runs ended."""
    stop_backfill_process(settings, dag)
    # Airflow calls a backfill active for some time after its last run. If it is cancelled then, it also stays paused for ever, and
    # a run of it that is cleared later would never start.
    if any(run.get("run_type") == "backfill" for run in client.runs(dag, *OPEN_STATES)):
        for backfill in find_active_backfills(client, dag):
            client.request("PUT", f"/backfills/{backfill['id']}/cancel", accept=(409,))
    replays = [run for run in client.runs(dag, *OPEN_STATES) if _is_backfill_or_replay(run)]
    for run in replays:
        client.request("PATCH", dag_run_path(dag, run["dag_run_id"]), {"state": "failed"})
    return len(replays)


def _is_backfill_or_replay(run: dict[str, Any]) -> bool:
    return run["run_type"] == "backfill" or (run.get("conf") or {}).get("mode") == "replay"
