"""Who holds a pipeline's lease, as the holder writes it beside the lock, and whether its processes have surely ended.

Loads no Spark, since Airflow's tasks use it too.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types

from sluice.durable_files import write_json_durably
from sluice.locations import Location, is_on_disk, locate
from sluice.own_records import JVM_LOCK, LEASE_DESCRIPTION
from sluice.pipeline_records import PipelineRecords

# Tells whether a process that held a lease has surely ended. Only then is its lease on a store taken over at once.
#
# A process id alone proves nothing: it means another process on another machine, in another container, after a restart, or after reuse.

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


_CLOCKS_DIFFER = 2.0
_LONGEST_SILENCE = 300
"""Seconds after which the holder of a lease on a store, who renews it every 10 s, is no longer reported as its holder.

The lease itself depends on other clocks.
"""


@dataclass(frozen=True)
class LeaseHolder:
    """The process that holds a lease. kept_running: whether it keeps running and takes whatever comes, for `stage` alone if one is named.

    jvm: the process id of its JVM, which has the lock and may live longer; None if the process itself has it. machine: where these ids are
    valid, as `name_this_machine`, if its lease is on a store; two machines may have the same host name. starts: when these processes began, as
    `read_process_start`, by id; empty if an earlier Sluice described it.
    """

    run: str
    pid: int
    host: str
    since: str
    kept_running: bool = False
    stage: str | None = None
    jvm: int | None = None
    machine: str = field(default="", compare=False)
    starts: Mapping[int, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        return f"run {self.run} ({self._processes()} on {self.host}, since {self.since})"

    def _processes(self) -> str:
        if self.jvm is None:
            return f"process {self.pid}"
        if self.here and not is_process_of_holder(self, self.pid):
            return f"JVM {self.jvm}, whose process {self.pid} has ended"
        return f"process {self.pid}, JVM {self.jvm}"

    @property
    def here(self) -> bool:
        """Whether the holder is a process of this host."""
        return self.host == socket.gethostname() and self.machine in ("", name_this_machine())

    def held(self, what: str, pipeline: str | None = None) -> str:
        """Returns the message for others who want the lease. what: whose lease it is, such as "Pipeline 'gym'". pipeline: its name, if it has one."""
        if not self.kept_running:
            return f"{what} is being written by {self}."
        ending = f" To run anything else, end it first: sluice stop {pipeline}" if pipeline else ""
        if self.stage is None:
            return f"{what} is kept running by {self}, which takes what is new by itself.{ending}"
        alone = f"which takes what is new in the stage '{self.stage}' alone. No other stage can run until it has ended."
        return f"{what} is kept running by {self}, {alone}{ending}"


def find_lease_holder(records: PipelineRecords) -> LeaseHolder | None:
    """Returns who holds the lease, or None. If the process that last described itself has ended, nobody holds it."""
    return find_living_holder(locate(records.bookkeeping()))


def does_run_hold_lease(records: PipelineRecords, run: str) -> bool:
    """Whether a process of this run is seen to hold the lease, so that it will look for a stop request.

    A holder on a disk that is another host's is believed in other cases, but not seen. A JVM whose process has ended looks for nothing.
    """
    folder = locate(records.bookkeeping())
    found = find_living_holder(folder)
    if found is None or found.run != run:
        return False
    return is_process_of_holder(found, found.pid) if found.here else not is_on_disk(folder)


def find_lease_release(records: PipelineRecords) -> datetime | None:
    """Returns when the last holder released the lease (UTC). None if it has not, or if nobody held it yet."""
    try:
        told = json.loads(locate(records.bookkeeping(LEASE_DESCRIPTION.name)).read_text())
        return datetime.fromisoformat(told["ended"])
    except (OSError, ValueError, KeyError):
        return None


def find_living_holder(folder: Location) -> LeaseHolder | None:
    """Returns the described holder of this folder's lease. None if the process that last described itself has ended."""
    found = read_lease_description(folder)
    if found is None or not is_holder_alive(found):
        return None
    return found if is_on_disk(folder) or _is_renewed(folder) else None


