"""Looking at a delivered file before Spark reads it: is it still the one that was discovered, and can it be read as its source says?"""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from sluice.declare.source import Source
from sluice.ingest.discovery import GONE, modified
from sluice.ingest.ledger import INGESTED, MISSED, QUARANTINED, VANISHED

_CHUNK = 1 << 20
_HEADER_LIMIT = 1 << 20
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class Delivery:
    """A row of the deliveries table, with the path of its file."""

    number: int
    source: str
    file: str
    event: str
    path: Path
    size: int | None
    modified_at: datetime | None
    sha256: str | None


@dataclass(frozen=True)
class Examined:
    """What the look said. state: as in outcomes; empty: there is no record in it. header: of a CSV file, as delivered."""

    delivery: Delivery
    state: str
    reason: str | None = None
    header: tuple[str, ...] = ()
    empty: bool = field(default=False)


def examine(source: Source, deliveries: list[Delivery]) -> list[Examined]:
    """Look at each delivery. Nothing raises: what is wrong with a file is in its reason, without any of its content."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda delivery: _examine(source, delivery), deliveries))


def _examine(source: Source, delivery: Delivery) -> Examined:
    if delivery.event == GONE:
        return Examined(delivery, VANISHED)
    try:
        if modified(delivery.path) != (delivery.size, delivery.modified_at):
            return Examined(
                delivery,
                MISSED,
                "the file was changed after it was discovered; the change is a delivery of its own",
            )
        return _content(source, delivery)
    except FileNotFoundError:
        return Examined(delivery, MISSED, "the file was gone before it could be read")
    except OSError as error:
        return Examined(delivery, MISSED, f"the file could not be opened: {error.strerror}")


def _content(source: Source, delivery: Delivery) -> Examined:
    start = ""
    blank = True
    try:
        for text in _decoded(delivery.path, source.encoding):
            if "\0" in text:
                return Examined(delivery, QUARANTINED, "the file holds NUL bytes; it is no text")
            blank = blank and not text.strip("\ufeff \t\r\n")
            if len(start) < _HEADER_LIMIT:
                start += text
    except UnicodeDecodeError:
        return Examined(delivery, QUARANTINED, f"the file is not encoded as {source.encoding}")
    if blank:
        return Examined(delivery, INGESTED, empty=True)
    return _with_header(source, delivery, start) if source.format == "csv" else Examined(delivery, INGESTED)


def _with_header(source: Source, delivery: Delivery, start: str) -> Examined:
    try:
        header = next((row for row in csv.reader(io.StringIO(start), delimiter=source.delimiter) if row), [])
    except csv.Error:
        return Examined(delivery, QUARANTINED, "the first line is no header: one field of it is longer than 128 KiB")
    if len(header) == 1:
        others = {other: header[0].count(other) for other in _DELIMITERS if other != source.delimiter}
        likely = max(others, key=lambda other: others[other])
        if others[likely] > 0:
            found, wanted = _DELIMITERS[likely], _DELIMITERS.get(source.delimiter, repr(source.delimiter))
            return Examined(
                delivery,
                QUARANTINED,
                f"the file's fields are separated by {found}, the source declares {wanted}",
            )
    return Examined(delivery, INGESTED, header=tuple(header))


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield decoder.decode(chunk)
    yield decoder.decode(b"", final=True)
