"""Decides from a table's log alone, without a JVM, whether its files are worth rewriting, and says so with numbers.

It decides for each partition, or for a whole table without partitions. If some files can be rewritten without the others
(`file_rewrites`), the first rule that asks for it decides, within the budget (`file_overlap`):

* as many bytes came as the last rewrite left, in overlapping files (without a declared order: in small files): these files;
* so many files overlap that the depth falls below half: these files;
* 50 small files of about one size: these files.

A table that only Spark may write is laid out by whole partitions, by bytes: all of a partition if as many bytes came as were left, and
without a declared order 50 small files as well. A clustered table (`cluster_by`) belongs here: Delta itself knows what to rewrite, which is
all of it up to some 100 GiB (Delta 4.4, tried), and the decision says how much that is.

Where nothing else asks for it, files are rewritten of whose rows many are only marked as deleted (`deletion_vectors`).

A declared size of files replaces the usual sizes: from half of it on a file may stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sluice.lake import commit_history, deletion_vectors, file_statistics, log, log_files
from sluice.lake.file_overlap import (
    WORTH_OPENING,
    FileExtent,
    FileGroup,
    QuestionCost,
    choose_file_groups,
    count_budget,
    find_deepest_files,
    find_small_files_of_one_size,
    measure_point_questions,
)
from sluice.lake.file_statistics import DataFile, PartitionFiles
from sluice.lake.layout_properties import choose_file_size, read_declared_file_size
from sluice.printable import count_noun, format_size, match_number

LARGE_FILE = 512 * 1024 * 1024
"""Half of OPTIMIZE's target file size: a file of this size is left as it is."""


@dataclass(frozen=True)
class JoinedSizes:
    """Only files smaller than `below` bytes are joined, into files of at most `into` bytes."""

    below: int
    into: int


@dataclass(frozen=True)
class LayoutDecision:
    """Which files are to be rewritten, or all files of which partitions, out of how many, and why or why not.

    groups: only these files, each group by itself; if empty, all files of the partitions. join: only small files of them are joined.
    clustered: the table is or was clustered, so that Delta allows no other order. in_full: also what is clustered already.
    marked: only files with rows that are only marked as deleted.
    """

    partitions: Sequence[PartitionFiles]
    of: int
    why: str
    join: JoinedSizes | None = None
    groups: Sequence[FileGroup] = ()
    clustered: bool = False
    in_full: bool = False
    marked: bool = False

    @property
    def needed(self) -> bool:
        """Whether anything is to be rewritten."""
        return bool(self.partitions)


def decide_layout(path: str, zorder: Sequence[str], demanded: bool = False) -> LayoutDecision:
    """Decides whether a table's files are to be rewritten. zorder: the declared order. demanded: rewrite whatever has come since the last time."""
    partitions = file_statistics.list_partition_file_sizes(path)
    if log_files.has_clustering_feature(path):
        return _decide_clustered(path, partitions, demanded)
    if demanded:
        several = [one for one in partitions if zorder or len(one.file_sizes) > 1]
        return LayoutDecision(several, len(partitions), "demanded" if several else "demanded, but there is nothing to join")
    if not partitions:
        return LayoutDecision((), 0, "it has no file")
    if not commit_history.has_new_data(path):
        return LayoutDecision((), len(partitions), "no data came since the last rewrite")
    from sluice.lake import file_rewrites  # it loads Spark's types, which a plan without news does not need

    size = read_declared_file_size(path)
    if file_rewrites.is_rewritten_by_files(path, zorder):
        return decide_by_files(file_statistics.list_data_files(path, zorder), zorder, size)
    return _decide_by_marked_rows(path, decide_by_partitions(partitions, bool(zorder), size))


def _decide_by_marked_rows(path: str, decided: LayoutDecision) -> LayoutDecision:
    """Decides by the rows that are only marked as deleted, if nothing else asks for a rewrite. decided: by all else."""
    if decided.needed:
        return decided
    chosen, said = deletion_vectors.choose_marked_files(deletion_vectors.list_files_with_deleted_rows(path))
    why = f"{decided.why}; {said}" if said else decided.why
    if not chosen:
        return replace(decided, why=why)
    of_partition: dict[tuple[object, ...], list[DataFile]] = {}
    for one in chosen:
        of_partition.setdefault(tuple(one.file.partition.values()), []).append(one.file)
    partitions = [PartitionFiles(some[0].partition, [one.size for one in some]) for some in of_partition.values()]
    return replace(decided, partitions=partitions, why=said, marked=True)