def find_locking_process(folder: Location) -> int | None:
    """Returns the id of the process that has the lock, or None if the system does not say. For a holder that has not described itself."""
    try:
        lock = (folder / JVM_LOCK.name).stat()
        lines = locate("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    device_and_inode = f"{os.major(lock.st_dev):02x}:{os.minor(lock.st_dev):02x}:{lock.st_ino}"
    # Such as: 1: POSIX  ADVISORY  WRITE 4711 fd:00:1234 0 EOF. A lock of an open file has no process: -1.
    found = [
        int(parts[4]) for parts in map(str.split, lines) if len(parts) > 5 and parts[1] != "->" and parts[5] == device_and_inode
    ]
    return next((pid for pid in found if pid > 0), None)


def read_lease_description(folder: Location) -> LeaseHolder | None:
    """Returns the holder that last described itself in the folder of a lease, or None if it has released the lease since."""
    try:
        told = json.loads((folder / LEASE_DESCRIPTION.name).read_text())
        found = parse_lease_holder(told)
    except (OSError, ValueError, KeyError):
        return None
    return None if told.get("ended") else found


def parse_lease_holder(told: Mapping[str, Any]) -> LeaseHolder:
    """Returns the holder that a description names. Raises ValueError or KeyError if it is no description."""
    who = LeaseHolder(str(told["run"]), int(told["pid"]), str(told["host"]), str(told["since"]))
    return replace(
        who,
        kept_running=bool(told.get("kept_running")),
        stage=told.get("stage"),
        jvm=told.get("jvm"),
        machine=told.get("machine") or "",
        starts={int(pid): str(start) for pid, start in (told.get("starts") or {}).items()},
    )


def describe_this_holder(run: str, kept_running: bool = False, stage: str | None = None, jvm: int | None = None) -> LeaseHolder:
    """Returns this process as the holder of a lease. jvm: see `LeaseHolder`."""
    mine = LeaseHolder(run, os.getpid(), socket.gethostname(), current_instant_text(), kept_running, stage, jvm)
    return replace(mine, starts=read_process_starts(mine.pid, mine.jvm))


def write_lease_description(
    folder: Location, run: str, kept_running: bool = False, stage: str | None = None, jvm: int | None = None
) -> LeaseHolder:
    """Writes that this process holds the lease of this folder. Call it after taking the lock. jvm: see `LeaseHolder`."""
    mine = describe_this_holder(run, kept_running, stage, jvm)
    write_json_durably(folder / LEASE_DESCRIPTION.name, asdict(mine))
    return mine


def write_lease_end(folder: Location, mine: LeaseHolder) -> None:
    """Writes that the lease is released, unless another holder has it because the lock went with a dead JVM. Call it before releasing the lock."""
    if read_lease_description(folder) != mine:
        return
    with suppress(OSError):  # whoever removed the folder removed the lease with it
        write_json_durably(folder / LEASE_DESCRIPTION.name, {**asdict(mine), "ended": current_instant_text()})


def current_instant_text() -> str:
    """Returns the instant in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def is_holder_alive(found: LeaseHolder) -> bool:
    """Whether a process of the holder still exists: its JVM has the lock and may live longer. Holders on other hosts are believed."""
    if not found.here:
        return True
    return any(is_process_of_holder(found, pid) for pid in (found.pid, found.jvm) if pid is not None)


def _is_renewed(folder: Location) -> bool:
    """Whether the description on a store was written lately: a holder there rewrites it all the time. Clocks may differ by some minutes."""
    try:
        return time.time() - (folder / LEASE_DESCRIPTION.name).stat().st_mtime < _LONGEST_SILENCE
    except OSError:
        return False


def is_process_of_holder(found: LeaseHolder, pid: int) -> bool:
    """Whether this process of a holder on this host still exists. A process that began at another time only has the same id.

    Its start in ticks since the boot decides: a clock that was set meanwhile moves what psutil says, but not what the holder wrote.
    """
    if start := found.starts.get(pid):
        return not is_process_gone(pid, start)
    return _is_process_older(pid, found.since)


def _is_process_older(pid: int, since: str) -> bool:
    """Whether the process that took a lease then still exists. A process that began later only has the same id."""
    try:
        process = psutil.Process(pid)
        began = float(process.create_time())
        ended = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    return not ended and began <= datetime.fromisoformat(since).timestamp() + _CLOCKS_DIFFER
