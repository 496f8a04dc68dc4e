"""The local Airflow, started for real: nothing but loopback, nothing left behind, a killed task's job is asked first."""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from rich.console import Console
from tests.checkout import read_notes
from tests.waiting import until

from demonstrations.tour import _follow_dag_run
from orchestration.backfill.process import restore_dag_pause
from orchestration.local import (
    LocalAirflow,
    find_running_airflow,
    local_airflow_address,
    local_airflow_home,
    stop_running_airflow,
)
from orchestration.rest import client as rest
from orchestration.rest.client import Client
from pipelines.gym.pipeline import PIPELINE
from sluice.errors import SluiceError, UsageError

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def orders(checkout: Checkout) -> Iterator[Path]:
    """The file with what the stand-in must do, which tests change while Airflow runs."""
    path = checkout.settings.root / "orders.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAND_IN_ORDERS", str(path))
        yield path


@pytest.fixture(scope="module")
def airflow(checkout: Checkout, orders: Path) -> Iterator[Client]:
    """One Airflow for tests that begin with a run of their own; the last one stops it."""
    with LocalAirflow(checkout.settings, idle_schedule=True) as started:
        yield started.client


@pytest.fixture
def records(checkout: Checkout) -> Path:
    checkout.records.unlink(missing_ok=True)
    return checkout.records


def order(orders: Path, **variables: str) -> None:
    partial = orders.with_suffix(".partial")
    partial.write_text(json.dumps(variables))
    partial.rename(orders)


def told(records: Path) -> list[dict[str, Any]]:
    return read_notes(records)


def session(leader: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue
    return found


def listening_addresses(process: psutil.Process) -> set[str]:
    """The addresses at which a process listens; none of one that has ended meanwhile."""
    try:
        return {one.laddr.ip for one in process.net_connections() if one.status == psutil.CONN_LISTEN}
    except psutil.NoSuchProcess:
        return set()


def start_a_run(client: Client) -> str:
    until(lambda: client.has_dag("gym"))
    client.end_open_runs("gym")
    client.pause("gym", False)
    run = f"test-{time.time_ns()}"
    client.trigger("gym", run, {})
    return run


def test_the_home_keeps_its_secrets(checkout: Checkout) -> None:
    folder = local_airflow_home(checkout.settings)
    assert folder.stat().st_mode & 0o077 == 0
    for name in ("secrets.json", "passwords.json"):
        assert (folder / name).stat().st_mode & 0o077 == 0
    pools = subprocess.run(
        [sys.executable, "-m", "airflow", "pools", "list", "-o", "json"], capture_output=True, text=True, check=True
    )
    slots = {pool["pool"]: pool["slots"] for pool in json.loads(pools.stdout)}
    assert slots["sluice_gym"] == slots["sluice_italy"] == "1"


def test_one_that_is_just_ending_is_no_running_instance(checkout: Checkout) -> None:
    path = local_airflow_home(checkout.settings) / "supervisor.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # and says no more who it is
        ending = threading.Timer(0.3, lock.close)
        ending.start()
        assert find_running_airflow(checkout.settings) is None
        ending.join()


@pytest.mark.system
def test_it_stops_with_the_process_that_started_it(checkout: Checkout) -> None:
    code = (
        "from orchestration.local import LocalAirflow\nfrom sluice.settings import Settings\nimport os\n"
        "LocalAirflow(Settings.current(), idle_schedule=True).start()\nos._exit(9)"
    )
    try:
        done = subprocess.run([sys.executable, "-c", code], check=False)
        assert done.returncode == 9
        until(lambda: find_running_airflow(checkout.settings) is None, 40)
    finally:
        stop_running_airflow(checkout.settings)


@pytest.mark.system
def test_a_run_from_the_trigger_to_the_report(
    checkout: Checkout, airflow: Client, orders: Path, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order(orders)
    run = start_a_run(airflow)
    airflow.trigger("gym", run, {})  # sent twice, as after a busy answer, it starts once
    until(lambda: airflow.run_state("gym", run) == "success")
    report = airflow.result("gym", run, "gold")
    assert report is not None and report["flows"][0]["version_after"] == 4
    assert "the gold job starts" in airflow.log("gym", run, "gold", 1)
    airflow.pause("gym", True)
    assert airflow.is_paused("gym")
    for waiting in ("waits-1", "waits-2"):
        airflow.trigger("gym", waiting, {})
    monkeypatch.setattr(rest, "PAGE", 1)
    assert {one["dag_run_id"] for one in airflow.runs("gym", "queued", "running")} == {"waits-1", "waits-2"}
    assert airflow.end_open_runs("gym") == 2
    assert airflow.runs("gym", "queued", "running") == []
    with pytest.raises(UsageError, match="sluice down"):
        LocalAirflow(checkout.settings).start()
    assert len(told(records)) == 7, "each stage once"


@pytest.mark.system
def test_a_failing_task_ends_a_run_of_the_tour_with_the_reason(airflow: Client, orders: Path, records: Path) -> None:
    order(orders, STAND_IN_EXIT="2")
    run = start_a_run(airflow)
    with pytest.raises(SluiceError, match=r"Task 'bronze' of 'gym' failed(.|\n)*There is no table 'hart_rate'"):
        _follow_dag_run(airflow, Console(), PIPELINE, run, "first days")


@pytest.mark.system
@pytest.mark.crash
def test_a_task_marked_failed_asks_its_job_although_airflow_kills_the_task(airflow: Client, orders: Path, records: Path) -> None:
    # A batch is longer than the 5 seconds Airflow gives the task.
    order(orders, STAND_IN_SECONDS="300", STAND_IN_BATCH_SECONDS="8")
    run = start_a_run(airflow)
    job, child = until(lambda: len(told(records)) == 2 and [entry["pid"] for entry in told(records)])
    airflow.fail_task("gym", run, "bronze")
    until(lambda: {"stopped": "on request"} in told(records), 90)
    until(lambda: not psutil.pid_exists(job) and not psutil.pid_exists(child), 10)
    airflow.end_open_runs("gym")


@pytest.mark.system
@pytest.mark.crash
def test_stopping_in_the_middle_of_a_task_leaves_nothing(
    checkout: Checkout, airflow: Client, orders: Path, records: Path
) -> None:
    order(orders, STAND_IN_SECONDS="300", STAND_IN_STUBBORN="terminated")
    pid, port = find_running_airflow(checkout.settings) or (0, 0)
    assert local_airflow_address(port) == airflow.address
    start_a_run(airflow)
    job, child = until(lambda: len(told(records)) == 2 and [entry["pid"] for entry in told(records)])
    members = session(pid)
    assert {job, child} <= {process.pid for process in members}
    assert {address for process in members for address in listening_addresses(process)} == {"127.0.0.1"}
    assert stop_running_airflow(checkout.settings)
    until(lambda: session(pid) == [], 10)  # who was killed takes an instant to be gone
    assert find_running_airflow(checkout.settings) is None
    assert not stop_running_airflow(checkout.settings)
    assert not is_paused_in_database(checkout)
    restore_dag_pause(checkout.settings, airflow, "gym", True)
    assert is_paused_in_database(checkout), "a backfill that ends after its Airflow leaves the DAG as it was"


def is_paused_in_database(checkout: Checkout) -> bool:
    with sqlite3.connect(local_airflow_home(checkout.settings) / "airflow.db") as connection:
        return bool(connection.execute("SELECT is_paused FROM dag WHERE dag_id = 'gym'").fetchone()[0])
