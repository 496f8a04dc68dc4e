"""Which files of a table hold rows that are only marked as deleted, how many, and whether that is worth a rewrite: by its log, without a JVM.

A reader opens such rows and leaves them out. A rewrite writes the rows that stay. So it is worth it when more than half of the rows are marked:
what is written is then less than what is gone, however often that comes. Delta's OPTIMIZE takes a file from 5% on, which costs 19 times as
much, and Iceberg's from 30% on, more than twice. Which files of a partition are rewritten cannot be chosen: Delta's OPTIMIZE (4.4) never takes
one that is alone, and its REORG takes all with such rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from sluice.lake import log
from sluice.lake.file_statistics import DataFile, list_data_files
from sluice.open_tables import open_checked_table
from sluice.printable import count_noun, format_size, match_number

REWRITE_ABOVE_SHARE = 0.5
"""The files of a partition with marked rows are rewritten if a larger share of their rows is marked."""


@dataclass(frozen=True)
class MarkedFile:
    """A file with rows that are only marked as deleted, and how many these are of its rows."""

    file: DataFile
    marked: int
    rows: int


def count_files_with_deleted_rows(path: str) -> int:
    """Returns how many files of the latest version have a deletion vector. Raises DamagedLog, and TableNotFoundError if there is no table."""
    return len(_count_deleted_rows(open_checked_table(path)))


def list_files_with_deleted_rows(path: str) -> list[MarkedFile]:
    """Returns the files of the latest version that have a deletion vector, and whose rows the log counts. Errors: as above."""
    counts = _count_deleted_rows(open_checked_table(path))
    files = {_join_spellings(one.path): one for one in list_data_files(path)} if counts else {}
    # A file of another table, as a shallow clone has, may be under a name that is not known here.
    known = [(files[name], marked) for name, marked in sorted(counts.items()) if name in files]
    return [MarkedFile(one, marked, one.rows) for one, marked in known if one.rows]


def choose_marked_files(files: Sequence[MarkedFile]) -> tuple[Sequence[MarkedFile], str]:
    """Returns the files of those partitions that are worth a rewrite, and what was found, with its numbers. files: those with such rows."""
    by_partition: dict[tuple[object, ...], list[MarkedFile]] = {}
    for one in files:
        by_partition.setdefault(tuple(one.file.partition.values()), []).append(one)
    chosen = [one for some in by_partition.values() if _share_marked(some) > REWRITE_ABOVE_SHARE for one in some]
    if chosen:
        marked, rows = sum(one.marked for one in chosen), sum(one.rows for one in chosen)
        left = format_size(sum(round(one.file.size * (1 - one.marked / one.rows)) for one in chosen))
        said = (
            f"{marked:,} of {count_noun(rows, 'row')} of {count_noun(len(chosen), 'file')} "
            f"{match_number(marked, 'is', 'are')} only marked as deleted; the others, about {left}, are rewritten"
        )
        return chosen, said
    if not files:
        return (), ""
    most = f"{max(map(_share_marked, by_partition.values())):.1%} of their rows"
    return (
        (),
        f"{count_noun(len(files), 'file')} with rows only marked as deleted, {most}; worth it above {REWRITE_ABOVE_SHARE:.0%}",
    )


def _share_marked(files: Sequence[MarkedFile]) -> float:
    return sum(one.marked for one in files) / sum(one.rows for one in files)


def _count_deleted_rows(table: DeltaTable) -> dict[str, int]:
    """Returns the number of rows that are marked, by file. A vector ends at the last of them."""
    if not log.may_have_deletion_vectors(table):
        return {}
    root = _join_spellings(table.table_uri.rstrip("/") + "/").removeprefix("file://")
    found: dict[str, int] = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for uri, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            name = _join_spellings(uri).removeprefix("file://").removeprefix(root)
            found[name] = len(kept.values) - (pc.sum(kept.values).as_py() or 0)
    return found


def _join_spellings(name: str) -> str:
    """Returns one spelling of a file's name: names of partitions are escaped once or twice, in the log and in addresses."""
    return unquote(unquote(name))
