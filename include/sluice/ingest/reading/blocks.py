"""The records of one delivery, block by block, with where they came from: what a worker does. Loads no Spark."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.ingest import formats
from sluice.ingest.deliveries.dates import folders_of_date
from sluice.ingest.formats import Parsed
from sluice.ingest.reading import path_values


@dataclass(frozen=True)
class Place:
    """A delivery as a worker needs it. file: below the source's folder; path: of the file; header: of a CSV file."""

    number: int
    file: str
    path: str
    header: tuple[str, ...] = ()


def of_delivery(source: Source, place: Place, columns: pa.Schema) -> Iterator[Parsed]:
    """A delivery's records with _delivery, _file and _row, the record's number in the file from 0."""
    if isinstance(source, KafkaSource):
        yield from _of_topic(source, place, columns)
        return
    values = _values_in_path(source, place.file, columns)
    start = 0
    for block in formats.read(source, Path(place.path), columns, values):
        count = block.rows.num_rows
        rows = (
            block.rows
            .append_column("_delivery", pa.repeat(pa.scalar(place.number, pa.int64()), count))
            .append_column("_file", pa.repeat(pa.scalar(place.file, pa.string()), count))
            .append_column("_row", pa.array(range(start, start + count), pa.int64()))
        )
        start += count
        yield Parsed(rows, block.news)


def _values_in_path(source: Source, file: str, columns: pa.Schema) -> dict[str, str]:
    """What the path says of each record.

    A date that `date_in_path` takes is the delivery's: where no column waits for it, it is not rescued into every record.
    """
    if not source.path_columns:
        return {}
    values = path_values.of_file(file)
    if source.schema_evolution == "add_new_columns" or not (dated := folders_of_date(source, file)):
        return values
    known = {name.lower() for name in columns.names}
    taken = {name for folder in dated for name in path_values.of_file(f"{folder}/")}
    return {name: value for name, value in values.items() if name not in taken or name.lower() in known}


def _of_topic(source: KafkaSource, place: Place, columns: pa.Schema) -> Iterator[Parsed]:
    """Of a range of offsets: _row is the offset counted from the range's first, whatever of the range the broker still has."""
    from sluice.ingest.reading import kafka  # its client is loaded only where topics are read

    for table in kafka.read(source, place.file, kafka.secrets_of(place.path), kafka.start_of(place.header)):
        rows = table.select(columns.names).cast(columns)
        for name in ("_rescued_data", "_problem", "_record"):
            rows = rows.append_column(name, pa.nulls(table.num_rows, pa.string()))
        rows = (
            rows
            .append_column("_delivery", pa.repeat(pa.scalar(place.number, pa.int64()), table.num_rows))
            .append_column("_file", pa.repeat(pa.scalar(place.file, pa.string()), table.num_rows))
            .append_column("_row", table["_row"])
        )
        yield Parsed(rows, pa.struct([]))


def told(news: pa.StructType) -> str:
    """What a block has that the columns have not, as text for another process."""
    return base64.b64encode(pa.schema(list(news)).serialize().to_pybytes()).decode()


def heard(text: str) -> pa.StructType:
    """What `told` said."""
    return pa.struct(list(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))))
