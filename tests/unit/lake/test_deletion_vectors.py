"""Rows that are only marked as deleted: how many there are of each file, and when that is worth a rewrite. By tables that delta-rs made."""

from __future__ import annotations

import functools
import json
import struct
import uuid
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.test_optimize import STATISTICS

from sluice.lake import file_statistics, log_files
from sluice.lake.deletion_vectors import count_files_with_deleted_rows, list_files_with_deleted_rows
from sluice.lake.layout import LayoutDecision, decide_layout
from sluice.lake.versions import is_version_whole

FEATURES = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "changeDataFeed"]}
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
LARGE, SMALL = 10_000, 1_000
"""Rows of the table's files: too few come with the small one to have it rewritten for these."""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of a large file and a small one whose rows may be marked."""
    made = str(tmp_path / "t")
    append_rows(made, range(LARGE))
    log_file = Path(made) / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in log_file.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}
    log_file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return made


def append_rows(path: str, ids: Sequence[int], **how: Any) -> None:
    rows = pa.table({"id": list(ids), "city": ["a b%"] * len(ids)})
    write_deltalake(path, rows, mode="append", configuration=STATISTICS, **how)


def append_small_file(path: str) -> None:
    """As Spark would: delta-rs does not write to a table with such a feature."""
    other = f"{path}_small"
    append_rows(other, range(LARGE, LARGE + SMALL))
    (added,) = (one for one in read_commit(other, 0) if "add" in one)
    Path(other, added["add"]["path"]).rename(Path(path, added["add"]["path"]))
    commit(path, "WRITE", [added])


def read_commit(path: str, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(path) / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]


def commit(path: str, operation: str, actions: Sequence[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": 1, "operation": operation, "operationParameters": {}}}
    file = Path(path) / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json"
    file.write_text("".join(json.dumps(action) + "\n" for action in [info, *actions]))


def mark_rows(path: str, of: int, number: int) -> None:
    """Mark every third row and more of the file with so many rows, as DELETE by Spark does. No row of it is marked yet."""
    adds = [one["add"] for version in range(DeltaTable(path).version() + 1) for one in read_commit(path, version) if "add" in one]
    (added,) = (one for one in adds if json.loads(one["stats"])["numRecords"] == of)
    raw = format_bitmap([*range(0, of, 3), *(row for row in range(of) if row % 3)][:number])
    vector = {"storageType": "i", "pathOrInlineDv": format_z85(raw), "sizeInBytes": len(raw), "cardinality": number}
    removed = {"path": added["path"], "deletionTimestamp": 1, "dataChange": True, "partitionValues": {}, "size": added["size"]}
    commit(path, "DELETE", [{"remove": removed}, {"add": {**added, "deletionVector": vector}}])


def store_vector_in_file(path: str) -> Path:
    """Moves the vector of the latest commit from the log into a file, as Spark writes larger ones. Returns the file."""
    version, name = DeltaTable(path).version(), uuid.uuid4()
    actions = read_commit(path, version)
    (vector,) = (action["add"]["deletionVector"] for action in actions if "add" in action)
    bytes_there = parse_z85(vector["pathOrInlineDv"])[: vector["sizeInBytes"]]
    file = Path(path) / f"deletion_vector_{name}.bin"
    file.write_bytes(b"\1" + struct.pack(">I", len(bytes_there)) + bytes_there + struct.pack(">I", zlib.crc32(bytes_there)))
    vector |= {"storageType": "u", "pathOrInlineDv": format_z85(name.bytes), "offset": 1}
    log_file = Path(path) / "_delta_log" / f"{version:020d}.json"
    log_file.write_text("".join(json.dumps(action) + "\n" for action in actions))
    return file


def format_bitmap(rows: Sequence[int]) -> bytes:
    """A RoaringBitmapArray with one container that lists the rows, or has a bit for each."""
    kinds = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1) + struct.pack("<I", 16)
    bits = sum(1 << row for row in rows).to_bytes(8192, "little")
    listed = bits if len(rows) > 4096 else b"".join(struct.pack("<H", row) for row in sorted(rows))
    return struct.pack("<IQI", 1681511377, 1, 0) + kinds + listed


def format_z85(raw: bytes) -> str:
    """Text of base 85, in which the log holds a small vector."""
    padded = raw + b"\0" * (-len(raw) % 4)
    numbers = struct.unpack(f">{len(padded) // 4}I", padded)
    return "".join(DIGITS[number // 85**position % 85] for number in numbers for position in (4, 3, 2, 1, 0))


def parse_z85(text: str) -> bytes:
    groups = [text[start : start + 5] for start in range(0, len(text), 5)]
    return b"".join(
        struct.pack(">I", functools.reduce(lambda n, sign: n * 85 + DIGITS.index(sign), group, 0)) for group in groups
    )


@pytest.fixture
def two_files(path: str) -> str:
    append_small_file(path)
    return path


def decide(path: str) -> LayoutDecision:
    return decide_layout(path, ("id",))


def test_the_log_says_of_how_many_rows_of_which_files(two_files: str) -> None:
    assert list_files_with_deleted_rows(two_files) == [] and count_files_with_deleted_rows(two_files) == 0
    mark_rows(two_files, SMALL, 700)
    mark_rows(two_files, LARGE, 6_000)
    found = {one.rows: (one.marked, one.file.path) for one in list_files_with_deleted_rows(two_files)}
    sizes = {one.rows: one.path for one in file_statistics.list_data_files(two_files)}
    assert found == {SMALL: (700, sizes[SMALL]), LARGE: (6_000, sizes[LARGE])}
    assert count_files_with_deleted_rows(two_files) == 2
    DeltaTable(two_files).create_checkpoint()
    assert len(list_files_with_deleted_rows(two_files)) == 2


def test_a_version_is_whole_only_with_the_files_that_mark_its_rows(path: str) -> None:
    mark_rows(path, LARGE, 700)
    vector = store_vector_in_file(path)
    assert count_files_with_deleted_rows(path) == 1 and is_version_whole(path, 1)
    vector.unlink()  # as VACUUM does once another vector has taken its place; the data file stays
    assert is_version_whole(path, 0) and not is_version_whole(path, 1)


def test_a_file_in_a_partition_is_found_by_its_name_however_that_is_escaped(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append_rows(path, range(SMALL), partition_by=["city"])
    actions = read_commit(path, 0)
    for action in actions:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}
    (Path(path) / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    mark_rows(path, SMALL, 400)
    (found,) = list_files_with_deleted_rows(path)
    assert (found.marked, found.rows, found.file.partition) == (400, SMALL, {"city": "a b%"})


def test_files_are_rewritten_once_more_than_half_of_their_rows_are_marked(two_files: str) -> None:
    mark_rows(two_files, LARGE, 1_000)
    decision = decide(two_files)
    assert not decision.needed
    assert decision.why.startswith("2 files; ") and decision.why.endswith(
        "; 1 file with rows only marked as deleted, 10.0% of their rows; worth it above 50%"
    )
    mark_rows(two_files, SMALL, 900)
    decision = decide(two_files)
    assert not decision.needed and "2 files with rows only marked as deleted, 17.3% of their rows;" in decision.why, decision.why


def test_only_the_files_with_such_rows_and_never_twice(two_files: str) -> None:
    mark_rows(two_files, SMALL, 501)
    decision = decide(two_files)
    assert decision.needed and decision.marked and decision.join is None and not decision.groups
    assert decision.why.startswith(
        "501 of 1,000 rows of 1 file are only marked as deleted; the others, about "
    ) and decision.why.endswith(" are rewritten")
    small = next(one.size for one in file_statistics.list_data_files(two_files) if one.rows == SMALL)
    assert [one.file_sizes for one in decision.partitions] == [[small]]
    commit(two_files, "OPTIMIZE", [])
    assert decide(two_files).why == "no data came since the last rewrite"


def test_half_of_the_rows_is_not_enough(two_files: str) -> None:
    """What is written must be less than what is gone."""
    mark_rows(two_files, SMALL, 500)
    assert not decide(two_files).needed and "50.0% of their rows" in decide(two_files).why


def test_a_clustered_table_is_left_to_deltas_own_rules(two_files: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """REORG takes none of its files, and would be tried each day anew."""
    monkeypatch.setattr(log_files, "has_clustering_feature", lambda path: True)
    monkeypatch.setattr(log_files, "read_cluster_columns", lambda path: ("id",))
    mark_rows(two_files, SMALL, 900)
    assert not decide(two_files).needed and not decide(two_files).marked
