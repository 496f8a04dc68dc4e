"""How the files of one table are kept, where this differs from all tables of a pipeline."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from sluice.declare.field_values import check_field_types, check_names, parse_byte_amount
from sluice.declare.pipeline import is_interval, parse_duration
from sluice.errors import DeclarationError

MOST_CLUSTER_COLUMNS = 4
"""Delta clusters by no more columns."""
LEAST_FILE_BYTES = 1_000_000
"""Below this, a table's log grows faster than its rows."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Properties of a table. Omitted ones have the defaults of all tables.

    retain: how long removed files stay, instead of the pipeline's `retain`; only for tables without personal columns, since erasures depend
    on the pipeline's. keep_log: how long commits stay in the table's log (an interval; 30 days by default), at least as long as removed
    files. statistics: the columns with minimum and maximum in the log, instead of the keys, the `zorder_by` or `cluster_by` and the first
    others; for a source, in addition to the delivery. Only Spark writes a table with statistics of fractions.

    target_file_size: how large OPTIMIZE makes files, in bytes, as 67108864 or "64m". change_feed=False: no change data feed; only for
    tables whose changes nothing reads. deletion_vectors=True: deleted rows are only marked; only for tables without personal columns. From
    then on only Spark writes such a table.
    """

    retain: str | None = None
    keep_log: str | None = None
    statistics: tuple[str, ...] | str | None = None
    target_file_size: int | str | None = None
    change_feed: bool = True
    deletion_vectors: bool = False

    def __post_init__(self) -> None:
        check_field_types(self, "Layout", {"retain": "'14 days'", "keep_log": "'30 days'"})
        for name in ("retain", "keep_log"):
            value = getattr(self, name)
            if value is not None and not is_interval(value):
                raise DeclarationError(f"Layout: {name} is an interval such as '14 days', not '{value}'.")
        if self.statistics is not None:
            object.__setattr__(self, "statistics", check_names(self.statistics, "statistics", "Layout"))
        if self.target_file_size is not None:
            size = parse_byte_amount("Layout", "target_file_size", self.target_file_size)
            if size < LEAST_FILE_BYTES:
                raise DeclarationError(f"Layout: target_file_size is at least {LEAST_FILE_BYTES} bytes ('1m'), not {size}.")
            object.__setattr__(self, "target_file_size", size)

    @property
    def statistics_columns(self) -> tuple[str, ...]:
        """Those that are declared."""
        return check_names(self.statistics or (), "statistics", "Layout")

    @property
    def file_bytes(self) -> int | None:
        """The declared size of files in bytes."""
        return None if self.target_file_size is None else int(self.target_file_size)

    def find_mistakes(self, private: Collection[str], cluster_by: Sequence[str] = ()) -> Iterator[str]:
        """Yields what contradicts itself or does not fit a table with these personal columns, as sentences without their beginning."""
        hidden = {name.lower() for name in private}  # to Spark, upper and lower case are one
        known = {name.lower() for name in self.statistics_columns}
        for name in self.statistics_columns:
            if name.lower() in hidden:
                yield f"layout.statistics names the personal column '{name}'; its values must not get into the log."
        for name in cluster_by if known else ():
            if name.lower() not in known:
                yield f"layout.statistics lacks '{name}', which cluster_by names: Delta clusters by columns with statistics. Add it."
        if self.retain and private:
            yield "layout.retain: a table with personal columns has the retain= of its pipeline, on which its erasures depend. Leave it out."
        if self.deletion_vectors and private:
            yield (
                "layout.deletion_vectors: in a table with personal columns, rows that are erased must leave the files, not only be marked "
                "as deleted. Leave it out."
            )
        if self.retain and self.keep_log and parse_duration(self.keep_log) < parse_duration(self.retain):
            yield f"layout.keep_log ('{self.keep_log}') is shorter than layout.retain ('{self.retain}'); a log says which files are kept."


def find_order_mistakes(
    private: Collection[str], zorder_by: Sequence[str], cluster_by: Sequence[str], partition_by: Sequence[str]
) -> Iterator[str]:
    """What is wrong with the columns that lay out a table's files, as sentences without their beginning. private: the personal columns."""
    hidden = {name.lower() for name in private}  # to Spark, upper and lower case are one
    for of, columns in (("zorder_by", zorder_by), ("cluster_by", cluster_by), ("partition_by", partition_by)):
        used = sorted(name for name in columns if name.lower() in hidden)
        if used:
            yield f"{of} names the personal column '{used[0]}'; such a column must not order files."
    if cluster_by and zorder_by:
        yield "cluster_by and zorder_by exclude each other: Delta orders the rows of a table in one way. Leave one of them out."
    if cluster_by and partition_by:
        yield "cluster_by and partition_by exclude each other: Delta clusters tables without partitions. Put the column into cluster_by."
    if len(cluster_by) > MOST_CLUSTER_COLUMNS:
        yield f"cluster_by names {len(cluster_by)} columns; Delta clusters by {MOST_CLUSTER_COLUMNS} at most."
