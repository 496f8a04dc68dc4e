"""Start and stop the local Airflow."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestration.rest.client import Client
from orchestration.rest.versions import make_airflow_client
from orchestration.server.free_ports import find_free_port
from orchestration.server.home import (
    LOGIN,
    LOOPBACK,
    local_airflow_address,
    local_airflow_home,
    local_airflow_password,
    local_airflow_process_environment,
    prepare_local_airflow,
)
from orchestration.server.supervisor import find_session_members, signal_session
from sluice.doctor import AIRFLOW_PORT, parse_airflow_port
from sluice.errors import SluiceError, UsageError
from sluice.settings import Settings

START_SECONDS = 900
"""How long all parts may take to become healthy, on a busy machine. The end of a part ends the wait at once."""
STOP_SECONDS = 40
"""Longer than the supervisor ever takes."""


class LocalAirflow:
    """The local Airflow, running between `start` and `stop` or inside a with block.

    idle_schedule: no scheduled runs. with_parent: it stops when this process ends, however it ends.
    """

    def __init__(self, settings: Settings, *, idle_schedule: bool = False, with_parent: bool = True) -> None:
        self._settings = settings
        self._idle_schedule = idle_schedule
        self._with_parent = with_parent
        self._supervisor: subprocess.Popen[bytes] | None = None
        self.client: Client

    def start(self) -> Client:
        """Start it and return when all its parts are healthy.

        Raises UsageError if one runs already, SluiceError if it does not start.
        """
        running = find_running_airflow(self._settings)
        if running:
            raise UsageError(f"Airflow runs already at {local_airflow_address(running[1])}. Stop it first: sluice down")
        prepare_local_airflow(self._settings)
        port = choose_airflow_port(os.environ.get("SLUICE_AIRFLOW_PORT", ""))
        folder = local_airflow_home(self._settings)
        command = [
            sys.executable,
            "-m",
            "orchestration.server.supervisor",
            "--home",
            str(folder),
            "--port",
            str(port),
        ]
        with (folder / "supervisor.log").open("wb") as log:
            self._supervisor = subprocess.Popen(
                command + (["--with-parent"] if self._with_parent else []),
                env=local_airflow_process_environment(self._settings, port=port, idle_schedule=self._idle_schedule),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.client = local_airflow_client(self._settings, port)
        try:
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise
        return self.client

    def stop(self) -> None:
        """Stop it with everything that it started."""
        if self._supervisor is not None:
            self._supervisor.terminate()
            try:
                self._supervisor.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._supervisor.kill()
                self._supervisor.wait()
            signal_session(self._supervisor.pid, signal.SIGKILL)
            self._supervisor = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _wait_until_healthy(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.client.is_healthy():
            if self._supervisor is None or self._supervisor.poll() is not None:
                raise SluiceError(f"Airflow ended while it started.\n{self._last_words()}")
            if time.monotonic() > deadline:
                raise SluiceError(f"Airflow was not healthy after {START_SECONDS} s.\n{self._last_words()}")
            time.sleep(0.3)

    def _last_words(self) -> str:
        logs = local_airflow_home(self._settings) / "logs"
        lines = [
            f"  {path.stem}: {line}"
            for path in sorted(logs.glob("*.log"))
            for line in path.read_text(errors="replace").splitlines()[-3:]
        ]
        return "\n".join([*lines, f"All of it: {logs}"])


def local_airflow_client(settings: Settings, port: int) -> Client:
    """A client of the local Airflow, logged in as its one user."""
    return make_airflow_client(local_airflow_address(port), LOGIN, local_airflow_password(settings))


def find_running_airflow(settings: Settings) -> tuple[int, int] | None:
    """Process id and port of the supervisor that runs in this home, or None. The lock decides."""
    folder = local_airflow_home(settings)
    for _ in range(50):  # it writes its id just after it locks, and removes it just before it unlocks
        if not _is_file_locked(folder / "supervisor.lock"):
            return None
        with contextlib.suppress(FileNotFoundError):
            holder = json.loads((folder / "supervisor.json").read_text())
            return holder["pid"], holder["port"]
        time.sleep(0.1)
    raise SluiceError(f"Airflow's home {folder} is locked by an unknown process.")


def _is_file_locked(path: Path) -> bool:
    try:
        with path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def stop_running_airflow(settings: Settings) -> bool:
    """Stop the Airflow that runs in this home, whoever started it. False where none runs."""
    running = find_running_airflow(settings)
    if running is None:
        return False
    pid = running[0]
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while find_running_airflow(settings) and time.monotonic() < deadline:
        time.sleep(0.2)
    if find_running_airflow(settings):
        os.kill(pid, signal.SIGKILL)
    if find_session_members(pid):
        signal_session(pid, signal.SIGKILL)
    return True


def choose_airflow_port(wanted: str) -> int:
    """The port of SLUICE_AIRFLOW_PORT; if that is not set 8080, or any free one. Raises UsageError."""
    try:
        asked = parse_airflow_port(wanted)
    except ValueError as error:
        raise UsageError(str(error)) from None
    port = asked or AIRFLOW_PORT
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((LOOPBACK, port))
        return port
    if not asked:
        return find_free_port()
    raise UsageError(f"Port {wanted} on {LOOPBACK} is taken. Set SLUICE_AIRFLOW_PORT to another, or to nothing.")
