"""Reads exactly the records of a range of offsets, as Arrow tables. No consumer group and no commit: the lake's ledger says what was read."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, Message, TopicPartition

from sluice.declare.ingest.kafka import KafkaSource
from sluice.ingest.formats import ParsedBlock
from sluice.ingest.reading.examination import Delivery, ExaminedDelivery
from sluice.ingest.reading.workers import LocatedDelivery
from sluice.ingest.topics import offset_ranges
from sluice.ingest.topics.broker import Broker, KeptOffsets, UnreachableBroker, create_kafka_consumer, translate_kafka_errors
from sluice.ingest.topics.offset_ranges import LostOffsets, OffsetRange, lost_offsets_message
from sluice.locations import Location, locate
from sluice.record_states import INGESTED, MISSED, VANISHED

SCHEMA = pa.schema([
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    pa.field("timestamp_type", pa.int32()),
])
"""The columns of a record: those of `sluice.declare.ingest.kafka.SCHEMA`, which is SQL."""

_NUMBERED = pa.schema([*SCHEMA, pa.field("_row", pa.int64())])
_AT_ONCE = 10_000
_A_RECORD = 1_000
"""The assumed bytes of a record if only offsets are known. This only decides where a batch is read."""
_SILENCE = 60.0
"""After this many seconds without a record or an end, the broker counts as gone."""
_LOST = (
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
)


def read_offset_range(
    source: KafkaSource, file: str, secrets: Location | None = None, start: int | None = None
) -> Iterator[pa.Table]:
    """Yields the records of a range, in order, as tables of up to 10,000: the columns of SCHEMA, and _row, counted from the range's first offset.

    file: the range's name in the ledger. secrets: the folder of options_file, unless the settings say it. start: the first offset to read if those
    before are gone. Offsets that compaction or transactions left empty are skipped. Raises LostOffsets if the broker lacks a part of the range,
    and UnreachableBroker if it falls silent.
    """
    wanted = offset_ranges.parse_offset_range(file)
    position = wanted.start if start is None else start
    if position >= wanted.until:
        return
    with contextlib.closing(create_kafka_consumer(source, secrets)) as client:
        with translate_kafka_errors(source):
            client.assign([TopicPartition(wanted.topic, wanted.partition, position)])
        while position < wanted.until:
            messages, position = _consume_messages(source, client, wanted, position)
            if messages:
                yield _build_message_table(messages, wanted)


def read_topic_blocks(source: KafkaSource, located: LocatedDelivery, columns: pa.Schema) -> Iterator[ParsedBlock]:
    """Yields the records of a range of offsets. _row is counted from the range's first offset, whatever the broker still has."""
    for table in read_offset_range(source, located.file, find_secrets_folder(located.path), parse_start_offset(located.header)):
        rows = table.select(columns.names).cast(columns)
        for name in ("_rescued_data", "_problem", "_record"):
            rows = rows.append_column(name, pa.nulls(table.num_rows, pa.string()))
        rows = (
            rows
            .append_column("_delivery", pa.repeat(pa.scalar(located.number, pa.int64()), table.num_rows))
            .append_column("_file", pa.repeat(pa.scalar(located.file, pa.string()), table.num_rows))
            .append_column("_row", table["_row"])
        )
        yield ParsedBlock(rows, pa.struct([]))


def examine_offset_ranges(source: KafkaSource, deliveries: list[Delivery]) -> list[ExaminedDelivery]:
    """Examines whether the broker still has each range whole. If not, it is missed, and the reason says what is gone. Raises UnreachableBroker."""
    kept = Broker(source).kept()
    found = []
    for delivery in deliveries:
        one = offset_ranges.parse_offset_range(delivery.file)
        found.append(_examine_offset_range(delivery, one, kept.get((one.topic, one.partition))))
    return found


def examine_unread_offset_ranges(
    source: KafkaSource, deliveries: list[Delivery], judged: Container[int]
) -> list[ExaminedDelivery]:
    """Examines ranges that bronze has nothing of yet. The rest of a partly lost range is read, if the source goes on without what is lost.

    judged: deliveries that were missed before. Raises LostOffsets if the source does not go on.
    """
    examined = examine_offset_ranges(source, deliveries)
    lost = [item for item in examined if item.state == MISSED and item.delivery.number not in judged]
    if lost and source.on_lost_offsets == "fail":
        raise LostOffsets(lost_offsets_message(source, [f"{item.reason} (delivery {item.delivery.number})" for item in lost]))
    return [_take_remaining_range(item) for item in examined]


