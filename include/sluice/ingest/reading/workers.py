"""Runs in Spark's workers: reads their share of the deliveries into Arrow rows, block by block, with provenance. Loads no Spark.

It also reads values from a file's path: `date=2026-11-20/hour=07/a.json` is date 2026-11-20 and hour 07, as Hive and Spark write them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest import formats
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan, UnreadableFile
from sluice.ingest.files.paths import find_date_folders, parse_path_values
from sluice.ingest.formats import ParsedBlock
from sluice.ingest.reading.staging import StagedRowsWriter
from sluice.locations import Location, locate

if TYPE_CHECKING:
    from sluice.ingest.reading.examination import ExaminedDelivery

A_TASK = 2 * delivered_bytes.PART_BYTES
"""About how many bytes of text a task reads: several parts, so that tasks take about the same time."""
_TECHNICAL = pa.schema([
    pa.field("_problem", pa.string()),
    pa.field("_record", pa.string()),
    pa.field("_delivery", pa.int64()),
    pa.field("_file", pa.string()),
    pa.field("_row", pa.int64()),
    pa.field("_rescued_data", pa.string()),
])
PART = pa.field("_sluice_part", pa.int32())
"""The number, from 0, of the part that a record is in, if several workers read its file. Records are numbered from 0 in each part."""
COUNTS = pa.schema([
    pa.field("_delivery", pa.int64()),
    PART,
    pa.field("read", pa.int64()),
    pa.field("problems", pa.int64()),
    pa.field("news", pa.string()),
    pa.field("refused", pa.string()),
    pa.field("unreached", pa.bool_()),
])
"""What a worker reports about a block of records. news: the new fields, serialised. refused: why the rest of the file cannot be read.
unreached: whether that is because the disk does not return it."""


def record_rows_schema(columns: pa.Schema) -> pa.Schema:
    """Returns the schema of records with their provenance: the source's columns, then Sluice's own except the time of ingestion."""
    return pa.schema([*columns, *_TECHNICAL])


def read_worker_share(
    source: Source, bins: list[list[LocatedDelivery]], columns: pa.Schema, folder: Location, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Runs on a worker: stages the records of the deliveries of these bins in a folder, a file for each bin. Yields a row of `COUNTS` per block."""
    schema = record_rows_schema(columns).append(PART)
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            with StagedRowsWriter(folder / f"{number}.parquet", schema) as writer:
                for located in bins[number]:
                    yield pa.RecordBatch.from_pylist(list(_stage_delivery(source, located, columns, writer)), schema=COUNTS)


def _stage_delivery(
    source: Source, located: LocatedDelivery, columns: pa.Schema, writer: StagedRowsWriter
) -> Iterator[dict[str, object]]:
    """Stages the records of a delivery or of its part. Yields a row of `COUNTS` for each block, and for what cannot be read."""
    names = record_rows_schema(columns).names
    of = {"_delivery": located.number, PART.name: located.part}
    try:
        for block in read_delivery_blocks(source, located, columns):
            rows = block.rows.select(names)
            writer.add_rows(rows.append_column(PART, pa.repeat(pa.scalar(located.part, PART.type), rows.num_rows)))
            news = serialize_new_fields(block.news) if block.news.num_fields else None
            yield {**of, "read": rows.num_rows, "problems": rows.num_rows - rows["_problem"].null_count, "news": news}
    except (UnreadableFile, OSError) as error:
        yield {**of, "read": 0, "problems": 0, "refused": unreadable_reason(error), "unreached": isinstance(error, OSError)}


