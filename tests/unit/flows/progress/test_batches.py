"""What a stream's batch was made from, by its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.flows.progress import batches
from sluice.flows.progress.batches import VersionRange
from sluice.flows.progress.checkpoints import Checkpoint

TABLES = {"a": "id-a", "b": "id-b"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Batch 0 took the snapshots at versions 0 and 4; 1 had no data; 2 took versions 1 to 3 of a; 3 was begun, with the rest of both."""
    _offsets(tmp_path, 0, 0, ("id-a", 1, -1), ("id-b", 5, -1))
    _offsets(tmp_path, 1, 1000, ("id-a", 1, -1), ("id-b", 5, -1))
    _offsets(tmp_path, 2, 1000, ("id-a", 3, 2), ("id-b", 5, -1))
    _offsets(tmp_path, 3, 2000, ("id-a", 5, -1), ("id-b", 6, -1))
    (tmp_path / "commits").mkdir()
    for batch in (0, 1, 2):
        (tmp_path / "commits" / str(batch)).write_text("v1\n{}")
    return Checkpoint("gold_x", str(tmp_path), "one", None)


def _offsets(folder: Path, batch: int, watermark: int, *ends: tuple[str, int, int]) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    lines = [{"reservoirId": table, "reservoirVersion": version, "index": index} for table, version, index in ends]
    text = "\n".join(["v1", json.dumps({"batchWatermarkMs": watermark}), *(json.dumps(line) for line in lines), "-"])
    (folder / "offsets" / str(batch)).write_text(text)


def test_which_versions_a_batch_takes(checkpoint: Checkpoint) -> None:
    assert batches.read_batch_version_ranges(checkpoint, 0, TABLES) == {"a": VersionRange(None, 0), "b": VersionRange(None, 4)}
    assert batches.read_batch_version_ranges(checkpoint, 1, TABLES) == {}
    assert batches.read_batch_version_ranges(checkpoint, 2, TABLES) == {"a": VersionRange(1, 3)}, (
        "an index behind a version's files: all of that version"
    )
    assert batches.read_batch_version_ranges(checkpoint, 3, TABLES) == {"a": VersionRange(4, 4), "b": VersionRange(5, 5)}


def test_what_is_late_is_so_by_the_watermark_of_the_batch_before(checkpoint: Checkpoint) -> None:
    assert [batches.read_lateness_watermark(checkpoint, batch) for batch in range(4)] == [0, 0, 1000, 1000]
    assert batches.read_last_watermark(checkpoint) == 2000


def test_what_no_finished_batch_has_taken(checkpoint: Checkpoint) -> None:
    assert batches.read_first_unread_versions(checkpoint.path, TABLES) == {"a": 4, "b": 5}
