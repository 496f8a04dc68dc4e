"""A task whose driver a cluster starts leaves its worker to a real triggerer, with a stand-in for the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.running import Checkout, ended, make_checkout, unpause
from tests.waiting import is_alive, until

from orchestration.airflow_line import airflow_line
from orchestration.local import LocalAirflow
from orchestration.rest.client import Client
from orchestration.server.home import DEFERRABLE_BY_DEFAULT, local_airflow_home

pytestmark = [pytest.mark.airflow, pytest.mark.system, pytest.mark.filterwarnings("default")]

DAGS = Path(__file__).parent / "dags"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Checkout]:
    with pytest.MonkeyPatch.context() as patch:
        made = make_checkout(tmp_path, patch, {"deferred.py": DAGS / "deferred.py"}, stand_in=True)
        extra = {"profile": "yarn", "deploy-mode": "cluster", "spark-binary": "spark3-submit"}
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}))
        patch.setenv(DEFERRABLE_BY_DEFAULT, "True")
        yield made


def start(client: Client, dag: str) -> str:
    run = f"test-{time.time_ns()}"
    client.trigger(dag, run, {})
    return run


def wait_for_state(client: Client, dag: str, run: str, state: str) -> None:
    def found() -> bool:
        now = client.tasks(dag, run).get("silver", {}).get("state")
        assert now not in {"failed", "success"} - {state}, f"{dag} is {now}"
        return bool(now == state)

    until(found, 60, f"{dag} {state}")


def test_a_deferred_task_holds_no_worker_and_is_stopped_where_somebody_marks_it(here: Checkout) -> None:
    here.order(STAND_IN_SECONDS="8")
    with LocalAirflow(here.settings, idle_schedule=True) as airflow:
        client = airflow.client
        unpause(client, "ends", "lasts")
        run = start(client, "ends")
        assert ended(client, "ends", run) == "success"
        logs = local_airflow_home(here.settings) / "logs"
        assert list(logs.glob("dag_id=ends/**/*.trigger.*")), "it was deferred: a trigger followed its driver"
        here.order(STAND_IN_SECONDS="300")
        run = start(client, "lasts")
        wait_for_state(client, "lasts", run, "deferred")
        if airflow_line() == 3:  # Airflow 2 tells nobody that somebody marked a deferred task
            # One that is marked before its trigger has begun is told to nobody: Airflow drops the trigger.
            until(lambda: list(logs.glob("dag_id=lasts/**/*.trigger.*")), 60, "the trigger")
            driver = until(lambda: [one["driver"] for one in here.told() if "driver" in one][1:], 30)[0]
            client.request("PATCH", f"/dags/lasts/dagRuns/{run}/taskInstances/silver", {"new_state": "failed"})
            until(lambda: not is_alive(driver), 60, "the end of its driver")
            assert {"stopped": "on request"} in here.told()
