"""A replay without Airflow: the same job scripts with the same arguments, by spark-submit, one after the other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from orchestration import stopping
from orchestration.dag_run import LEASE_WAIT_SECONDS, RunRequest
from orchestration.server.home import local_airflow_environment
from orchestration.spark_submit.chosen_spark import build_job_environment, choose_spark
from orchestration.spark_submit.job_code import job_code_to_ship
from sluice.declare.interval import Interval
from sluice.errors import LeaseHeld, SluiceError, StopRequested, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.run_modes import REPLAY
from sluice.settings import Settings
from sluice.spark_process import find_spark_properties_file

ASK_SECONDS = 60
TERMINATE_SECONDS = 10


def replay_by_spark_submit(
    records: PipelineRecords, run: str, stages: Sequence[str], interval: Interval, tables: tuple[str, ...], *, runs_follow: bool
) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Run the stages, and yield each one's name, seconds and report. runs_follow: whether the caller runs another interval after this one.

    If interrupted, or told to end by SIGTERM or SIGHUP, it asks the job to stop and waits for it; a second time, it ends the job at once.

    Raises UsageError, LeaseHeld or SluiceError, according to the job's exit code, with the job's reason. Raises StopRequested if somebody
    asked the run to stop, also if that came too late for the job itself, and a stage or an interval follows.
    """
    asked = RunRequest(REPLAY.name, interval, tables)
    given = [*asked.as_job_arguments(records.pipeline), "--run-id", run, "--wait", str(LEASE_WAIT_SECONDS)]
    settings, binary = _choose_spark_by_variable(records.settings)
    for stage in stages:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sluice-") as folder:
            report = Path(folder) / "report.json"
            command = _spark_submit_command(settings, binary, f"sluice-{records.pipeline}-{stage}")
            script = settings.root / "spark_jobs" / f"{stage}.py"
            asked_to_stop = _submit_job_and_wait(
                records, settings, run, [*command, str(script), *given, "--report", str(report)], Path(folder) / "log"
            )
            found: dict[str, Any] = json.loads(report.read_text())
        yield stage, time.monotonic() - began, found
        if asked_to_stop and (runs_follow or stage != stages[-1]):
            raise StopRequested(f"{records.pipeline}: stopped by sluice stop, after stage '{stage}'")


def _submit_job_and_wait(records: PipelineRecords, settings: Settings, run: str, command: list[str], log: Path) -> bool:
    """Run a job to its end. Returns whether somebody asked the run to stop although this job did all its work. Raises what its exit code means."""
    told = build_job_environment(settings) | {"PYTHONPATH": str(settings.root / "include")}
    told["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), told.get("PATH", os.defpath)])
    request = records.stop_request(run)
    with log.open("wb") as file:
        # In a group of its own, which Ctrl-C does not reach: a job stops between two batches.
        process = subprocess.Popen(command, env=told, stdout=file, stderr=subprocess.STDOUT, process_group=0)
        try:
            with _signals_interrupt():
                try:
                    code = process.wait()
                except KeyboardInterrupt:
                    try:  # at once: the second signal may come as soon as the first is answered
                        print(
                            "Asking the job to stop before its next batch. Ctrl-C again ends it at once.",
                            file=sys.stderr,
                            flush=True,
                        )
                        request.parent.mkdir(parents=True, exist_ok=True)
                        request.touch()
                        stopping.stop_process_group(process.pid, ASK_SECONDS, TERMINATE_SECONDS)
                    except KeyboardInterrupt:
                        stopping.stop_process_group(process.pid, 0, TERMINATE_SECONDS)
                    process.wait()
                    raise
        finally:
            asked_to_stop = request.exists()
            request.unlink(missing_ok=True)
    if code and asked_to_stop:
        raise StopRequested(f"{records.pipeline}: stopped by sluice stop")
    if code:
        kind = {UsageError.exit_code: UsageError, LeaseHeld.exit_code: LeaseHeld}.get(code, SluiceError)
        raise kind(f"{Path(command[command.index('--pipeline') - 1]).stem}: {_last_job_message(log)}")
    return asked_to_stop


@contextmanager
def _signals_interrupt() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP as Ctrl-C within the block: otherwise they end this process alone, and its job lives on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _choose_spark_by_variable(settings: Settings) -> tuple[Settings, str]:
    """The settings with the Spark of the connection `spark_default`, and the binary that submits to it. Raises UsageError."""
    told = local_airflow_environment(settings)["AIRFLOW_CONN_SPARK_DEFAULT"]
    connection = _parse_json_object(told, "AIRFLOW_CONN_SPARK_DEFAULT", "the Spark master")
    extra = connection.get("extra") or {}
    if isinstance(extra, str):  # as Airflow exports a connection
        extra = _parse_json_object(extra, "The extra of AIRFLOW_CONN_SPARK_DEFAULT", "how Spark is submitted to")
    host, port = connection["host"], connection.get("port")
    master = host if not port else f"{host}:{port}" if "://" in host else f"spark://{host}:{port}"
    return choose_spark(settings, "spark_default", master, extra), extra.get("spark-binary", "spark-submit")


def _parse_json_object(text: str, what: str, unknown: str) -> dict[str, Any]:
    """Raises UsageError if the text is no JSON object. what: the text's name; unknown: what cannot be told then."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{what} is no JSON object, so --local cannot tell {unknown}.")
    return found


def _spark_submit_command(settings: Settings, binary: str, name: str) -> list[str]:
    """spark-submit and the options that the operator gives it."""
    code = job_code_to_ship(settings)
    return [
        *(binary, "--master", settings.spark_master, "--deploy-mode", "client"),
        *("--properties-file", str(find_spark_properties_file(settings)), "--name", name),
        *(("--py-files", str(code)) if code else ()),
    ]


def _last_job_message(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    own = [line.removeprefix("sluice ") for line in lines if line.startswith("sluice")]
    return (own or lines or ["it wrote nothing"])[-1]
