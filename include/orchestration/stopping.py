"""Stop a process that was asked to stop: wait, SIGTERM, wait, SIGKILL. A script that outlives its starter."""

from __future__ import annotations

import os
import signal
import sys
import time

import psutil  # type: ignore[import-untyped]  # it ships no types

_FOR_A_JVM = 5.0
"""Seconds that a JVM gets to notice that the process that owns its session is gone."""


def stop_process_group(pid: int, ask_seconds: float, terminate_seconds: float) -> None:
    """Stop a process group, and return when its leader `pid` and all its other processes are gone."""
    try:
        leader = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    if not is_process_gone_within(leader, ask_seconds):
        signal_process_group(pid, signal.SIGTERM)
        is_process_gone_within(leader, terminate_seconds)
    signal_process_group(pid, signal.SIGKILL)  # also the processes that a leader left behind
    is_process_gone_within(leader, 5)


def end_process_and_jvm(process: psutil.Process, terminate_seconds: float) -> None:
    """End a process that did not stop when asked, and return when it and its JVM are gone: SIGTERM, wait, SIGKILL.

    It may share its group with others, such as the shell that started it. Its JVM ends by itself after it, or is killed.
    """
    jvms = [one for one in (*process.children(recursive=True), *_find_parent_processes(process)) if "java" in one.name()]
    process.terminate()
    if not is_process_gone_within(process, terminate_seconds):
        process.kill()
        is_process_gone_within(process, 5)
    for jvm in jvms:
        if not is_process_gone_within(jvm, _FOR_A_JVM):
            jvm.kill()
            is_process_gone_within(jvm, 5)


def _find_parent_processes(process: psutil.Process) -> list[psutil.Process]:
    parent = process.parent()
    return [] if parent is None else [parent]


def is_process_gone_within(process: psutil.Process, seconds: float) -> bool:
    """Whether the process ends within that time. A zombie (ended, but not yet reaped by its parent) counts as gone."""
    deadline = time.monotonic() + seconds
    while is_process_alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.1)
    return True


def is_process_alive(process: psutil.Process) -> bool:
    """Whether the process still runs. A later process with the same id does not count."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def signal_process_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group, if there still is one."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    stop_process_group(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
