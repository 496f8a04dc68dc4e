"""CPU seconds of a process and of all processes that it starts, including JVMs that outlive the process which started them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping

import psutil  # type: ignore[import-untyped]  # it ships no types


def adopt_orphans() -> None:
    """Become the parent of the JVMs whose starter has ended: their CPU time counts only when somebody waits for them."""
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def measure_command(command: list[str], environment: Mapping[str, str] | None = None) -> float:
    """Run a command to its end; its CPU seconds. `adopt_orphans` comes before. Raises CalledProcessError where it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_sluice(*words: str, environment: Mapping[str, str] | None = None) -> float:
    """Run a command of sluice; its CPU seconds."""
    return measure_command([sys.executable, "-m", "sluice.cli", *words], environment)


@contextlib.contextmanager
def measure_tree() -> Iterator[list[float]]:
    """The CPU seconds that this process and those that it has started, its JVM too, take within the block: a list of one number."""
    found = [0.0]
    before = _tree_seconds()
    yield found
    found[0] = _tree_seconds() - before


def _tree_seconds() -> float:
    me = psutil.Process()
    seconds = 0.0
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            seconds += sum(process.cpu_times()[:4])
    return seconds
