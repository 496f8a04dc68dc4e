"""Finds what is new in the topics of a source: ranges of offsets, by asking the broker once. Also warns if they will soon be deleted unread."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.interval import Interval, parse_instant
from sluice.errors import UsageError, nearest_name_hint
from sluice.ingest import delivery_tables
from sluice.ingest.topics import offset_ranges
from sluice.ingest.topics.broker import Broker, KeptOffsets
from sluice.ingest.topics.offset_ranges import BrokerOffsets, NewOffsetRanges, OffsetRange, Partition, parse_offset_range
from sluice.locations import Location
from sluice.printable import match_number
from sluice.record_states import VANISHED

NEAR = 0.8
"""The share of its topic's retention that an unread record may reach before Sluice warns."""


def find_arrived_offset_ranges(
    source: KafkaSource, deliveries: str, within: Interval | None = None, was_looked_at: bool = False
) -> list[OffsetRange]:
    """Returns the ranges that came to a source, in the order of their numbers. deliveries: the table.

    within: nothing comes unless now, the time of discovery, is in this interval. was_looked_at: as in `find_new_offset_ranges`. Raises
    LostOffsets, UnreachableBroker, and UsageError for a topic that does not exist.
    """
    now = datetime.now(UTC)
    if within is not None and now not in within:
        return []
    last = read_known_offset_ranges(source, deliveries)
    return [one for batch in find_new_offset_ranges(source, last, now, was_looked_at).batches for one in batch]


def find_new_offset_ranges(
    source: KafkaSource, last: Mapping[Partition, OffsetRange], now: datetime, was_looked_at: bool = False
) -> NewOffsetRanges:
    """Returns what a discovery would find now. last: from `read_known_offset_ranges`. Errors are those of `find_arrived_offset_ranges`.

    was_looked_at: whether there was a discovery before, even if no topic was there. Then all topics are ones that are found later.
    """
    broker = Broker(source)
    kept = broker.kept()
    _check_topics(source, kept, last)
    earliest, ends = {one: state.earliest for one, state in kept.items()}, {one: state.end for one, state in kept.items()}
    starts = _find_starting_offsets(source, broker, [one for one in kept if one not in last], last, kept, was_looked_at)
    ids = {topic: state.topic_id for (topic, _), state in kept.items()}
    return offset_ranges.compute_new_offset_ranges(source, BrokerOffsets(ids, earliest, ends, starts), last, now)


def read_known_offset_ranges(source: KafkaSource, deliveries: str) -> dict[Partition, OffsetRange]:
    """Returns, by partition, the last range of a source in the deliveries table at that path."""
    return offset_ranges.find_last_offset_ranges(
        (row["file"], row["event"], row["sha256"]) for row in _read_source_deliveries(source, deliveries)
    )


def find_retention_warnings(source: KafkaSource, deliveries: str, outcomes: str) -> list[str]:
    """Warns about partitions whose records are not in bronze and will soon be deleted. The tables lie at these paths. Raises UnreachableBroker."""
    unread = _find_unread_offsets(source, deliveries, outcomes)
    if not unread:
        return []
    broker, now = Broker(source), int(time.time() * 1000)
    late: list[str] = []
    for topic, milliseconds in broker.retention(topic for topic, _ in unread).items():
        mine = [partition for partition in unread if partition[0] == topic]
        young = broker.first_since(mine, now - int(NEAR * milliseconds))
        ends = broker.ends(mine)
        old = [one for one in mine if unread[one] < ends.get(one, 0) and _is_offset_before(unread[one], young.get(one))]
        if old:
            late.append(_retention_warning(source, old[0], unread[old[0]], milliseconds, len(old) - 1))
    return late


def find_kept_deliveries(source: KafkaSource, landing: Location, rows: Iterable[Mapping[str, Any]]) -> set[int]:
    """Returns the numbers of the deliveries whose offsets the broker still has completely. Asks it once. Raises UnreachableBroker."""
    given = list(rows)
    kept, found = Broker(source).kept() if given else {}, set()
    for row in given:
        one = parse_offset_range(str(row["file"]))
        mine = kept.get((one.topic, one.partition))
        if mine is not None and mine.has(one.start, one.until, row["sha256"]):
            found.add(int(row["delivery"]))
    return found


