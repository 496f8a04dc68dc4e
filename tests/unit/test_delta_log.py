"""A log that lost its last commit is detected before anything is read; a complete log never raises this alarm."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from sluice import delta_log
from sluice.delta_log import DamagedLog, check_table_logs, checksum_file_path, find_log_damage
from sluice.ingest import delivery_tables
from sluice.lake import commit_history, log
from sluice.open_tables import open_checked_table
from sluice.record_tables import create_record_table

NUMBERS = pa.schema([pa.field("number", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three commits below a pipeline's folder."""
    path = tmp_path / "lake" / "gym" / "_sluice" / "deliveries"
    create_record_table(str(path), NUMBERS)
    for number in (1, 2):
        delivery_tables.append_delivery_ledger_rows(str(path), [{"number": number}], NUMBERS, "run")
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
    os.utime(last, (0, 0))  # whatever is written next has another time, however coarse the clock of files is
    assert damages(table) == []  # also that what was found of this file does not outlive it
    last.write_bytes(CUTS[cut](last.read_bytes()))
    with pytest.raises(DamagedLog, match=r"table 'deliveries' \(/.*00002\.json is .*: sluice repair gym$"):
        check_table_logs({"deliveries": str(table)})
    for reads in (
        log.latest_table_version,
        log.read_table_state,
        commit_history.read_commit_history,
        log.table_change_mark,
        log.read_table_properties,
    ):
        with pytest.raises(DamagedLog):
            reads(str(table))
    with pytest.raises(DamagedLog):
        delivery_tables.read_delivery_ledger_rows(str(table))


def test_without_the_look_an_empty_commit_passes_for_one_that_did_nothing(table: Path) -> None:
    commit(table, 2).write_bytes(b"")
    assert DeltaTable(str(table)).version() == 2 and delta_log.is_delta_table(str(table))


def test_a_commit_that_is_missing_between_others_and_an_empty_one_behind_a_checkpoint_are_found(table: Path) -> None:
    for _ in range(2):
        DeltaTable(str(table)).create_checkpoint()
        delivery_tables.append_delivery_ledger_rows(str(table), [{"number": 3}], NUMBERS, "run")
    commit(table, 1).write_bytes(b"")
    assert damages(table) == ["_delta_log/1.json is empty"]
    commit(table, 1).unlink()  # as Delta removes what is older than a checkpoint
    assert damages(table) == []
    delivery_tables.append_delivery_ledger_rows(str(table), [{"number": 4}], NUMBERS, "run")
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


def test_a_checkpoint_of_json_stands_for_the_commits_before_it(table: Path) -> None:
    before = commit(table, 2).read_bytes()
    checkpoint = table / "_delta_log" / f"{2:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    checkpoint.write_bytes(b'{"checkpointMetadata":{"version":2}}\n' + before)
    for version in range(2):  # as Delta removes what is older than a checkpoint
        commit(table, version).unlink()
    assert damages(table) == [] and delta_log.is_delta_table(str(table))
    commit(table, 2).unlink()
    assert damages(table) == [] and delta_log.is_delta_table(str(table))
    checkpoint.write_bytes(checkpoint.read_bytes()[:-5])
    (found,) = find_log_damage(str(table))
    assert not found.is_commit and found.version == 2 and found.what == "is cut"


def test_a_cut_checkpoint_is_found(table: Path) -> None:
    DeltaTable(str(table)).create_checkpoint()
    assert damages(table) == []
    (file,) = (table / "_delta_log").glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    (found,) = find_log_damage(str(table))
    assert not found.is_commit and found.version == 2 and found.what == "is cut"
