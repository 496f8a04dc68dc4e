"""Checks whether a backfill can run before it starts, and says what to do if not. Imports no Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from orchestration.airflow_line import airflow_line
from orchestration.rest.client import OPEN_STATES, Client, DagMissing
from orchestration.server.deployed import deployed_airflow_address, deployed_airflow_client
from orchestration.server.home import local_airflow_environment, prepare_local_airflow
from orchestration.server.processes import find_running_airflow, local_airflow_client
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings

# What a DAG file of this checkout holds, as the installed Airflow parses it: an Airflow that runs does not tell of a file without a DAG.

_FILE_SECONDS = 300
"""As long as Airflow itself may take to import a file (`DAGBAG_IMPORT_TIMEOUT`)."""

_PARSE = """
import json, sys
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:  # Airflow 2
    from airflow.models.dagbag import DagBag
found = DagBag(sys.argv[1])
print("\\n" + json.dumps({"dags": sorted(found.dags), "failed": bool(found.import_errors)}))
"""


def list_dags_of_file(settings: Settings, file: Path) -> list[str] | None:
    """Parses a file once, in a process of its own. Returns the ids of its DAGs; None if Airflow cannot import it here, and tells why itself."""
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PARSE, str(file)],
            env=os.environ | local_airflow_environment(settings),
            cwd=settings.root,
            capture_output=True,
            text=True,
            check=True,
            timeout=_FILE_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    found = json.loads(done.stdout.splitlines()[-1])
    return None if found["failed"] else list(found["dags"])


FINISH_SECONDS = 300
"""The scheduler checks about every 30 s, and later on a busy machine, whether a backfill has ended; until then it counts as active."""

PARSE_SECONDS = 600
"""How long Airflow may take to parse a DAG. On a busy machine its first parse takes minutes."""

_PARSE_SECONDS_WITHOUT_FILE = 30
"""The same for a DAG without a file of its name: most likely there is none."""

_PATIENCE = 15
"""After as many seconds without the DAG its file is parsed here. Airflow lists an error of an import, but nothing of a file without a DAG."""


def backfill_cancel_command(dag: str) -> str:
    """The command that ends a backfill."""
    return f"sluice backfill {dag} --cancel"


def find_airflow_with_dag(settings: Settings, dag: str) -> Client:
    """A client of the Airflow that knows the DAG: the deployment's, or the one that runs in this checkout. Raises SluiceError without one."""
    client = _find_airflow_client(settings)
    if client is None:
        raise SluiceError(
            "No Airflow runs here, so nobody would run the backfill. Start it: make up. Of a deployment elsewhere say the address: "
            "SLUICE_AIRFLOW. Or have the same done without it, by spark-submit: add --local"
        )
    wait_for_dag_of_checkout(settings, client, dag)
    return client


def wait_for_dag_of_checkout(settings: Settings, client: Client, dag: str) -> None:
    """Return once Airflow has parsed the DAG. Raises SluiceError if it does not in time: soon if dags/<dag>.py is missing or makes no such DAG."""
    file = settings.root / "dags" / f"{dag}.py"
    if not file.is_file():
        client.wait_for_dag(dag, _PARSE_SECONDS_WITHOUT_FILE)
        return
    try:
        client.wait_for_dag(dag, _PATIENCE)
    except DagMissing:
        if not deployed_airflow_address():  # a deployment has DAG files of its own
            _refuse_file_without_dag(settings, file, dag)
        client.wait_for_dag(dag, PARSE_SECONDS)


def _refuse_file_without_dag(settings: Settings, file: Path, dag: str) -> None:
    """Raises UsageError if the file can be imported and makes no DAG of this name."""
    made = list_dags_of_file(settings, file)
    if made is not None and dag not in made:
        others = f" It makes {', '.join(repr(one) for one in made)}." if made else ""
        raise UsageError(
            f"{file} makes no DAG '{dag}', so Airflow never has one.{others} A DAG file calls `medallion_dag` for its pipeline and "
            "keeps what it returns in a variable of the module: see dags/gym.py"
        )


def refuse_paused_dag(client: Client, dag: str) -> None:
    """Raises SluiceError if the DAG is paused: its runs would silently stay queued."""
    if client.is_paused(dag):
        raise SluiceError(
            f"The DAG '{dag}' is paused, so its runs would wait for ever. Unpause it: ./airflow dags unpause {dag} "
            "(its schedule goes on then, too)"
        )


def find_active_backfills(client: Client, dag: str) -> list[dict[str, Any]]:
    """The DAG's backfills that count as active; on Airflow 2 a backfill is a process and none is on record."""
    if airflow_line() == 2:
        return []
    found = client.request("GET", f"/backfills?dag_id={dag}&limit=100&order_by=-id")["backfills"]
    return [backfill for backfill in found if backfill["completed_at"] is None]


def refuse_second_backfill(client: Client, dag: str) -> None:
    """Raises SluiceError if another backfill of the DAG is running. Waits for one whose runs have all ended."""
    wait_for_ended_backfills(client, dag)
    for backfill in find_active_backfills(client, dag):
        days = f"{backfill['from_date'][:10]} to {backfill['to_date'][:10]}"
        paused = " (it is paused)" if backfill["is_paused"] else ""
        raise SluiceError(
            f"A backfill of '{dag}' goes on already, for {days}{paused}; Airflow has one at a time. "
            f"Wait for its end, or end it: {backfill_cancel_command(dag)}"
        )


def wait_for_ended_backfills(client: Client, dag: str) -> None:
    """Wait, at most FINISH_SECONDS, until no backfill of the DAG that has done all its runs still counts as active."""
    deadline = time.monotonic() + FINISH_SECONDS
    while find_active_backfills(client, dag) and time.monotonic() < deadline:
        if any(run["run_type"] == "backfill" for run in client.runs(dag, *OPEN_STATES)):
            return
        time.sleep(1)


def refuse_open_runs(dag: str, runs: list[dict[str, Any]]) -> None:
    """Raises SluiceError if there are open runs that the backfill would skip or wait for in vain."""
    if runs:
        raise SluiceError(
            f"The run '{runs[0]['dag_run_id']}' of '{dag}' is {runs[0]['state']}. Start the backfill when it has ended: sluice status {dag}"
        )


def refuse_backfill_that_cannot_start(settings: Settings, dag: str) -> None:
    """For `backfill create` of Airflow 3: raises SluiceError if its runs would wait for ever, and prints a note if that is unknown."""
    client = _find_airflow_client(settings)
    if client is None:
        advice = f"start it: make up, and unpause the DAG: ./airflow dags unpause {dag}"
        print(
            f"No Airflow runs here; until it does, and while '{dag}' is paused, the runs stay queued. To {advice}",
            file=sys.stderr,
        )
        return
    if client.has_dag(dag):
        refuse_paused_dag(client, dag)
        refuse_second_backfill(client, dag)


def _find_airflow_client(settings: Settings) -> Client | None:
    address = deployed_airflow_address()
    if address:
        return deployed_airflow_client(address)
    running = find_running_airflow(settings)
    if running is None:
        return None
    prepare_local_airflow(settings)  # a pipeline that came while it runs has no pool yet, and its runs would wait for ever
    return local_airflow_client(settings, running[1])
