"""A damaged small file of `_sluice` is named, with what it says and what to do; it is never taken for a newer Sluice's, nor for none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import settings_at

from sluice.erasure import canary, looked_at, requests
from sluice.ingest.landing import rewriting
from sluice.ingest.schema import schema_log
from sluice.kept_json import KeptFileDamaged
from sluice.lake import shallow
from sluice.runs import due
from sluice.runs.execution import clones
from sluice.runs.lease import lake_format
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
    "lake.json": ("the format of the lake", lambda at: lake_format.check_lake_format(at, "gym")),
    "erasure_requests/0a1b.json": ("a request to erase somebody", lambda at: due.read_request_standings(at, "gym")),
    "erasure_requests/0a1b.json ": ("a request to erase somebody", lambda at: requests.list_erasure_requests(at, "gym")),
    "rewriting/1.json": (
        "which landed files an erasure was about to replace",
        lambda at: rewriting.finish_rewriting_journals(
            Path(at.bookkeeping("gym", "rewriting")), at.bookkeeping("gym", "deliveries"), "run"
        ),
    ),
    "schemas/readings/0.json": (
        "the columns that a source had",
        lambda at: schema_log.read_latest_schema_version(at.bookkeeping("gym", "schemas/readings")),
    ),
    "schemas/readings/0.json ": (
        "the columns that a source had",
        lambda at: schema_log.read_schema_versions(at.bookkeeping("gym", "schemas/readings")),
    ),
    "shallow_clones/1.json": ("where a shallow clone lies", lambda at: shallow.find_shallow_clone_lakes(at, "gym")),
}
OBJECTS: dict[str, tuple[str, Callable[[Settings], Any]]] = {
    "clone.json": ("what this clone was made from", lambda at: clones.read_clone_description(at, "gym")),
    f"canary/one/{canary.PLANTED}": ("what was found of a canary", lambda at: canary.read_planted_counts(at, "gym", "one")),
}


def damaged(settings: Settings, name: str, content: str) -> Path:
    path = Path(settings.bookkeeping("gym", name.strip()))
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


@pytest.mark.parametrize("content", [*GARBLED.values(), "{}"])
def test_what_can_be_found_out_again_stops_nothing(settings: Settings, content: str) -> None:
    damaged(settings, "erasure_requests/.asked", content)
    assert looked_at.read_request_table_states(settings, "gym") == {}
    if content != "{}":
        assert due.may_hold_unseen_requests(settings, "gym"), "everywhere is looked again"


def test_a_new_lake_is_marked_whole(tmp_path: Path) -> None:
    settings = settings_at(tmp_path)
    Path(settings.bookkeeping("gym")).mkdir(parents=True)
    lake_format.write_lake_format(settings, "gym")
    lake_format.check_lake_format(settings, "gym")
    assert [path.name for path in Path(settings.bookkeeping("gym")).iterdir()] == ["lake.json"]
