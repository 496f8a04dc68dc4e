"""The tables of Sluice's own records: the cost of an append does not grow with their history, and upkeep loses nothing."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import entries, record_tables
from sluice.delta_log import DamagedLog
from sluice.entries import ENTRY
from sluice.lake.inventory import read_file_inventory
from sluice.open_tables import open_checked_table, read_snapshot_rows
from sluice.own_records import RUNS
from sluice.record_tables import MOST_SMALL_FILES, append_record_rows, create_record_table, has_many_small_files, join_small_files
from sluice.table_properties import RETENTION, STATISTICS

WIDE = pa.schema([*(pa.field(f"c{number}", pa.string()) for number in range(40)), pa.field(ENTRY, pa.int64())])
"""More columns than Delta keeps statistics of by itself, as the run ledger has."""


@pytest.fixture
def runs(tmp_path: Path) -> str:
    """Where a run ledger of some rows lies."""
    path = str(tmp_path / "runs")
    for number in range(3):
        append_record_rows(path, [{"c0": str(number)}], WIDE, mark='{"sluice": 1}')
    return path


def append(path: str, times: int) -> None:
    for _ in range(times):
        append_record_rows(path, [{"c0": "more"}], WIDE)


def forget_own_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the state of a process that has just begun."""
    monkeypatch.setattr(record_tables, "_OWN", {})
    monkeypatch.setattr(entries, "_LAST_ENTRIES", {})


def list_entries(path: str) -> list[int]:
    return sorted(row[ENTRY] for row in read_snapshot_rows(path))


def read_commit(path: str, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(path) / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]


def test_an_append_opens_no_table_that_this_process_has_written(runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for module, name in ((record_tables, "open_table_to_change"), (entries, "find_table_snapshot")):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda path, real=real: (opened.append(path), real(path))[1])
    for _ in range(5):
        create_record_table(runs, WIDE)
        append(runs, 1)
    assert set(opened) <= {str(Path(runs).parent / one.name) for one in entries.COUNTED if one is not RUNS}
    write_deltalake(runs, pa.Table.from_pylist([{"c0": "another's", ENTRY: 40}], schema=WIDE), mode="append")
    opened.clear()
    append(runs, 2)
    assert opened.count(runs) == 2, "once to write, once for its last entry"
    assert list_entries(runs) == [*range(1, 9), 40, 41, 42]


def test_the_last_entry_is_in_the_log_however_many_columns_there_are(runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_own_tables(monkeypatch)
    monkeypatch.setattr("sluice.open_tables.TableSnapshot.query_rows", lambda self, sql: pytest.fail("it reads the rows"))
    append(runs, 1)
    monkeypatch.undo()
    assert list_entries(runs) == [1, 2, 3, 4]


def test_an_older_table_of_many_columns_goes_on_counting_and_gets_its_statistics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "runs")
    for entry in (7, 8):
        write_deltalake(path, pa.Table.from_pylist([{ENTRY: entry}], schema=WIDE), mode="append")
    append(path, 1)
    assert open_checked_table(path).metadata().configuration[STATISTICS] == ENTRY
    forget_own_tables(monkeypatch)
    append(path, 1)
    assert list_entries(path) == [7, 8, 9, 10]
    monkeypatch.setattr(record_tables, "MOST_SMALL_FILES", 1)
    assert join_small_files(path) == (4, 1)
    forget_own_tables(monkeypatch)
    monkeypatch.setattr("sluice.open_tables.TableSnapshot.query_rows", lambda self, sql: pytest.fail("it reads the rows"))
    append(path, 1)
    monkeypatch.undo()
    assert list_entries(path) == [7, 8, 9, 10, 11]


def test_rows_keep_their_columns_where_the_table_has_them_in_another_order(tmp_path: Path) -> None:
    path = str(tmp_path / "deliveries")
    create_record_table(path, pa.schema([("b", pa.string()), ("delivery", pa.int64())]))
    append_record_rows(
        path, [{"delivery": 1, "a": "x", "b": "y"}], pa.schema([("delivery", pa.int64()), ("a", pa.string()), ("b", pa.string())])
    )
    append_record_rows(path, [{"delivery": 2}], pa.schema([("delivery", pa.int64())]))
    rows = sorted(read_snapshot_rows(path), key=lambda row: int(row["delivery"]))
    assert rows == [{"delivery": 1, "a": "x", "b": "y"}, {"delivery": 2, "a": None, "b": None}]


