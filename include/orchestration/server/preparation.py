"""Prepares the local Airflow's home: database, pools, and on Airflow 2 its user. Imports no Airflow."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess

from orchestration.line import airflow_line, airflow_version
from orchestration.server.home import (
    LOGIN,
    airflow_command,
    airflow_pool_name,
    local_airflow_home,
    local_airflow_password,
    local_airflow_process_environment,
)
from sluice.durable_files import write_json_durably
from sluice.errors import SluiceError
from sluice.settings import Settings, list_pipeline_names


def prepare_local_airflow(settings: Settings) -> None:
    """Prepare the home. Does nothing if that was done before.

    Raises SluiceError with the end of Airflow's output.
    """
    folder = local_airflow_home(settings)
    secret = local_airflow_password(settings)
    pools = {airflow_pool_name(name): airflow_pool_definition(name) for name in list_pipeline_names(settings)}
    state = {"airflow": airflow_version(), "folder": str(folder), "pools": pools, "login": _sha256_digest(secret)}
    stamp = folder / "prepared.json"
    if stamp.exists() and (folder / "airflow.db").exists() and json.loads(stamp.read_text()) == state:
        return
    pools_file = folder / "pools.json"
    write_json_durably(pools_file, pools, indent=2)
    new = not (folder / "airflow.db").exists()
    _run_local_airflow_command(settings, "db", "migrate")
    _run_local_airflow_command(settings, "pools", "import", str(pools_file))
    if airflow_line() == 2:  # Airflow 3 reads passwords.json
        _make_admin_user(settings, secret, new)
    write_json_durably(stamp, state, indent=2)


def airflow_pool_definition(pipeline: str) -> dict[str, object]:
    """A pipeline's pool, as `airflow pools import` reads it."""
    return {
        "slots": 1,
        "description": f"One task of {pipeline} at a time writes its lake.",
        "include_deferred": True,
    }


def _make_admin_user(settings: Settings, secret: str, new: bool) -> None:
    """Create the user. The password goes to the command's prompt, since everybody on the machine can read arguments."""
    if not new:  # creating an existing user changes nothing, and `users reset-password` fails in 2.11.2
        with contextlib.suppress(SluiceError):
            _run_local_airflow_command(settings, "users", "delete", "--username", LOGIN)
    person = ("--firstname", "Local", "--lastname", "Admin", "--email", f"{LOGIN}@localhost")
    _run_local_airflow_command(
        settings, "users", "create", "--username", LOGIN, "--role", "Admin", *person, typed=f"{secret}\n{secret}\n"
    )


def _run_local_airflow_command(settings: Settings, *arguments: str, typed: str = "") -> None:
    done = subprocess.run(
        airflow_command(*arguments),
        env=local_airflow_process_environment(settings),
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        start_new_session=True,  # without a terminal, a prompt for a password reads what is typed here
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        raise SluiceError(f"'airflow {arguments[0]}' failed with exit code {done.returncode}:\n{tail}")


def _sha256_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
