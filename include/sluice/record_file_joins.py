"""Which small files of one of Sluice's own records are joined: as many as pay for the bytes that it rewrites. Needs only their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.printable import count_noun, format_size

MOST_SMALL_FILES = 32
"""Files are joined if that makes at least this many fewer: opening a small one costs as much as rewriting it."""
LARGE_FILE_BYTES = 16 * 1024 * 1024
"""No joined file is larger than this, which bounds each rewrite."""
LEAST_GROWTH = 1.5
"""The largest file of each join gets at least this many times its own bytes, on average. So a byte is not rewritten again and again: each time
the file that it is in becomes larger by that much."""


@dataclass(frozen=True)
class FileJoin:
    """What delta-rs joins if it is given a target size: files that lie side by side in the log become one of up to that size.

    files, bytes: what is rewritten. into: how many files that becomes. largest: the bytes of the largest file of each.
    """

    target: int
    files: int = 0
    into: int = 0
    bytes: int = 0
    largest: int = 0

    @property
    def fewer(self) -> int:
        """How many files fewer there are afterwards."""
        return self.files - self.into

    @property
    def is_worthwhile(self) -> bool:
        """Whether it makes many files fewer, and rewrites no good file for the sake of a few tiny ones."""
        return self.fewer >= MOST_SMALL_FILES and self.bytes - self.largest >= LEAST_GROWTH * self.largest


def choose_file_join(sizes: Sequence[int]) -> FileJoin | None:
    """Returns the join of a table's files that costs the fewest bytes for each file that is gone; None if none is worthwhile.

    sizes: the bytes of the files, in the order of the log. delta-rs takes no list of files, only a size, so the size decides which it takes.
    """
    found: list[FileJoin] = []
    target = 2 * max(1, min(sizes, default=LARGE_FILE_BYTES))
    while len(sizes) > MOST_SMALL_FILES:
        found.append(_measure_file_join(sizes, min(target, LARGE_FILE_BYTES)))
        if target >= LARGE_FILE_BYTES:
            break
        target *= 2
    return min((one for one in found if one.is_worthwhile), key=lambda one: one.bytes / one.fewer, default=None)


def _measure_file_join(sizes: Sequence[int], target: int) -> FileJoin:
    found, together = FileJoin(target), list[int]()
    for size in (*sizes, target + 1):
        if sum(together) + size <= target:
            together.append(size)
            continue
        if len(together) > 1:
            found = FileJoin(
                target,
                found.files + len(together),
                found.into + 1,
                found.bytes + sum(together),
                found.largest + max(together),
            )
        together = [size] if size <= target else []
    return found


def describe_file_join(join: FileJoin | None, files: int) -> str:
    """Describes a join of a table's files, or says why none is worth it. files: how many the table has."""
    if join is None:
        return f"{count_noun(files, 'file')}; no join makes {MOST_SMALL_FILES} fewer without rewriting large ones for a few small ones"
    return f"{join.files} of {count_noun(files, 'file')}, {format_size(join.bytes)}, become {join.into}"
