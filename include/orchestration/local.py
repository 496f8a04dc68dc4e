"""A local Airflow in this checkout, driven as processes and through its REST API. Imports no Airflow.

As a command: `python -m orchestration.local prepare`, or `exec ARGS...` for Airflow's own command line; in a deployment, the deployment's.
"""

from __future__ import annotations

import os
import sys

from orchestration.backfill import process
from orchestration.backfill.arguments import translated
from orchestration.erasure.ids import DAG_ID, refuse_identifiers
from orchestration.line import airflow_line
from orchestration.rest.client import Client
from orchestration.server.deployed import command_environment, deployed_address
from orchestration.server.home import (
    DEFAULT_PORT,
    LOGIN,
    address,
    airflow_command,
    environment,
    home,
    password,
    process_environment,
)
from orchestration.server.preparation import prepare
from orchestration.server.processes import LocalAirflow, client, running_instance, stop_running
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings

__all__ = [
    "DAG_ID",
    "LOGIN",
    "Client",
    "LocalAirflow",
    "address",
    "airflow_line",
    "client",
    "environment",
    "home",
    "password",
    "prepare",
    "running_instance",
    "stop_running",
]


def main(arguments: list[str]) -> None:
    """Run a command of this module; `exec` replaces this process by Airflow.

    Raises UsageError for another word, for a backfill that would not do what was asked, and for what could be somebody's identifier.
    """
    settings = Settings.current()
    match arguments:
        case ["prepare"]:
            prepare(settings)
        case ["exec", *rest] if deployed_address():
            refuse_identifiers(rest)
            command = airflow_command(*translated(rest))
            os.execve(command[0], command, command_environment())
        case ["exec", *rest]:
            prepare(settings)
            refuse_identifiers(rest)
            asked = translated(rest)
            if asked[:2] == ["dags", "backfill"]:  # of Airflow 2; its schedule has to wait
                sys.exit(process.run(settings, asked))
            running = running_instance(settings)
            port = running[1] if running else DEFAULT_PORT
            command = airflow_command(*asked)
            os.execve(command[0], command, process_environment(settings, port=port))
        case _:
            raise UsageError("Say 'prepare', or 'exec' and what Airflow is to do, as in: exec dags list")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
