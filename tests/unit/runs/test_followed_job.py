"""A job whose driver is elsewhere reports through the lake that it is alive and how it ended; its follower uses only its own clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from tests.waiting import until

from sluice.errors import LeaseLost, UsageError
from sluice.locations import locate
from sluice.pipeline_records import PipelineRecords
from sluice.runs import followed_job, script
from sluice.runs.followed_job import LOST_AFTER_SECONDS, JobEnd, JobLost, JobWatch, find_living_job, tell_follower
from sluice.runs.summary import summarize_run
from sluice.settings import Settings, build_root_settings


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def location(tmp_path: Path) -> Path:
    return tmp_path / "followed_jobs" / "af-1-silver-1.json"


def watch(location: Path, clock: Clock, start_seconds: float = 1000) -> JobWatch:
    return JobWatch(location, start_seconds, clock)


def test_a_job_lives_until_it_says_how_it_ended(location: Path) -> None:
    clock = Clock()
    follower = watch(location, clock)
    assert follower.look() is None, "it may yet start"
    with tell_follower(str(location), beat_seconds=0.01) as tell_end:
        for _ in range(3):
            before = location.read_text() if location.exists() else ""
            until(lambda before=before: location.exists() and location.read_text() != before, what="the next beat")
            clock.now += LOST_AFTER_SECONDS - 1
            assert follower.look() is None
        tell_end(JobEnd(3, "another job writes it"))
    assert follower.look() == JobEnd(3, "another job writes it")
    clock.now += LOST_AFTER_SECONDS + 1
    assert follower.look() == JobEnd(3, "another job writes it"), "each of those who share the watch sees it"
    assert watch(location, clock).look() == JobEnd(3, "another job writes it"), "whoever looks later sees it, too"


def test_nobody_is_told_where_nobody_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with tell_follower("") as tell_end:
        tell_end(JobEnd(0))
    assert list(tmp_path.iterdir()) == []


def test_a_job_that_says_nothing_more_is_lost(location: Path) -> None:
    clock = Clock()
    location.parent.mkdir()
    location.write_text(json.dumps({"beat": 1}))
    os.utime(location, (0, 0))  # whatever its host says the time is
    follower = watch(location, clock)
    assert follower.look() is None
    clock.now += LOST_AFTER_SECONDS
    assert follower.look() is None
    clock.now += 1
    with pytest.raises(JobLost, match="said nothing for 90 s: it was killed"):
        follower.look()
    location.write_text(json.dumps({"beat": 2}))
    assert follower.look() is None, "it was only cut off"


def test_a_job_that_never_says_anything_is_lost(location: Path) -> None:
    clock = Clock()
    follower = watch(location, clock, start_seconds=500)
    clock.now = 499
    assert follower.look() is None
    clock.now = 501
    with pytest.raises(JobLost, match=r"No driver has said anything within 500 s.*af-1-silver-1\.json"):
        follower.look()


def test_a_beat_that_fails_is_left_out(location: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, fails = followed_job._write_job_state, [True, True, False]

    def write(file: Path, state: dict[str, object]) -> None:
        if "beat" in state and fails and fails.pop(0):
            raise OSError(5, "no answer")
        whole(file, state)

    monkeypatch.setattr(followed_job, "_write_job_state", write)
    with tell_follower(str(location), beat_seconds=0.01) as tell_end:
        while not location.exists():
            time.sleep(0.01)
        tell_end(JobEnd(0, report={"stage": "silver"}))
    assert json.loads(location.read_text())["report"] == {"stage": "silver"}


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [(None, 0, ""), (UsageError("There is no table 'x'."), 2, "There is no table 'x'."), (LeaseLost("lost"), 1, "lost")],
)
def test_a_job_script_says_how_it_ended(
    location: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: int, reason: str
) -> None:
    def work(_: object) -> list[dict[str, object]]:
        if error:
            raise error
        return [summarize_run("r", "gym", "silver", "increment", 0.0, [])]

    monkeypatch.setattr("sys.argv", ["silver.py", "--pipeline", "gym", "--followed-at", str(location)])
    with pytest.raises(SystemExit) as ended:
        script.run_job_script("silver", script.build_stage_parser("silver"), work)
    said = json.loads(location.read_text())
    assert (ended.value.code, said["exit_code"], said["reason"]) == (code, code, reason)
    assert (said["report"] or {}).get("stage") == ("silver" if error is None else None)


def test_the_driver_of_an_earlier_attempt_is_found_while_it_works(tmp_path: Path) -> None:
    settings = Settings(tmp_path, **build_root_settings(tmp_path))
    records, waited = PipelineRecords(settings, "gym"), []
    folder = locate(records.bookkeeping("followed_jobs"))
    assert find_living_job(records, "af-1-silver-", waited.append) is None
    assert not waited, "where none is known, nobody waits"
    folder.mkdir(parents=True)
    (folder / "af-1-silver-1.json").write_text(json.dumps({"exit_code": 1}))
    (folder / "af-1-gold-1.json").write_text(json.dumps({"beat": 1}))
    assert find_living_job(records, "af-1-silver-", waited.append) is None and not waited
    killed, living = folder / "af-1-silver-2.json", folder / "af-1-silver-3.json"
    for file in (killed, living):
        file.write_text(json.dumps({"beat": 1}))

    def beat(seconds: float) -> None:
        waited.append(seconds)
        living.write_text(json.dumps({"beat": 1 + len(waited)}))

    assert find_living_job(records, "af-1-silver-", beat) == living
    assert find_living_job(records, "af-1-silver-2", waited.append) is None, "one that says nothing more was killed"
    assert len(waited) == 1 + 3


def test_what_earlier_attempts_ended_with_is_collected_once(tmp_path: Path) -> None:
    settings = Settings(tmp_path, **build_root_settings(tmp_path))
    records = PipelineRecords(settings, "gym")
    assert followed_job.collect_ended_jobs(records, "af-1-silver-") == []
    folder = locate(records.bookkeeping("followed_jobs"))
    folder.mkdir(parents=True)
    (folder / "af-1-silver-1.json").write_text(json.dumps({"exit_code": 0, "reason": "", "report": {"stage": "silver"}}))
    (folder / "af-1-silver-2.json").write_text(json.dumps({"beat": 1}))
    (folder / "af-1-gold-1.json").write_text(json.dumps({"exit_code": 0}))
    assert followed_job.collect_ended_jobs(records, "af-1-silver-") == [JobEnd(0, "", {"stage": "silver"})]
    assert sorted(file.name for file in folder.iterdir()) == ["af-1-gold-1.json", "af-1-silver-2.json"]
    assert followed_job.collect_ended_jobs(records, "af-1-silver-") == []


def test_files_that_nobody_comes_back_for_go(tmp_path: Path) -> None:
    settings = Settings(tmp_path, **build_root_settings(tmp_path))
    records = PipelineRecords(settings, "gym")
    folder = locate(records.bookkeeping("followed_jobs"))
    folder.mkdir(parents=True)
    for name in ("old", "new"):
        (folder / f"{name}.json").write_text("{}")
    os.utime(folder / "old.json", (0, 0))
    followed_job.remove_old_followed_jobs(records)
    assert [file.name for file in folder.iterdir()] == ["new.json"]