def _decide_clustered(path: str, partitions: Sequence[PartitionFiles], demanded: bool) -> LayoutDecision:
    """Decides about a table that is or was clustered, which only Spark writes."""
    columns = log_files.read_cluster_columns(path)
    if demanded and columns:
        decided = LayoutDecision(partitions, len(partitions), "demanded" if partitions else "it has no file")
    elif demanded or not partitions or not commit_history.has_new_data(path):
        several = [one for one in partitions if demanded and len(one.file_sizes) > 1]
        why = "demanded" if several else "no data came since the last rewrite" if partitions else "it has no file"
        decided = LayoutDecision(several, len(partitions), why)
    else:
        size = choose_file_size(path, ordered=True) if columns else read_declared_file_size(path)
        decided = decide_by_partitions(partitions, bool(columns), size)
    files = [size for one in partitions for size in one.file_sizes]
    costs = (
        f"; clustered by {', '.join(columns)}: OPTIMIZE is by Spark and writes "
        f"{'all ' if len(files) > 1 else ''}{count_noun(len(files), 'file')}, {format_size(sum(files))}, anew"
    )
    why = decided.why + (costs if columns and files else "")
    return replace(decided, why=why, clustered=True, in_full=demanded and bool(columns))


def decide_by_files(files: Sequence[DataFile], zorder: Sequence[str], file_bytes: int | None = None) -> LayoutDecision:
    """Decides which files of a table are to be rewritten, if single files can be. files: with their ends in the declared order.

    file_bytes: the declared size of files.
    """
    good = _choose_good_size(WORTH_OPENING, file_bytes)
    by_partition: dict[tuple[object, ...], list[DataFile]] = {}
    for one in files:
        by_partition.setdefault(tuple(one.partition.values()), []).append(one)
    known = [column for column in zorder if any(column in one.ends for one in files)]
    unknown = "".join(f"; '{column}' has no statistics" for column in zorder if column not in known)
    extents = {key: [_measure_extent(one, known) for one in some] for key, some in by_partition.items()}
    budget = count_budget([one for some in extents.values() for one in some])
    partitions, groups, reasons = [], list[FileGroup](), list[tuple[int, str]]()
    for key in sorted(extents, key=repr):
        chosen, said = choose_partition_groups(extents[key], bool(zorder), bool(known), budget, good)
        reasons.append((len(extents[key]), said))
        if chosen:
            budget -= sum(group.size for group in chosen)
            groups += chosen
            partitions.append(PartitionFiles(by_partition[key][0].partition, [one.size for one in extents[key]]))
    if groups:
        taken = sum(len(group.files) for group in groups)
        worst = max(groups, key=lambda group: len(group.files))
        why = (
            f"{worst.why}; {taken} of {count_noun(len(files), 'file')}, "
            f"{format_size(sum(group.size for group in groups))}, {match_number(taken, 'is', 'are')} rewritten"
        )
        return LayoutDecision(partitions, len(extents), why + unknown, groups=groups)
    return LayoutDecision((), len(extents), max(reasons)[1] + unknown)


def choose_partition_groups(
    files: Sequence[FileExtent], ordered: bool, with_ends: bool, budget: float, good: int = WORTH_OPENING
) -> tuple[list[FileGroup], str]:
    """Returns the groups of files of one partition that are to be rewritten, and what was found.

    ordered: whether an order is declared. with_ends: whether the files' ends in it are known; if not, any file can hold any value.
    good: from how many bytes on a file is no small one.
    """
    grown = find_deepest_files(files) if ordered else [one for one in files if one.size < good]
    sizes = [one.size for one in grown]
    if has_grown_since_rewrite(sizes) and sum(sizes) <= budget:
        overlap = " overlap" if ordered and with_ends else ""
        return [FileGroup(grown, f"{count_noun(len(sizes), 'file')}{overlap}; {_describe_growth(sizes, LARGE_FILE)}")], ""
    groups, said = choose_file_groups(files, ordered and with_ends, budget, good)
    if groups or not said or (ordered and with_ends):
        return groups, said
    return groups, f"{said}; {_describe_growth([one.size for one in files], LARGE_FILE)}"


