"""Reads Spark's checkpoint of a stream: what each batch takes of its inputs, which watermark made rows late, and whether its files are intact.

Spark writes metadata before the first batch, offsets/N when batch N begins and commits/N when it is done. It resumes from the last two
offsets and the last commit, and never reads older ones again. Everything here is read without a JVM.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.delta_log import matches_file_checksum
from sluice.lake import log
from sluice.locations import Location, locate

if TYPE_CHECKING:
    from sluice.flows.progress.checkpoints import Checkpoint

Versions = Mapping[str, int]
"""The version of each input's table, by input."""


@dataclass(frozen=True)
class VersionRange:
    """A range of versions of a table, both ends included. first: None if the whole table is read as of `last`."""

    first: int | None
    last: int


def read_batch_version_ranges(checkpoint: Checkpoint, batch: int, tables: Mapping[str, str]) -> dict[str, VersionRange]:
    """Returns, by input, the versions that a batch takes; inputs of which it takes nothing are left out. tables: their ids by name.

    The offset log says where a batch ends before the batch begins. Changes are read by whole versions, so a batch ends before a version's
    first file or after its last.
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
    """Returns the watermark below which rows of a batch are late, in milliseconds since 1970, or 0 if there was none.

    It is the watermark of the batch before. A batch's own, which may be later, only says what is final after it.
    """
    lines = _read_offset_lines(checkpoint.path, batch - 1)
    return int(json.loads(lines[1])["batchWatermarkMs"]) if len(lines) > 1 else 0


def read_first_unread_versions(checkpoint: str, tables: Mapping[str, str]) -> dict[str, int]:
    """Returns, by input, the first version that no finished batch has taken. checkpoint: its path. tables: their ids by name."""
    last = max(list_batch_numbers(locate(checkpoint) / "commits"), default=-1)
    return {name: end + 1 for name, end in read_batch_end_versions(checkpoint, last, tables).items()}


def read_last_watermark(checkpoint: Checkpoint) -> int:
    """Returns the watermark of the last batch that began, in milliseconds since 1970, or 0 if there was none."""
    begun = list_batch_numbers(locate(checkpoint.path) / "offsets")
    return read_lateness_watermark(checkpoint, max(begun) + 1) if begun else 0


def read_batch_end_versions(checkpoint: str, batch: int, tables: Mapping[str, str]) -> dict[str, int]:
    """Returns, by input, the last version that has been taken completely when the batch is done."""
    return {
        name: version - 1 if index < 0 else version for name, version, index, _ in read_batch_offsets(checkpoint, batch, tables)
    }


def read_batch_offsets(checkpoint: str, batch: int, tables: Mapping[str, str]) -> Iterator[tuple[str, int, int, bool]]:
    """Returns where a batch ends in each input that was read, by Spark's offset log.

    For each input: its name, a version, the last file of it that is taken, and whether the table is still read as of that version. A
    negative file means a position before the version's first file.
    """
    names = {table: name for name, table in tables.items()}
    for line in _read_offset_lines(checkpoint, batch)[2:]:  # the version and what all share come first
        try:
            offset = json.loads(line)
            found = names[str(offset["reservoirId"])], int(offset["reservoirVersion"]), int(offset["index"])
        except (ValueError, KeyError, TypeError):
            continue  # "-" means that nothing has been read of this input yet
        yield *found, bool(offset.get("isStartingVersion"))


def _read_offset_lines(checkpoint: str, batch: int) -> list[str]:
    try:
        return (locate(checkpoint) / "offsets" / str(batch)).read_text().splitlines()
    except FileNotFoundError:
        return []


def find_checkpoint_damage(checkpoint: Location) -> str | None:
    """Returns what is wrong with a checkpoint and in which file, or None if Spark can resume from it."""
    begun, done = (list_batch_numbers(checkpoint / kind) for kind in ("offsets", "commits"))
    if not begun and not done and not (checkpoint / "metadata").is_file():
        return None
    wanted = [checkpoint / "metadata"]
    last = max(begun | done, default=-1)
    # A batch that began is either done or repeated, and then the batch before it was done.
    wanted += [checkpoint / "offsets" / str(number) for number in (last - 1, last) if number >= 0]
    wanted += [checkpoint / "commits" / str(number) for number in [last if last in done else last - 1] if number >= 0]
    return next(
        (f"{_path_below_checkpoints(checkpoint, file)} {problem}" for file in wanted if (problem := _find_file_problem(file))),
        None,
    )


def has_begun_batch(checkpoint: Location) -> bool:
    """Whether any batch has begun."""
    return bool(list_batch_numbers(checkpoint / "offsets") or list_batch_numbers(checkpoint / "commits"))


def list_batch_numbers(folder: Location) -> set[int]:
    """Returns the numbers of the batches that have a file in the folder `offsets` or `commits` of a checkpoint."""
    try:
        return {int(file.name) for file in folder.iterdir() if file.name.isdigit()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _find_file_problem(file: Location) -> str | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({type(error).__name__})"
    if not content:
        return "is empty"
    as_written = matches_file_checksum(file, content)
    whole = _is_whole_file(file, content) if as_written is None else as_written
    return None if whole else "is cut, or was changed"


def _is_whole_file(file: Location, content: bytes) -> bool:
    """Whether a file is whole. Metadata is JSON; the others have a version and lines of JSON. Offsets have a line a source, or a dash for nothing."""
    if file.name == "metadata":
        return _is_json(content)
    version, *lines = content.splitlines()
    return re.fullmatch(rb"v\d+", version) is not None and bool(lines) and all(line == b"-" or _is_json(line) for line in lines)


def _is_json(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def _path_below_checkpoints(checkpoint: Location, file: Location) -> str:
    """Returns the file's path below the folder of its flow's checkpoints, with the checkpoint's identity."""
    return str(file.relative_to(checkpoint.parent))


