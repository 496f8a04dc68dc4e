"""A source: a folder that others deliver files into. Its bronze table has the source's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sluice.declare.names import names, own_name
from sluice.errors import DeclarationError, nearest

FORMATS = ("csv", "json")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Deliveries of one kind of file.

    path: the folder below <landing>/<pipeline>/, searched with its sub-folders; pattern: which files of it.
    schema: DDL of the records' columns, or None: every top-level field becomes a STRING column when it first comes.
    redelivery: what a file that comes again means. "append": more records. "replace": the latest version of the file stands, whole,
    by modification time, then content; the earlier ones are superseded.
    subject: the column that says whose record it is; personal: further columns with personal data. Neither gets into statistics.
    max_deliveries: how many deliveries a micro-batch takes at most.
    """

    name: str
    format: Literal["csv", "json"]
    path: str
    comment: str
    pattern: str = "*"
    schema: str | None = None
    redelivery: Literal["append", "replace"] = "append"
    delimiter: str = ","
    encoding: str = "utf-8"
    subject: str | None = None
    personal: tuple[str, ...] = ()
    max_deliveries: int = 1000

    def __post_init__(self) -> None:
        own_name(self.name, "Source")
        if self.format not in FORMATS:
            raise DeclarationError(f"Source '{self.name}': unknown format '{self.format}'.{nearest(self.format, FORMATS)}")
        if self.redelivery not in ("append", "replace"):
            raise DeclarationError(f"Source '{self.name}': redelivery is 'append' or 'replace', not '{self.redelivery}'.")
        if self.path.startswith("/") or ".." in self.path.split("/"):
            raise DeclarationError(f"Source '{self.name}': path is a folder below <landing>/<pipeline>/, not '{self.path}'.")
        if len(self.delimiter) != 1:
            raise DeclarationError(f"Source '{self.name}': delimiter is one character.")
        if self.max_deliveries < 1:
            raise DeclarationError(f"Source '{self.name}': max_deliveries is at least 1.")
        object.__setattr__(self, "personal", names(self.personal, "personal", f"Source '{self.name}'"))

    @property
    def private(self) -> frozenset[str]:
        """Columns that must not get into statistics, partitions or clustering."""
        return frozenset(self.personal) | ({self.subject} if self.subject else set())
