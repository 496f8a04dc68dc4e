"""The runs of a backfill by Airflow's REST API, and the result of each. Imports no Airflow."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestration.line import airflow_line
from orchestration.rest.client import OPEN_STATES, PAGE, Client, NotFound, dag_run_path
from sluice.declare.interval import Interval
from sluice.errors import SluiceError

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
