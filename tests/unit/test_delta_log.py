"""A log whose last commit was lost is found before anything is read; what was written whole never is. An open table is of one snapshot."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from sluice.delta_log import (
    LOG,
    DamagedLog,
    OpenTables,
    check_table_logs,
    checksum_file_path,
    find_log_damage,
    find_table_snapshot,
    open_checked_table,
    open_table_snapshot,
    open_table_to_change,
    read_snapshot_rows,
)
from sluice.ingest import ledger
from sluice.lake import log
from sluice.record_tables import create_record_table

NUMBERS = pa.schema([pa.field("number", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three commits below a pipeline's folder."""
    path = tmp_path / "lake" / "gym" / "_sluice" / "deliveries"
    create_record_table(str(path), NUMBERS)
    for number in (1, 2):
        ledger.append_delivery_ledger_rows(str(path), [{"number": number}], NUMBERS, "run")
    return path


def commit(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020d}.json"


def seal(file: Path) -> None:
    """Write the checksum that Hadoop's file system writes beside a file of Spark's."""
    content = file.read_bytes()
    sums = [zlib.crc32(content[start : start + 512]).to_bytes(4, "big") for start in range(0, len(content), 512)]
    checksum_file_path(file).write_bytes(b"crc\x00" + (512).to_bytes(4, "big") + b"".join(sums))


def damages(table: Path) -> list[str]:
    return [str(one).replace("0" * 19, "") for one in find_log_damage(str(table))]


def test_a_whole_log_is_opened(table: Path) -> None:
    assert damages(table) == [] and open_checked_table(str(table)).version() == 2
    seal(commit(table, 2))
    assert damages(table) == []
    assert list(find_log_damage(str(table.parent / "none"))) == []


CUTS = {
    "nothing": lambda content: b"",
    "half of a line": lambda content: content[:-20],
    "the first line alone": lambda content: content.splitlines()[0],
    "zeros behind the first block": lambda content: content[:100] + b"\x00" * (len(content) - 100),
    "zeros alone": lambda content: b"\x00" * len(content),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("sealed", [False, True])
def test_a_last_commit_that_was_lost_is_refused_with_the_table_the_file_and_the_remedy(
    table: Path, cut: str, sealed: bool
) -> None:
    last = commit(table, 2)
    if sealed:
        seal(last)
    assert damages(table) == []  # also that what was found of this file does not outlive it
    last.write_bytes(CUTS[cut](last.read_bytes()))
    with pytest.raises(DamagedLog, match=r"table 'deliveries' \(/.*00002\.json is .*: sluice repair gym$"):
        check_table_logs({"deliveries": str(table)})
    for reads in (
        log.latest_table_version,
        log.read_table_state,
        log.read_commit_history,
        log.table_change_mark,
        log.read_table_properties,
    ):
        with pytest.raises(DamagedLog):
            reads(str(table))
    with pytest.raises(DamagedLog):
        ledger.read_delivery_ledger_rows(str(table))


def test_without_the_look_an_empty_commit_passes_for_one_that_did_nothing(table: Path) -> None:
    commit(table, 2).write_bytes(b"")
    assert DeltaTable(str(table)).version() == 2 and log.is_delta_table(str(table))


def test_a_commit_that_is_missing_between_others_and_an_empty_one_behind_a_checkpoint_are_found(table: Path) -> None:
    for _ in range(2):
        DeltaTable(str(table)).create_checkpoint()
        ledger.append_delivery_ledger_rows(str(table), [{"number": 3}], NUMBERS, "run")
    commit(table, 1).write_bytes(b"")
    assert damages(table) == ["_delta_log/1.json is empty"]
    commit(table, 1).unlink()  # as Delta removes what is older than a checkpoint
    assert damages(table) == []
    ledger.append_delivery_ledger_rows(str(table), [{"number": 4}], NUMBERS, "run")
    commit(table, 4).unlink()
    assert damages(table) == ["_delta_log/4.json is missing, and later commits are there"]


def test_a_last_commit_that_is_gone_is_found_by_its_checksum(table: Path) -> None:
    last = max((table / "_delta_log").glob("*.json"))
    last.with_suffix(".crc").write_text("{}")
    assert damages(table) == []
    last.unlink()
    assert damages(table) == [f"_delta_log/{int(last.stem)}.json is missing, and its checksum is there"]
    later = last.with_name(f"{int(last.stem) + 1:020d}.crc")
    last.with_suffix(".crc").rename(later)
    assert damages(table) == [
        f"_delta_log/{int(last.stem)}.json is missing, and a later checksum is there",
        f"_delta_log/{int(last.stem) + 1}.json is missing, and its checksum is there",
    ], "a repair goes back to the first"
    later.unlink()
    assert damages(table) == []


def test_a_cut_checkpoint_is_found(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    assert damages(table) == []
    (file,) = (table / "_delta_log").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    (found,) = find_log_damage(str(table))
    assert not found.is_commit and found.version == 2 and found.what == "is cut"


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


def append(table: Path, number: int) -> None:
    write_deltalake(str(table), pa.table({"number": [number]}), mode="append", schema_mode="merge")


@pytest.fixture
def path(tmp_path: Path) -> str:
    place = str(tmp_path / "runs")
    write_deltalake(place, pa.table({"run": ["a"], "rows": pa.array([1], pa.int32())}))
    return place


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
