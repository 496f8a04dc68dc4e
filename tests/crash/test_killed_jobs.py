"""A real spark-submit of each layer is killed in the middle of a batch; the next run puts everything right. And two runs at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.conftest import ROOT, Lakehouse
from tests.waiting import is_alive, patient_deadline

from demonstrations.tour_report import compare_with_truth
from pipelines.gym import maker
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.errors import LeaseHeld
from sluice.locations import locate
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.lease import lock
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment, find_spark_properties_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.crash, pytest.mark.on_store]

FLOWS = {"bronze": "bronze_readings", "silver": "silver_heart_rate", "gold": "gold_device_day"}


def submit(
    settings: Settings, stage: str, *more: str, script: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a stage as Airflow does. The process is the JVM that commits. script, environment: in place of the stage's own, and beside."""
    command = [
        str(Path(sys.executable).with_name("spark-submit")),
        "--properties-file",
        str(find_spark_properties_file(settings)),
    ]
    command += [str(script or ROOT / "spark_jobs" / f"{stage}.py"), "--pipeline", "gym", *more]
    variables = {**os.environ, **build_spark_environment(settings), **(environment or {})}
    return subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


WAITING = """
import os, pathlib, runpy, sys, time
from sluice.lake import commit_marks, rowless_commits  # keep the function as it is: what makes a table does not wait
folder, script, read_mark = pathlib.Path(os.environ["TEST_FOLDER"]), os.environ["TEST_SCRIPT"], commit_marks.read_session_mark
def wait_and_read_mark(session):
    (folder / f"{os.getpid()}.waits").touch()
    while not (folder / "go").exists():
        time.sleep(0.05)
    return read_mark(session)
commit_marks.read_session_mark = wait_and_read_mark
runpy.run_path(script, run_name="__main__")
"""
"""A job that waits between the last answer of its JVM and its commit through delta-rs."""


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def wait_for(folder: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    deadline = patient_deadline(60)
    while not list(folder.glob(pattern)):
        if process.poll() is not None or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"{pattern} did not come: {process.communicate()[1]}")
        time.sleep(0.02)


def test_a_bronze_job_that_is_killed_in_a_batch_is_put_right_by_the_next_run(settings: Settings, spark: SparkSession) -> None:
    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.05)
    killed = submit(settings, "bronze")
    wait_for(locate(PipelineRecords(settings, "gym").checkpoints(FLOWS["bronze"])), "*/offsets/0", killed)
    killed.send_signal(signal.SIGKILL)
    finish(killed)
    gym = Lakehouse(settings, spark, load_declaration_graph(settings, "gym"))
    gym.run("bronze", tables=("readings",))
    outcomes = [row for row in gym.outcomes() if row["source"] == "readings"]
    assert {row["state"] for row in outcomes} == {"ingested"}
    assert len({row["delivery"] for row in outcomes}) == len(outcomes) > 0
    lines = sum(len(path.read_text().splitlines()) for path in (settings.landing / "gym" / "readings").rglob("*.json*"))
    aside = len(gym.rows("readings_quarantine", "_delivery"))
    assert len(gym.rows("readings", "_delivery")) + aside == lines > aside, "each record once"


def test_a_python_whose_jvm_was_killed_holds_the_lease_to_its_end_and_commits_nothing_more(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.05)
    gym = Lakehouse(settings, spark, load_declaration_graph(settings, "gym"))
    gym.run("bronze", tables=("readings",))
    script = tmp_path / "waiting.py"
    script.write_text(WAITING)
    waits = {"TEST_FOLDER": str(tmp_path), "TEST_SCRIPT": str(ROOT / "spark_jobs" / "silver.py")}
    jvm = submit(settings, "silver", script=script, environment=waits)
    wait_for(tmp_path, "*.waits", jvm)
    python = int(next(tmp_path.glob("*.waits")).stem)
    before = gym.versions()
    jvm.send_signal(signal.SIGKILL)
    until = time.monotonic() + 600
    while True:
        try:
            with lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "other", "Later."):
                assert not is_alive(python), "as long as it lives, it may commit"
                break
        except LeaseHeld:
            (tmp_path / "go").touch()
            assert time.monotonic() < until
    finish(jvm)
    assert gym.versions() == before, "nothing was merged"
    with lock.hold_writer_lease(PipelineRecords(settings, "gym"), spark, "other", 0):
        report = gym.run("silver", tables=("heart_rate",))["heart_rate"]
    assert report.inserted > 0 and report.written_by == "delta-rs"


@pytest.mark.slow
def test_every_stage_is_killed_once(settings: Settings) -> None:
    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.2)
    for stage, flow in FLOWS.items():
        killed = submit(settings, stage)
        wait_for(locate(PipelineRecords(settings, "gym").checkpoints(flow)), "*/offsets/0", killed)
        time.sleep(0.7)
        killed.send_signal(signal.SIGKILL)
        finish(killed)
        code, out, err = finish(submit(settings, stage, "--wait", "600"))
        assert code == 0, out + err
    for table, rows in maker.expected(settings.truth / "gym").items():
        assert (
            rows and compare_with_truth(table, rows, run_ledger.read_table_rows(PipelineRecords(settings, "gym"), table)).equal
        ), table


@pytest.mark.slow
def test_of_two_runs_at_once_the_second_says_who_holds_the_lease_or_waits(settings: Settings, spark: object) -> None:
    from sluice import session
    from sluice.runs.lease import lock

    maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.05)
    with lock.hold_writer_lease(PipelineRecords(settings, "gym"), session.start_spark_session(settings, "tests"), "the-first", 0):
        code, out, err = finish(submit(settings, "bronze"))
        assert code == 3
        (reason,) = out.splitlines()  # spark-submit puts what Python writes on standard error there too
        assert "the-first" in reason and f"process {os.getpid()}" in reason and "--wait" in reason
        waiting = submit(settings, "bronze", "--wait", "1200", "--report", str(settings.landing / "report.json"))
        time.sleep(8)
        assert waiting.poll() is None
    code, out, err = finish(waiting)
    assert code == 0, err
    # Calm: the JVM's own line about its modules is all that Spark says.
    assert [line for line in err.splitlines() if line] == ["WARNING: Using incubator modules: jdk.incubator.vector"]
    assert out.splitlines()[-1] == (settings.landing / "report.json").read_text()
