"""A backfill by spark-submit that is interrupted leaves no job behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

from orchestration.backfill.without_airflow import _choose_spark_by_variable, _submit_job_and_wait, replay_by_spark_submit
from sluice.declare.interval import Interval
from sluice.errors import StopRequested, UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

SUBMIT = """
import sys
from pathlib import Path

from orchestration.backfill.without_airflow import _submit_job_and_wait
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

settings, folder = Settings.current(), Path(sys.argv[1])
job = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(120)"  # it looks for no stop request
_submit_job_and_wait(PipelineRecords(settings, "gym"), settings, "r1", [sys.executable, "-c", job], folder / "log")
"""


def test_a_job_that_was_asked_to_stop_ends_the_backfill(tmp_path: Path) -> None:
    """`sluice stop` leaves its request: the days that come after are not begun."""
    settings = replace(Settings.current(), lake=str(tmp_path / "lake"))
    records = PipelineRecords(settings, "gym")
    request = records.stop_request("r1")
    job = [sys.executable, "-c", f"import sys; from pathlib import Path; Path({str(request)!r}).touch(); sys.exit(1)"]
    request.parent.mkdir(parents=True)
    with pytest.raises(StopRequested, match="stopped by sluice stop"):
        _submit_job_and_wait(records, settings, "r1", job, tmp_path / "log")
    assert not request.exists()


def is_waiting_for_job(pid: int) -> bool:
    """Whether a process has gone to sleep after it said what is to be done at SIGTERM. The job may be there before that."""
    caught = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt:"))
    at_sigterm = int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1
    return bool(at_sigterm) and psutil.Process(pid).status() == psutil.STATUS_SLEEPING


@pytest.mark.parametrize(("runs_follow", "done"), [(False, ["bronze", "silver"]), (True, ["bronze", "silver", "gold"])])
def test_a_request_in_the_last_batch_of_a_job_ends_the_backfill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runs_follow: bool, done: list[str]
) -> None:
    """The job itself is past its last look and succeeds: then the stage or the interval that comes after is not begun."""
    settings = replace(Settings.current(), lake=str(tmp_path / "lake"))
    records = PipelineRecords(settings, "gym")
    request = records.stop_request("r1")
    request.parent.mkdir(parents=True)
    submit = tmp_path / "spark-submit"
    submit.write_text(f"""#!{sys.executable}
import sys
from pathlib import Path
if sys.argv[sys.argv.index("--name") + 1] == "sluice-gym-{done[-1]}":
    Path({str(request)!r}).touch()
Path(sys.argv[sys.argv.index("--report") + 1]).write_text("{{}}")
""")
    submit.chmod(0o755)
    connection = {"conn_type": "spark", "host": "local[1]", "extra": {"spark-binary": str(submit)}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    found: list[str] = []
    day = Interval.of("2026-11-02", "2026-11-02")
    with pytest.raises(StopRequested, match=f"after stage '{done[-1]}'"):
        for stage, _, _ in replay_by_spark_submit(records, "r1", ["bronze", "silver", "gold"], day, (), runs_follow=runs_follow):
            found.append(stage)
    assert found == done
    assert not request.exists()


@pytest.mark.parametrize(
    "extra", [{"spark-binary": "spark3-submit"}, '{"spark-binary": "spark3-submit"}'], ids=["object", "text"]
)
def test_the_extra_of_a_connection_may_be_an_object_or_its_text(monkeypatch: pytest.MonkeyPatch, extra: object) -> None:
    connection = {"conn_type": "spark", "host": "local[3]", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    settings, binary = _choose_spark_by_variable(Settings.current())
    assert (settings.spark_master, binary) == ("local[3]", "spark3-submit")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("spark://one:7077", "AIRFLOW_CONN_SPARK_DEFAULT is no JSON object"),
        ("[]", "AIRFLOW_CONN_SPARK_DEFAULT is no JSON object"),
        ('{"host": "local[3]", "extra": "deploy-mode=client"}', "The extra of AIRFLOW_CONN_SPARK_DEFAULT is no JSON object"),
    ],
)
def test_a_connection_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch, told: str, message: str) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", told)
    with pytest.raises(UsageError, match=message):
        _choose_spark_by_variable(Settings.current())


def test_a_job_gets_nothing_of_airflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = (
        "AIRFLOW__CORE__FERNET_KEY",
        "_AIRFLOW_WWW_USER_PASSWORD",
        "__AIRFLOW_CONTEXT",
        "SLUICE_ALERTS",
        "SLUICE_AIRFLOW_LOGIN",
    )
    for name in own:
        monkeypatch.setenv(name, "")
    settings = replace(Settings.current(), lake=str(tmp_path / "lake"))
    names = tmp_path / "names"
    job = [sys.executable, "-c", f"import os; open({str(names)!r}, 'w').write(' '.join(os.environ))"]
    _submit_job_and_wait(PipelineRecords(settings, "gym"), settings, "r1", job, tmp_path / "log")
    found = names.read_text().split()
    assert "SLUICE_LAKE" in found
    assert not set(own) & set(found)


@pytest.mark.crash
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_ends_the_job(tmp_path: Path, first: signal.Signals) -> None:
    environment = {**os.environ, "SLUICE_LAKE": str(tmp_path / "lake")}
    command = [sys.executable, "-c", SUBMIT, str(tmp_path)]
    with subprocess.Popen(
        command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as run:
        assert run.stderr is not None
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.05)
        until(lambda: is_waiting_for_job(run.pid), what="the wait for the job")
        job = psutil.Process(int((tmp_path / "pid").read_text()))
        run.send_signal(first)
        assert run.stderr.readline() == "Asking the job to stop before its next batch. Ctrl-C again ends it at once.\n"
        request = tmp_path / "lake" / "gym" / "_sluice" / "stop_requests" / "r1"
        deadline = time.monotonic() + 120
        while not request.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert request.exists() and job.is_running()
        run.send_signal(signal.SIGINT)
        run.stderr.read()
        assert run.wait(120) != 0
    assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE
    assert not request.exists()


@pytest.mark.crash
def test_a_second_signal_that_comes_while_the_first_is_answered_ends_the_job(tmp_path: Path) -> None:
    """Ctrl-C twice in a row: the second one arrives while the request to stop is written."""
    hurried = f"import os, signal, pathlib\npathlib.Path.touch = lambda _: os.kill(os.getpid(), signal.SIGINT)\n{SUBMIT}"
    environment = {**os.environ, "SLUICE_LAKE": str(tmp_path / "lake")}
    command = [sys.executable, "-c", hurried, str(tmp_path)]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True) as run:
        job_id = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), what="the job")
        until(lambda: is_waiting_for_job(run.pid), what="the wait for the job")
        job = psutil.Process(int(job_id))
        run.send_signal(signal.SIGINT)
        assert run.wait(120) != 0
    try:
        assert not job.is_running() or job.status() == psutil.STATUS_ZOMBIE
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            job.kill()
