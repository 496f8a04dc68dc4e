"""Ranges of offsets, which a topic delivers. They are computed from what the broker and the ledger say; this module asks neither."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from sluice.declare.ingest.kafka import KafkaSource
from sluice.delivery_rows import DeliveryRow
from sluice.errors import UsageError
from sluice.locations import Location
from sluice.printable import count_noun
from sluice.record_states import DELIVERED, VANISHED
from sluice.settings import Settings

_FILE = re.compile(r"([^/]+)/(\d+)/(\d+)-(\d+)\Z")

Partition = tuple[str, int]
"""A topic and the number of one of its partitions."""


class LostOffsets(UsageError):
    """The broker has deleted offsets that nobody has read. Exit code 2: trying again does not bring them back."""


class OffsetRange(NamedTuple):
    """Offsets of one partition from `start` up to, but not including, `until`.

    topic_id: the id by which the broker distinguishes the topic from a later one of the same name; "" if it has none. modified_at: when they were
    discovered, in UTC. event: VANISHED if the topic does not exist any more or is another one: then everything after `start` is lost.
    """

    topic: str
    partition: int
    start: int
    until: int
    topic_id: str = ""
    modified_at: datetime | None = None
    event: str = DELIVERED

    @property
    def file(self) -> str:
        """The range's name in the ledger."""
        return f"{self.topic}/{self.partition}/{self.start}-{self.until}"

    @property
    def size(self) -> int | None:
        """None: no broker says how many bytes these are."""
        return None

    @property
    def offsets(self) -> int:
        """The number of offsets. In a compacted topic, or one with transactions, there are fewer records."""
        return self.until - self.start

    @property
    def row(self) -> DeliveryRow:
        """Returns columns of the deliveries table. sha256 holds the topic's id, which says whose offsets these are."""
        return {
            "file": self.file,
            "event": self.event,
            "size": None,
            "modified_at": self.modified_at,
            "sha256": self.topic_id or None,
        }


def locate_options_folder(source: KafkaSource, settings: Settings, landing: Location) -> Location:
    """Returns the folder with a source's options_file, because its deliveries lie at a broker."""
    return settings.secret(source.options_file).parent if source.options_file else settings.secrets


def count_offsets(files: Sequence[str]) -> int:
    """Returns how many offsets are in the ranges of these names."""
    return sum(parse_offset_range(file).offsets for file in files)


def parse_offset_range(file: str) -> OffsetRange:
    """Returns the range with this name in the ledger. Raises ValueError."""
    found = _FILE.match(file)
    if not found:
        raise ValueError("not a range of offsets")
    return OffsetRange(found[1], int(found[2]), int(found[3]), int(found[4]))


def find_last_offset_ranges(rows: Iterable[tuple[str, str, str | None]]) -> dict[Partition, OffsetRange]:
    """Returns, by partition, the last range that the ledger has. rows: file, event and sha256 of a source's deliveries, oldest first."""
    found: dict[Partition, OffsetRange] = {}
    for file, event, topic_id in rows:
        last = parse_offset_range(file)
        found[last.topic, last.partition] = last._replace(event=event, topic_id=topic_id or "")
    return found


@dataclass(frozen=True)
class BrokerOffsets:
    """What the broker says about the topics that a source reads. ids: by topic. ends: the offsets after the last committed ones.

    starts: where partitions begin that the ledger does not know; known ones need none.
    """

    ids: Mapping[str, str]
    earliest: Mapping[Partition, int]
    ends: Mapping[Partition, int]
    starts: Mapping[Partition, int]


@dataclass(frozen=True)
class NewOffsetRanges:
    """What a discovery would find. batches: the ranges of each micro-batch. unread: by partition, the first offset that nobody has discovered."""

    batches: list[list[OffsetRange]]
    unread: dict[Partition, int] = field(default_factory=dict)


