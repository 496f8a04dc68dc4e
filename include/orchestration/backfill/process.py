"""`airflow dags backfill` of Airflow 2: the command itself is the backfill. In a process of its own it outlives its starter.

Days that ran before are queued again as scheduled runs. The scheduler would start them, and they would only take what is new. So the DAG is
paused during its backfill, which a backfill of Airflow 2 ignores. Imports no Airflow.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it ships no types

from orchestration import stopping
from orchestration.backfill.checks import backfill_cancel_command, refuse_open_runs
from orchestration.rest.client import OPEN_STATES, Client
from orchestration.server.home import airflow_command, local_airflow_home, local_airflow_process_environment
from orchestration.server.processes import find_running_airflow, local_airflow_client
from sluice.doctor import AIRFLOW_PORT
from sluice.durable_files import write_text_durably
from sluice.errors import SluiceError
from sluice.settings import Settings

STOP_SECONDS = 60
"""Longer than the time that Airflow and the operator give a job that was asked to stop."""

LOOK_SECONDS = 2


def refuse_second_process(settings: Settings, dag: str) -> None:
    """Raises SluiceError if a backfill of the DAG is running."""
    if _find_backfill_process(settings, dag):
        raise SluiceError(f"A backfill of '{dag}' goes on already. Wait for its end, or end it: {backfill_cancel_command(dag)}")


def start_backfill_process(
    settings: Settings, dag: str, first: datetime, last: datetime, conf: dict[str, Any]
) -> subprocess.Popen[bytes]:
    """Start a backfill of the intervals that begin from `first` to `last`, with its log in Airflow's log folder."""
    dates = ("-s", first.isoformat(), "-e", last.isoformat(), "-c", json.dumps(conf))
    arguments = ["dags", "backfill", dag, *dates, "--reset-dagruns", "-y", "--continue-on-failures"]
    log = local_airflow_home(settings) / "logs" / f"backfill-{dag}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestration.backfill.process", *arguments],
            env=local_airflow_process_environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    write_text_durably(_backfill_pid_file(settings, dag), str(process.pid))
    return process


def stop_backfill_process(settings: Settings, dag: str) -> None:
    """End the DAG's backfill process, if there is one; its running task is asked to stop."""
    process = _find_backfill_process(settings, dag)
    if process is not None:
        process.terminate()
        stopping.is_process_gone_within(process, STOP_SECONDS + LOOK_SECONDS)


def run_airflow_backfill(settings: Settings, arguments: list[str], *, with_airflow: bool = False) -> int:
    """Run `airflow dags backfill` with these arguments after the open runs have ended, and return its exit code.

    Raises SluiceError if an open run cannot end because the DAG is paused. with_airflow: the backfill ends when the local Airflow does.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the DAG would stay paused
    running = find_running_airflow(settings)
    environment = local_airflow_process_environment(settings, port=running[1] if running else AIRFLOW_PORT)
    trial = bool({"-n", "--dry-run"} & set(arguments))
    with contextlib.nullcontext() if trial else _dag_schedule_held(settings, arguments[2]):
        # In a group of its own, which Ctrl-C does not reach.
        process = subprocess.Popen(airflow_command(*arguments), env=environment, stdin=subprocess.DEVNULL, process_group=0)
        try:
            while process.poll() is None and (find_running_airflow(settings) or not with_airflow):
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_SECONDS)
        finally:
            _end_backfill_and_task(process)
        return process.returncode


@contextlib.contextmanager
def _dag_schedule_held(settings: Settings, dag: str) -> Iterator[None]:
    running = find_running_airflow(settings)
    client = local_airflow_client(settings, running[1]) if running else None
    if client is None or not client.has_dag(dag):
        yield
        return
    was_paused = client.is_paused(dag)
    if was_paused:
        refuse_open_runs(dag, client.runs(dag, *OPEN_STATES))
    _pause_dag_between_runs(client, dag)
    try:
        yield
    finally:
        restore_dag_pause(settings, client, dag, was_paused)


def restore_dag_pause(settings: Settings, client: Client, dag: str, paused: bool) -> None:
    """Pause or unpause a DAG, also if its Airflow has stopped: Airflow's own command needs no server."""
    try:
        client.pause(dag, paused)
    except SluiceError:
        command = airflow_command("dags", "pause" if paused else "unpause", dag)
        subprocess.run(command, env=local_airflow_process_environment(settings), stdin=subprocess.DEVNULL, check=False)


def _pause_dag_between_runs(client: Client, dag: str) -> None:
    """Pause a DAG when none of its runs is open: tasks of a paused DAG would not start, and the backfill would wait for the run."""
    while True:
        while client.runs(dag, *OPEN_STATES):
            time.sleep(LOOK_SECONDS)
        client.pause(dag, True)
        if not client.runs(dag, "running"):  # one that is only queued comes after the backfill
            return
        client.pause(dag, False)


def _end_backfill_and_task(process: subprocess.Popen[bytes]) -> None:
    """End the backfill and its running task. Airflow itself would kill the task at once, and leave the job behind it running."""
    if process.poll() is None:
        backfill = psutil.Process(process.pid)
        backfill.suspend()  # so that it starts no other task
        for task in backfill.children():
            task.terminate()
            stopping.is_process_gone_within(task, STOP_SECONDS)
        process.kill()
        process.wait()


def _find_backfill_process(settings: Settings, dag: str) -> psutil.Process | None:
    try:
        process = psutil.Process(int(_backfill_pid_file(settings, dag).read_text()))
        return process if "orchestration.backfill.process" in process.cmdline() and dag in process.cmdline() else None
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def _backfill_pid_file(settings: Settings, dag: str) -> Path:
    return local_airflow_home(settings) / f"backfill-{dag}.pid"


if __name__ == "__main__":
    try:
        sys.exit(run_airflow_backfill(Settings.current(), sys.argv[1:], with_airflow=True))
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
