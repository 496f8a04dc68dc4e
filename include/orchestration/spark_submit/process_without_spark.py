"""A stage's process of Python, without Spark: of a quiet pipeline, or upkeep that needs no Spark. It has packages that Airflow does not load."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class EndOfProcess:
    """How the process ended. output: all that it printed."""

    exit_code: int
    output: str


class ProcessWithoutSpark:
    """The process of one task. `kill` may come from another thread, or from a signal's handler, at any time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._killed = False

    def run_stage(self, stage: str, arguments: Sequence[str], environment: Mapping[str, str]) -> EndOfProcess:
        """Run a stage to its end; an interrupt ends the process too. arguments: those of the stage's job script.

        After a `kill` no process is started, and the end is that of one that was killed.
        """
        if self._killed:
            return EndOfProcess(-signal.SIGKILL, "")
        self._process = process = subprocess.Popen(
            [sys.executable, "-m", "sluice.runs.task_without_spark", stage, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if self._killed:  # while it was started: then there was nothing to kill yet
            process.kill()
        try:
            output, _ = process.communicate()
        finally:
            process.kill()  # only after an interrupt is it still there
            process.wait()
            self._process = None
        return EndOfProcess(process.returncode, output.strip())

    @property
    def pid(self) -> int | None:
        """The id of the process; None if there is none."""
        return self._process.pid if self._process is not None else None

    def kill(self) -> None:
        """End the process at once. That is as safe as a power failure: each of its commits is whole or not there."""
        self._killed = True
        if self._process is not None:
            self._process.kill()
