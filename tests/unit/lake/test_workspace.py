"""Keys of merges are handed on only where they are all that changed between two versions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sluice.lake import workspace
from sluice.lake.workspace import MergedKeys, MergedKeysByTable


def keys(before: int, after: int, *values: int) -> MergedKeys:
    return MergedKeys(before, after, pa.table({"id": pa.array(values, pa.int64())}))


def test_merges_one_after_the_other_are_handed_on_together_and_a_gap_forgets_the_earlier() -> None:
    found = MergedKeysByTable()
    assert found.find("log") is None
    found.hand_on("log", keys(3, 4, 1))
    found.hand_on("log", keys(4, 5, 2, 1))
    merged = found.find("log")
    assert merged is not None and list(merged.versions) == [4, 5] and merged.rows["id"].to_pylist() == [1, 2, 1]
    found.hand_on("log", keys(6, 7, 9))
    merged = found.find("log")
    assert merged is not None and list(merged.versions) == [7] and merged.rows["id"].to_pylist() == [9]
    assert found.find("other") is None


def test_more_keys_than_fit_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "MOST_KEYS", 2)
    found = MergedKeysByTable()
    found.hand_on("log", keys(3, 4, 1, 2))
    assert found.find("log") is not None
    found.hand_on("log", keys(4, 5, 3))
    assert found.find("log") is None
