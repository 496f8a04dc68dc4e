"""A damaged file of `_sluice` is named, with what it says and what to do; it is never taken for a newer Sluice's, nor for none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import settings_at

from sluice.durable_files import KeptFileDamaged
from sluice.erasure import canary, request_record, searched_tables
from sluice.erasure.removals_by_age import find_last_removal_by_age
from sluice.ingest import schema_log
from sluice.ingest.landing import rewriting
from sluice.lake.clone_registry import find_shallow_clone_lakes
from sluice.pipeline_records import PipelineRecords
from sluice.runs import due_requests
from sluice.runs.execution import clones
from sluice.runs.lease import lock
from sluice.settings import Settings

SECRET = "4711-0815"
GARBLED = {
    "empty": "",
    "cut": '{"format": 1, "reques',
    "of another kind": f'["{SECRET}"]',
    "without its fields": "{}",
    "null": "null",
}
READERS: dict[str, tuple[str, Callable[[Settings], Any]]] = {
    "lake.json": ("the format of the lake", lambda at: lock.check_lake_format(PipelineRecords(at, "gym"))),
    "erasure_requests/0a1b.json": (
        "a request to erase somebody",
        lambda at: due_requests.find_due_requests(PipelineRecords(at, "gym"), datetime.now(UTC)),
    ),
    "erasure_requests/0a1b.json ": (
        "a request to erase somebody",
        lambda at: request_record.list_erasure_requests(PipelineRecords(at, "gym")),
    ),
    "rewriting/1.json": (
        "which landed files an erasure was about to replace",
        lambda at: rewriting.finish_rewriting_journals(
            Path(PipelineRecords(at, "gym").bookkeeping("rewriting")), PipelineRecords(at, "gym").delivery_ledger, "run"
        ),
    ),
    "schemas/readings/0.json": (
        "the columns that a source had",
        lambda at: schema_log.read_latest_schema_version(PipelineRecords(at, "gym").bookkeeping("schemas/readings")),
    ),
    "schemas/readings/0.json ": (
        "the columns that a source had",
        lambda at: schema_log.read_schema_versions(PipelineRecords(at, "gym").bookkeeping("schemas/readings")),
    ),
    "removals_by_age/readings.json": (
        "when rows were last removed by age",
        lambda at: find_last_removal_by_age(PipelineRecords(at, "gym"), ["heart", "readings"]),
    ),
    "shallow_clones/1.json": (
        "where a shallow clone lies",
        lambda at: find_shallow_clone_lakes(PipelineRecords(at, "gym")),
    ),
}
OBJECTS: dict[str, tuple[str, Callable[[Settings], Any]]] = {
    "clone.json": ("what this clone was made from", lambda at: clones.read_clone_description(PipelineRecords(at, "gym"))),
    f"canary/one/{canary.PLANTED}": (
        "what was found of a canary",
        lambda at: canary.read_planted_counts(PipelineRecords(at, "gym"), "one"),
    ),
}


def damaged(settings: Settings, name: str, content: str) -> Path:
    path = Path(PipelineRecords(settings, "gym").bookkeeping(name.strip()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


CASES = [
    (name, damage) for name in (*READERS, *OBJECTS) for damage in GARBLED if name in READERS or damage != "without its fields"
]


@pytest.mark.parametrize(("name", "damage"), CASES)
def test_a_damaged_file_is_named_with_what_to_do(settings: Settings, name: str, damage: str) -> None:
    what, reading = {**READERS, **OBJECTS}[name]
    path = damaged(settings, name, GARBLED[damage])
    with pytest.raises(KeptFileDamaged) as told:
        reading(settings)
    message = str(told.value)
    assert message.startswith(f"{path} is damaged: in its {path.stat().st_size} bytes is not {what}. ")
    assert message.count(". ") >= 1 and ("Put a copy of it back" in message or "Remove " in message or "Write " in message)
    assert SECRET not in message and "newer Sluice." not in message


@pytest.mark.parametrize("content", [*GARBLED.values(), "{}", '{"people.user_id: true": {}}'])
def test_what_can_be_found_out_again_stops_nothing(settings: Settings, content: str) -> None:
    damaged(settings, "erasure_requests/.asked", content)
    assert not searched_tables.read_searched_tables(PipelineRecords(settings, "gym"))
    if content != "{}":
        assert due_requests.may_hold_unseen_requests(PipelineRecords(settings, "gym")), "everywhere is looked again"


def test_a_new_lake_is_marked_whole(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    records = PipelineRecords(settings, "gym")
    Path(records.bookkeeping()).mkdir(parents=True)
    lock.write_lake_format(records)
    lock.check_lake_format(records)
    assert [path.name for path in Path(records.bookkeeping()).iterdir()] == ["lake.json"]
