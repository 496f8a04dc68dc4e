"""A source: a folder that others deliver files into. Its bronze table has the source's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sluice.declare.names import names, own_name
from sluice.errors import DeclarationError, nearest

FORMATS = ("csv", "json")


DATE_PARTS = {"%Y": r"\d{4}", "%m": r"\d{2}", "%d": r"\d{2}", "%H": r"\d{2}", "%j": r"\d{3}"}
"""What a date in a path may be written with, as `strptime` reads it, and what each part looks like."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Deliveries of one kind of file.

    path: the folder below <landing>/<pipeline>/, searched with its sub-folders; pattern: which files of it.
    schema: DDL of the records' columns, or None: every top-level field becomes a STRING column when it first comes.
    redelivery: what a file that comes again means. "append": more records. "replace": the latest version of the file stands, whole,
    by modification time, then content; the earlier ones are superseded.
    subject: the column that says whose record it is; personal: further columns with personal data. Neither gets into statistics.
    max_deliveries: how many deliveries a micro-batch takes at most.
    date_in_path: the date that a delivery is for, as it stands in its file's path: "%Y%m%d" finds 20200420, "date=%Y-%m-%d" a folder.
    dated_by: instead, the date of each record: SQL over its columns, a DATE or TIMESTAMP. A backfill takes its interval by this date;
    without either, by the time of delivery.
    may_refresh: bronze may be made anew from the landing folder, by `--mode refresh`.
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
    date_in_path: str | None = None
    dated_by: str | None = None
    may_refresh: bool = False

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
        if self.date_in_path and self.dated_by:
            raise DeclarationError(f"Source '{self.name}': date_in_path or dated_by says the date, not both.")
        if self.date_in_path is not None:
            _check_date_format(self.name, self.date_in_path)
        object.__setattr__(self, "personal", names(self.personal, "personal", f"Source '{self.name}'"))

    @property
    def private(self) -> frozenset[str]:
        """Columns that must not get into statistics, partitions or clustering."""
        return frozenset(self.personal) | ({self.subject} if self.subject else set())


def _check_date_format(source: str, text: str) -> None:
    parts = [part for part in ("%Y", "%m", "%d", "%H", "%j") if part in text]
    unknown = [text[at : at + 2] for at, sign in enumerate(text) if sign == "%" and text[at : at + 2] not in DATE_PARTS]
    if (
        unknown
        or len(set(parts)) != text.count("%")
        or not {"%Y"} <= set(parts)
        or not ({"%m", "%d"} <= set(parts) or "%j" in parts)
    ):
        raise DeclarationError(
            f"Source '{source}': date_in_path '{text}' is no date format. Write it with %Y, %m and %d (or %j), and %H; each once."
        )
