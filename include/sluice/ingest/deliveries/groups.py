"""How much a micro-batch takes at most, by the limits of a source."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.ingest.topics.offset_ranges import parse_offset_range

Item = TypeVar("Item")
Row = Mapping[str, object]


@functools.singledispatch
def group_into_micro_batches(source: Source, items: Iterable[Item], size: Callable[[Item], int | None]) -> list[list[Item]]:
    """Items in order, in groups within the source's limits on files and bytes; at least one a group. size: of an item, in bytes.

    By kind of source: register others.
    """
    most_bytes = source.max_bytes_per_trigger if isinstance(source.max_bytes_per_trigger, int) else None
    return _group_within_limits(items, source.max_files_per_trigger, most_bytes, size)


@group_into_micro_batches.register
def _(source: KafkaSource, items: Iterable[Row], size: object) -> list[list[Row]]:
    return _group_within_limits(
        items, sys.maxsize, source.max_offsets_per_trigger, lambda row: parse_offset_range(str(row["file"])).offsets
    )


def _group_within_limits(
    items: Iterable[Item], most_items: int, most_together: int | None, size: Callable[[Item], int | None]
) -> list[list[Item]]:
    found: list[list[Item]] = []
    room = 0
    for item in items:
        needed = size(item) or 0
        if not found or len(found[-1]) >= most_items or (most_together is not None and needed > room):
            found.append([])
            room = most_together or 0
        found[-1].append(item)
        room -= needed
    return found
