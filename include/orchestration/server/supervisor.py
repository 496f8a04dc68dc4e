"""Runs the parts of the local Airflow, and ends them and all that they started on SIGTERM or when one of them ends.

All share this process's session, also tasks and their Spark jobs, so that every last one can be found.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil  # type: ignore[import-untyped]  # it ships no types

from orchestration.airflow_line import airflow_line
from orchestration.server.home import DEFERRABLE_BY_DEFAULT, LOOPBACK, airflow_command
from sluice.durable_files import write_json_durably

FINISH_SECONDS = 5
"""The seconds that the parts get to end by themselves after SIGTERM; then every process of the session gets SIGTERM."""

STOP_SECONDS = 10
"""The seconds that those get before SIGKILL."""


def main() -> None:
    """Run until SIGTERM, the end of a part, or, with --with-parent, the end of the starting process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--with-parent", action="store_true")
    options = parser.parse_args()
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # or `finally` would never run
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    with hold_supervisor_lock(options.home, options.port), contextlib.ExitStack() as files:
        parts = start_airflow_parts(options.home, options.port, files)
        try:
            while all(part.poll() is None for part in parts):
                if options.with_parent and os.getppid() != parent:
                    return
                time.sleep(0.3)
            sys.exit(1)
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            stop_airflow_parts(parts)


@contextlib.contextmanager
def hold_supervisor_lock(folder: Path, port: int) -> Iterator[None]:
    """Hold the home's lock, which lives as long as this process, and write this process's id beside it.

    Exits with 3 if another process holds it.
    """
    with (folder / "supervisor.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(3)
        holder = folder / "supervisor.json"
        write_json_durably(holder, {"pid": os.getpid(), "port": port})
        try:
            yield
        finally:
            holder.unlink(missing_ok=True)


def start_airflow_parts(folder: Path, port: int, files: contextlib.ExitStack) -> list[subprocess.Popen[bytes]]:
    """Start the parts of this line of Airflow, each with its own log file in <home>/logs."""
    for left in folder.glob("airflow-*.pid"):  # of a part that was killed; another process may have its id by now
        left.unlink()
    return [
        subprocess.Popen(
            airflow_command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=files.enter_context(_open_part_log(folder, name)),
            stderr=subprocess.STDOUT,
        )
        for name, arguments in airflow_part_commands(port).items()
    ]


def airflow_part_commands(port: int) -> dict[str, list[str]]:
    """The parts by name, with the Airflow command that starts each."""
    # Its log server would listen on all interfaces; the UI's server reads the log files itself.
    scheduler = ["scheduler", "--skip-serve-logs"]
    deferrable = os.environ.get(DEFERRABLE_BY_DEFAULT, "").lower() in ("true", "t", "1")
    triggerer = {"triggerer": ["triggerer", "--skip-serve-logs"]} if deferrable else {}
    if airflow_line() == 2:  # its scheduler parses the DAGs as well
        server = ["webserver", "--hostname", LOOPBACK, "--port", str(port), "--workers", "1"]
        return {"scheduler": scheduler, **triggerer, "webserver": server}
    return {
        "scheduler": scheduler,
        **triggerer,
        "dag-processor": ["dag-processor"],
        "api-server": ["api-server", "--host", LOOPBACK, "--port", str(port), "--workers", "1"],
    }


def stop_airflow_parts(parts: list[subprocess.Popen[bytes]]) -> None:
    """Send SIGTERM to the parts, then to the whole session, then SIGKILL to the rest of it."""
    for part in parts:
        part.terminate()
    session = os.getpid()
    if not _has_session_ended_within(session, FINISH_SECONDS):
        signal_session(session, signal.SIGTERM)
        if not _has_session_ended_within(session, STOP_SECONDS):
            signal_session(session, signal.SIGKILL)
            _has_session_ended_within(session, 5)


def find_session_members(session: int) -> list[psutil.Process]:
    """The living processes of a session, without its leader. A zombie is not one of them."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError, PermissionError):
            member = process.pid != session and os.getsid(process.pid) == session
            if member and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def signal_session(session: int, number: signal.Signals) -> None:
    """Send a signal to every member of a session but its leader."""
    for process in find_session_members(session):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def _has_session_ended_within(session: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while find_session_members(session):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.2)
    return True


def _open_part_log(folder: Path, name: str) -> IO[bytes]:
    (folder / "logs").mkdir(exist_ok=True)
    return (folder / "logs" / f"{name}.log").open("wb")


if __name__ == "__main__":
    main()
