"""An open table has one snapshot, which is kept while its log is the same, and never comes from a damaged log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import TableNotFoundError

from sluice.delta_log import LOG, DamagedLog
from sluice.open_tables import (
    OpenTables,
    find_table_snapshot,
    open_checked_table,
    open_table_snapshot,
    open_table_to_change,
    read_snapshot_rows,
)


def append(table: Path, number: int) -> None:
    write_deltalake(str(table), pa.table({"number": [number]}), mode="append", schema_mode="merge")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three commits."""
    path = tmp_path / "numbers"
    for number in range(3):
        append(path, number)
    return path


def test_a_table_is_opened_again_when_its_log_has_changed_and_only_then(table: Path) -> None:
    tables = OpenTables()
    before = tables.open_latest(str(table))
    assert tables.open_latest(str(table)) is before
    append(table, 7)
    after = tables.open_latest(str(table))
    assert after.version() == before.version() + 1, "whoever has the earlier one still reads what it read"
    assert tables.open_latest(str(table)) is after
    (table / "_delta_log" / f"{after.version():020d}.json").unlink()
    assert tables.open_latest(str(table)).version() == before.version()


def test_a_table_that_was_made_again_or_is_gone_is_not_the_one_of_before(table: Path) -> None:
    tables = OpenTables()
    before = tables.open_latest(str(table))
    versions = range(before.version() + 1)
    shutil.rmtree(table)
    with pytest.raises(TableNotFoundError):
        tables.open_latest(str(table))
    for number in versions:
        append(table, number)
    again = tables.open_latest(str(table))
    assert again.version() == before.version() and again.metadata().id != before.metadata().id


def test_an_open_table_whose_log_is_damaged_meanwhile_is_refused(table: Path) -> None:
    last = table / "_delta_log" / f"{open_checked_table(str(table)).version():020d}.json"
    last.write_bytes(b"")
    with pytest.raises(DamagedLog):
        open_checked_table(str(table))


def test_who_changes_a_table_has_one_of_its_own(table: Path) -> None:
    shared, own = open_checked_table(str(table)), open_table_to_change(str(table))
    before = shared.version()
    own.delete()
    assert (own.version(), shared.version()) == (before + 1, before)
    assert open_checked_table(str(table)).version() == before + 1


def test_logs_of_so_many_bytes_are_kept_and_those_asked_for_longest_ago_go(tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(3)]
    for path in paths:
        append(Path(path), 1)
    of_one = sum(file.stat().st_size for file in (tmp_path / "0" / "_delta_log").iterdir())
    tables = OpenTables(most_bytes=of_one * 5 // 2)
    first, second = (tables.open_latest(path) for path in paths[:2])
    assert tables.open_latest(paths[0]) is first
    tables.open_latest(paths[2])
    assert tables.open_latest(paths[0]) is first and tables.open_latest(paths[1]) is not second
    none = OpenTables(most_bytes=of_one - 1)
    assert none.open_latest(paths[0]) is not none.open_latest(paths[0])


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "runs")
    write_deltalake(path, pa.table({"run": ["a"], "rows": pa.array([1], pa.int32())}))
    return path


def test_what_is_committed_later_is_not_in_an_open_snapshot(path: str) -> None:
    before = open_table_snapshot(path)
    write_deltalake(path, pa.table({"run": ["b"], "rows": pa.array([2], pa.int32())}), mode="append")
    assert before.read_rows() == [{"run": "a", "rows": 1}]
    assert before.query_rows("SELECT count(*) AS n FROM t")["n"].to_pylist() == [1]
    assert sorted(row["run"] for row in read_snapshot_rows(path)) == ["a", "b"]
    assert open_table_snapshot(path, version=0).read_rows() == before.read_rows()


def test_columns_come_in_the_types_asked_for_and_one_that_the_table_lacks_is_null(path: str) -> None:
    wanted = pa.schema([("entry", pa.int64()), ("rows", pa.int64())])
    found = open_table_snapshot(path).read_columns(wanted)
    assert (found.schema, found.to_pylist()) == (wanted, [{"entry": None, "rows": 1}])


def test_a_table_that_is_not_there_has_no_rows_and_a_damaged_one_is_not_read(path: str) -> None:
    assert find_table_snapshot(f"{path}/none") is None
    assert read_snapshot_rows(f"{path}/none") == []
    (Path(path) / LOG / f"{0:020d}.json").write_text("")
    with pytest.raises(DamagedLog):
        read_snapshot_rows(path)
