"""Two lines of Airflow from one code base: which one is meant, where it lives, and that its password stays where it is."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from orchestration import airflow_line
from orchestration.rest.versions import ClientOfAirflow2, ClientOfAirflow3, make_airflow_client
from orchestration.server import supervisor
from orchestration.server.home import (
    DEFERRABLE_BY_DEFAULT,
    local_airflow_environment,
    local_airflow_home,
    local_airflow_password,
    prepare_local_airflow,
)
from sluice.errors import SluiceError
from sluice.settings import Settings

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """`./airflow` in a folder with these environments, whose Python says which it is. Returns exit code and what was said."""
    (tmp_path / "airflow").write_text((ROOT / "airflow").read_text())
    (tmp_path / "airflow").chmod(0o755)

    def run(*environments: str, airflow: str = "") -> tuple[int, str]:
        for name in environments:
            python = tmp_path / name / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text(f'#!/bin/sh\necho {name} "$@"\n')
            python.chmod(0o755)
        variables = {name: value for name, value in os.environ.items() if name != "AIRFLOW"}
        done = subprocess.run(
            [tmp_path / "airflow", "dags", "list"],
            env=variables | ({"AIRFLOW": airflow} if airflow else {}),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, (done.stdout + done.stderr).strip()

    return run


@pytest.mark.parametrize(
    ("environments", "airflow", "chosen"),
    [
        ((".venv",), "", ".venv"),
        ((".venv-airflow2",), "", ".venv-airflow2"),
        ((".venv", ".venv-airflow2"), "", ".venv"),
        ((".venv", ".venv-airflow2"), "2", ".venv-airflow2"),
        ((".venv", ".venv-airflow2"), "3", ".venv"),
    ],
)
def test_the_line_that_is_set_up_or_asked_for(
    told: Callable[..., tuple[int, str]], environments: tuple[str, ...], airflow: str, chosen: str
) -> None:
    assert told(*environments, airflow=airflow) == (0, f"{chosen} -P -m orchestration.local exec dags list")


def test_a_line_that_is_not_set_up_is_refused_with_what_to_do(told: Callable[..., tuple[int, str]]) -> None:
    assert told() == (2, "Not installed here yet. Run: make setup")
    assert told(".venv", airflow="2") == (2, "Not installed here yet. Run: make setup AIRFLOW=2")
    assert told(".venv", airflow="4") == (2, "AIRFLOW is '4'; expected 3 or 2.")


@pytest.mark.parametrize(("version", "folder"), [("2.11.2", "airflow2"), ("3.3.2", "airflow")])
def test_each_line_has_its_home_and_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, folder: str) -> None:
    monkeypatch.setattr(airflow_line.importlib.metadata, "version", lambda _: version)
    settings = replace(Settings.current(), root=tmp_path)
    assert local_airflow_home(settings) == tmp_path / ".sluice" / folder
    parts = supervisor.airflow_part_commands(18100)
    assert set(parts) == ({"scheduler", "webserver"} if version < "3" else {"scheduler", "dag-processor", "api-server"})
    monkeypatch.setenv(DEFERRABLE_BY_DEFAULT, "True")
    assert set(supervisor.airflow_part_commands(18100)) - set(parts) == {"triggerer"}, "where tasks are deferred"
    server = parts["webserver" if version < "3" else "api-server"]
    assert server[server.index("--port") + 1] == "18100" and "127.0.0.1" in server
    kind = type(make_airflow_client("http://127.0.0.1:1", "admin", "x"))
    assert kind is (ClientOfAirflow2 if version < "3" else ClientOfAirflow3)
    told = local_airflow_environment(settings)
    backends = told.get("AIRFLOW__API__AUTH_BACKENDS", "")
    assert bool(backends) == (version < "3") and not re.search(r"default|deny", backends)
    assert "ALL_ADMINS" not in " ".join(told)


def test_a_line_that_sluice_does_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_line.importlib.metadata, "version", lambda _: "4.0.0")
    with pytest.raises(SluiceError, match=r"Airflow 4\.0\.0 is installed; Sluice runs on the lines 2 and 3"):
        airflow_line.airflow_line()


def test_the_password_is_in_no_command_line_while_the_home_is_made(checkout: Checkout, tmp_path: Path) -> None:
    (tmp_path / "include").symlink_to(ROOT / "include")
    settings = replace(checkout.settings, root=tmp_path)
    secret = local_airflow_password(settings)
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            for process in psutil.Process().children(recursive=True):
                try:
                    seen.add(" ".join(process.cmdline()))
                except psutil.Error:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        prepare_local_airflow(settings)
    finally:
        ended.set()
        watcher.join()
    assert any("db migrate" in command for command in seen), "nothing was watched"
    assert not [command for command in seen if secret in command]
