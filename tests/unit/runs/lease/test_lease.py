"""Who holds a lease: the process, its JVM, or nobody that is known; and what is written down of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from sluice.cli.running.run import _find_run_process
from sluice.errors import LeaseHeld
from sluice.own_records import DRIVER_LOCK, JVM_LOCK
from sluice.pipeline_records import PipelineRecords
from sluice.runs.lease import holder, lock
from sluice.settings import Settings

LOCKING = "import fcntl, sys, time; file = open(sys.argv[1], 'a+b'); fcntl.lockf(file, fcntl.LOCK_EX); print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def folder(settings: Settings) -> Path:
    found = Path(PipelineRecords(settings, "gym").bookkeeping())
    found.mkdir(parents=True)
    return found


@pytest.fixture
def jvm(folder: Path) -> Iterator[int]:
    """A process that has the lock, as a JVM whose Python was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", LOCKING, str(folder / "lease.lock")], stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout and started.stdout.readline() == "ready\n"
        yield started.pid
        started.kill()


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        return ended.pid


@pytest.mark.parametrize("moved", [timedelta(hours=1), timedelta(hours=-1)], ids=["forward", "back"])
def test_a_holder_lives_on_after_the_clock_was_set(settings: Settings, folder: Path, moved: timedelta) -> None:
    """What the holder wrote is by the clock of before; the system reports the start of its process by the clock of now."""
    mine = holder.write_lease_description(folder, "r1")
    written = json.loads((folder / "lease.json").read_text())
    since = (datetime.fromisoformat(mine.since) - moved).isoformat()
    (folder / "lease.json").write_text(json.dumps({**written, "since": since}))
    found = holder.find_lease_holder(PipelineRecords(settings, "gym"))
    assert found is not None and found.pid == os.getpid()
    process = _find_run_process(found)
    assert process is not None and process.pid == os.getpid(), "sluice stop --force finds it too"


def test_a_process_that_began_at_another_time_is_not_the_holder(settings: Settings, folder: Path) -> None:
    holder.write_lease_description(folder, "r1")
    written = json.loads((folder / "lease.json").read_text())
    (folder / "lease.json").write_text(json.dumps({**written, "starts": {str(os.getpid()): "1"}}))
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) is None


def test_a_jvm_that_outlives_its_process_holds_the_lease_and_is_named(settings: Settings, folder: Path, jvm: int) -> None:
    told = holder.write_lease_description(folder, "r1", jvm=jvm)
    assert str(told).startswith(f"run r1 (process {os.getpid()}, JVM {jvm} on ")
    dead = ended_process()
    written = json.loads((folder / "lease.json").read_text())
    (folder / "lease.json").write_text(json.dumps({**written, "pid": dead}))
    found = holder.find_lease_holder(PipelineRecords(settings, "gym"))
    assert found is not None and f"JVM {jvm}, whose process {dead} has ended" in str(found)
    with (
        pytest.raises(LeaseHeld, match=f"JVM {jvm}"),
        lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "reset", "Later."),
    ):
        pass


@pytest.mark.parametrize("file", [JVM_LOCK.name, DRIVER_LOCK.name])
def test_the_lease_is_free_only_when_the_jvm_and_the_python_of_a_driver_have_ended(
    settings: Settings, folder: Path, file: str
) -> None:
    with subprocess.Popen([sys.executable, "-c", LOCKING, str(folder / file)], stdout=subprocess.PIPE, text=True) as left:
        assert left.stdout and left.stdout.readline() == "ready\n"
        with pytest.raises(LeaseHeld), lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "r2", "Later."):
            pass
        left.kill()
        left.wait()
        with lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "r2", "Later."):
            pass


def test_a_lock_whose_holder_is_not_described_is_told_by_the_process_that_has_it(
    settings: Settings, folder: Path, jvm: int
) -> None:
    holder.write_lease_end(folder, holder.write_lease_description(folder, "r0"))
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) is None
    if sys.platform == "linux":
        assert holder.find_locking_process(folder) == jvm
        refusal = lock.LeaseRequest("r1", "Pipeline 'gym'", "Later.", "gym").describe_holder(folder, None)
        assert refusal == f"Pipeline 'gym' is being written by another job (process {jvm} of this host). Later."


def test_who_has_lost_the_lock_with_its_jvm_writes_nothing_over_the_next_holder(settings: Settings, folder: Path) -> None:
    lost = holder.write_lease_description(folder, "r1", jvm=ended_process())
    following = holder.write_lease_description(folder, "r2")
    holder.write_lease_end(folder, lost)
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) == following
    holder.write_lease_end(folder, following)
    assert holder.find_lease_holder(PipelineRecords(settings, "gym")) is None


def test_a_run_holds_the_lease_only_where_its_process_is_seen(settings: Settings, folder: Path, jvm: int) -> None:
    """Only such a process will look for a stop request: one of another host may be dead, and a JVM alone looks for none."""
    records = PipelineRecords(settings, "gym")
    assert not holder.does_run_hold_lease(records, "r1")
    holder.write_lease_description(folder, "r1", jvm=jvm)
    assert holder.does_run_hold_lease(records, "r1") and not holder.does_run_hold_lease(records, "r2")
    written = json.loads((folder / "lease.json").read_text())
    for other in ({"host": "elsewhere"}, {"pid": ended_process(), "starts": {}}):
        (folder / "lease.json").write_text(json.dumps({**written, **other}))
        assert holder.find_lease_holder(records) is not None
        assert not holder.does_run_hold_lease(records, "r1")
