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
class Range:
    """Versions of a table, both included. first: None where the table is read as it was at `last`."""

    first: int | None
    last: int


def ranges(checkpoint: Checkpoint, batch: int, tables: Mapping[str, str]) -> dict[str, Range]:
    """By input, what a batch takes of it; inputs of which it takes nothing are left out. tables: their ids by name.

    The offset log has where a batch ends before it begins. Changes are read by whole versions: an end is before a version's first file,
    or behind its last.
    """
    before, after = ends(checkpoint.path, batch - 1, tables), ends(checkpoint.path, batch, tables)
    found = {}
    for name, last in after.items():
        first = before.get(name)
        if first is None or last > first:
            found[name] = Range(None if first is None else first + 1, last)
    return found


def watermark_of_late(checkpoint: Checkpoint, batch: int) -> int:
    """The watermark up to which rows of a batch are late, in milliseconds since 1970; 0 where there was none.

    It is that of the batch before. A batch's own, which may be later, only says what is final after it.
    """
    lines = _lines(checkpoint.path, batch - 1)
    return int(json.loads(lines[1])["batchWatermarkMs"]) if len(lines) > 1 else 0


def unread(checkpoint: str, tables: Mapping[str, str]) -> dict[str, int]:
    """By input, the first version that no finished batch has taken. checkpoint: its path; tables: their ids by name."""
    done = [int(path.name) for path in (Path(checkpoint) / "commits").glob("*") if path.name.isdigit()]
    return {name: end + 1 for name, end in ends(checkpoint, max(done, default=-1), tables).items()}


def watermark(checkpoint: Checkpoint) -> int:
    """The watermark of the last batch that was begun, in milliseconds since 1970; 0 where there was none."""
    begun = [int(path.name) for path in (Path(checkpoint.path) / "offsets").glob("*") if path.name.isdigit()]
    return watermark_of_late(checkpoint, max(begun) + 1) if begun else 0


def ends(checkpoint: str, batch: int, tables: Mapping[str, str]) -> dict[str, int]:
    """By input, the last version of which everything has been taken when the batch is done."""
    return {name: version - 1 if index < 0 else version for name, version, index, _ in offsets(checkpoint, batch, tables)}


def offsets(checkpoint: str, batch: int, tables: Mapping[str, str]) -> Iterator[tuple[str, int, int, bool]]:
    """Where a batch ends in each input that was read, by Spark's offset log.

    Of each: its name, a version, the last of its files that is taken, and whether the table is still read as it was at that version.
    A negative file stands for a place before the version's first.
    """
    names = {table: name for name, table in tables.items()}
    for line in _lines(checkpoint, batch)[2:]:  # a version of the log's own, and what is common, come first
        try:
            offset = json.loads(line)
            found = names[str(offset["reservoirId"])], int(offset["reservoirVersion"]), int(offset["index"])
        except (ValueError, KeyError, TypeError):
            continue  # "-": nothing has been read of this input yet
        yield *found, bool(offset.get("isStartingVersion"))


def _lines(checkpoint: str, batch: int) -> list[str]:
    try:
        return (Path(checkpoint) / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return []
