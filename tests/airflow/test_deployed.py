"""`sluice backfill` and ./airflow where SLUICE_AIRFLOW says that Airflow is a deployment's."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestration import local
from orchestration.airflow_line import airflow_line
from orchestration.backfill.checks import find_airflow_with_dag
from orchestration.server import deployed
from orchestration.server.deployed import SERVICE_USER
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings

PASSWORD = hashlib.sha256(b"of the deployment").hexdigest()
FETCHED = "fetched"
ALLOWED = {f"Bearer {FETCHED}", f"Basic {base64.b64encode(f'{SERVICE_USER}:{PASSWORD}'.encode()).decode()}", "Bearer given"}


class Server(http.server.BaseHTTPRequestHandler):
    """The part of Airflow's API that is called before a backfill begins."""

    def do_POST(self) -> None:
        login = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(201 if login == {"username": SERVICE_USER, "password": PASSWORD} else 401, {"access_token": FETCHED})

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] in ALLOWED
        self._answer(200 if allowed else 401, {"dag_id": "gym", "is_paused": False} if allowed else {"detail": "who asks?"})

    def _answer(self, status: int, content: dict[str, Any]) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in [name for name in os.environ if name.startswith("AIRFLOW__")]:
        monkeypatch.delenv(name)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setenv("SLUICE_AIRFLOW", address)
        yield address
        server.shutdown()
        thread.join()


def secret_file(folder: Path, content: str) -> Path:
    path = folder / "kept"
    path.write_text(content)
    path.chmod(0o600)
    return path


def test_a_backfill_asks_the_deployment_with_the_password_that_its_container_has(
    settings: Settings, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = secret_file(tmp_path, json.dumps({"username": SERVICE_USER, "password": PASSWORD}))
    monkeypatch.setenv("SLUICE_AIRFLOW_LOGIN", str(login))
    assert find_airflow_with_dag(settings, "gym").address == address
    login.chmod(0o644)
    with pytest.raises(UsageError, match="can be read by others"):
        find_airflow_with_dag(settings, "gym")


@pytest.mark.skipif(airflow_line() == 2, reason="Airflow 2 knows no tokens")
def test_a_backfill_asks_the_deployment_with_a_token(
    settings: Settings, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_AIRFLOW_TOKEN", str(secret_file(tmp_path, "given\n")))
    assert find_airflow_with_dag(settings, "gym").address == address
    secret_file(tmp_path, "another")
    with pytest.raises(SluiceError, match="401"):
        find_airflow_with_dag(settings, "gym")


def test_what_is_missing_is_said(settings: Settings, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"there is no token and no login\. Set SLUICE_AIRFLOW_TOKEN"):
        find_airflow_with_dag(settings, "gym")
    with pytest.raises(UsageError, match="AIRFLOW__DATABASE__SQL_ALCHEMY_CONN is not set"):
        local.main(["exec", "dags", "list"])
    monkeypatch.setenv("SLUICE_AIRFLOW", "apiserver:8080")
    with pytest.raises(UsageError, match="is the address of an Airflow"):
        deployed.deployed_airflow_address()


def test_airflow_s_own_command_line_uses_the_deployment_s_database(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda _, command, environment: asked.append((command, environment)))
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql+psycopg2://airflow@postgres:5432/airflow")
    local.main(["exec", "dags", "list"])
    ((command, environment),) = asked
    assert command[1:] == ["dags", "list"]
    assert environment == dict(os.environ), "nothing of a local Airflow"
