"""A local Airflow in this checkout, driven as processes and through its REST API. Imports no Airflow.

As a command: `python -m orchestration.local prepare`, or `exec ARGS...` for Airflow's own command line; in a deployment, the deployment's.
"""

from __future__ import annotations

import os
import sys

from orchestration.airflow_line import airflow_line
from orchestration.backfill import process
from orchestration.backfill.arguments import translate_airflow_arguments
from orchestration.backfill.checks import wait_for_dag_of_checkout
from orchestration.erasure.ids import DAG_ID, refuse_identifiers_in_arguments
from orchestration.rest.client import Client
from orchestration.server.deployed import deployed_airflow_address, deployed_command_environment
from orchestration.server.home import (
    LOGIN,
    airflow_command,
    local_airflow_address,
    local_airflow_environment,
    local_airflow_home,
    local_airflow_password,
    local_airflow_process_environment,
    prepare_local_airflow,
)
from orchestration.server.processes import LocalAirflow, find_running_airflow, local_airflow_client, stop_running_airflow
from sluice.doctor import AIRFLOW_PORT
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings

__all__ = [
    "DAG_ID",
    "LOGIN",
    "Client",
    "LocalAirflow",
    "airflow_line",
    "find_running_airflow",
    "local_airflow_address",
    "local_airflow_client",
    "local_airflow_environment",
    "local_airflow_home",
    "local_airflow_password",
    "prepare_local_airflow",
    "stop_running_airflow",
    "wait_for_dag_of_checkout",
]


def main(arguments: list[str]) -> None:
    """Run a command of this module; `exec` replaces this process by Airflow.

    Raises UsageError for an unknown command, a backfill that would not do what was asked, and text that could identify a person.
    """
    settings = Settings.current()
    match arguments:
        case ["prepare"]:
            prepare_local_airflow(settings)
        case ["exec", *rest] if deployed_airflow_address():
            refuse_identifiers_in_arguments(rest)
            command = airflow_command(*translate_airflow_arguments(rest))
            os.execve(command[0], command, deployed_command_environment())
        case ["exec", *rest]:
            prepare_local_airflow(settings)
            refuse_identifiers_in_arguments(rest)
            asked = translate_airflow_arguments(rest)
            if asked[:2] == ["dags", "backfill"]:  # Airflow 2 only: the schedule has to wait meanwhile
                sys.exit(process.run_airflow_backfill(settings, asked))
            running = find_running_airflow(settings)
            port = running[1] if running else AIRFLOW_PORT
            command = airflow_command(*asked)
            os.execve(command[0], command, local_airflow_process_environment(settings, port=port))
        case _:
            raise UsageError("Say 'prepare', or 'exec' and what Airflow is to do, as in: exec dags list")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
