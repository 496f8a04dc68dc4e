"""A shallow clone holds the files that it reads and its table has no longer: until it is gone, or for the declared time."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.lake import lagging_clones
from sluice.lake.clone_registry import register_shallow_clone
from sluice.lake.lagging_clones import LaggingClone, find_lagging_clones
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings
from sluice.table_properties import LOG_RETENTION, RETENTION

PROPERTIES = {RETENTION: "interval 7 days", LOG_RETENTION: "interval 30 days"}
WEEK = timedelta(days=7, minutes=1)


@pytest.fixture
def records(settings: Settings) -> PipelineRecords:
    """Those of a pipeline whose table `sale` was cloned, as Delta's SHALLOW CLONE does: by the addresses of its files."""
    found, path = PipelineRecords(settings, "gym"), _table(settings.lake)
    write_deltalake(path, pa.table({"id": [1, 2]}), configuration=PROPERTIES)
    shutil.copytree(Path(path) / "_delta_log", Path(_table(_clone(settings))) / "_delta_log")
    (commit,) = (Path(_table(_clone(settings))) / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            action["add"]["path"] = f"file://{path}/{action['add']['path']}"
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    register_shallow_clone(found, "r1", _clone(settings))
    return found


def _table(lake: str) -> str:
    return f"{lake}/gym/silver/sale"


def _clone(settings: Settings) -> str:
    return f"{settings.lake}-of-dev"


def find_holding(records: PipelineRecords, waits: str | None = None, later: timedelta = WEEK) -> list[LaggingClone]:
    path = _table(records.settings.lake)
    return find_lagging_clones(records, [path], waits, datetime.now(UTC) + later).get(path, [])


def test_a_clone_holds_what_it_reads_once_vacuum_would_take_it(records: PipelineRecords) -> None:
    assert find_holding(records) == [], "the table has all files that it reads"
    write_deltalake(_table(records.settings.lake), pa.table({"id": [3]}), mode="overwrite")
    assert find_holding(records, later=timedelta()) == [], "nothing is old enough to go"
    (held,) = find_holding(records)
    assert held.lake == _clone(records.settings) and held.until is None and not held.overdue
    assert find_holding(records, "30 days")[0].overdue is False and find_holding(records, "1 day")[0].overdue is True


def test_a_clone_that_was_rewritten_or_removed_holds_nothing(records: PipelineRecords) -> None:
    write_deltalake(_table(records.settings.lake), pa.table({"id": [3]}), mode="overwrite")
    write_deltalake(DeltaTable(_table(_clone(records.settings))), pa.table({"id": [1]}), mode="overwrite")
    assert find_holding(records) == [], "it reads its own files now"
    shutil.rmtree(_clone(records.settings))
    assert find_holding(records) == []


def test_a_clone_that_cannot_be_opened_holds_its_own_table_and_nothing_fails(
    records: PipelineRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_table = lagging_clones.open_checked_table

    def open_or_refuse(path: str) -> DeltaTable:
        if path.startswith(_clone(records.settings)):
            raise PermissionError(13, "Permission denied")
        return open_table(path)

    monkeypatch.setattr(lagging_clones, "open_checked_table", open_or_refuse)
    other = f"{records.settings.lake}/gym/silver/other"
    write_deltalake(other, pa.table({"id": [1]}), configuration=PROPERTIES)
    paths = [_table(records.settings.lake), other]
    assert list(find_lagging_clones(records, paths, None, datetime.now(UTC) + WEEK)) == paths[:1]