def _measure_extent(one: DataFile, columns: Sequence[str]) -> FileExtent:
    return FileExtent(one.path, one.size, one.rows, tuple(one.ends.get(column) for column in columns))


def _choose_good_size(usual: int, file_bytes: int | None) -> int:
    """Returns from how many bytes on a file may stay as it is: half of what is declared."""
    return usual if file_bytes is None else file_bytes // 2


def decide_by_partitions(partitions: Sequence[PartitionFiles], ordered: bool, file_bytes: int | None = None) -> LayoutDecision:
    """Decides which partitions of a table are to be rewritten, if Spark lays out whole partitions. ordered: whether an order is declared.

    file_bytes: the declared size of files.
    """
    good = _choose_good_size(LARGE_FILE if ordered else WORTH_OPENING, file_bytes)
    grown = [one for one in partitions if has_grown_since_rewrite(one.file_sizes, good)]
    if grown:
        return LayoutDecision(grown, len(partitions), _describe_most_grown(grown, good))
    groups = {} if ordered else _find_groups_of_small_files(partitions, good)
    if groups:
        sizes = max(groups.values(), key=len)
        why = f"{count_noun(len(sizes), 'small file')} of about the same size, {format_size(sum(sizes))} together"
        join = JoinedSizes(
            1 + max(map(max, groups.values())), min(1 + max(map(sum, groups.values())), file_bytes or 2 * LARGE_FILE)
        )
        return LayoutDecision([partitions[position] for position in groups], len(partitions), why, join)
    return LayoutDecision((), len(partitions), _describe_most_grown(partitions, good))


def has_grown_since_rewrite(file_sizes: Sequence[int], good: int = LARGE_FILE) -> bool:
    """Whether the bytes that came since the last rewrite have reached the size of what it left. good: the size of a file that may stay.

    So each byte is rewritten only a few times in a table's life, however often little is added. A rewrite leaves one file, or several large
    ones; all other files came since. A MERGE leaves a large file as well, when it copies rows that it does not change.
    """
    left, came = _split_by_rewrite(file_sizes, good)
    return len(file_sizes) > 1 and came >= left


def measure_asked_questions(path: str, columns: Sequence[str]) -> Mapping[str, QuestionCost | None]:
    """Returns what a query for one value of each of these columns must open now, by the log. None: the log says nothing about the column."""
    there = [column for column in columns if column in log.read_column_names(path)]
    return measure_point_questions([_measure_extent(one, there) for one in file_statistics.list_data_files(path, there)], there)


def _find_groups_of_small_files(partitions: Sequence[PartitionFiles], good: int) -> Mapping[int, list[int]]:
    """Returns, by the partition's position in the list, the sizes of its files that are to be joined."""
    found = {
        position: find_small_files_of_one_size([FileExtent("", size) for size in one.file_sizes], good)
        for position, one in enumerate(partitions)
    }
    return {position: [one.size for one in files] for position, files in found.items() if files}


def _split_by_rewrite(file_sizes: Sequence[int], good: int) -> tuple[int, int]:
    """Returns the bytes that the last rewrite left, and those that came since."""
    left = max(sum(size for size in file_sizes if size >= good), *file_sizes, 0)
    return left, sum(file_sizes) - left


def _describe_most_grown(partitions: Sequence[PartitionFiles], good: int) -> str:
    def measure_growth(sizes: Sequence[int]) -> float:
        left, came = _split_by_rewrite(sizes, good)
        return came / max(left, 1)

    sizes = max((one.file_sizes for one in partitions), key=measure_growth)
    return f"{count_noun(len(sizes), 'file')}; {_describe_growth(sizes, good)}"


def _describe_growth(sizes: Sequence[int], good: int) -> str:
    left, came = _split_by_rewrite(sizes, good)
    return f"{format_size(came)} of new data since the last rewrite, which left {format_size(left)}"
