"""The local Airflow's home below the checkout: settings, secrets, database, pools. Imports no Airflow."""

from __future__ import annotations

import base64
import importlib.metadata
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path

from sluice.errors import SluiceError
from sluice.settings import Settings, pipeline_names

LOOPBACK = "127.0.0.1"
LOGIN = "admin"
DEFAULT_PORT = 8080

SPARK_CONNECTION = {
    "conn_type": "spark",
    "host": "local[2]",
    "extra": {"deploy-mode": "client", "spark-binary": "spark-submit"},
}


def pool_name(pipeline: str) -> str:
    """The pool whose one slot a pipeline's tasks share."""
    return f"sluice_{pipeline}"


def home(settings: Settings) -> Path:
    """AIRFLOW_HOME of this checkout."""
    return settings.state / "airflow"


def environment(settings: Settings, *, port: int = DEFAULT_PORT, idle_schedule: bool = False) -> dict[str, str]:
    """What every process of the local Airflow is told. Makes the secrets where there are none yet.

    idle_schedule: the scheduler makes no scheduled runs; runs that somebody triggers go.
    """
    folder = home(settings)
    kept = _secrets(folder)
    address = f"http://{LOOPBACK}:{port}"
    return {
        **settings.spark_environment(),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": str(settings.root / "include"),
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__DAGS_FOLDER": str(settings.root / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Safe mode takes a file without the word "airflow" in it for no DAG file; ours are such files.
        "AIRFLOW__CORE__DAG_DISCOVERY_SAFE_MODE": "False",
        "AIRFLOW__CORE__PARALLELISM": "2",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__CORE__FERNET_KEY": kept["fernet_key"],
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{LOGIN}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(folder / "passwords.json"),
        # SQLite has one writer at a time; the others wait for up to 60 s instead of failing after 5.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}?timeout=60",
        "AIRFLOW__API__HOST": LOOPBACK,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": kept["secret_key"],
        "AIRFLOW__API_AUTH__JWT_SECRET": kept["jwt_secret"],
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "10",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(not idle_schedule),
        "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "True",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": os.environ.get("AIRFLOW_CONN_SPARK_DEFAULT") or json.dumps(SPARK_CONNECTION),
    }


def process_environment(settings: Settings, *, port: int = DEFAULT_PORT, idle_schedule: bool = False) -> dict[str, str]:
    """This process's environment with the local Airflow's settings, without those of any other Airflow."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW__")}
    return others | environment(settings, port=port, idle_schedule=idle_schedule)


def password(settings: Settings) -> str:
    """The password of the user `admin`."""
    return _secrets(home(settings))["password"]


def prepare(settings: Settings) -> None:
    """Make the home ready: secrets, database, pools. Does nothing where that is done.

    Raises SluiceError with Airflow's last words.
    """
    folder = home(settings)
    pools = {pool_name(name): _pool(name) for name in pipeline_names(settings)}
    state = {"airflow": importlib.metadata.version("apache-airflow"), "folder": str(folder), "pools": pools}
    stamp = folder / "prepared.json"
    if stamp.exists() and (folder / "airflow.db").exists() and json.loads(stamp.read_text()) == state:
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    pools_file = folder / "pools.json"
    pools_file.write_text(json.dumps(pools, indent=2))
    _airflow(settings, "db", "migrate")
    _airflow(settings, "pools", "import", str(pools_file))
    stamp.write_text(json.dumps(state, indent=2))


def airflow_command(*arguments: str) -> list[str]:
    """The installed Airflow's command line."""
    return [str(Path(sys.executable).parent / "airflow"), *arguments]


def _pool(pipeline: str) -> dict[str, object]:
    return {
        "slots": 1,
        "description": f"One task of {pipeline} at a time writes its lake.",
        "include_deferred": True,
    }


def _airflow(settings: Settings, *arguments: str) -> None:
    done = subprocess.run(
        airflow_command(*arguments),
        env=process_environment(settings),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        raise SluiceError(f"'airflow {arguments[0]}' failed with exit code {done.returncode}:\n{tail}")


def _secrets(folder: Path) -> dict[str, str]:
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
        _write_private(folder / "passwords.json", {LOGIN: kept["password"]})
        _write_private(path, kept)
    loaded: dict[str, str] = json.loads(path.read_text())
    return loaded


def _write_private(path: Path, content: dict[str, str]) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)
