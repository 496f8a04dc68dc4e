"""Whatever delta-rs had under way when its lease was taken over collides with the epoch: no kind of commit is tried again past it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from sluice.errors import SluiceError
from sluice.locations import locate
from sluice.open_tables import open_delta_table
from sluice.runs.lease import takeover
from sluice.runs.lease.takeover import commit_epoch_to_tables
from sluice.stores.commit_settling import settle_store_commit, store_commit_properties
from sluice.stores.opening import delta_rs_storage_options
from sluice.table_properties import EPOCH

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
Commit = Callable[[DeltaTable, CommitProperties], Any]


def merge_row(table: DeltaTable, properties: CommitProperties) -> Any:
    rows = pa.table({"id": [1]})
    merging = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t", commit_properties=properties)
    return merging.when_matched_delete().execute()


COMMITS: dict[str, Commit] = {
    "append": lambda table, properties: write_deltalake(
        table, pa.table({"id": [9]}), mode="append", commit_properties=properties, post_commithook_properties=_NO_HOOKS
    ),
    "merge": merge_row,
    "delete": lambda table, properties: table.delete("id = 1", commit_properties=properties),
    "compact": lambda table, properties: table.optimize.compact(commit_properties=properties),
    "z-order": lambda table, properties: table.optimize.z_order(["id"], commit_properties=properties),
    "properties": lambda table, properties: table.alter.set_table_properties(
        {"delta.appendOnly": "false"}, commit_properties=properties
    ),
}


@pytest.mark.parametrize("kind", COMMITS)
def test_a_commit_of_delta_rs_that_was_computed_before_a_takeover_is_not_made_after_it(bucket_url: str, kind: str) -> None:
    path = f"{bucket_url}/lake/gym/silver/t"
    for number in range(3):
        write_deltalake(path, pa.table({"id": [number]}), mode="append", storage_options=delta_rs_storage_options(path))
    table, properties = open_delta_table(path), store_commit_properties(path)
    with pytest.raises(CommitFailedError), settle_store_commit(path, table, properties):
        commit_epoch_to_tables(locate(f"{bucket_url}/lake/gym"), 2)
        COMMITS[kind](table, properties)
    now = open_delta_table(path)
    assert now.version() == 3, "nothing came after the epoch"
    assert sorted(now.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2]


def test_an_epoch_that_another_commit_came_before_is_committed_after_it(bucket_url: str) -> None:
    path = f"{bucket_url}/lake/gym/silver/t"
    write_deltalake(path, pa.table({"id": [0]}), storage_options=delta_rs_storage_options(path))
    opened = takeover._open_written_alike

    def then_another_commits(path: str) -> DeltaTable | None:
        table = opened(path)
        patch.undo()
        open_delta_table(path).alter.set_table_properties({"delta.appendOnly": "false"})
        return table

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(takeover, "_open_written_alike", then_another_commits)
        commit_epoch_to_tables(locate(f"{bucket_url}/lake/gym"), 5)
    now = open_delta_table(path)
    assert now.version() == 2
    assert now.metadata().configuration[EPOCH] == "5" and now.metadata().configuration["delta.appendOnly"] == "false"


def test_a_table_whose_protocol_delta_rs_would_raise_is_left_to_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "silver" / "t")
    write_deltalake(
        path, pa.table({"at": pa.array([0], pa.timestamp("us"))}), configuration={"delta.enableChangeDataFeed": "true"}
    )
    before = open_delta_table(path)
    assert before.protocol().writer_features, "a time without a zone names the features"
    with pytest.raises(SluiceError, match="only Spark can write it"):
        commit_epoch_to_tables(locate(str(tmp_path)), 2)
    assert open_delta_table(path).version() == before.version()
