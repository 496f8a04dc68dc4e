"""Backfills through a real Airflow of the installed line, with a stand-in for Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.system.running import ROOT, Checkout, make_checkout, unpause
from tests.waiting import until, wait_past_schedule

from orchestration.airflow_line import airflow_line
from orchestration.local import LocalAirflow
from orchestration.rest.client import OPEN_STATES, Client

pytestmark = [pytest.mark.airflow, pytest.mark.system, pytest.mark.filterwarnings("default")]

DAYS = ("--from", "2026-01-01", "--to", "2026-01-03")
MIDNIGHTS = [f"2026-01-0{day}T00:00:00+00:00" for day in (1, 2, 3, 4)]
UPKEEP = ["optimize", "vacuum", "verify"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield make_checkout(tmp_path_factory.mktemp("backfill"), patch, {"gym.py": ROOT / "dags" / "gym.py"}, stand_in=True)


@pytest.fixture(scope="module")
def airflow(here: Checkout) -> Iterator[Client]:
    wait_past_schedule()
    with LocalAirflow(here.settings) as started:
        until(lambda: started.client.has_dag("gym"), what="the DAG")
        yield started.client


@pytest.fixture
def client(here: Checkout, airflow: Client) -> Iterator[Client]:
    here.order()
    unpause(airflow, "gym")
    # The first time, unpausing starts the scheduled run of the last interval.
    until(lambda: airflow.runs("gym") and not airflow.runs("gym", *OPEN_STATES), 240, "the scheduled run")
    here.records.unlink(missing_ok=True)
    yield airflow
    here.order()


def sluice(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sluice.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def airflow_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs it as `./airflow` does."""
    command = [sys.executable, "-P", "-m", "orchestration.local", "exec", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


def jobs(here: Checkout) -> list[tuple[str, str, str]]:
    """Stage, from and to of every job that replayed, in order."""
    found = []
    for entry in here.told():
        if "argv" in entry:
            told = dict(pairwise(entry["argv"]))
            stage = next(Path(word).stem for word in entry["argv"] if word.endswith(".py"))
            if told["--mode"] == "replay":
                found.append((stage, told["--from"], told["--to"]))
    return found


def assert_one_a_day_and_upkeep_once(here: Checkout) -> None:
    done = jobs(here)
    days = list(pairwise(MIDNIGHTS))
    assert [job[1:] for job in done if job[0] == "bronze"] == days, "each day, one after the other, as whole days"
    assert Counter(stage for stage, *_ in done) == {
        **dict.fromkeys(["bronze", "silver", "gold", "propagate_deletions"], 3)
    } | dict.fromkeys(UPKEEP, 1)
    assert [job for job in done if job[0] in UPKEEP] == [(stage, *days[-1]) for stage in UPKEEP], "in the last run"


def test_a_paused_dag_is_refused_with_the_remedy(here: Checkout, client: Client) -> None:
    client.pause("gym", True)
    before = len(client.runs("gym"))
    done = sluice("backfill", "gym", *DAYS)
    assert done.returncode == 1 and "./airflow dags unpause gym" in done.stderr, done
    if airflow_line() == 3:  # the backfill of Airflow 2 does not mind
        for refused in (
            sluice("backfill", "gym", *DAYS, "--per-interval"),
            airflow_command("dags", "backfill", "gym", "-s", "2026-01-01"),
        ):
            assert refused.returncode == 1 and "./airflow dags unpause gym" in refused.stderr, refused
    assert len(client.runs("gym")) == before and jobs(here) == []


def test_a_range_is_one_run(here: Checkout, client: Client) -> None:
    done = sluice("backfill", "gym", *DAYS, "--table", "heart_rate", "--json")
    assert done.returncode == 0, done
    assert {job[1:] for job in jobs(here)} == {(MIDNIGHTS[0], MIDNIGHTS[3])}
    assert [job[0] for job in jobs(here)] == ["bronze", "silver", "gold", "propagate_deletions", *UPKEEP]
    assert all(dict(pairwise(entry["argv"]))["--tables"] == "heart_rate" for entry in here.told())
    (run,) = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert (run["state"], run["interval"], run["rows"]) == ("success", "2026-01-01 to 2026-01-03", 14)


def test_per_interval_is_a_run_a_day_and_upkeep_at_the_end(here: Checkout, client: Client) -> None:
    done = sluice("backfill", "gym", *DAYS, "--per-interval", "--json")
    assert done.returncode == 0, done
    assert_one_a_day_and_upkeep_once(here)
    runs: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])["runs"]
    assert [(run["state"], run["interval"]) for run in runs] == [("success", f"2026-01-0{day}") for day in (1, 2, 3)]
    assert [run["rows"] for run in runs] == [8, 8, 14]


