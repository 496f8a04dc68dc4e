"""Files of OpenLineage events have a bound: large ones are closed, the oldest closed ones go, and a kill in between costs nothing."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice.pipeline_records import PipelineRecords
from sluice.runs import lineage_sending, open_lineage
from sluice.runs.open_lineage import StageIdentity
from sluice.settings import Settings

if not os.environ.get("CI"):
    pytest.importorskip("openlineage.client", reason="openlineage-python is not installed: pip install -r requirements.txt")


@pytest.fixture
def folder(settings: Settings) -> Path:
    found = Path(PipelineRecords(settings, "gym").bookkeeping("openlineage"))
    found.mkdir(parents=True)
    return found


def send(settings: Settings, run: str) -> None:
    identity = StageIdentity("gym", "gold", run, datetime(2026, 11, 21, 2, tzinfo=UTC))
    open_lineage.send_stage_start(replace(settings, openlineage_file=True), identity)


def closed_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("events-*.jsonl"))


def test_a_large_file_is_closed_and_the_oldest_closed_ones_go(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(settings, "0")
    size = (folder / "events.jsonl").stat().st_size
    monkeypatch.setattr(lineage_sending, "FILE_BYTES", 2 * size)
    monkeypatch.setattr(lineage_sending, "KEPT_BYTES", 5 * size)
    for run in range(1, 12):
        send(settings, str(run))
        kept = sum(one.stat().st_size for one in folder.iterdir())
        assert kept <= (5 + 2) * size, "closed ones, and the open one"
    lines = [
        json.loads(line) for one in (*closed_files(folder), folder / "events.jsonl") for line in one.read_text().splitlines()
    ]
    assert len(closed_files(folder)) == 2 and len(lines) == 6, "two in each"
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in folder.iterdir())
    ids = [line["run"]["runId"] for line in lines]
    newest = StageIdentity("gym", "gold", "11", datetime(2026, 11, 21, 2, tzinfo=UTC)).run_id()
    assert ids[-1] == newest and len(set(ids)) == len(ids)


def test_so_many_objects_are_kept_however_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_sending, "KEPT_FILES", 3)
    for number in range(5):
        (folder / f"events-2026112{number}T000000000000.jsonl").write_text("{}\n")
    (folder / "events.jsonl").write_text("{}\n")
    lineage_sending.remove_oldest_events(folder)
    assert [one.name[7:15] for one in closed_files(folder)] == ["20261122", "20261123", "20261124"]
    assert (folder / "events.jsonl").exists()


def test_the_newest_closed_file_stays_however_large(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_sending, "KEPT_BYTES", 1)
    for number in range(3):
        (folder / f"events-2026112{number}T000000000000.jsonl").write_text("{}\n")
    lineage_sending.remove_oldest_events(folder)
    assert [one.name[7:15] for one in closed_files(folder)] == ["20261122"], (
        "a file of before there was a bound is not lost whole"
    )


def test_a_call_removes_the_oldest_of_many_and_leaves_the_others_to_later_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_sending, "KEPT_FILES", 2)
    monkeypatch.setattr(lineage_sending, "MOST_REMOVED", 3)
    for number in range(9):
        (folder / f"events-2026112{number}T000000000000.jsonl").write_text("{}\n")
    for left in (["3", "4", "5", "6", "7", "8"], ["6", "7", "8"], ["7", "8"], ["7", "8"]):
        lineage_sending.remove_oldest_events(folder)
        assert [one.name[14] for one in closed_files(folder)] == left


def test_events_that_cannot_be_removed_hold_up_no_other(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "a role that may not delete")

    monkeypatch.setattr(lineage_sending, "remove_oldest_events", refuse)
    send(settings, "1")
    assert len((folder / "events.jsonl").read_text().splitlines()) == 1 and capsys.readouterr().err == ""


def test_the_oldest_events_go_where_there_was_no_room_for_new_ones(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lineage_sending, "KEPT_FILES", 1)
    monkeypatch.setattr(lineage_sending, "_open_events_file", full)
    for number in range(3):
        (folder / f"events-2026112{number}T000000000000.jsonl").write_text("{}\n")
    send(settings, "1")
    assert [one.name[7:15] for one in closed_files(folder)] == ["20261122"]


def test_a_line_that_a_kill_cut_off_spoils_no_other(settings: Settings, folder: Path) -> None:
    (folder / "events.jsonl").write_text('{"eventType": "STA')
    send(settings, "1")
    send(settings, "2")
    first, *others = (folder / "events.jsonl").read_text().splitlines()
    assert first == '{"eventType": "STA' and [json.loads(line)["eventType"] for line in others] == ["START", "START"]
