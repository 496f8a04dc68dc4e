"""Triggers by their names, who holds a lease and for how long, and how a process that was asked in vain is ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest
from tests.commands import Call

from orchestration import stopping
from sluice.cli.running.run import _find_run_process
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.runs.lease import holder
from sluice.runs.lease.holder import LeaseHolder
from sluice.runs.triggers import SECONDS_BETWEEN_LOOKS, Trigger, parse_trigger
from sluice.settings import Settings


@pytest.mark.parametrize(
    ("text", "keep_running", "every"),
    [
        (None, False, None),
        (None, True, SECONDS_BETWEEN_LOOKS),
        ("available-now", False, None),
        ("availableNow", True, SECONDS_BETWEEN_LOOKS),
        ("processing-time=10s", False, 10.0),
        ("processingTime=5 minutes", True, 300.0),
        ("processing_time=1.5 min", False, 90.0),
        ("processing-time=2000ms", False, 2.0),
        ("PROCESSING-TIME=1 Hour", False, 3600.0),
    ],
)
def test_a_trigger_by_its_name(text: str | None, keep_running: bool, every: float | None) -> None:
    assert parse_trigger(text, keep_running) == Trigger(every)


def test_once_is_available_now_and_says_so() -> None:
    assert parse_trigger("once").every is None
    assert "deprecated in Spark" in parse_trigger("once").note


@pytest.mark.parametrize(
    ("text", "keep_running", "said"),
    [
        (
            "continuous",
            False,
            "There is no trigger 'continuous' here: Spark has it for sources and sinks that take record by record",
        ),
        ("continuous=1s", False, "merged exactly once"),
        ("realTime", False, "There is no trigger 'real-time' here"),
        ("availabel-now", False, "Did you mean 'available-now'?"),
        ("processing", False, "Did you mean 'processing-time'?"),
        ("processing-time", False, "takes how often to look"),
        ("processing-time=soon", False, "not 'soon'"),
        ("processing-time=10 fortnights", False, "not '10 fortnights'"),
        ("processing-time=0s", False, "takes 1s at least"),
        ("available-now=10s", False, "--trigger processing-time=10s"),
        ("once", True, "contradict each other"),
    ],
)
def test_a_trigger_that_there_is_not(text: str, keep_running: bool, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_trigger(text, keep_running)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--trigger", "continuous"), "There is no trigger 'continuous' here"),
        (("--keep-running", "--stage", "vacuum"), "Stage 'vacuum' is not kept running; layers are: bronze, silver, gold."),
        (("--keep-running", "--mode", "refresh", "--table", "heart_rate"), "A process that is kept running takes what is new"),
        (("--trigger", "processing-time=5s", "--mode", "replay", "--from", "2026-01-01", "--to", "2026-01-02"), "runs once"),
    ],
)
def test_what_is_not_kept_running_is_refused_before_spark_starts(call: Call, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = call("run", "gym", *arguments)
    assert (code, out) == (2, "")
    assert said in err


def test_a_holder_that_gave_the_lease_up_holds_it_no_more(settings: Settings) -> None:
    records = PipelineRecords(settings, "gym")
    folder = Path(records.bookkeeping())
    folder.mkdir(parents=True)
    mine = holder.write_lease_description(folder, "r1", kept_running=True)
    assert holder.find_lease_holder(records) == mine and mine.kept_running and mine.here
    told = mine.held("Pipeline 'gym'", "gym")
    assert told.startswith("Pipeline 'gym' is kept running by run r1 (process ") and f"on {socket.gethostname()}, since " in told
    assert told.endswith("To run anything else, end it first: sluice stop gym")
    holder.write_lease_end(folder, mine)
    assert holder.find_lease_holder(records) is None


def waiting_process(settings: Settings, code: str) -> subprocess.Popen[str]:
    """A process that says it holds the gym's lease, and then obeys."""
    folder = PipelineRecords(settings, "gym").bookkeeping()
    head = (
        "import signal, sys, time; from pathlib import Path; from sluice.runs.lease import holder; "
        f"folder = Path({folder!r}); folder.mkdir(parents=True, exist_ok=True); mine = holder.write_lease_description(folder, 'r1', True); "
    )
    started = subprocess.Popen([sys.executable, "-c", head + code], stdout=subprocess.PIPE, text=True)
    assert said(started) == "ready"
    return started


def said(started: subprocess.Popen[str]) -> str:
    """The one line that a process writes."""
    assert started.stdout is not None
    with started.stdout as out:
        return out.readline().strip()