def parse_start_offset(header: tuple[str, ...]) -> int | None:
    """Returns the offset at which to begin in a partly lost range, or None for its first. header: that of the examined delivery."""
    return int(header[0]) if header else None


def find_secrets_folder(path: str) -> Location:
    """Returns the folder with a source's options_file. path: that of a delivery, which is this folder and <topic>/<partition>/<offsets>."""
    return locate(path).parents[2]


def _examine_offset_range(delivery: Delivery, one: OffsetRange, kept: KeptOffsets | None) -> ExaminedDelivery:
    where = f"topic '{one.topic}', partition {one.partition}"
    if delivery.event == VANISHED:
        return ExaminedDelivery(delivery, VANISHED, f"{where}: what came after offset {one.start} went with the topic")
    if one.offsets == 0:
        return ExaminedDelivery(delivery, INGESTED, empty=True)
    if kept is None or not kept.of_same_topic(delivery.sha256) or kept.end < one.until:
        return ExaminedDelivery(delivery, MISSED, f"{where}: offsets {one.start} up to {one.until} went with the topic")
    if kept.has(one.start, one.until, delivery.sha256):
        return ExaminedDelivery(delivery, INGESTED, text_bytes=one.offsets * _A_RECORD)
    gone = (
        f"{where}: offsets {one.start} up to {min(kept.earliest, one.until)} are gone, the broker's earliest is {kept.earliest}"
    )
    # Like a file's header: what reading must know beside the delivery.
    return ExaminedDelivery(delivery, MISSED, gone, header=(str(kept.earliest),) if kept.earliest < one.until else ())


def _take_remaining_range(item: ExaminedDelivery) -> ExaminedDelivery:
    if item.state != MISSED or not item.header:
        return item
    left = offset_ranges.parse_offset_range(item.delivery.file).until - int(item.header[0])
    return replace(item, state=INGESTED, text_bytes=left * _A_RECORD)


def _consume_messages(source: KafkaSource, client: Consumer, wanted: OffsetRange, position: int) -> tuple[list[Message], int]:
    """Returns the next records of the range, and the offset after them. At least one, unless the range has none left."""
    deadline = time.monotonic() + _SILENCE
    while time.monotonic() < deadline:
        with translate_kafka_errors(source):
            # All remaining records are asked for, so that the call returns with the last of them.
            found = client.consume(min(_AT_ONCE, wanted.until - position), timeout=0.1)
        messages: list[Message] = []
        for message in found:
            offset = _check_message_offset(source, message, wanted)
            if offset >= wanted.until:
                return messages, wanted.until
            if message.error() is None:
                messages.append(message)
                position = offset + 1
        if messages:
            return messages, position
    raise UnreachableBroker(
        f"Source '{source.name}': topic '{wanted.topic}', partition {wanted.partition}: nothing came for {_SILENCE:.0f} s at offset "
        f"{position}. Check that the partition has a leader."
    )


def _check_message_offset(source: KafkaSource, message: Message, wanted: OffsetRange) -> int:
    """Returns the offset of a record or of the end, or -1 for an error that passes by itself."""
    error = message.error()
    offset = message.offset()
    if error is None:
        return -1 if offset is None else offset
    if error.code() == KafkaError._PARTITION_EOF and offset is not None and offset >= wanted.until:
        return offset
    if error.code() in _LOST:
        where = f"topic '{wanted.topic}', partition {wanted.partition}"
        raise LostOffsets(
            lost_offsets_message(source, [f"{where}: offsets {wanted.start} up to {wanted.until} went while they were read"])
        )
    return -1


def _build_message_table(messages: list[Message], wanted: OffsetRange) -> pa.Table:
    columns: list[list[Any]] = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [_message_headers(message) for message in messages],
        [wanted.topic] * len(messages),
        [wanted.partition] * len(messages),
        [message.offset() for message in messages],
        [_message_timestamp(message) for message in messages],
        [_message_timestamp_type(message) for message in messages],
        [(message.offset() or 0) - wanted.start for message in messages],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _NUMBERED, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_NUMBERED)


def _message_headers(message: Message) -> list[dict[str, Any]] | None:
    """Returns the headers in order, a key as often as it occurs. None if there are none, as in Spark's connector."""
    said: Any = message.headers()
    return [{"key": key, "value": value} for key, value in said] if said else None


def _message_timestamp(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds * 1000


def _message_timestamp_type(message: Message) -> int:
    """Returns Kafka's number: -1 for none, 0 for the producer's, 1 for the append's. The client counts from 0."""
    return int(message.timestamp()[0]) - 1