def _read_source_deliveries(source: KafkaSource, deliveries: str) -> list[dict[str, str]]:
    """Returns the rows of a source's ranges. A row without a name only says that the source was looked at before it had a topic."""
    found = (
        delivery_tables
        .read_delivery_ledger_columns(deliveries, ["delivery", "source", "file", "event", "sha256"])
        .sort_by("delivery")
        .to_pylist()
    )
    return [row for row in found if row["source"] == source.name and row["file"]]


def _check_topics(source: KafkaSource, partitions: Iterable[Partition], last: Mapping[Partition, OffsetRange]) -> None:
    here = {topic for topic, _ in partitions}
    for topic in source.topics:
        if topic not in here and not any(topic == one for one, _ in last):
            raise UsageError(
                f"Source '{source.name}': Kafka at {source.servers} has no topic '{topic}'.{nearest_name_hint(topic, here)}"
            )


def _find_starting_offsets(
    source: KafkaSource,
    broker: Broker,
    fresh: list[Partition],
    last: Mapping[Partition, OffsetRange],
    kept: Mapping[Partition, KeptOffsets],
    was_looked_at: bool,
) -> dict[Partition, int]:
    """Returns where partitions begin that the ledger does not know."""
    said, topics = source.starting_offsets, {topic for topic, _ in last}
    grown = [partition for partition in fresh if partition[0] in topics]
    others = [partition for partition in fresh if partition[0] not in topics]
    starts = dict.fromkeys(grown, 0) | {partition: kept[partition].earliest for partition in others}
    if not isinstance(said, str):
        named = {(topic, number): offset for topic, offsets in said.items() for number, offset in offsets.items()}
        starts |= {partition: named[partition] for partition in others if partition in named}
        for topic, number in others:
            if starts[topic, number] > kept[topic, number].end:
                raise UsageError(
                    f"Source '{source.name}': starting_offsets says {starts[topic, number]} for topic '{topic}', partition {number}, "
                    f"which ends at {kept[topic, number].end}. Name an offset up to that."
                )
    elif said == "latest":
        starts |= {} if last or was_looked_at else {partition: kept[partition].end for partition in others}
    elif said != "earliest":
        milliseconds = int(parse_instant(said, "starting_offsets").timestamp() * 1000)
        found = broker.first_since(others, milliseconds)
        starts |= {one: kept[one].end if (offset := found.get(one)) is None else offset for one in others}
    return starts


def _find_unread_offsets(source: KafkaSource, deliveries: str, outcomes: str) -> dict[Partition, int]:
    """Returns, by partition that the ledger knows, the first offset that is not in bronze."""
    done = set(delivery_tables.read_delivery_ledger_columns(outcomes, ["delivery"])["delivery"].to_pylist())
    found: dict[Partition, int] = {}
    waiting: set[Partition] = set()
    for row in _read_source_deliveries(source, deliveries):
        one = offset_ranges.parse_offset_range(row["file"])
        partition = (one.topic, one.partition)
        if row["event"] == VANISHED:
            found.pop(partition, None)
            waiting.discard(partition)
        elif row["delivery"] in done and partition not in waiting:
            found[partition] = one.until
        elif partition not in waiting:
            found[partition] = one.start
            waiting.add(partition)
    return found


def _is_offset_before(offset: int, young: int | None) -> bool:
    return young is None or offset < young


def _retention_warning(source: KafkaSource, partition: Partition, offset: int, milliseconds: int, others: int) -> str:
    more = f" and {others} more of its partitions" if others else ""
    hours = milliseconds / 3_600_000
    kept = f"{hours / 24:.3g} days" if hours >= 48 else f"{hours:.3g} {match_number(hours, 'hour', 'hours')}"
    return (
        f"Source '{source.name}': topic '{partition[0]}', partition {partition[1]}{more}: offset {offset} is not read yet and has lived "
        f"{NEAR:.0%} of the topic's retention ({kept}); then it is deleted. Run more often, or raise retention.ms."
    )
