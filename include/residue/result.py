"""What a scan looks for and where, and what it found. Nothing of it is ever written as it is: it holds paths and identifiers.

As rows that may be shown it is places and counts, and no name that is itself a hit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any, NamedTuple

from residue.delimited_rows import TextDialect


@dataclass(frozen=True)
class TextFileFormat:
    """How text files below a folder of a root are written. below: relative to the root. pattern: of their names (fnmatch)."""

    below: str
    pattern: str = "*"
    dialect: TextDialect = field(default_factory=TextDialect)


@dataclass(frozen=True)
class TableClock:
    """How the rows of a table tell whose they are and of what time. below: its folder, relative to the root, or absolute before it is in one.

    subject: the column of identifiers of the domain. at: the column of the time; None where no reader here can tell it. per_second: how many
    units of a number are a second.
    """

    below: str
    domain: str
    subject: str
    at: str | None
    per_second: float = 1.0


@dataclass(frozen=True)
class ScanRoot:
    """A file or a folder that is scanned whole, but for what lies below `without` (absolute paths). name: what a certificate calls it."""

    name: str
    path: str
    without: tuple[str, ...] = ()
    written: tuple[TextFileFormat, ...] = ()
    clocks: tuple[TableClock, ...] = ()

    def clock_at(self, path: str) -> TableClock | None:
        """How the table tells its times that a file at a path (relative to the root) is of."""
        return next((one for one in self.clocks if not one.below or path.startswith(f"{one.below}/")), None)

    def dialect_at(self, path: str) -> TextDialect | None:
        """How the file at a path (relative to the root) is written, where that was said: by the deepest folder, then by its name."""
        found = [one for one in self.written if not one.below or path.startswith(f"{one.below}/")]
        name = path.rpartition("/")[2]
        best = max(found, key=lambda one: (len(one.below), fnmatch(name, one.pattern)), default=None)
        return best.dialect if best else None


@dataclass(frozen=True)
class Needle:
    """What is looked for. domain: which kind of identifier it was made of; kind: how (raw, hex, sha256, ...).

    value: bytes, or a number, which is compared with the numbers of columns. columns: where alone it is looked for; None: everywhere.
    fold: letters of either case are the same (ASCII). whole: no digit may stand beside it, as it would be another number.
    times: from when until when it was the person's, in microseconds since 1970: it is looked for in rows alone that tell their time.
    shared: it was others', too, so that finding it says nothing of the person.
    of: whose it is, where several are looked for at once. before, after: the bytes of which one stands right beside it, unless nothing does.
    """

    domain: str
    kind: str
    value: bytes | int
    columns: frozenset[str] | None = None
    fold: bool = False
    whole: bool = False
    times: tuple[tuple[int | None, int | None], ...] | None = None
    shared: bool = False
    of: str = ""
    before: bytes = b""
    after: bytes = b""

    def __repr__(self) -> str:
        return f"Needle({self.domain}, {self.kind})"  # never the value: a traceback is text, too


class Hit(NamedTuple):
    """What was found in one file by one decoder. path: relative to the root. control: whether it is of the canary; times: how often.

    shared: whether it may as well be somebody else's. of: whose needle it was.
    """

    root: str
    path: str
    decoder: str
    column: str
    domain: str
    kind: str
    control: bool
    times: int
    shared: bool = False
    of: str = ""


class Unread(NamedTuple):
    """A file, or a part of it, that no decoder opened. of: for whom alone that matters, where it does not for everybody."""

    root: str
    path: str
    reason: str
    of: str = ""


@dataclass
class DecoderTotals:
    """How much one decoder had to read. bytes: as they were given to the search."""

    files: int = 0
    bytes: int = 0


@dataclass
class ScanResult:
    """What a scan found. needles: how many, by whose they are and of which kind; missing: roots that are not there (and so hold nothing)."""

    hits: list[Hit] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    decoders: dict[str, DecoderTotals] = field(default_factory=dict)
    needles: Counter[tuple[str, str]] = field(default_factory=Counter)
    roots: tuple[ScanRoot, ...] = ()
    missing: tuple[str, ...] = ()
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def kinds(self) -> dict[str, int]:
        """How many needles there were of each kind."""
        found: Counter[str] = Counter()
        for (_, kind), count in self.needles.items():
            found[kind] += count
        return dict(sorted(found.items()))

    def about(self, *whose: str) -> ScanResult:
        """The same scan, as if it had been for these alone, of all that were looked for at once."""
        needles = Counter({key: count for key, count in self.needles.items() if key[0] in whose})
        hits = [hit for hit in self.hits if hit.of in whose]
        return replace(self, hits=hits, unread=[one for one in self.unread if one.of in ("", *whose)], needles=needles)

    def of_person(self) -> list[Hit]:
        """Hits of the person."""
        return [hit for hit in self.hits if not hit.control and not hit.shared]

    def of_control(self) -> list[Hit]:
        """Hits of the canary."""
        return [hit for hit in self.hits if hit.control]

    def of_others(self) -> int:
        """How often something was found that may as well be somebody else's."""
        return sum(hit.times for hit in self.hits if hit.shared)

    def add(self, others: Sequence[ScanResult]) -> None:
        """Take over what parts of the scan found."""
        for other in others:
            self.hits += other.hits
            self.unread += other.unread
            self.files += other.files
            self.bytes += other.bytes
            for name, read in other.decoders.items():
                known = self.decoders.setdefault(name, DecoderTotals())
                known.files += read.files
                known.bytes += read.bytes


FOUND_COLUMNS = ("root", "file", "decoder", "column", "times")
UNREAD_COLUMNS = ("root", "file", "reason")


def count_hits_by_place(result: ScanResult) -> list[dict[str, Any]]:
    """How often something of the people was found, by root, file, decoder and column."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for hit in result.of_person():
        counted[hit.root, hide_path_of_hit(result, hit.root, hit.path), hit.decoder, hit.column] += hit.times
    return [dict(zip(FOUND_COLUMNS, (*place, times), strict=True)) for place, times in sorted(counted.items())]


def list_unread_files(result: ScanResult) -> list[dict[str, Any]]:
    """What no decoder opens."""
    return [
        {"root": one.root, "file": hide_path_of_hit(result, one.root, one.path), "reason": one.reason}
        for one in sorted(result.unread, key=lambda one: (one.root, one.reason))
    ]


def hide_path_of_hit(result: ScanResult, root: str, path: str) -> str:
    """A path, to be shown. A name that is itself a hit is not."""
    named = (hit.path for hit in result.hits if hit.decoder == "names" and hit.root == root)
    return "(its name is a hit)" if any(path == one or path.startswith(f"{one}/") for one in named) else path
