"""`sluice changes` without Spark: which rows, in which order, and wrong use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import Call, call_command, use_roots_of

from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings

FEED = {"delta.enableChangeDataFeed": "true"}
TABLE = "gym.heart_rate"
SECRET = "anna-schmidt-4711"


@pytest.fixture
def lake(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """gym with a table: made and filled at version 0, an update and a delete at 1 and 2, two rows more at 3."""
    use_roots_of(monkeypatch, settings)
    path = PipelineRecords(settings, "gym").table_path("silver", "heart_rate")
    write_deltalake(path, readings((2, 7), (1, 7), (1, 6)), configuration=FEED)
    DeltaTable(path).update(predicate="device_id = 1", updates={"heartrate": "heartrate + 1"})
    DeltaTable(path).delete("device_id = 2")
    write_deltalake(path, readings((3, 1), (2, 1)), mode="append")
    return settings


def readings(*keys: tuple[int, int]) -> pa.Table:
    rows = [{"_delivery": 1, "device_id": device, "time": time, "heartrate": 60.0} for device, time in keys]
    return pa.Table.from_pylist(rows)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], lake: Settings) -> Call:
    return lambda *arguments: call_command(capsys, "changes", *arguments)


def found(call: Call, *arguments: str) -> dict[str, Any]:
    code, out, _ = call(*arguments, "--json")
    assert code == 0
    loaded: dict[str, Any] = json.loads(out.splitlines()[-1])
    return loaded


def short(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["_commit_version"], row["device_id"], row["time"], row["heartrate"], row["_change_type"]) for row in rows]


def test_changes_come_by_version_and_key_with_both_sides_of_an_update_together(call: Call) -> None:
    answer = found(call, TABLE, "--from-version", "1")
    assert short(answer["rows"]) == [
        (1, 1, 6, 60.0, "update_preimage"),
        (1, 1, 6, 61.0, "update_postimage"),
        (1, 1, 7, 60.0, "update_preimage"),
        (1, 1, 7, 61.0, "update_postimage"),
        (2, 2, 7, 60.0, "delete"),
        (3, 2, 1, 60.0, "insert"),
        (3, 3, 1, 60.0, "insert"),
    ]
    assert (answer["from_version"], answer["to_version"], answer["more"]) == (1, 3, False)


def test_what_sluice_adds_stands_behind_the_tables_own_columns_and_the_change_last(call: Call) -> None:
    columns = found(call, TABLE, "--from-version", "0")["columns"]
    assert columns == ["device_id", "time", "heartrate", "_delivery", "_change_type", "_commit_version", "_commit_timestamp"]


def test_the_first_rows_of_the_asked_versions_are_shown_and_that_there_are_more(call: Call) -> None:
    answer = found(call, TABLE, "--from-version", "0", "--to-version", "2", "--limit", "4")
    assert short(answer["rows"]) == [
        (0, 1, 6, 60.0, "insert"),
        (0, 1, 7, 60.0, "insert"),
        (0, 2, 7, 60.0, "insert"),
        (1, 1, 6, 60.0, "update_preimage"),
    ]
    assert answer["more"]
    assert "... and more; --limit 40 shows them" in call(TABLE, "--from-version", "0", "--limit", "4")[1]


def test_a_version_from_before_a_column_shows_it_empty(call: Call, lake: Settings) -> None:
    path = PipelineRecords(lake, "gym").table_path("silver", "heart_rate")
    more = readings((4, 1)).append_column("more", pa.array(["x"]))
    write_deltalake(path, more, mode="append", schema_mode="merge")
    assert [row["more"] for row in found(call, TABLE, "--from-version", "3")["rows"]] == [None, None, "x"]


def test_changes_of_a_table_without_its_declared_keys_are_shown_as_well(call: Call, lake: Settings) -> None:
    path = PipelineRecords(lake, "gym").table_path("silver", "workouts")
    write_deltalake(path, pa.table({"a": [1, 2]}), configuration=FEED)
    assert len(found(call, "gym.workouts", "--from-version", "0")["rows"]) == 2


def test_a_version_in_which_no_row_changed_says_so(call: Call, lake: Settings) -> None:
    DeltaTable(PipelineRecords(lake, "gym").table_path("silver", "heart_rate")).alter.set_table_properties({
        "delta.logRetentionDuration": "interval 9 days"
    })
    assert call(TABLE, "--from-version", "4") == (0, "No row of 'gym.heart_rate' changed in version 4.\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--from-version", "4"), "has no version 4 (--from-version): its log has 0 to 3"),
        (("--from-version", "0", "--to-version", "9"), "has no version 9 (--to-version): its log has 0 to 3"),
        (("--from-version", "2", "--to-version", "1"), "--to-version 1 is before --from-version 2"),
    ],
)
def test_versions_that_are_not_there_are_wrong_use(call: Call, arguments: tuple[str, ...], said: str) -> None:
    code, _, error = call(TABLE, *arguments)
    assert code == 2 and said in error


def test_a_table_that_is_not_there_is_answered_with_the_nearest(call: Call) -> None:
    code, _, error = call("gym.heart_rat", "--from-version", "0")
    assert code == 2 and "Did you mean 'heart_rate'?" in error


def test_a_version_without_change_feed_is_named_with_another_way_to_look(call: Call, lake: Settings) -> None:
    write_deltalake(PipelineRecords(lake, "gym").table_path("silver", "visits"), readings((1, 1)))
    code, _, error = call("gym.visits", "--from-version", "0")
    assert code == 2 and "'gym.visits' kept no change feed at version 0" in error and "--as-of 0" in error


def test_a_version_whose_files_are_gone_is_named(call: Call, lake: Settings) -> None:
    path = Path(PipelineRecords(lake, "gym").table_path("silver", "heart_rate"))
    for file in (path / "_change_data").glob("*.parquet"):
        file.unlink()
    code, _, error = call(TABLE, "--from-version", "0")
    assert code == 1 and "change files of version 1 of 'gym.heart_rate' are gone" in error and "Parquet" not in error


def test_of_a_quarantine_nothing_of_a_record_is_shown(call: Call, lake: Settings) -> None:
    row = {"_delivery": 1, "_row": 2, "_file": "a", "reasons": ["x"], "record": SECRET, "made": SECRET, "_subject": SECRET}
    path = PipelineRecords(lake, "gym").table_path("quarantine", "heart_rate")
    write_deltalake(path, pa.Table.from_pylist([row]), configuration=FEED)
    out = call(f"{TABLE}_quarantine", "--from-version", "0")[1]
    assert "reasons" in out and SECRET not in out