def unreadable_reason(error: Exception) -> str:
    """Returns the reason why a file was not read, without its content."""
    return f"the file could not be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def balance_worker_bins(source: Source, readable: list[ExaminedDelivery]) -> list[list[LocatedDelivery]]:
    """Divides the deliveries, or parts of them, into groups of about the same size, each in order."""
    divided = [located for item in readable for located in _divide_delivery(source, item)]
    total = sum(size for _, size in divided)
    bins: list[list[LocatedDelivery]] = [[] for _ in range(max(2, min(len(divided), total // A_TASK + 1)))]
    sizes = [0] * len(bins)
    for located, size in divided:
        smallest = sizes.index(min(sizes))
        bins[smallest].append(located)
        sizes[smallest] += size
    return [bin_ for bin_ in bins if bin_]


def _divide_delivery(source: Source, item: ExaminedDelivery) -> list[tuple[LocatedDelivery, int]]:
    """Returns a delivery as it is read, with its bytes. A large file that can be shared is divided into parts of about `PART_BYTES` bytes of text."""
    whole, size = locate_delivery(item), item.text_bytes
    starts = _find_part_starts(source, item)
    if len(starts) == 1:
        return [(whole, size)]
    spans = [FileSpan(start, end) for start, end in zip(starts, [*starts[1:], None], strict=True)]
    return [(replace(whole, span=span, part=part), size // len(spans)) for part, span in enumerate(spans)]


def _find_part_starts(source: Source, item: ExaminedDelivery) -> list[int]:
    """Returns where the parts of a delivery begin: at record starts that its examination found, otherwise about evenly, if its format allows."""
    if item.cuts or not (source.kind.in_files and formats.is_read_in_spans(source, item.delivery.path)):
        return [0, *item.cuts]
    try:
        return delivered_bytes.divide_file(item.delivery.path.stat().st_size, item.text_bytes)
    except OSError:  # reading reports what is wrong
        return [0]


def locate_delivery(item: ExaminedDelivery) -> LocatedDelivery:
    """Returns where a worker finds an examined delivery."""
    return LocatedDelivery(item.delivery.number, item.delivery.file, str(item.delivery.path), item.header)


@dataclass(frozen=True)
class LocatedDelivery:
    """A delivery, or a part of one, where a worker finds it. file: its name relative to the source's folder. path: the file's.

    header: that of a CSV file. span: the lines that are read as its part `part`; None: all.
    """

    number: int
    file: str
    path: str
    header: tuple[str, ...] = ()
    span: FileSpan | None = None
    part: int = 0


def read_delivery_blocks(source: Source, located: LocatedDelivery, columns: pa.Schema) -> Iterator[ParsedBlock]:
    """Yields a delivery's records with _delivery, _file and _row, the record's number in the file from 0."""
    return source.kind.read_blocks(source, located, columns)


def read_file_blocks(source: Source, located: LocatedDelivery, columns: pa.Schema) -> Iterator[ParsedBlock]:
    """Yields a file's records, numbered as they stand in it or in its span."""
    values = _select_path_values(source, located.file, columns)
    start = 0
    for block in formats.read_file_records(source, locate(located.path), columns, values, located.span):
        count = block.rows.num_rows
        rows = (
            block.rows
            .append_column("_delivery", pa.repeat(pa.scalar(located.number, pa.int64()), count))
            .append_column("_file", pa.repeat(pa.scalar(located.file, pa.string()), count))
            .append_column("_row", pa.array(np.arange(start, start + count)))
        )
        start += count
        yield ParsedBlock(rows, block.news)


def _select_path_values(source: Source, file: str, columns: pa.Schema) -> dict[str, str | None]:
    """Returns the values that the path gives to each record.

    A date that `date_in_path` takes belongs to the delivery: if no column waits for it, it is not rescued into every record.
    """
    if not source.path_columns:
        return {}
    values = parse_path_values(file)
    if source.schema_evolution == "add_new_columns" or not (dated := find_date_folders(source, file)):
        return values
    known = {name.lower() for name in columns.names}
    taken = {name for folder in dated for name in parse_path_values(f"{folder}/")}
    return {name: value for name, value in values.items() if name not in taken or name.lower() in known}


def serialize_new_fields(news: pa.StructType) -> str:
    """Writes the fields of a block that the columns lack as text for another process."""
    return base64.b64encode(pa.schema(list(news)).serialize().to_pybytes()).decode()


def deserialize_new_fields(text: str) -> pa.StructType:
    """Reads what `serialize_new_fields` wrote."""
    return pa.struct(list(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))))
