"""What a batch of a stream was made of, by its checkpoint: which versions of its inputs, and which watermark made rows late.

Read without a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice.flows.progress.checkpoints import Checkpoint


@dataclass(frozen=True)
class VersionRange:
    """Versions of a table, both included. first: None where the table is read as it was at `last`."""

    first: int | None
    last: int


def read_batch_version_ranges(checkpoint: Checkpoint, batch: int, tables: Mapping[str, str]) -> dict[str, VersionRange]:
    """By input, what a batch takes of it; inputs of which it takes nothing are left out. tables: their ids by name.

    The offset log has where a batch ends before it begins. Changes are read by whole versions: an end is before a version's first file,
    or behind its last.
    """
    before, after = (
        read_batch_end_versions(checkpoint.path, batch - 1, tables),
        read_batch_end_versions(checkpoint.path, batch, tables),
    )
    found = {}
    for name, last in after.items():
        first = before.get(name)
        if first is None or last > first:
            found[name] = VersionRange(None if first is None else first + 1, last)
    return found


def read_lateness_watermark(checkpoint: Checkpoint, batch: int) -> int:
    """The watermark up to which rows of a batch are late, in milliseconds since 1970; 0 where there was none.

    It is that of the batch before. A batch's own, which may be later, only says what is final after it.
    """
    lines = _read_offset_lines(checkpoint.path, batch - 1)
    return int(json.loads(lines[1])["batchWatermarkMs"]) if len(lines) > 1 else 0


def read_first_unread_versions(checkpoint: str, tables: Mapping[str, str]) -> dict[str, int]:
    """By input, the first version that no finished batch has taken. checkpoint: its path; tables: their ids by name."""
    done = [int(path.name) for path in (Path(checkpoint) / "commits").glob("*") if path.name.isdigit()]
    return {name: end + 1 for name, end in read_batch_end_versions(checkpoint, max(done, default=-1), tables).items()}


def read_last_watermark(checkpoint: Checkpoint) -> int:
    """The watermark of the last batch that was begun, in milliseconds since 1970; 0 where there was none."""
    begun = [int(path.name) for path in (Path(checkpoint.path) / "offsets").glob("*") if path.name.isdigit()]
    return read_lateness_watermark(checkpoint, max(begun) + 1) if begun else 0


def read_batch_end_versions(checkpoint: str, batch: int, tables: Mapping[str, str]) -> dict[str, int]:
    """By input, the last version of which everything has been taken when the batch is done."""
    return {
        name: version - 1 if index < 0 else version for name, version, index, _ in read_batch_offsets(checkpoint, batch, tables)
    }


def read_batch_offsets(checkpoint: str, batch: int, tables: Mapping[str, str]) -> Iterator[tuple[str, int, int, bool]]:
    """Where a batch ends in each input that was read, by Spark's offset log.

    Of each: its name, a version, the last of its files that is taken, and whether the table is still read as it was at that version.
    A negative file stands for a place before the version's first.
    """
    names = {table: name for name, table in tables.items()}
    for line in _read_offset_lines(checkpoint, batch)[2:]:  # a version of the log's own, and what is common, come first
        try:
            offset = json.loads(line)
            found = names[str(offset["reservoirId"])], int(offset["reservoirVersion"]), int(offset["index"])
        except (ValueError, KeyError, TypeError):
            continue  # "-": nothing has been read of this input yet
        yield *found, bool(offset.get("isStartingVersion"))


def _read_offset_lines(checkpoint: str, batch: int) -> list[str]:
    try:
        return (Path(checkpoint) / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return []
