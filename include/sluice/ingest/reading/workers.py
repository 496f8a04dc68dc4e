"""What Spark's workers do: read their share of the deliveries into Arrow rows. Loads no Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.files.opening import UnreadableFile
from sluice.ingest.reading.blocks import DeliveryPlace, read_delivery_blocks, serialize_new_fields
from sluice.ingest.reading.delivery import ExaminedDelivery

A_TASK = 64_000_000
"""About so many bytes of text a task reads."""
_TECHNICAL = pa.schema([
    pa.field("_problem", pa.string()),
    pa.field("_record", pa.string()),
    pa.field("_delivery", pa.int64()),
    pa.field("_file", pa.string()),
    pa.field("_row", pa.int64()),
    pa.field("_rescued_data", pa.string()),
])
NEWS = pa.field("_news", pa.string())
REFUSED = -1
"""The row number of what is no record: the word that a file cannot be read."""
UNREACHED = -2
"""The same where the disk does not give the file."""


def record_rows_schema(columns: pa.Schema) -> pa.Schema:
    """Of records with where they came from: the source's columns, then Sluice's own but for the time of ingestion."""
    return pa.schema([*columns, *_TECHNICAL])


def read_worker_share(
    source: Source, bins: list[list[DeliveryPlace]], columns: pa.Schema, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: the records of the deliveries of these bins."""
    names = record_rows_schema(columns).names
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for place in bins[number]:
                try:
                    for block in read_delivery_blocks(source, place, columns):
                        yield from _attach_new_fields(block.rows.select(names), block.news)
                except (UnreadableFile, OSError) as error:
                    yield _build_refusal_row(place, error, columns)


def unreadable_reason(error: Exception) -> str:
    """The reason why a file was not read, without content."""
    return f"the file could not be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def _attach_new_fields(rows: pa.Table, news: pa.StructType) -> list[pa.RecordBatch]:
    """The rows, the first of which says what is new in them."""
    if not rows.num_rows:
        return []
    text = serialize_new_fields(news) if news.num_fields else None
    first = pa.array([text, *[None] * (rows.num_rows - 1)], pa.string())
    batches: list[pa.RecordBatch] = rows.append_column(NEWS, first).to_batches()
    return batches


def _build_refusal_row(place: DeliveryPlace, error: Exception, columns: pa.Schema) -> pa.RecordBatch:
    """A row that says that the rest of the file cannot be read."""
    row = UNREACHED if isinstance(error, OSError) else REFUSED
    said = {"_delivery": place.number, "_row": row, "_problem": unreadable_reason(error)}
    schema = record_rows_schema(columns).append(NEWS)
    return pa.RecordBatch.from_pylist([said], schema=schema)


def balance_worker_bins(readable: list[ExaminedDelivery]) -> list[list[DeliveryPlace]]:
    """The deliveries in groups of about the same size, each in order."""
    total = sum(item.text_bytes for item in readable)
    bins: list[list[DeliveryPlace]] = [[] for _ in range(max(2, min(len(readable), total // A_TASK + 1)))]
    sizes = [0] * len(bins)
    for item in readable:
        smallest = sizes.index(min(sizes))
        bins[smallest].append(locate_delivery(item))
        sizes[smallest] += item.text_bytes
    return [bin_ for bin_ in bins if bin_]


def locate_delivery(item: ExaminedDelivery) -> DeliveryPlace:
    """Where a worker finds a delivery that was examined."""
    return DeliveryPlace(item.delivery.number, item.delivery.file, str(item.delivery.path), item.header)
