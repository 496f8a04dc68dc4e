"""Prepares the deployment that docker-compose.yaml describes: database, users, pools, connection. Imports no Airflow.

Run `python -m orchestration.server.deployment` once at each start, before anything else of Airflow. Repeating it changes nothing.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchestration.server.environment_file import DEPLOYMENT_SECRETS, STORE_KEY, DeploymentSecret
from orchestration.server.home import (
    SPARK_CONNECTION,
    airflow_command,
    airflow_pool_definition,
    airflow_pool_name,
    refuse_failed_command,
)
from sluice.errors import SluiceError, UsageError
from sluice.private_files import make_private_folder
from sluice.root_folders import ROOT_FOLDERS
from sluice.settings import Settings, list_pipeline_names

SECRETS = tuple(one for one in DEPLOYMENT_SECRETS if one.least and one is not STORE_KEY)
"""Those that this container gets: all that are checked but the store's."""

_GUESSABLE = re.compile(r"^(.)\1*$|change.?me|password|secret|example|your[-_ ]", re.IGNORECASE)


def make_deployment_ready(settings: Settings) -> None:
    """Prepare the deployment of this process's AIRFLOW__ variables. Raises UsageError for a weak secret, and SluiceError."""
    refuse_weak_secrets(SECRETS)
    make_environment_folders(settings)
    _run_deployment_command("airflow db migrate", airflow_command("db", "migrate"))
    _run_deployment_command("users", [sys.executable, "-m", "orchestration.server.deployment_users"])
    with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
        pools, connections = Path(folder) / "pools.json", Path(folder) / "connections.json"
        pools.write_text(
            json.dumps({airflow_pool_name(name): airflow_pool_definition(name) for name in list_pipeline_names(settings)})
        )
        connections.write_text(json.dumps({"spark_default": {**SPARK_CONNECTION, "host": settings.spark_master}}))
        _run_deployment_command("airflow pools import", airflow_command("pools", "import", str(pools)))
        imported = airflow_command("connections", "import", "--overwrite", str(connections))
        _run_deployment_command("airflow connections import", imported)


def refuse_weak_secrets(needed: Sequence[DeploymentSecret]) -> None:
    """Raises UsageError for a secret whose variable is missing, short or guessable in this container."""
    for secret in needed:
        name, least = secret.in_container, secret.least
        value = os.environ.get(name, "")
        if len(value) < least or _GUESSABLE.search(value):
            raise UsageError(
                f"{name} is missing, short or guessable; at least {least} random characters are needed. Run: make env"
            )


def make_environment_folders(settings: Settings) -> None:
    """Make the folders of an environment, which services mount one by one; personal and secret ones for this user alone."""
    for root in ROOT_FOLDERS:
        folder = settings.locate_root(root)
        if root.is_private:
            make_private_folder(folder)
        else:
            folder.mkdir(parents=True, exist_ok=True)


def _run_deployment_command(name: str, command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    refuse_failed_command(name, done)
    print(f"{name}: done", flush=True)


if __name__ == "__main__":
    try:
        make_deployment_ready(Settings.current())
    except SluiceError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
