"""A run, a backfill and a deletion at once, with real Airflow and Spark: only one writes at a time, and the tables are as if run in sequence.

Also a task whose process dies while its Spark driver lives on: the next attempt waits for the lease.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.system.running import Checkout, ended, make_checkout, run_to_end, unpause
from tests.waiting import is_alive, until

from demonstrations.tour_report import compare_with_truth
from orchestration.backfill.through_airflow import (
    BackfillRequest,
    BackfillRun,
    follow_backfill_runs,
    start_backfill_per_interval,
)
from orchestration.local import LocalAirflow
from orchestration.rest.client import Client
from orchestration.server.home import local_airflow_process_environment
from pipelines.gym import maker
from pipelines.gym.pipeline import PIPELINE
from pipelines.gym.truth import member_bins
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.interval import Interval
from sluice.declare.schedule_intervals import data_intervals_starting_within
from sluice.erasure import requests
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]

DAGS = Path(__file__).parent / "dags"
UPKEEP = ("optimize", "vacuum", "verify")


@pytest.fixture
def gym(tmp_path: Path) -> Iterator[Checkout]:
    with pytest.MonkeyPatch.context() as patch:
        yield make_checkout(tmp_path, patch, {"gym.py": DAGS / "watched_gym.py"}, stand_in=False)


def land(gym: Checkout, days: int) -> None:
    maker.land(gym.settings.landing / "gym", gym.settings.truth / "gym", days=days, scale=0.15)


def spans(client: Client, *runs: str) -> list[tuple[datetime, datetime, str]]:
    """When each task that writes ran, in order."""
    found = []
    for run in runs:
        for name, task in client.tasks("gym", run).items():
            if task["pool"] == "sluice_gym" and task["state"] == "success":
                found.append((
                    datetime.fromisoformat(task["start_date"]),
                    datetime.fromisoformat(task["end_date"]),
                    f"{run} {name}",
                ))
    return sorted(found)


@pytest.mark.slow
def test_a_run_a_backfill_and_a_deletion_at_once(gym: Checkout) -> None:
    records = PipelineRecords(gym.settings, "gym")
    land(gym, 2)
    with LocalAirflow(gym.settings, idle_schedule=True) as airflow:
        client = airflow.client
        unpause(client, "gym")
        run_to_end(client, "gym", seconds=400)
        land(gym, 1)
        subject = str(run_ledger.read_table_rows(records, "device_day")[0]["device_id"])
        graph = load_declaration_graph(gym.settings, "gym")
        worn = [row for row in run_ledger.read_table_rows(records, "memberships") if str(row["device_id"]) == subject]
        person = {subject, *(str(row[name]) for row in worn for name in ("user_id", "mac_address"))}
        requests.receive_erasure_request(PipelineLake(gym.settings, graph), [subject], "device_id")

        days = Interval.of_days(maker.FIRST_DAY.date(), maker.FIRST_DAY.date() + timedelta(days=1))
        asked = BackfillRequest("gym", days, (), tuple(data_intervals_starting_within(PIPELINE.schedule, days)))
        backfill = start_backfill_per_interval(gym.settings, client, asked)
        client.trigger("gym", "increment", {})
        command = [sys.executable, "-m", "sluice.cli", "run", "gym", "--stage", "propagate_deletions", "--wait", "5000"]
        beside = subprocess.Popen(  # asks the pool for nothing; the lease alone keeps it apart
            command,
            env=local_airflow_process_environment(gym.settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        first, second = (run for run in follow_backfill_runs(backfill) if isinstance(run, BackfillRun))
        assert (first.state, second.state) == ("success", "success")
        said = beside.communicate(timeout=5000)[0]
        assert beside.returncode == 0, said
        assert ended(client, "gym", "increment", 500) == "success"
        upkeep = [[client.tasks("gym", run.run)[stage]["state"] for stage in UPKEEP] for run in (first, second)]
        assert upkeep == [["skipped"] * 3, ["success"] * 3], "once, at the end"
        written = spans(client, first.run, second.run, "increment")
    assert {name.rpartition(" ")[0] for _, _, name in written} == {first.run, second.run, "increment"}
    for (_, end, one), (start, _, other) in itertools.pairwise(written):
        assert end <= start, f"{one} and {other} ran side by side"
    modes = {(row["mode"], row["stage"]) for row in run_ledger.read_run_ledger(records)}
    assert ("replay", "silver") in modes

    # From the device the erasure went to the member, and to all that is the member's.
    kept = {
        table: [row for row in rows if not person & {str(row.get(name)) for name in ("device_id", "user_id", "mac_address")}]
        for table, rows in maker.expected(gym.settings.truth / "gym").items()
    }
    kept["member_bins"] = member_bins(kept["members"])
    for table, rows in kept.items():
        verdict = compare_with_truth(table, rows, run_ledger.read_table_rows(records, table))
        assert rows and verdict.equal, verdict
    assert subject not in {str(row["device_id"]) for row in run_ledger.read_table_rows(records, "readings")}


def driver(stage: str) -> list[psutil.Process]:
    """The processes of jobs of a stage below this test's checkout: JVM and Python."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.endswith(f"spark_jobs/{stage}.py") and word.startswith(os.environ["SLUICE_ROOT"]) for word in words):
            found.append(process)
    return found