@dataclass(frozen=True)
class TakenVersions:
    """By input, the version up to which its changes have been taken before and after a batch. Inputs of which nothing is taken are missing."""

    before: Versions
    after: Versions


class PinnedVersions:
    """The versions at which one run reads a flow's inputs: one state of them all, no older than the changes of a batch.

    paths, identities: those of the inputs' tables, by name. checkpoint: the path of the query's checkpoint.
    """

    def __init__(self, checkpoint: str, paths: Mapping[str, str], identities: Mapping[str, str]) -> None:
        """Starts with nothing pinned."""
        self._checkpoint, self._paths, self._identities = checkpoint, paths, identities
        self._versions: dict[str, int] = {}

    def pin_for_batch(self, batch: int) -> Versions:
        """Returns the versions to read in a batch: those of the run's first batch, unless this batch brings changes of later ones.

        Call it inside foreachBatch: versions that are pinned earlier could be older than the end of the batch.
        """
        if any(self._versions.get(name, -1) < end for name, end in self.ends_of(batch).items()):
            self._versions = {
                name: version for name, path in self._paths.items() if (version := log.latest_table_version(path)) is not None
            }
        return self._versions

    def followed(self, batch: int) -> Mapping[str, tuple[int, int]]:
        """Returns, for each input with changes in a batch, the version followed before it (-1 for none) and the last version with it."""
        before, now = self._read_end_positions(batch - 1), self._read_end_positions(batch)
        since, ends = (read_batch_end_versions(self._checkpoint, number, self._identities) for number in (batch - 1, batch))
        # If a version is followed in parts, all of it counts for each part.
        return {
            name: (min(since.get(name, -1), ends[name] - 1), ends[name])
            for name, position in now.items()
            if position != before.get(name)
        }

    def find_taken(self, batch: int) -> TakenVersions:
        """Returns how far the changes of each input are taken before and after a batch."""
        before, after = (read_batch_end_versions(self._checkpoint, number, self._identities) for number in (batch - 1, batch))
        return TakenVersions(before, after)

    def ends_of(self, batch: int) -> dict[str, int]:
        """Returns, by input, the last version that the batch's changes belong to."""
        return dict.fromkeys(self._paths, 0) | read_batch_end_versions(self._checkpoint, batch, self._identities)

    def _read_end_positions(self, batch: int) -> dict[str, tuple[int, int]]:
        """Returns, by input, the version, and the index in it, with which a batch ends."""
        return {
            name: (version, index) for name, version, index, _ in read_batch_offsets(self._checkpoint, batch, self._identities)
        }
