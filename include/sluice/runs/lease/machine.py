"""Tells whether a process that held a lease has surely ended. Only then is its lease on a store taken over at once.

A process id alone proves nothing: it means another process on another machine, in another container, after a restart, or after reuse.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

_STATE, _THREADS, _START = 0, 17, 19
"""The fields' positions in /proc/PID/stat after the program's name (proc(5) counts from 1, and the name is the second)."""


def name_this_machine() -> str:
    """Returns a name for the scope of process ids here: host, its boot, and the PID namespace, of which a container has its own.

    "" if the system does not give all of these: then nothing is known about other processes.
    """
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
    return f"{socket.gethostname()} {start} {space}"


def read_process_start(pid: int) -> str:
    """Returns when a process began, in ticks since the machine's boot, which does not depend on any clock. "" if the system does not say."""
    found = _read_process_status(pid)
    return found[_START] if found else ""


def read_process_starts(*pids: int | None) -> dict[int, str]:
    """Returns what `read_process_start` says of each of these processes, by id."""
    return {pid: read_process_start(pid) for pid in pids if pid is not None}


def have_surely_ended(machine: str, starts: Mapping[int, str]) -> bool:
    """Whether all these processes were on this machine and are gone. machine: as `name_this_machine`. starts: as `read_process_start`, by id.

    False if anything is unknown.
    """
    return bool(machine and starts) and machine == name_this_machine() and all(is_process_gone(*one) for one in starts.items())


def is_process_gone(pid: int, start: str) -> bool:
    """Whether the process of this machine that began then has ended. start: as `read_process_start`; "" if unknown."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        pass
    found = _read_process_status(pid)
    if not found:
        return False
    if found[_STATE] == "Z" and int(found[_THREADS]) <= 1:  # a zombie: not reaped yet, but no thread of it lives
        return True
    return bool(start) and found[_START] != start


def _read_process_status(pid: int) -> list[str]:
    """Returns the words of /proc/PID/stat after the name of the program, in parentheses; none if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
