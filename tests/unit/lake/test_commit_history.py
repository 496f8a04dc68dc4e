"""A table's history can be read whichever engine wrote it, even if delta-rs refuses a number in it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError

from sluice.lake.commit_history import find_last_data_change, find_latest_data, read_commit_history, summarize_new_versions


def test_a_shallow_clone_of_spark_has_a_history(tmp_path: Path) -> None:
    """Its first commit says that it read version -1."""
    for mode in ("error", "append"):
        write_deltalake(tmp_path, pa.table({"id": [1, 2]}), mode=mode)
    before = read_commit_history(str(tmp_path))
    first = tmp_path / "_delta_log" / f"{0:020}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["readVersion"] = -1
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    with pytest.raises(DeltaProtocolError):
        DeltaTable(tmp_path).history()
    assert read_commit_history(str(tmp_path)) == before
    assert [commit["version"] for commit in read_commit_history(str(tmp_path), 1)] == [1]
    assert summarize_new_versions(str(tmp_path), None).files_added == 2


def test_the_bytes_of_new_versions_are_those_of_the_files_that_they_added(tmp_path: Path) -> None:
    """delta-rs counts files alone in its metrics. A commit that is no longer in the log counts for none."""
    for mode in ("error", "append", "overwrite"):
        write_deltalake(tmp_path, pa.table({"id": [1, 2, len(mode)]}), mode=mode)
    written = sum(file.stat().st_size for file in tmp_path.glob("*.parquet"))
    newest = DeltaTable(tmp_path).get_add_actions(flatten=True)["size_bytes"].to_pylist()
    assert summarize_new_versions(str(tmp_path), None).bytes_added == written > 0
    assert summarize_new_versions(str(tmp_path), 1).bytes_added == sum(newest)
    assert summarize_new_versions(str(tmp_path), 2).bytes_added == 0


def test_rows_last_came_when_the_newest_commit_says_that_brought_some_and_has_a_time(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    assert find_last_data_change(path) is None
    write_deltalake(path, pa.table({"a": [1]}))
    came = read_commit_history(path)[0]["at"]
    write_deltalake(path, pa.table({"a": [2]}), mode="append")
    commit = tmp_path / "t" / "_delta_log" / f"{1:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in actions:
        action.get("commitInfo", {}).pop("timestamp", None)
    commit.write_text("".join(json.dumps(action) + "\n" for action in actions))
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "false"})
    assert find_last_data_change(path) == came, "a stream would else count as idle since ever"


def test_the_age_of_a_table_without_rows_is_its_own_and_of_a_log_without_its_beginning_that_of_its_oldest_commit(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "t")
    assert find_latest_data(path) is None
    table = DeltaTable.create(path, pa.schema([("a", pa.int64())]))
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    (made,) = (commit["at"] for commit in read_commit_history(path) if commit["version"] == 0)
    empty = find_latest_data(path)
    assert empty is not None and (empty.version, empty.at, empty.since) == (None, None, made)

    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 30 days"})
    table.create_checkpoint()
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").unlink()
    (oldest,) = (commit["at"] for commit in read_commit_history(path) if commit["version"] == 1)
    unknown = find_latest_data(path)
    assert unknown is not None and (unknown.version, unknown.at, unknown.since) == (2, None, oldest), "it may have rows"

    write_deltalake(path, pa.table({"a": [1]}), mode="append")
    filled = find_latest_data(path)
    assert filled is not None and filled.version == 3 and filled.at == filled.since == read_commit_history(path, 1)[0]["at"]
