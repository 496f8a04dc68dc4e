"""The properties by which a declaration decides how a table is kept: one entry each, for new tables and for those that are there.

Among them is how large OPTIMIZE makes its files, and from which size on a file stays as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sluice.lake import log
from sluice.lake.log import parse_interval_length
from sluice.table_properties import (
    CHANGE_FEED,
    DELETION_VECTORS,
    LOG_RETENTION,
    RETENTION,
    STATISTICS,
    TARGET_FILE_SIZE,
    format_statistics_columns,
    parse_statistics_columns,
)

if TYPE_CHECKING:
    from sluice.lake.table_creation import TableShape

_LOG_KEPT = "30 days"
"""How long commits stay in a log if nothing else is declared."""
_BETWEEN_VACUUMS = timedelta(days=7)
"""How much longer than removed files, if those are kept for as long."""


@dataclass(frozen=True)
class LayoutProperty:
    """A property of tables. choose: its value for a table of this shape; None: the table does not have it.

    keep: its value for a table that is there, by the shape and by what the table has; without it, as for a new one. changes_protocol:
    whether setting it can change what readers and writers must know. delta-rs then asks for more than is needed (deltalake 1.6.6, tried:
    with deletion vectors also for VARIANT), so that only Spark sets it. known_to_spark: whether Delta on Spark takes it without being told
    that any name is right.
    """

    name: str
    choose: Callable[[TableShape], str | None]
    keep: Callable[[TableShape, str], str] | None = None
    changes_protocol: bool = False
    known_to_spark: bool = True


def _choose_statistics(shape: TableShape) -> str:
    # Partition columns have no statistics, and Delta refuses them here, as it does columns that the table has yet to get.
    there = set(shape.schema.names) - set(shape.partition_by)
    return format_statistics_columns(name for name in shape.statistics if name.partition(".")[0] in there)


def _keep_statistics(shape: TableShape, present: str) -> str:
    """What is declared; else what is there, without columns that have become personal. Columns that came later have none in either case."""
    if shape.statistics_declared:
        return _choose_statistics(shape)
    there = parse_statistics_columns(present)
    wanted = [name for name in there if name in shape.statistics] + [name for name in shape.cluster_by if name not in there]
    kept = [name for name in wanted if name not in shape.partition_by]
    return present if kept == there else format_statistics_columns(kept)


def _choose_log_retention(shape: TableShape) -> str:
    """The log is kept at least as long as removed files, or Delta refuses the properties. If nothing else is declared, it is kept longer.

    VACUUM finds removed files in the log as long as that reaches back to the VACUUM before, and walks through the folder otherwise.
    """
    if shape.keep_log:
        return f"interval {max(shape.keep_log, shape.retain, key=parse_interval_length)}"
    needed = parse_interval_length(shape.retain) + _BETWEEN_VACUUMS
    return f"interval {max(_LOG_KEPT, f'{math.ceil(needed / timedelta(days=1))} days', key=parse_interval_length)}"


LAYOUT_PROPERTIES = (
    LayoutProperty(CHANGE_FEED, lambda shape: str(shape.change_feed).lower(), changes_protocol=True),
    LayoutProperty(DELETION_VECTORS, lambda shape: str(shape.deletion_vectors).lower(), changes_protocol=True),
    LayoutProperty(STATISTICS, _choose_statistics, keep=_keep_statistics),
    LayoutProperty(RETENTION, lambda shape: f"interval {shape.retain}"),
    LayoutProperty(LOG_RETENTION, _choose_log_retention),
    LayoutProperty(
        TARGET_FILE_SIZE, lambda shape: None if shape.file_bytes is None else str(shape.file_bytes), known_to_spark=False
    ),
)
_BY_NAME = {one.name: one for one in LAYOUT_PROPERTIES}


@dataclass(frozen=True)
class PropertyChanges:
    """What differs between a table's properties and what they should be. given: the new values by name. taken: the names that go.

    given may hold Sluice's own properties, which say nothing about the protocol.
    """

    given: Mapping[str, str]
    taken: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.given or self.taken)

    @property
    def fit_delta_rs(self) -> bool:
        """Whether delta-rs makes them as Spark would: it takes no property away, and none may change the protocol."""
        return not self.taken and not any(_BY_NAME[name].changes_protocol for name in self.given if name in _BY_NAME)


def choose_layout_properties(shape: TableShape) -> dict[str, str]:
    """Returns the properties with which a table of this shape is made."""
    values = {one.name: one.choose(shape) for one in LAYOUT_PROPERTIES}
    return {name: value for name, value in values.items() if value is not None}


def find_property_changes(present: Mapping[str, str], shape: TableShape) -> PropertyChanges:
    """Returns what an existing table lacks. A table without statistics columns belongs to somebody else, who decides how it is kept."""
    if STATISTICS not in present:
        return PropertyChanges({})
    wanted = choose_layout_properties(shape)
    wanted |= {one.name: one.keep(shape, present[one.name]) for one in LAYOUT_PROPERTIES if one.keep and one.name in present}
    given = {name: value for name, value in wanted.items() if present.get(name) != value}
    return PropertyChanges(given, tuple(name for name in _BY_NAME if name in present and name not in wanted))


def list_names_unknown_to_spark(names: Iterable[str]) -> list[str]:
    """Returns those of the properties that Delta on Spark takes for a typing error."""
    return [name for name in names if name in _BY_NAME and not _BY_NAME[name].known_to_spark]


ONE_FILE = 1024 * 1024 * 1024
"""The size of the files that Delta's OPTIMIZE makes."""
ORDERED_FILE = 16 * 1024 * 1024
"""The size of the files for ordered rows: a query then opens only some of them."""


def read_declared_file_size(path: str) -> int | None:
    """Returns the bytes that a table's property says its files should have; None if it says nothing, or no number. Raises DamagedLog."""
    said = log.read_table_properties(path).get(TARGET_FILE_SIZE, "")
    return int(said) if said.isdecimal() and int(said) > 0 else None


def choose_file_size(path: str, ordered: bool) -> int:
    """Returns how many bytes OPTIMIZE should give each of the table's files. ordered: whether an order of rows is declared."""
    return read_declared_file_size(path) or (ORDERED_FILE if ordered else ONE_FILE)
