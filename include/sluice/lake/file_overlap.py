"""How the files of a table overlap along columns, by the least and greatest values in its log, and which are worth rewriting together.

This module works on lists of files alone. Three measures decide:

* **depth**: how many files can hold a value. Files are rewritten if that brings the depth below half, and only these files;
* **small files**: 50 of about the same size, even if they do not overlap. Source: Delta's auto compaction, Fabric's fast optimise;
* **the budget**: upkeep has rewritten each byte that is there at most once, on average. The name of a file that upkeep wrote says how often
its bytes have been rewritten.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sluice.printable import count_noun, format_size

WORTH_OPENING = 16 * 1024 * 1024
"""If no order of rows is declared, a file of this many bytes is as good as a larger one: reading it takes longer than opening it."""
MANY_SMALL_FILES = 50
FEWEST_OVERLAPPING = 8
"""Fewer overlapping files are left alone: opening them costs less than rewriting them."""
SAME_SIZE = 4
"""A file counts as about the same size if it has at most this many times the mean of the smaller ones."""
_MOST_POINTS = 2_000
"""The number of files that can hold a value is counted at this many values at most."""
_MOST_GROUPS = 20
_TIMES_REWRITTEN = re.compile(r"rewritten-(\d+)\.(\d\d)-")


@dataclass(frozen=True)
class FileExtent:
    """A file: its size in bytes, its rows (None: not counted), and by column its least and greatest value (None: unknown)."""

    path: str
    size: int
    rows: int | None = None
    ends: tuple[tuple[Any, Any] | None, ...] = ()

    @property
    def times_rewritten(self) -> float:
        """How often upkeep has rewritten its bytes, on average."""
        found = _TIMES_REWRITTEN.match(self.path.rpartition("/")[2])
        return float(f"{found[1]}.{found[2]}") if found else 0.0


@dataclass(frozen=True)
class FileGroup:
    """Files that are to be rewritten together, and why."""

    files: Sequence[FileExtent]
    why: str

    @property
    def size(self) -> int:
        """The bytes of the files."""
        return sum(one.size for one in self.files)

    @property
    def times_rewritten(self) -> float:
        """How often the bytes will have been rewritten afterwards; rounded up, so that nothing is forgotten."""
        before = sum(one.size * one.times_rewritten for one in self.files) / max(self.size, 1)
        return 1 + math.ceil(before * 100) / 100

    def name_rewritten_file(self, name: str) -> str:
        """Returns the name for a file that is made from these. name: the one that its writer gave it."""
        return f"rewritten-{self.times_rewritten:.2f}-{name}"


def count_budget(files: Sequence[FileExtent]) -> float:
    """Returns how many bytes may be rewritten: as many as there are, less those that have been."""
    return sum(one.size * (1 - one.times_rewritten) for one in files)


def choose_file_groups(
    files: Sequence[FileExtent], ordered: bool, budget: float, good: int = WORTH_OPENING
) -> tuple[list[FileGroup], str]:
    """Returns the groups of files of one partition to rewrite, each group on its own, and a sentence with the reason and the numbers.

    ordered: whether the files' ends are those of the declared columns. If not, each file can hold any value.
    budget: how many bytes may be rewritten at most. good: from how many bytes on a file is no small one.
    """
    left, found = list(files), ""
    groups: list[FileGroup] = []
    while len(groups) < _MOST_GROUPS:
        group, said = _choose_group(left, ordered, budget, good)
        found = found or said
        if group is None:
            break
        groups.append(group)
        budget -= group.size
        taken = {one.path for one in group.files}
        left = [one for one in left if one.path not in taken]
    return groups, found


def _choose_group(files: Sequence[FileExtent], ordered: bool, budget: float, good: int) -> tuple[FileGroup | None, str]:
    over = find_deepest_files(files) if ordered else list(files)
    depth = len(over)
    what = f"{depth} of {count_noun(len(files), 'file')} overlap" if ordered else count_noun(len(files), "file")
    wanted = _select_by_size([one for one in over if ordered or one.size < good], depth)
    fitting = _select_by_size(wanted, depth, budget)
    small = find_small_files_of_one_size(files, good)
    if fitting:
        return FileGroup(fitting, f"{what}; merging {len(fitting)} of them leaves {depth - len(fitting) + 1}"), what
    if small and sum(one.size for one in small) <= budget:
        return FileGroup(small, f"{count_noun(len(small), 'small file')} of about the same size"), what
    if wanted or small:
        return (
            None,
            f"{what}; rewriting {format_size(sum(one.size for one in wanted or small))} is more than the budget of {format_size(round(budget))}",
        )
    return None, what


def _select_by_size(over: Sequence[FileExtent], depth: int, budget: float = float("inf")) -> list[FileExtent]:
    """Returns the smallest of overlapping files, as many as have about one size. None of them if that is not worth it.

    depth: how many files overlap in all, including those that are not to be chosen.
    """
    chosen: list[FileExtent] = []
    total = 0
    for one in sorted(over, key=lambda one: one.size):
        if chosen and one.size > SAME_SIZE * total / len(chosen):
            if len(chosen) >= FEWEST_OVERLAPPING:
                break
            chosen, total = [], 0  # a few smaller ones do not keep the many from being joined
        if total + one.size > budget:
            break
        chosen.append(one)
        total += one.size
    return chosen if len(chosen) >= FEWEST_OVERLAPPING and depth > 2 * (depth - len(chosen) + 1) else []


def find_small_files_of_one_size(files: Sequence[FileExtent], good: int = WORTH_OPENING) -> list[FileExtent]:
    """Returns the smallest files of about the same size, if there are many of them. good: from how many bytes on a file is no small one."""
    found: list[FileExtent] = []
    total = 0
    for one in sorted((one for one in files if one.size < good), key=lambda one: one.size):
        if found and one.size > SAME_SIZE * total / len(found):
            if len(found) >= MANY_SMALL_FILES:
                break
            found, total = [], 0  # a few smaller ones do not keep the many from being joined
        found.append(one)
        total += one.size
    return found if len(found) >= MANY_SMALL_FILES else []


def find_deepest_files(files: Sequence[FileExtent]) -> list[FileExtent]:
    """Returns the files that can hold the value (with several columns, the set of values) that most files can hold.

    A value at which one file ends and another begins belongs to the other. A file whose ends are unknown can hold every value.
    """
    if not files or not files[0].ends:
        return list(files)
    low, high = _rank_ends(files)
    points = np.unique(low, axis=0)
    points = points[np.linspace(0, len(points) - 1, min(len(points), _MOST_POINTS)).astype(int)]
    inside = np.ones((len(points), len(files)), dtype=bool)
    for column in range(low.shape[1]):
        at, begin, end = points[:, column, None], low[None, :, column], high[None, :, column]
        inside &= (begin <= at) & ((at < end) | (begin == at))
    deepest = inside[int(inside.sum(axis=1).argmax())]
    return [one for one, is_inside in zip(files, deepest, strict=True) if is_inside]


@dataclass(frozen=True)
class QuestionCost:
    """How many files and bytes a query for one value of a column must open, on average, by the log's least and greatest values."""

    files: float
    bytes: float