def test_stop_waits_until_the_run_has_ended(call: Call, settings: Settings) -> None:
    request = PipelineRecords(settings, "gym").stop_request("r1")
    asked = waiting_process(
        settings,
        f"print('ready', flush=True); request = Path({str(request)!r})\n"
        "while not request.exists(): time.sleep(0.05)\n"
        "time.sleep(0.5); holder.write_lease_end(folder, mine)",
    )
    started = time.monotonic()
    code, out, _ = call("stop", "gym", "--within", "200")
    assert code == 0 and "Asked run r1 (process" in out and "It has ended, after " in out
    assert 0.4 < time.monotonic() - started < 150, "of the 200 s that it may wait"
    assert asked.wait(120) == 0


def test_stop_finds_the_next_stage_while_its_job_starts(call: Call, settings: Settings) -> None:
    """Nobody holds the lease while the next stage of a run without Airflow starts its JVM."""
    request = PipelineRecords(settings, "gym").stop_request("r1")
    asked = waiting_process(
        settings,
        f"holder.write_lease_end(folder, mine); print('ready', flush=True); time.sleep(2); request = Path({str(request)!r})\n"
        "mine = holder.write_lease_description(folder, 'r1')\n"
        "while not request.exists(): time.sleep(0.05)\n"
        "holder.write_lease_end(folder, mine)",
    )
    code, out, _ = call("stop", "gym", "--within", "200")
    assert code == 0 and "Asked run r1 (process" in out and "It has ended, after " in out
    assert asked.wait(120) == 0


def test_what_does_not_end_in_time_is_ended_only_when_that_is_wanted(call: Call, settings: Settings) -> None:
    deaf = waiting_process(settings, "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)")
    code, _, err = call("stop", "gym", "--within", "0.3")
    assert code == 1 and "It has not ended within 0.3 s" in err and "--within 0 --force" in err
    assert deaf.poll() is None and PipelineRecords(settings, "gym").stop_request("r1").exists()
    assert "ended" not in call("stop", "gym", "--within", "0")[1], "0: it is asked and not waited for"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.cli.running.run._PATIENCE", 0.5)
        code, out, _ = call("stop", "gym", "--within", "0", "--force")
    assert code == 0 and "The run was ended." in out
    assert deaf.wait(120) == -signal.SIGKILL


def test_the_jvm_is_ended_when_its_process_is_gone_or_another_has_its_id(call: Call, settings: Settings) -> None:
    folder = Path(PipelineRecords(settings, "gym").bookkeeping())
    folder.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", ""]) as zombie:
        while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.02)
        for pid in (zombie.pid, None):
            with subprocess.Popen(["sleep", "60"]) as jvm:
                since = datetime.now(UTC) if pid else datetime.now(UTC) - timedelta(hours=1)
                stranger = subprocess.Popen(["sleep", "60"])
                found = LeaseHolder("r1", pid or stranger.pid, socket.gethostname(), since.isoformat(), jvm=jvm.pid)
                if pid is None:  # the JVM is as old as the lease, and the process that has the holder's id is not
                    assert _find_run_process(found) is None, "neither of them is the holder"
                else:
                    process = _find_run_process(found)
                    assert process is not None and process.pid == jvm.pid
                for one in (jvm, stranger):
                    one.kill()
                    one.wait()


def test_a_backfill_without_airflow_is_not_ended_by_cancel(call: Call, settings: Settings) -> None:
    folder = Path(PipelineRecords(settings, "gym").bookkeeping())
    folder.mkdir(parents=True)
    holder.write_lease_description(folder, "local-0123", False)
    code, _, err = call("backfill", "gym", "--cancel")
    assert code == 1 and "End it with Ctrl-C where it was started, or: sluice stop gym" in " ".join(err.split())


def test_what_runs_on_another_host_is_not_ended_from_here(call: Call, settings: Settings) -> None:
    folder = Path(PipelineRecords(settings, "gym").bookkeeping())
    folder.mkdir(parents=True)
    (folder / "lease.json").write_text(
        f'{{"run": "r1", "pid": {os.getpid()}, "host": "elsewhere", "since": "2026-11-21T00:00:00+00:00"}}'
    )
    code, _, err = call("stop", "gym", "--within", "0.1", "--force")
    assert code == 1 and "it runs on elsewhere" in err


def test_a_jvm_does_not_outlive_the_process_that_is_ended(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(Path("/bin/sleep").resolve())
    if "coreutils" in str(java.resolve()):
        pytest.skip("sleep goes by the name that it is called by here")
    code = f"import subprocess, time; child = subprocess.Popen([{str(java)!r}, '600']); print(child.pid, flush=True); time.sleep(600)"
    started = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    jvm = psutil.Process(int(said(started)))
    began = time.monotonic()
    while "java" not in jvm.name() and time.monotonic() - began < 60:
        time.sleep(0.05)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stopping, "_FOR_A_JVM", 0.2)
        stopping.end_process_and_jvm(psutil.Process(started.pid), 60)
    assert started.wait(60) == -signal.SIGTERM and not stopping.is_process_alive(jvm)
