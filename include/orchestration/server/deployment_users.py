"""The first users of a deployment, in the auth manager of Airflow's provider FAB, which keeps their passwords in the database as hashes.

`admin`, whose password is in .env, creates the others in the UI. `sluice backfill` in a container logs in as `sluice`; a file that only
this user of the operating system can read holds its password. Run as a process of its own, by `orchestration.server.deployment`: it imports Airflow.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from orchestration.server.deployed import LOGIN_FILE, SERVICE_USER
from orchestration.server.home import LOGIN
from sluice.durable_files import PRIVATE, write_json_durably


@providers_configuration_loaded
def make_first_users(admin_password: str, login_file: Path) -> None:
    """Create the users that do not exist yet. An existing user keeps password and roles, whatever .env says now."""
    with get_application_builder() as builder:
        users = builder.sm
        if users.find_user(username=LOGIN) is None:
            _add_user(users, LOGIN, "Admin", admin_password)
        service = users.find_user(username=SERVICE_USER)
        if service is None or not login_file.is_file():
            password = secrets.token_urlsafe(32)
            if service is None:
                _add_user(users, SERVICE_USER, "Op", password)
            else:
                users.reset_password(service.id, password)
            write_json_durably(login_file, {"username": SERVICE_USER, "password": password}, PRIVATE)


def _add_user(users: Any, name: str, role: str, password: str) -> None:
    if not users.add_user(name, name, "Sluice", f"{name}@sluice.invalid", users.find_role(role), password):
        raise SystemExit(f"Airflow's database does not accept the user {name}.")


if __name__ == "__main__":
    make_first_users(os.environ["AIRFLOW_ADMIN_PASSWORD"], Path(os.environ[LOGIN_FILE]))
