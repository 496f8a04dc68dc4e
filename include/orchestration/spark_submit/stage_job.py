"""The job of one attempt of a task, whoever does it: what it is asked for, the hook that submits it, and the process of Python without Spark.

That process does what a quiet pipeline, or upkeep that needs no Spark, has to do. It has packages that Airflow does not load.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestration.spark_submit.chosen_spark import ClusterManager, build_job_environment
from orchestration.spark_submit.hook import SluiceSparkSubmitHook
from orchestration.spark_submit.job_code import job_code_to_ship
from orchestration.spark_submit.parent_runs import ParentRuns
from sluice.pipeline_records import PipelineRecords
from sluice.runs.waiting_bytes import choose_session_conf
from sluice.spark_process import find_spark_properties_file


@dataclass(frozen=True)
class StageJob:
    """What is the same for each process that may do the work.

    name: as logs name it. run: the id of the DAG run in the pipeline's records. arguments: those of the job's script, but for the file of
    its answer. conf: Spark's properties that the DAG says. parents: the runs above the job; None if it sends no events.
    """

    records: PipelineRecords
    name: str
    conn_id: str
    run: str
    arguments: Sequence[str]
    conf: Mapping[str, str]
    parents: ParentRuns | None

    def make_hook(
        self,
        answer: tuple[str, str],
        on_cluster: ClusterManager | None = None,
        conf: Mapping[str, str] | None = None,
        **options: Any,
    ) -> SluiceSparkSubmitHook:
        """The hook that submits the job. answer: the argument for the file of its answer, and that file. conf: what the way of submitting needs."""
        code = job_code_to_ship(self.records.settings)
        parents = self.parents.as_spark_conf() if self.parents else {}
        return SluiceSparkSubmitHook(
            stop_request=self.records.stop_request(self.run),
            conn_id=self.conn_id,
            # What the DAG says wins.
            conf={**choose_session_conf(self.records, self.run), **(conf or {}), **parents, **self.conf},
            properties_file=str(find_spark_properties_file(self.records.settings)),
            py_files=str(code) if code else None,
            name=self.name,
            application_args=[*self.arguments, *answer],
            settings=self.records.settings,
            on_cluster=on_cluster,
            **options,
        )

    def build_environment_without_spark(self) -> dict[str, str]:
        """The variables of a process of Python that does the stage's work itself: it has no Spark properties that name the runs above it."""
        return build_job_environment(self.records.settings) | (self.parents.as_environment() if self.parents else {})


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
