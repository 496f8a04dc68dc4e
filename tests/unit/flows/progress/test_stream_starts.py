"""A new stream begins at a version from which commits tell what it needs; one with nothing to take is not started."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.flows.progress import stream_starts
from sluice.lake import log

SCHEMA = pa.schema([pa.field("source", pa.string())])
FOLLOWED = {"delta.enableChangeDataFeed": "true"}


def append(path: Path, *sources: str) -> str:
    rows = pa.Table.from_pylist([{"source": one} for one in sources], schema=SCHEMA)
    write_deltalake(str(path), rows, mode="append", configuration=FOLLOWED)
    return str(path)


def lay_out(path: str) -> None:
    DeltaTable(path).optimize.compact()


def set_property(path: str) -> None:
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})


def test_all_rows_come_from_the_first_commit_where_nothing_was_removed(tmp_path: Path) -> None:
    assert stream_starts.find_starts_with_all_rows({"a": str(tmp_path / "a")}) == {}
    path = append(tmp_path / "a", "x")
    append(tmp_path / "a", "y")
    assert stream_starts.find_starts_with_all_rows({"a": path}) == {"a": 0}
    lay_out(path)
    assert stream_starts.find_starts_with_all_rows({"a": path}) == {}, "files of before may be gone"


def test_all_rows_need_all_commits_and_not_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = append(tmp_path / "a", "x")
    append(tmp_path / "a", "y")
    monkeypatch.setattr(stream_starts, "_MOST_COMMITS", 1)
    assert stream_starts.find_starts_with_all_rows({"a": path}) == {}
    monkeypatch.undo()
    DeltaTable(path).create_checkpoint()
    (tmp_path / "a/_delta_log" / f"{0:020d}.json").unlink()
    assert stream_starts.find_starts_with_all_rows({"a": path}) == {}


@pytest.mark.parametrize("feed", [False, True])
def test_the_latest_change_is_the_last_version_with_rows(tmp_path: Path, feed: bool) -> None:
    path = append(tmp_path / "a", "x")
    append(tmp_path / "a", "y")
    lay_out(path)
    empty = str(tmp_path / "b")
    DeltaTable.create(empty, SCHEMA)
    assert stream_starts.find_starts_at_latest_change({"a": path, "b": empty, "c": str(tmp_path / "c")}, feed) == {"a": 1}
    append(tmp_path / "a", "z")
    lay_out(path)
    append(tmp_path / "b", "z")
    assert stream_starts.find_starts_at_latest_change({"a": path, "b": empty}, feed) == {"a": 3, "b": 1}


def test_of_a_table_whose_properties_changed_since_or_whose_file_is_gone_there_is_none(tmp_path: Path) -> None:
    path = append(tmp_path / "a", "x")
    set_property(path)
    assert stream_starts.find_starts_at_latest_change({"a": path}, feed=True) == {}
    append(tmp_path / "a", "y")
    assert stream_starts.find_starts_at_latest_change({"a": path}, feed=True) == {"a": 2}
    for file in (tmp_path / "a").glob("*.parquet"):
        file.unlink()
    assert stream_starts.find_starts_at_latest_change({"a": path}, feed=True) == {}


def make_older(file: Path, days: int) -> None:
    at = time.time() - days * 86_400
    os.utime(file, (at, at))


def test_a_commit_that_may_soon_be_gone_is_no_start(tmp_path: Path) -> None:
    path = append(tmp_path / "a", "x")
    make_older(tmp_path / "a/_delta_log" / f"{0:020d}.json", days=9)
    assert stream_starts.find_starts_with_all_rows({"a": path}) == {"a": 0}
    assert stream_starts.find_starts_at_latest_change({"a": path}, feed=True) == {"a": 0}
    make_older(tmp_path / "a/_delta_log" / f"{0:020d}.json", days=11)
    assert stream_starts.find_starts_with_all_rows({"a": path}) == {}
    assert stream_starts.find_starts_at_latest_change({"a": path}, feed=True) == {}


def write_offset(checkpoint: Path, path: str, version: int, batch: int = 0, index: int = -1, done: bool = True) -> str:
    """Writes what Spark writes for a batch that ends before a version, or within it."""
    line = f'{{"sourceVersion":1,"reservoirId":"{log.read_table_id(path)}","reservoirVersion":{version},"index":{index}}}'
    for kind, written in (("offsets", True), ("commits", done)):
        (checkpoint / kind).mkdir(parents=True, exist_ok=True)
        if written:
            (checkpoint / kind / str(batch)).write_text(f"v1\n{{}}\n{line}")
    return str(checkpoint)


def has_rows(checkpoint: str, path: str, *sources: str) -> bool:
    return stream_starts.has_unread_rows_of_sources(checkpoint, "outcomes", log.read_table_id(path), path, sources)


def has_changes(checkpoint: str, path: str) -> bool:
    return stream_starts.has_unread_changes(checkpoint, {"a": log.read_table_id(path)}, {"a": path})


def test_only_rows_of_its_sources_are_for_a_stream(tmp_path: Path) -> None:
    path = append(tmp_path / "a", "x")
    taken = write_offset(tmp_path / "flow", path, 1)
    assert not has_rows(taken, path, "x", "y")
    append(tmp_path / "a", "y")
    assert [has_rows(taken, path, "x"), has_rows(taken, path, "x", "y")] == [False, True]
    begun = write_offset(tmp_path / "flow", path, 2, batch=1, done=False)
    assert has_rows(begun, path, "x"), "a batch that was begun comes again"


@pytest.mark.parametrize("change", [lambda path: append(Path(path), "y"), set_property], ids=["rows", "properties"])
def test_a_view_is_quiet_until_its_input_has_other_rows_or_is_another(tmp_path: Path, change: object) -> None:
    path = append(tmp_path / "a", "x")
    taken = write_offset(tmp_path / "flow", path, 1)
    assert not has_changes(taken, path)
    append(tmp_path / "a", "y")
    append(tmp_path / "a", "z")
    taken = write_offset(tmp_path / "flow", path, 3, batch=1)
    lay_out(path)
    assert not has_changes(taken, path), "the rows are the same"
    change(path)  # type: ignore[operator]
    assert has_changes(taken, path)


def test_a_stream_that_is_behind_moves_on_before_commits_are_gone(tmp_path: Path) -> None:
    path = append(tmp_path / "a", "x")
    taken = write_offset(tmp_path / "flow", path, 1)
    make_older(tmp_path / "flow/commits/0", days=11)
    assert not has_rows(taken, path, "y") and not has_changes(taken, path), "nothing was committed since"
    append(tmp_path / "a", "x")
    assert has_rows(taken, path, "y") and has_changes(taken, path)
    make_older(tmp_path / "flow/commits/0", days=9)
    assert not has_rows(taken, path, "y")


def test_what_cannot_be_known_is_for_spark_to_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = append(tmp_path / "a", "x")
    assert has_changes(str(tmp_path / "none"), path) and has_rows(str(tmp_path / "none"), path, "y")
    ahead = write_offset(tmp_path / "ahead", path, 3)
    assert has_changes(ahead, path) and has_rows(ahead, path, "y"), "its last commits are lost"
    taken = write_offset(tmp_path / "flow", path, 1)
    shutil.rmtree(tmp_path / "flow/commits")
    assert has_changes(taken, path), "no batch was finished"
    taken = write_offset(tmp_path / "flow", path, 1)
    for _ in range(3):
        append(tmp_path / "a", "x")
    monkeypatch.setattr(stream_starts, "_MOST_VERSIONS", 2)
    assert has_rows(taken, path, "y"), "its position must move on"
    monkeypatch.undo()
    assert not has_rows(taken, path, "y")
    DeltaTable(path).create_checkpoint()
    (tmp_path / "a/_delta_log" / f"{2:020d}.json").unlink()
    assert has_rows(taken, path, "y") and has_changes(taken, path)
