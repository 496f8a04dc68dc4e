"""The Airflow of a deployment, which this process uses instead of a local one: SLUICE_AIRFLOW is its address. Imports no Airflow.

The client logs in by a token (SLUICE_AIRFLOW_TOKEN names a file that holds it), or else by the login of the user `sluice`, which the
deployment keeps in a file that its containers can read (SLUICE_AIRFLOW_LOGIN).
"""

from __future__ import annotations

import json
import os
import urllib.parse
from pathlib import Path

from orchestration.airflow_line import airflow_line
from orchestration.rest.client import Client
from orchestration.rest.versions import ClientOfAirflow3, make_airflow_client
from orchestration.server.home import LOGIN
from sluice.errors import UsageError
from sluice.private_files import read_secret_file

ADDRESS = "SLUICE_AIRFLOW"
TOKEN = "SLUICE_AIRFLOW_TOKEN"
_DATABASE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
LOGIN_FILE = "SLUICE_AIRFLOW_LOGIN"
SERVICE_USER = "sluice"


def deployed_airflow_address() -> str | None:
    """The address of the deployment's Airflow; None if a local one is used. Raises UsageError if it is no address."""
    said = os.environ.get(ADDRESS, "").strip().rstrip("/")
    if said and urllib.parse.urlsplit(said).scheme not in ("http", "https"):
        raise UsageError(f"{ADDRESS} is the address of an Airflow, as http://apiserver:8080, not '{said}'.")
    return said or None


def deployed_airflow_client(address: str) -> Client:
    """A client of the deployment's Airflow. Raises UsageError without a token or a login."""
    file = os.environ.get(TOKEN)
    if file:
        if airflow_line() == 2:
            raise UsageError(f"{TOKEN} is for Airflow 3; Airflow 2 knows no tokens.")
        return ClientOfAirflow3(address, LOGIN, "", token=_read_secret_of_variable(TOKEN, Path(file)).decode().strip())
    login_file = os.environ.get(LOGIN_FILE)
    if not login_file:
        raise UsageError(
            f"{ADDRESS} says where Airflow is, but there is no token and no login. Set {TOKEN} to a file, mode 0600, with a token of its REST API."
        )
    login = json.loads(_read_secret_of_variable(LOGIN_FILE, Path(login_file)))
    return make_airflow_client(address, str(login["username"]), str(login["password"]))


def deployed_command_environment() -> dict[str, str]:
    """The environment of the deployment's own command line: this process's, unchanged.

    Raises UsageError if it names no database: Airflow would create one that nobody else uses.
    """
    if not os.environ.get(_DATABASE):
        raise UsageError(
            f"{ADDRESS} says that Airflow is a deployment's, and {_DATABASE} is not set. Its command line runs where its variables are: "
            "docker compose exec scheduler ./airflow ..."
        )
    return dict(os.environ)


def _read_secret_of_variable(variable: str, path: Path) -> bytes:
    try:
        return read_secret_file(path)
    except FileNotFoundError:
        raise UsageError(f"{variable} names {path}, which does not exist.") from None