def find_group(pid: int) -> int | None:
    """The group of a process; None of one that has ended meanwhile, as those that start a JVM soon do."""
    with contextlib.suppress(ProcessLookupError):
        return os.getpgid(pid)
    return None


@pytest.mark.crash
def test_an_attempt_that_meets_an_orphaned_driver_waits_for_the_lease(gym: Checkout) -> None:
    land(gym, 1)
    files = len([path for path in (gym.settings.landing / "gym").rglob("*") if path.is_file()])
    lease = Path(PipelineRecords(gym.settings, "gym").bookkeeping("lease.json"))
    with LocalAirflow(gym.settings, idle_schedule=True) as airflow:
        client = airflow.client
        unpause(client, "gym")
        client.trigger("gym", "orphan", {})
        until(lease.exists, 120, "the lease")
        jvm = min(driver("bronze"), key=lambda one: one.create_time())
        task = jvm.parent()
        assert task is not None and find_group(jvm.pid) == jvm.pid
        holder = json.loads(lease.read_text())
        task.kill()
        task.wait(120)
        # Holds the lease for as long as this test likes. Not sooner: a stopped group that loses its parent gets SIGHUP.
        os.killpg(jvm.pid, signal.SIGSTOP)
        try:
            until(lambda: client.tasks("gym", "orphan")["bronze"]["try_number"] == 2, 60, "the next attempt")
            until(lambda: {find_group(one.pid) for one in driver("bronze")} - {jvm.pid, None}, 60, "its driver")
            time.sleep(25)  # longer than a job of one day takes
            assert client.tasks("gym", "orphan")["bronze"]["state"] == "running"
            assert is_alive(jvm.pid)
            assert json.loads(lease.read_text()) == holder
            assert rows_of(gym, "bronze") == []
        finally:
            os.killpg(jvm.pid, signal.SIGCONT)
        until(lambda: client.tasks("gym", "orphan")["bronze"]["state"] == "success", 120, "the next attempt")
        assert not is_alive(jvm.pid)
        assert json.loads(lease.read_text())["pid"] != holder["pid"]
    taken = Counter[str]()
    for row in rows_of(gym, "bronze"):
        taken[row["airflow_run"][-2:]] += row["deliveries"]
    assert taken == {"-1": files, "-2": 0}, "what the orphan did is not done again"


def rows_of(gym: Checkout, stage: str) -> list[dict[str, Any]]:
    return [row for row in run_ledger.read_run_ledger(PipelineRecords(gym.settings, "gym")) if row["stage"] == stage]
