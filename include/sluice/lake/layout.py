"""Whether a table's files are worth writing anew: decided from its log alone, without a JVM, and said with its numbers.

Two rules, each for one partition, or for the whole of a table without partitions:

* as many bytes came as the last rewrite left: all of it is written anew, in the order that is declared;
* where no order is declared, 50 small files of about the same size: these alone are joined, so that nothing that is good is read. In a year of
  daily increments each byte is then written about once more. Source of the 50: Delta's auto compaction and Fabric's fast optimise.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.lake import log
from sluice.lake.log import PartitionFiles

LARGE_FILE = 512 * 1024 * 1024
"""Half of the size that OPTIMIZE makes files of: what is as large is left as it is."""
WORTH_OPENING = 16 * 1024 * 1024
"""A file of so many bytes is as good as a larger one, where no order of rows is declared: reading it takes longer than opening it."""
MANY_SMALL_FILES = 50
_SAME_SIZE = 4
"""A file of at most so many times the mean of those that are smaller is of about their size."""

_FIRST_LOOK = 50
"""So many commits are looked at first: what is asked for is nearly always among them."""

_CHANGES_DATA = ("WRITE", "MERGE", "DELETE", "UPDATE", "STREAMING UPDATE", "CREATE TABLE AS SELECT", "RESTORE", "TRUNCATE")


@dataclass(frozen=True)
class JoinedSizes:
    """Only files of fewer bytes than `below` are joined, to files of at most `into` bytes."""

    below: int
    into: int


@dataclass(frozen=True)
class LayoutDecision:
    """Which partitions are to be written anew, of how many, and why, or why not.

    join: only small files are joined; None: all files of these partitions are written anew.
    """

    partitions: Sequence[PartitionFiles]
    of: int
    why: str
    join: JoinedSizes | None = None

    @property
    def needed(self) -> bool:
        """Whether anything is to be written anew."""
        return bool(self.partitions)


def decide_layout(path: str, zorder: Sequence[str], demanded: bool = False) -> LayoutDecision:
    """Whether a table's files are to be written anew. zorder: the declared order. demanded: whatever has come since the last time."""
    partitions = log.list_partition_file_sizes(path)
    if demanded:
        several = [one for one in partitions if zorder or len(one.file_sizes) > 1]
        return LayoutDecision(several, len(partitions), "demanded" if several else "demanded, but there is nothing to join")
    if not _has_new_data(path):
        return LayoutDecision((), len(partitions), "no data came since the last rewrite")
    good = LARGE_FILE if zorder else WORTH_OPENING
    grown = [one for one in partitions if has_grown_since_rewrite(one.file_sizes, good)]
    if grown:
        return LayoutDecision(grown, len(partitions), _describe_growth(_most_grown(grown, good), good))
    groups = {} if zorder else _find_groups_of_small_files(partitions)
    if groups:
        sizes = max(groups.values(), key=len)
        why = f"{len(sizes)} small files of about the same size, {_format_bytes(sum(sizes))} together"
        join = JoinedSizes(1 + max(map(max, groups.values())), min(1 + max(map(sum, groups.values())), 2 * LARGE_FILE))
        return LayoutDecision([partitions[place] for place in groups], len(partitions), why, join)
    why = _describe_growth(_most_grown(partitions, good), good) if partitions else "it has no file"
    return LayoutDecision((), len(partitions), why)


def has_grown_since_rewrite(file_sizes: Sequence[int], good: int = LARGE_FILE) -> bool:
    """Whether the bytes that came since the last rewrite have reached the size of what it left. good: the size of a file that may stay.

    So each byte is rewritten a few times in a table's life, however often little is added. A rewrite leaves one file, or as many large
    ones as there is data for; what else is there came since. A MERGE leaves such a file as well, when it copies what it does not change.
    """
    left, came = _split_by_rewrite(file_sizes, good)
    return len(file_sizes) > 1 and came >= left


def find_small_files_of_one_size(file_sizes: Sequence[int]) -> list[int]:
    """The sizes of the smallest files that are of about the same size, of which there are many; none where there are no such."""
    found: list[int] = []
    for size in sorted(size for size in file_sizes if size < WORTH_OPENING):
        if found and size > _SAME_SIZE * sum(found) / len(found):
            if len(found) >= MANY_SMALL_FILES:
                break
            found = []  # a few that are smaller do not keep the many from being joined
        found.append(size)
    return found if len(found) >= MANY_SMALL_FILES else []


def _find_groups_of_small_files(partitions: Sequence[PartitionFiles]) -> Mapping[int, list[int]]:
    """By place of a partition, the sizes of those of its files that are to be joined."""
    found = {place: find_small_files_of_one_size(one.file_sizes) for place, one in enumerate(partitions)}
    return {place: sizes for place, sizes in found.items() if sizes}


def _split_by_rewrite(file_sizes: Sequence[int], good: int) -> tuple[int, int]:
    """The bytes that the last rewrite left, and those that came since."""
    left = max(sum(size for size in file_sizes if size >= good), *file_sizes, 0)
    return left, sum(file_sizes) - left


def _most_grown(partitions: Sequence[PartitionFiles], good: int) -> PartitionFiles:
    def grown(one: PartitionFiles) -> float:
        left, came = _split_by_rewrite(one.file_sizes, good)
        return came / max(left, 1)

    return max(partitions, key=grown)


def _describe_growth(one: PartitionFiles, good: int) -> str:
    left, came = _split_by_rewrite(one.file_sizes, good)
    return f"{len(one.file_sizes)} files; {_format_bytes(came)} came since the last rewrite left {_format_bytes(left)}"


def _format_bytes(number: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"


def _has_new_data(path: str) -> bool:
    """Whether data came since the last OPTIMIZE, or since the table was made."""
    if log.latest_table_version(path) is None:
        return False
    for most in (_FIRST_LOOK, None):
        operations = [str(commit["operation"]) for commit in log.read_commit_history(path, most)]
        since = list(itertools.takewhile(lambda operation: operation != "OPTIMIZE", operations))
        if any(operation.startswith(_CHANGES_DATA) for operation in since):
            return True
        if len(since) < len(operations):
            return False
    return False
