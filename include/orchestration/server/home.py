"""The local Airflow's home below the checkout: its path, its secrets, its database, pools and user, the environment of its processes.

Imports no Airflow.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

from orchestration.airflow_line import airflow_line, airflow_version
from sluice.doctor import AIRFLOW_PORT
from sluice.durable_files import PRIVATE, write_json_durably
from sluice.errors import SluiceError
from sluice.settings import AIRFLOW_HOMES, Settings, list_pipeline_names
from sluice.spark_process import build_spark_environment

LOOPBACK = "127.0.0.1"
LOGIN = "admin"
API_BACKENDS = ("airflow.api.auth.backend.session", "airflow.providers.fab.auth_manager.api.auth.backend.basic_auth")
"""What lets a request pass on Airflow 2: the session of the UI, or a password sent with it."""

DEFERRABLE_BY_DEFAULT = "AIRFLOW__OPERATORS__DEFAULT_DEFERRABLE"
"""Airflow's variable that lets tasks leave their worker while something else works. Only then is a triggerer started."""
PASSED_ON = (
    "AIRFLOW__API_AUTH__JWT_EXPIRATION_TIME",
    DEFERRABLE_BY_DEFAULT,
    "AIRFLOW__SECRETS__BACKEND",
    "AIRFLOW__SECRETS__BACKEND_KWARGS",
    "AIRFLOW__WORKERS__SECRETS_BACKEND",
    "AIRFLOW__WORKERS__SECRETS_BACKEND_KWARGS",
)
"""What a user may set for the local Airflow: the lifetime of a REST API token in seconds, whether tasks are deferred, and the secret back end."""

SPARK_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
}


def airflow_pool_name(pipeline: str) -> str:
    """The pool whose one slot a pipeline's tasks share."""
    return f"sluice_{pipeline}"


def local_airflow_home(settings: Settings) -> Path:
    """AIRFLOW_HOME of this checkout; each line of Airflow has its own."""
    return settings.state / AIRFLOW_HOMES[airflow_line()]


def local_airflow_environment(settings: Settings, *, port: int = AIRFLOW_PORT, idle_schedule: bool = False) -> dict[str, str]:
    """The variables of every process of the local Airflow. Makes the secrets if there are none yet.

    idle_schedule: the scheduler makes no scheduled runs; triggered runs start.
    """
    folder = local_airflow_home(settings)
    kept = _load_or_make_secrets(folder)
    of_the_line = _airflow_2_settings if airflow_line() == 2 else _airflow_3_settings
    return {
        **build_spark_environment(settings),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(settings.root / "include"),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(settings.root / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Safe mode ignores DAG files without the word "airflow" in them, such as ours.
        "AIRFLOW__CORE__DAG_DISCOVERY_SAFE_MODE": "False",
        # By default 30 s: the first parse of a DAG on a busy machine would become an import error.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "300",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__FERNET_KEY": kept["fernet_key"],
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONNECT_ARGS": "orchestration.server.sqlite.CONNECT_ARGS",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(not idle_schedule),
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": os.environ.get("AIRFLOW_CONN_SPARK_DEFAULT")
        or json.dumps(SPARK_CONNECTION | {"host": settings.spark_master}),
        **of_the_line(folder, port, kept),
    }


def _airflow_3_settings(folder: Path, port: int, kept: dict[str, str]) -> dict[str, str]:
    return {
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{local_airflow_address(port)}/execution/",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{LOGIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": local_airflow_address(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": kept["secret_key"],
        "AIRFLOW__API_AUTH__JWT_SECRET": kept["jwt_secret"],
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",  # longer than the import of a file may take
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
        "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "True",
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",  # as long as a process may wait for the database
    }


def _airflow_2_settings(folder: Path, port: int, kept: dict[str, str]) -> dict[str, str]:
    return {
        # The only executor of Airflow 2 on SQLite: one task at a time, in the scheduler's process.
        "AIRFLOW__CORE__EXECUTOR": "SequentialExecutor",
        "AIRFLOW__CORE__DAG_FILE_PROCESSOR_TIMEOUT": "600",  # longer than the import of a file may take
        "AIRFLOW__API__AUTH_BACKENDS": ",".join(API_BACKENDS),
        "AIRFLOW__METRICS__TIMER_UNIT_CONSISTENCY": "True",  # as on Airflow 3; without it each command warns
        "AIRFLOW__SCHEDULER__DAG_DIR_LIST_INTERVAL": "10",
        "AIRFLOW__SCHEDULER__MIN_FILE_PROCESS_INTERVAL": "60",
        "AIRFLOW__WEBSERVER__WEB_SERVER_HOST": LOOPBACK,
        "AIRFLOW__WEBSERVER__WEB_SERVER_PORT": str(port),
        "AIRFLOW__WEBSERVER__BASE_URL": local_airflow_address(port),
        "AIRFLOW__WEBSERVER__WORKERS": "1",
        "AIRFLOW__WEBSERVER__SECRET_KEY": kept["secret_key"],
        # The configuration of Airflow's UI; Airflow makes the file with its defaults, which let nobody in.
        "AIRFLOW__WEBSERVER__CONFIG_FILE": str(folder / "webserver_config.py"),
    }


def local_airflow_address(port: int) -> str:
    """The address of the UI and the API."""
    return f"http://{LOOPBACK}:{port}"


def local_airflow_process_environment(
    settings: Settings, *, port: int = AIRFLOW_PORT, idle_schedule: bool = False
) -> dict[str, str]:
    """This process's environment with the local Airflow's settings, without those of any other Airflow but PASSED_ON."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__") or name in PASSED_ON}
    return others | local_airflow_environment(settings, port=port, idle_schedule=idle_schedule)


def local_airflow_password(settings: Settings) -> str:
    """The password of the user `admin`."""
    return _load_or_make_secrets(local_airflow_home(settings))["password"]


def airflow_command(*arguments: str) -> list[str]:
    """The installed Airflow's command line."""
    return [str(Path(sys.executable).parent / "airflow"), *arguments]


def refuse_failed_command(name: str, done: subprocess.CompletedProcess[str]) -> None:
    """Raises SluiceError with the end of what a command printed, if it failed. name: what it is called in the message."""
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        raise SluiceError(f"'{name}' failed with exit code {done.returncode}:\n{tail}")


def _load_or_make_secrets(folder: Path) -> dict[str, str]:
    """The generated secrets, made at the first call; every file is readable by its owner only."""
    path = folder / "secrets.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        kept = {
            "fernet_key": base64.urlsafe_b64encode(os.urandom(32)).decode(),
            "secret_key": secrets.token_urlsafe(48),
            "jwt_secret": secrets.token_urlsafe(64),
            "password": secrets.token_urlsafe(12),
        }
        write_json_durably(folder / "passwords.json", {LOGIN: kept["password"]}, PRIVATE)
        write_json_durably(path, kept, PRIVATE)
    loaded: dict[str, str] = json.loads(path.read_text())
    return loaded


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
    refuse_failed_command(f"airflow {arguments[0]}", done)


def _sha256_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
