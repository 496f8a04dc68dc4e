"""Backfills through the running Airflow: one replay of a whole range, or one run an interval, and the result of each. Imports no Airflow."""

from __future__ import annotations

import re
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestration.airflow_line import airflow_line
from orchestration.backfill.checks import (
    backfill_cancel_command,
    find_active_backfills,
    find_airflow_with_dag,
    refuse_open_runs,
    refuse_paused_dag,
    refuse_second_backfill,
)
from orchestration.backfill.process import refuse_second_process, start_backfill_process, stop_backfill_process
from orchestration.backfill.without_airflow import replay_by_spark_submit
from orchestration.rest.client import OPEN_STATES, PAGE, Client, NotFound, dag_run_path
from sluice.declare.interval import Interval
from sluice.declare.schedule_intervals import whole_days_replayed
from sluice.errors import SluiceError
from sluice.run_modes import REPLAY
from sluice.settings import Settings

__all__ = [
    "BackfillRequest",
    "BackfillRun",
    "StartedBackfill",
    "backfill_cancel_command",
    "cancel_backfills",
    "find_airflow_with_dag",
    "follow_backfill_runs",
    "replay_by_spark_submit",
    "start_backfill_per_interval",
    "start_replay_of_range",
]

POLL_SECONDS = 1.0

ENDED = ("success", "failed")
NOT_RUN = "not run"
"""The state of an interval that never had a run, or no longer has one."""

_MARKS = re.compile(r"::|\s*$|\*\*\*|Task (finished|failed with exception)|\s+(raise|File|at) ")
"""The beginnings of log lines that do not explain a failure."""

_OWN = re.compile(r"(?:^|- )sluice(?: \w+)?: (.+)")
"""The form in which a job logs its reason; Airflow 2 puts time and location before it."""


@dataclass(frozen=True)
class DagRunEntry:
    """A run as Airflow reports it. started: None until it starts."""

    run: str
    state: str
    started: datetime | None
    ended: datetime | None
    told: dict[str, Any] = field(repr=False)

    @property
    def is_open(self) -> bool:
        """Whether the run is queued or running."""
        return self.state in OPEN_STATES


@dataclass(frozen=True)
class BackfillRun:
    """The result of a run. rows: written or removed, in all tables. task, reason: of the first task that failed."""

    run: str
    interval: Interval
    state: str
    seconds: float | None = None
    rows: int | None = None
    task: str = ""
    reason: str = ""


def read_dag_run(client: Client, dag: str, run: str) -> DagRunEntry:
    """One run by its id. Raises NotFound."""
    return _parse_dag_run(client.request("GET", dag_run_path(dag, run)))


def read_dag_runs_by_start(client: Client, dag: str, first: datetime, last: datetime) -> dict[datetime, DagRunEntry]:
    """The runs whose data interval starts from `first` to `last`, by that start: their logical date."""
    name = "execution_date" if airflow_line() == 2 else "logical_date"
    asked = urllib.parse.urlencode({f"{name}_gte": first.isoformat(), f"{name}_lte": last.isoformat(), "limit": PAGE})
    found: dict[datetime, DagRunEntry] = {}
    seen = 0
    while True:
        page = client.request("GET", f"/dags/{dag}/dagRuns?{asked}&offset={seen}")
        found |= {_parse_utc_instant(run["logical_date"]): _parse_dag_run(run) for run in page["dag_runs"]}
        seen += len(page["dag_runs"])
        if not page["dag_runs"] or seen >= page["total_entries"]:
            return found


def describe_running_task(client: Client, dag: str, entry: DagRunEntry) -> str:
    """The running task, or the next one."""
    titles: dict[str, str] = {}
    for task in client.tasks(dag, entry.run).values():
        titles.setdefault(task.get("state") or "", str(task.get("task_display_name") or task["task_id"]))
    if "up_for_retry" in titles:
        return f"{titles['up_for_retry']} failed and is tried again in a while"
    return titles.get("running", "between two tasks")


def backfill_run_outcome(client: Client, dag: str, interval: Interval, entry: DagRunEntry | None) -> BackfillRun:
    """The result of a run that has ended, or that was never made."""
    if entry is None or entry.is_open:
        return BackfillRun(entry.run if entry else "", interval, NOT_RUN)
    tasks = client.tasks(dag, entry.run)
    reports = [client.result(dag, entry.run, name) for name, task in tasks.items() if task.get("state") == "success"]
    flows = [flow for report in reports if isinstance(report, dict) for flow in report.get("flows", ())]
    seconds = (entry.ended - entry.started).total_seconds() if entry.started and entry.ended else None
    task, reason = _find_first_failure(client, dag, entry, tasks) if entry.state == "failed" else ("", "")
    return BackfillRun(entry.run, interval, entry.state, seconds, sum(flow.get("rows_out") or 0 for flow in flows), task, reason)


def _find_first_failure(client: Client, dag: str, entry: DagRunEntry, tasks: dict[str, dict[str, Any]]) -> tuple[str, str]:
    """The first task that failed and the last reason in its log; empty if the run was ended from outside."""
    failed = [(task.get("start_date") or "", name) for name, task in tasks.items() if task.get("state") == "failed"]
    if not failed:
        return "", "it was ended before a task had failed"
    name = min(failed)[1]
    try:
        lines = client.log(dag, entry.run, name, max(1, tasks[name].get("try_number") or 1))
    except (NotFound, SluiceError):
        return name, "its log cannot be read"
    return name, find_failure_reason(lines)


def find_failure_reason(lines: list[str]) -> str:
    """Why a task failed, from its log: the last reason that the job gave, or else the last line that explains anything."""
    telling = [line.strip() for line in lines if not _MARKS.match(line)]
    own = [found.group(1) for line in telling if (found := _OWN.search(line))]
    return (own or telling or ["its log is empty"])[-1][:400]


def _parse_dag_run(told: dict[str, Any]) -> DagRunEntry:
    started, ended = told.get("start_date"), told.get("end_date")
    return DagRunEntry(
        told["dag_run_id"],
        told["state"],
        _parse_utc_instant(started) if started else None,
        _parse_utc_instant(ended) if ended else None,
        told,
    )


def _parse_utc_instant(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


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
    conf = {"mode": REPLAY.name, "from_date": first, "to_date": last, "tables": list(asked.tables)}
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
    """End the DAG's backfills and replays: waiting runs do not start, running ones are asked to stop. Returns how many runs that ended."""
    stop_backfill_process(settings, dag)
    replays = [run for run in client.runs(dag, *OPEN_STATES) if _is_backfill_or_replay(run)]
    # Airflow calls a backfill active for some time after its last run. If it is cancelled then, it also stays paused for ever, and
    # a run of it that is cleared later would never start.
    if any(run["run_type"] == "backfill" for run in replays):
        for backfill in find_active_backfills(client, dag):
            client.request("PUT", f"/backfills/{backfill['id']}/cancel", accept=(409,))
    for run in client.runs(dag, *OPEN_STATES):  # Airflow has ended those that waited
        if _is_backfill_or_replay(run):
            client.request("PATCH", dag_run_path(dag, run["dag_run_id"]), {"state": "failed"})
    return len(replays)


def _is_backfill_or_replay(run: dict[str, Any]) -> bool:
    return run["run_type"] == "backfill" or (run.get("conf") or {}).get("mode") == REPLAY.name
