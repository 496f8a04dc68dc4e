"""No reader of a log's statistics excludes a file that holds a value: instants are cut to the millisecond, and long texts are cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice.flows.gold.choice import count_rows_within_limits
from sluice.lake.file_statistics import count_rows_in_matching_files, find_values_in_file_ranges, list_data_files

AT = datetime(2023, 11, 14, 22, 13, 20, 123_700)
ROWS = 3
TEXT = "é" * 40


def table_of_an_instant(path: Path, at: datetime, partition_by: str | None = None) -> str:
    """A table of a few rows of one instant, which the log has without its microseconds where it is an end."""
    stored = pa.array([at] * ROWS, pa.timestamp("us", "UTC" if at.tzinfo else None))
    write_deltalake(path, pa.table({"k": list(range(ROWS)), "at": stored}), partition_by=partition_by)
    (commit,) = (path / "_delta_log").glob("*.json")
    assert ("20.123700" in commit.read_text(encoding="utf-8")) == (partition_by is not None)
    return str(path)


@pytest.mark.parametrize("zone", [None, UTC])
def test_an_instant_with_microseconds_is_in_its_file(tmp_path: Path, zone: Any) -> None:
    at = AT.replace(tzinfo=zone)
    path = table_of_an_instant(tmp_path / "t", at)
    moment, day = timedelta(microseconds=1), timedelta(days=1)
    for ranges in ([(at, at)], [(at, at + day)], [(at - day, at)], [(at - day, at + day)], [(at + day, at + day), (at, at)]):
        assert count_rows_in_matching_files(path, {"at": ranges}) == ROWS, ranges
    for apart in ((at + day, at + 2 * day), (at - 2 * day, at - day), (at + timedelta(milliseconds=2), at + day)):
        assert count_rows_in_matching_files(path, {"at": [apart]}) == 0, apart
    (file,) = list_data_files(path, ("at",))
    assert file.ends["at"][0] <= at - moment and at + moment <= file.ends["at"][1]


def test_the_limits_of_a_scope_find_the_rows_of_its_instant(tmp_path: Path) -> None:
    path = table_of_an_instant(tmp_path / "t", AT.replace(tzinfo=UTC))
    literal = f"TIMESTAMP'{AT.isoformat(' ', 'microseconds')}'"
    assert count_rows_within_limits(path, {"at": ((literal, literal),)}) == ROWS
    assert count_rows_within_limits(path, {"k": ((f"{ROWS}", f"{ROWS}"),)}) == 0


def test_the_value_of_a_partition_is_exact(tmp_path: Path) -> None:
    at = AT.replace(tzinfo=UTC)
    path = table_of_an_instant(tmp_path / "t", at, "at")
    moment = timedelta(microseconds=1)
    assert [count_rows_in_matching_files(path, {"at": [(one, one)]}) for one in (at - moment, at, at + moment)] == [0, ROWS, 0]
    (file,) = list_data_files(path, ("at",))
    assert file.ends == {"at": (at, at)}


@pytest.mark.parametrize("text", [TEXT, "z" * 33, "\U0010ffff" * 40, "a" * 31 + "\U0010ffff" * 2])
def test_a_long_text_lies_between_the_ends_of_its_file(tmp_path: Path, text: str) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"text": [text], "k": [1]}))
    (file,) = list_data_files(path, ("text",))
    low, high = file.ends.get("text", (text, text))
    assert low <= text <= high
    assert count_rows_in_matching_files(path, {"text": [(text, text)]}) == 1


def test_numbers_that_no_file_can_hold_are_left_out(tmp_path: Path) -> None:
    path = table_of_an_instant(tmp_path / "t", AT)
    assert find_values_in_file_ranges(path, "k", [-1, 0, ROWS - 1, ROWS]) == {0, ROWS - 1}
    assert find_values_in_file_ranges(path, "no column", [7]) == {7}, "nobody knows"