def test_small_files_become_one_and_no_row_changes(runs: str) -> None:
    assert not has_many_small_files(runs)
    append(runs, MOST_SMALL_FILES)
    assert has_many_small_files(runs)
    before, old = read_snapshot_rows(runs), open_checked_table(runs)
    assert join_small_files(runs, mark='{"sluice": 1}') == (MOST_SMALL_FILES + 3, 1)
    assert sorted(read_snapshot_rows(runs), key=lambda row: int(row[ENTRY])) == sorted(before, key=lambda row: int(row[ENTRY]))
    assert not has_many_small_files(runs)
    commit = read_commit(runs, old.version() + 1)
    assert {action["dataChange"] for line in commit for kind, action in line.items() if kind in ("add", "remove")} == {False}
    assert [line["commitInfo"]["userMetadata"] for line in commit if "commitInfo" in line] == ['{"sluice": 1}']
    append(runs, 1)
    assert list_entries(runs) == list(range(1, MOST_SMALL_FILES + 5))


def test_large_files_are_left_as_they_are(runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    append(runs, MOST_SMALL_FILES)
    smallest = min(pa.chunked_array(open_checked_table(runs).get_add_actions()["size_bytes"]).to_pylist())
    monkeypatch.setattr(record_tables, "LARGE_FILE_BYTES", smallest)
    assert not has_many_small_files(runs)


def test_over_hundreds_of_commits_each_byte_is_rewritten_a_few_times_and_files_stay_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was joined, or came large, is not rewritten whenever a few tiny ones have come."""
    monkeypatch.setattr(record_tables, "LARGE_FILE_BYTES", 1024 * 1024)  # so that files become good within the test
    table, chance = DeltaTable.create(tmp_path / "t", pa.schema([("bytes", pa.binary())])), random.Random(5)
    came = rewritten = most = joins = 0
    for number in range(400):
        size = chance.randint(1000, 9000) if number else 600_000
        write_deltalake(table, pa.table({"bytes": [chance.randbytes(size)]}), mode="append")
        sizes = pa.chunked_array(table.get_add_actions()["size_bytes"]).to_pylist()
        most = max(most, len(sizes))
        came += size
        if (join := record_tables.choose_file_join(sizes)) is not None:
            said = table.optimize.compact(target_size=join.target)
            assert (said["numFilesRemoved"], said["numFilesAdded"]) == (join.files, join.into), "delta-rs joins what was foreseen"
            rewritten, joins = rewritten + join.bytes, joins + 1
    assert joins > 3 and rewritten <= 3 * came, f"{rewritten / came:.1f} times"
    assert most < 3 * MOST_SMALL_FILES


def test_only_files_that_have_outlived_the_retention_go(runs: str) -> None:
    append(runs, MOST_SMALL_FILES)
    join_small_files(runs)
    files = len(list(Path(runs).glob("*.parquet")))
    record_tables.remove_expired_files(runs, timedelta(days=30))
    assert len(list(Path(runs).glob("*.parquet"))) == files
    DeltaTable(runs).alter.set_table_properties({RETENTION: "interval 0 days"})
    record_tables.remove_expired_files(runs, timedelta(), mark='{"sluice": 1}')
    found = read_file_inventory(runs, datetime.now(UTC))
    assert not (found.expired or found.waiting or found.changed_since_walk), "they are gone, and that is known"
    assert len(list(Path(runs).glob("*.parquet"))) == 1
    assert [one["operation"] for one in DeltaTable(runs).history(2)] == ["VACUUM END", "VACUUM START"]
    append(runs, 1)
    assert list_entries(runs) == list(range(1, MOST_SMALL_FILES + 5))


def test_a_checkpoint_comes_every_ten_commits_and_expired_commits_go(runs: str) -> None:
    DeltaTable(runs).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    append(runs, 20)
    log = Path(runs) / "_delta_log"
    last = DeltaTable(runs).version()
    assert (log / f"{last // 10 * 10:020d}.checkpoint.parquet").exists()
    assert not (log / f"{1:020d}.json").exists() and not (log / f"{1:020d}.crc").exists()
    assert list_entries(runs) == list(range(1, 24))


def test_a_commit_that_was_lost_is_not_passed_over(runs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (Path(runs) / "_delta_log" / f"{DeltaTable(runs).version():020d}.json").unlink()
    forget_own_tables(monkeypatch)
    with pytest.raises(DamagedLog, match="is missing, and its checksum is there"):
        append(runs, 1)