def compute_new_offset_ranges(
    source: KafkaSource, standing: BrokerOffsets, known: Mapping[Partition, OffsetRange], now: datetime
) -> NewOffsetRanges:
    """Returns the ranges after those that the ledger knows, up to the ends. A new partition gets one even if empty: it says where reading began.

    Raises LostOffsets if offsets that nobody has read are gone, unless the source goes on without them; then these are ranges, too.
    """
    losses: list[tuple[OffsetRange, str]] = []
    fresh: list[OffsetRange] = []
    firsts: list[OffsetRange] = []
    for partition in sorted(standing.ends):
        begin, lost = _find_start_offset(partition, standing, known.get(partition))
        losses += lost
        topic, number = partition
        found = OffsetRange(topic, number, begin, max(begin, standing.ends[partition]), standing.ids.get(topic, ""))
        if found.offsets:
            fresh.append(found)
        elif partition not in known or any(one.event == VANISHED for one, _ in lost):
            firsts.append(found)
    losses += [
        _lost_partition_range(last)
        for partition, last in sorted(known.items())
        if _is_partition_gone(source, partition, last, standing)
    ]
    if losses and source.on_lost_offsets == "fail":
        raise LostOffsets(lost_offsets_message(source, [why for _, why in losses]))
    batches = split_offset_ranges(fresh, source.max_offsets_per_trigger)
    before = [one for one, _ in losses] + firsts
    if before:
        batches = [before + batches[0], *batches[1:]] if batches else [before]
    dated = [[one._replace(modified_at=now) for one in batch] for batch in batches]
    return NewOffsetRanges(dated, {(one.topic, one.partition): one.start for one in fresh})


def lost_offsets_message(source: KafkaSource, losses: Sequence[str]) -> str:
    """Returns the error text about lost offsets, with the remedy."""
    more = f" And {count_noun(len(losses) - 1, 'more partition')}." if len(losses) > 1 else ""
    return (
        f"Source '{source.name}': {losses[0]}.{more} These records are lost to the lake. To go on behind them, and have them in the ledger as "
        "missed, declare on_lost_offsets='take_earliest'. So that it does not come again: run more often, or raise the topic's retention.ms."
    )


def split_offset_ranges(ranges: Sequence[OffsetRange], most: int) -> list[list[OffsetRange]]:
    """Divides the ranges into lists of `most` offsets each, the last with the rest. Each partition gets its share of a list."""
    left = [one for one in ranges if one.offsets]
    lists: list[list[OffsetRange]] = []
    while left:
        taken = _proportional_shares([one.offsets for one in left], most)
        lists.append([one._replace(until=one.start + n) for one, n in zip(left, taken, strict=True) if n])
        moved = (one._replace(start=one.start + n) for one, n in zip(left, taken, strict=True))
        left = [one for one in moved if one.offsets]
    return lists


def _proportional_shares(sizes: Sequence[int], most: int) -> list[int]:
    """Returns a proportional share of each size as whole numbers, which add up to `most`, or to all if that is less."""
    total = sum(sizes)
    if total <= most:
        return list(sizes)
    shares = [size * most // total for size in sizes]
    by_rest = sorted(range(len(sizes)), key=lambda n: (-(sizes[n] * most % total), n))
    for n in by_rest[: most - sum(shares)]:
        shares[n] += 1
    return shares


def _find_start_offset(
    partition: Partition, standing: BrokerOffsets, last: OffsetRange | None
) -> tuple[int, list[tuple[OffsetRange, str]]]:
    """Returns where to resume reading, and what is lost before that."""
    topic, number = partition
    earliest, end, topic_id = standing.earliest[partition], standing.ends[partition], standing.ids.get(topic, "")
    if last is None:
        begin = standing.starts[partition]
    elif last.event == VANISHED and not (last.topic_id and last.topic_id == topic_id):
        begin = earliest
    elif (last.topic_id and topic_id and last.topic_id != topic_id) or end < last.until:
        why = f"topic '{topic}', partition {number}: the next offset is {last.until}, but the topic was made anew, or cut off, and ends at {end}"
        return earliest, [(last._replace(start=last.until, event=VANISHED), why)]
    else:
        begin = last.until
    if begin >= earliest:
        return begin, []
    gap = OffsetRange(topic, number, begin, earliest, topic_id)
    return earliest, [
        (gap, f"topic '{topic}', partition {number}: the next offset is {begin}, the broker's earliest is {earliest}")
    ]


def _is_partition_gone(source: KafkaSource, partition: Partition, last: OffsetRange, standing: BrokerOffsets) -> bool:
    return partition not in standing.ends and last.event != VANISHED and source.subscribes(partition[0])


def _lost_partition_range(last: OffsetRange) -> tuple[OffsetRange, str]:
    why = f"topic '{last.topic}', partition {last.partition}: the next offset is {last.until}, and the broker has no such partition any more"
    return last._replace(start=last.until, event=VANISHED), why
