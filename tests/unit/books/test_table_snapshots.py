"""A table that is opened once is read as it was then, by whoever asks; and one order says which delivery of a file counts."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice.books.redelivery import AcceptedDelivery, select_counting_deliveries
from sluice.books.table_snapshots import find_table_snapshot, open_table_snapshot, read_snapshot_rows
from sluice.delta_log import LOG, DamagedLog

EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


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


@pytest.mark.parametrize(
    ("accepted", "counting"),
    [
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "f", EARLY, "b")], {1}),
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "f", LATE, "b")], {2}),
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "f", LATE, "a")], {1}),
        ([AcceptedDelivery(1, "f", None, "b"), AcceptedDelivery(2, "f", EARLY, "a")], {2}),
        ([AcceptedDelivery(1, "f", EARLY, "a"), AcceptedDelivery(2, "f", EARLY, None)], {1}),
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "g", EARLY, "a")], {1, 2}),
    ],
    ids=["later", "greater hash", "came first", "time not known", "hash not known", "two files"],
)
def test_one_delivery_of_each_file_counts_whatever_came_when(accepted: list[AcceptedDelivery], counting: set[int]) -> None:
    assert select_counting_deliveries(accepted) == select_counting_deliveries(reversed(accepted)) == counting
