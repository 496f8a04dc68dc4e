"""The records of one delivery, block by block, with where they came from: what a worker does. Loads no Spark.

Values that stand in a file's path: `date=2026-11-20/hour=07/a.json` is date 2026-11-20 and hour 07, as Hive and Spark write them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.ingest import formats
from sluice.ingest.deliveries.dates import find_date_folders
from sluice.ingest.formats import ParsedBlock


@dataclass(frozen=True)
class DeliveryPlace:
    """A delivery as a worker needs it. file: below the source's folder; path: of the file; header: of a CSV file."""

    number: int
    file: str
    path: str
    header: tuple[str, ...] = ()


def read_delivery_blocks(source: Source, place: DeliveryPlace, columns: pa.Schema) -> Iterator[ParsedBlock]:
    """A delivery's records with _delivery, _file and _row, the record's number in the file from 0."""
    if isinstance(source, KafkaSource):
        yield from _read_topic_blocks(source, place, columns)
        return
    values = _select_path_values(source, place.file, columns)
    start = 0
    for block in formats.read_file_records(source, Path(place.path), columns, values):
        count = block.rows.num_rows
        rows = (
            block.rows
            .append_column("_delivery", pa.repeat(pa.scalar(place.number, pa.int64()), count))
            .append_column("_file", pa.repeat(pa.scalar(place.file, pa.string()), count))
            .append_column("_row", pa.array(range(start, start + count), pa.int64()))
        )
        start += count
        yield ParsedBlock(rows, block.news)


def _select_path_values(source: Source, file: str, columns: pa.Schema) -> dict[str, str]:
    """What the path says of each record.

    A date that `date_in_path` takes is the delivery's: where no column waits for it, it is not rescued into every record.
    """
    if not source.path_columns:
        return {}
    values = parse_path_values(file)
    if source.schema_evolution == "add_new_columns" or not (dated := find_date_folders(source, file)):
        return values
    known = {name.lower() for name in columns.names}
    taken = {name for folder in dated for name in parse_path_values(f"{folder}/")}
    return {name: value for name, value in values.items() if name not in taken or name.lower() in known}


def _read_topic_blocks(source: KafkaSource, place: DeliveryPlace, columns: pa.Schema) -> Iterator[ParsedBlock]:
    """Of a range of offsets: _row is the offset counted from the range's first, whatever of the range the broker still has."""
    from sluice.ingest.reading import kafka  # its client is loaded only where topics are read

    for table in kafka.read_offset_range(
        source, place.file, kafka.find_secrets_folder(place.path), kafka.parse_start_offset(place.header)
    ):
        rows = table.select(columns.names).cast(columns)
        for name in ("_rescued_data", "_problem", "_record"):
            rows = rows.append_column(name, pa.nulls(table.num_rows, pa.string()))
        rows = (
            rows
            .append_column("_delivery", pa.repeat(pa.scalar(place.number, pa.int64()), table.num_rows))
            .append_column("_file", pa.repeat(pa.scalar(place.file, pa.string()), table.num_rows))
            .append_column("_row", table["_row"])
        )
        yield ParsedBlock(rows, pa.struct([]))


def serialize_new_fields(news: pa.StructType) -> str:
    """What a block has that the columns have not, as text for another process."""
    return base64.b64encode(pa.schema(list(news)).serialize().to_pybytes()).decode()


def deserialize_new_fields(text: str) -> pa.StructType:
    """What `serialize_new_fields` said."""
    return pa.struct(list(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))))


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def parse_path_values(file: str) -> dict[str, str]:
    """By name, the values in the folders of a path, URL-decoded. file: below the source's folder.

    Only folders count, not the file's own name; a folder without a name or without "=" says nothing, nor does `NO_VALUE`.
    Where a name comes twice the inner folder counts; an empty value is one.
    """
    values: dict[str, str] = {}
    for folder in file.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and unquote(name).strip():
            values.pop(unquote(name), None)
            if value != NO_VALUE:
                values[unquote(name)] = unquote(value)
    return values