def measure_point_questions(files: Sequence[FileExtent], columns: Sequence[str]) -> Mapping[str, QuestionCost | None]:
    """Returns, by column, what a query for one value costs. files: with the ends of these columns. None: the log says nothing about the column.

    One value in the middle of each file is asked for. A file with more rows counts more.
    """
    found: dict[str, QuestionCost | None] = {}
    for position, column in enumerate(columns):
        known = [FileExtent(one.path, one.size, one.rows, (one.ends[position],)) for one in files]
        asked = [number for number, one in enumerate(known) if one.ends[0] is not None]
        if not asked:
            found[column] = None
            continue
        low, high = (side[:, 0] for side in _rank_ends(known))
        weights = np.array([known[number].rows or 1 for number in asked], dtype=float)
        sizes = np.array([one.size for one in known], dtype=float)
        # No file begins or ends between two values that are ends of files, so ranks are as good as values.
        middles = (low[asked] + high[asked]) // 2
        share = weights / weights.sum()
        counts, opened_sizes = (_sum_files_around(middles, low, high, one) for one in (np.ones(len(known)), sizes))
        found[column] = QuestionCost(float(share @ counts), float(share @ opened_sizes))
    return found


def _sum_files_around(
    values: npt.NDArray[np.int64], low: npt.NDArray[np.int64], high: npt.NDArray[np.int64], amounts: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Returns, for each value, the sum of the amounts of the files that can hold it: of those that begin up to it, less those that end before.

    The memory grows with the number of files, and not with its square.
    """
    return _sum_up_to(low, amounts, values, "right") - _sum_up_to(high, amounts, values, "left")


def _sum_up_to(
    ends: npt.NDArray[np.int64], amounts: npt.NDArray[np.float64], values: npt.NDArray[np.int64], side: Literal["left", "right"]
) -> npt.NDArray[np.float64]:
    order = np.argsort(ends, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(amounts[order])))
    found: npt.NDArray[np.float64] = sums[np.searchsorted(ends[order], values, side=side)]
    return found


def describe_question_costs(column: str, before: QuestionCost | None, after: QuestionCost | None = None) -> str:
    """Returns a text such as "a question by time opens 26.0 > 2.1 files, 12.0 MB > 1.4 MB". after: None if nothing was rewritten."""
    if before is None:
        return f"a question by {column} opens all files: the log has no statistics of it"
    costs = [before, after] if after is not None else [before]
    files, sizes = " > ".join(f"{one.files:.1f}" for one in costs), " > ".join(format_size(round(one.bytes)) for one in costs)
    return f"a question by {column} opens {files} files, {sizes}"


def _rank_ends(files: Sequence[FileExtent]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the ends of each file and column as whole numbers in the same order as the values."""
    sides = (
        np.empty((len(files), len(files[0].ends)), dtype=np.int64),
        np.empty((len(files), len(files[0].ends)), dtype=np.int64),
    )
    for column in range(len(files[0].ends)):
        known = [one.ends[column] for one in files]
        values = sorted({value for ends in known if ends is not None for value in ends})
        for row, ends in enumerate(known):
            sides[0][row, column] = -1 if ends is None else bisect_left(values, ends[0])
            sides[1][row, column] = len(values) if ends is None else bisect_left(values, ends[1])
    return sides
