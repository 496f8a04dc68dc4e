"""A delivery that is to be read, and what a look at it has shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path


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
class ExaminedDelivery:
    """What the look said. state: as in outcomes; empty: there is no record in it. header: of a CSV file, as delivered.

    text_bytes: how large the file is when it is decompressed, of Parquet in memory; 0 where it was not read to its end.
    """

    delivery: Delivery
    state: str
    reason: str | None = None
    header: tuple[str, ...] = ()
    empty: bool = field(default=False)
    text_bytes: int = 0