def test_the_old_command_works_on_both_lines_and_takes_days_again_that_ran(here: Checkout, client: Client) -> None:
    done = airflow_command("dags", "backfill", "gym", "-s", "2026-01-01", "-e", "2026-01-03", "-y")
    assert done.returncode == 0, done
    until(lambda: not client.runs("gym", *OPEN_STATES), 240, "the backfill")
    assert_one_a_day_and_upkeep_once(here)
    assert not client.is_paused("gym")


def test_a_scheduled_run_is_replayed_with_its_day(here: Checkout, client: Client) -> None:
    scheduled = next(run for run in client.runs("gym") if run["run_type"] == "scheduled")
    day = scheduled["logical_date"][:10]
    done = airflow_command("dags", "backfill", "gym", "-s", day, "-e", day)
    assert done.returncode == 0, done
    until(lambda: not client.runs("gym", *OPEN_STATES), 240, "the backfill")
    assert [job[0] for job in jobs(here)] == ["bronze", "silver", "gold", "propagate_deletions", *UPKEEP]
    assert {job[1] for job in jobs(here)} == {f"{day}T00:00:00+00:00"}
    after = next(run for run in client.runs("gym") if run["dag_run_id"] == scheduled["dag_run_id"])
    assert (after["run_type"], after["state"]) == ("backfill", "success"), "its id still says scheduled"


def test_a_failed_run_gives_exit_code_1_with_task_and_reason(here: Checkout, client: Client) -> None:
    here.order(STAND_IN_EXIT="2")
    for how in ([], ["--per-interval"]):
        done = sluice("backfill", "gym", "--from", "2026-01-01", "--to", "2026-01-01", *how)
        assert done.returncode == 1, done
        assert "1 of 1 run failed" in done.stderr and "task 'bronze'" in done.stderr
        assert "There is no table 'hart_rate'. Did you mean 'heart_rate'?" in done.stderr
        assert "failed" in done.stdout


def test_an_interrupted_wait_leaves_the_runs_and_cancel_ends_them(here: Checkout, client: Client) -> None:
    here.order(STAND_IN_SECONDS="300")
    command = [sys.executable, "-m", "sluice.cli", "backfill", "gym", *DAYS, "--per-interval"]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    until(lambda: len(here.told()) == 2, what="the first job")
    waiting.send_signal(signal.SIGINT)
    text, _ = waiting.communicate(timeout=900)
    assert waiting.returncode == 130 and "sluice backfill gym --cancel" in text
    assert [run["state"] for run in client.runs("gym", *OPEN_STATES)].count("running") == 1
    second = sluice("backfill", "gym", *DAYS, "--per-interval")
    assert second.returncode == 1 and "goes on already" in second.stderr and "--cancel" in second.stderr, second
    cancelled = sluice("backfill", "gym", "--cancel")
    assert cancelled.returncode == 0, cancelled
    until(lambda: {"stopped": "on request"} in here.told(), 60, "the job")
    until(lambda: not client.runs("gym", *OPEN_STATES), 60, "the runs")
    assert [job[0] for job in jobs(here)] == ["bronze"]
    assert not client.is_paused("gym")
