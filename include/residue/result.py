"""What a scan searches for and where, and what it found. These objects hold paths and identifiers, so they are never written as they are.

The rows that may be shown have locations and counts, and no name that is itself a hit.
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
    """How text files below a folder of a root are written. below: the folder, relative to the root. pattern: of file names (fnmatch)."""

    below: str
    pattern: str = "*"
    dialect: TextDialect = field(default_factory=TextDialect)


@dataclass(frozen=True)
class TableClock:
    """Where a table's rows have their subject and time. below: its folder, relative to the root, or absolute until a root contains it.

    subject: the column with identifiers of the domain. at: the column of the time; None if no reader here can interpret it. per_second:
    how many units of a number make a second.
    """

    below: str
    domain: str
    subject: str
    at: str | None
    per_second: float = 1.0


@dataclass(frozen=True)
class ScanRoot:
    """A file or folder that is scanned whole, except for what lies below `without` (absolute paths). name: its name in certificates."""

    name: str
    path: str
    without: tuple[str, ...] = ()
    written: tuple[TextFileFormat, ...] = ()
    clocks: tuple[TableClock, ...] = ()

    def clock_at(self, path: str) -> TableClock | None:
        """The clock of the table that the file at a path (relative to the root) belongs to."""
        return next((one for one in self.clocks if not one.below or path.startswith(f"{one.below}/")), None)

    def dialect_at(self, path: str) -> TextDialect | None:
        """The dialect declared for the file at a path (relative to the root): that of the deepest folder, then of the name."""
        found = [one for one in self.written if not one.below or path.startswith(f"{one.below}/")]
        name = path.rpartition("/")[2]
        best = max(found, key=lambda one: (len(one.below), fnmatch(name, one.pattern)), default=None)
        return best.dialect if best else None


@dataclass(frozen=True)
class Needle:
    """What is searched for. domain: the kind of identifier it was made from; kind: the form (raw, hex, sha256, ...).

    value: bytes, or a number to compare with the numbers of columns. columns: the only columns to search; None means everywhere. fold:
    ASCII case does not matter. whole: no digit may stand beside it, since that would make another number. times: when it was the
    person's, in microseconds since 1970; it is then searched for only in rows with a time. shared: it was also others', so finding it
    says nothing about the person. of: the person it belongs to, if several are searched for at once. before, after: bytes of which one
    must stand right beside it, unless nothing does.
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
        return f"Needle({self.domain}, {self.kind})"  # never the value: a traceback is text too


class Hit(NamedTuple):
    """What one decoder found in one file. path: relative to the root. control: whether it is of the canary; times: how often.

    shared: whether it may be somebody else's. of: the person whose needle it was.
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
    """A file, or part of one, that no decoder opened. of: the only person for whom that matters, if not for everybody."""

    root: str
    path: str
    reason: str
    of: str = ""


@dataclass
class DecoderTotals:
    """How much one decoder read. bytes: how many it passed to the search."""

    files: int = 0
    bytes: int = 0


@dataclass
class ScanResult:
    """The findings of a scan. needles: how many, by person and kind; missing: roots that do not exist, and so hold nothing."""

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
        """The number of needles of each kind."""
        found: Counter[str] = Counter()
        for (_, kind), count in self.needles.items():
            found[kind] += count
        return dict(sorted(found.items()))

    def about(self, *whose: str) -> ScanResult:
        """The part of the scan that concerns only these of the people searched for."""
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
        """How often something was found that may be somebody else's."""
        return sum(hit.times for hit in self.hits if hit.shared)

    def add(self, others: Sequence[ScanResult]) -> None:
        """Adds the findings of parts of the scan."""
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


def count_hits_by_location(result: ScanResult) -> list[dict[str, Any]]:
    """The number of hits of the people, by root, file, decoder and column."""
    counted: Counter[tuple[str, str, str, str]] = Counter()
    for hit in result.of_person():
        counted[hit.root, hide_path_of_hit(result, hit.root, hit.path), hit.decoder, hit.column] += hit.times
    return [dict(zip(FOUND_COLUMNS, (*location, times), strict=True)) for location, times in sorted(counted.items())]


def list_unread_files(result: ScanResult) -> list[dict[str, Any]]:
    """What no decoder opens."""
    return [
        {"root": one.root, "file": hide_path_of_hit(result, one.root, one.path), "reason": one.reason}
        for one in sorted(result.unread, key=lambda one: (one.root, one.reason))
    ]


def hide_path_of_hit(result: ScanResult, root: str, path: str) -> str:
    """A path that may be shown: a name that is itself a hit is replaced."""
    named = (hit.path for hit in result.hits if hit.decoder == "names" and hit.root == root)
    return "(its name is a hit)" if any(path == one or path.startswith(f"{one}/") for one in named) else path
