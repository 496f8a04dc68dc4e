"""Whether bytes name somebody who was erased, where nothing says whose they are: records and files that nobody could read.

Needs the identifiers themselves, which the vault has; they stay in this process. A short number is in many records by chance: it names
somebody beside the name of a column of its kind, and in a record without names, where it is a whole field. What was others' at other
times names nobody, since nothing here tells a time.

A record may write what it says otherwise: letters escaped as JSON does it, and base64, in one line or in several. The scan reads these
by code of its own, and shares nothing with this.
"""

from __future__ import annotations

import base64
import functools
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sluice.declare.ingest.file_formats import USUAL_DELIMITERS, CsvDialect
from sluice.delta_log import open_table_snapshot
from sluice.erasure import vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.steps import places
from sluice.erasure.steps.erasing import Erasing
from sluice.erasure.subjects import domain_columns
from sluice.lake.report import FlowReport
from sluice.pipeline_stages import DELETIONS
from sluice.quality import quarantine

_SHORTEST = 5
"""Characters."""
LEAST_DIGITS = 9
"""Digits from which on a number is nobody else's by chance; the scan says so of its own, and shares nothing with this."""
_WORD = re.compile(rb"[0-9A-Za-z]+")


@dataclass(frozen=True)
class ErasedNames:
    """Who is looked for: by the first letters and digits of names, in lower case, the whole names, and how far in these are.

    Letters that are none of ASCII's count as what stands beside a word; names of these alone are found wherever they stand.
    """

    by_first: Mapping[bytes, Sequence[tuple[bytes, int]]] = field(default_factory=dict, repr=False)
    short: frozenset[tuple[bytes, bytes]] = field(default=frozenset(), repr=False)
    """Short numbers, each with a column that it may stand beside, in lower case."""

    def __bool__(self) -> bool:
        """Whether anybody is looked for."""
        return bool(self.by_first or self.short)

    def are_in_bytes(self, content: bytes) -> bool:
        """Whether one of them stands there as a word of its own, letter case apart; a short number beside its column's name.

        However it is written: with escapes of JSON, or in base64.
        """
        return any(map(self._stand_in, _decode_possible_texts(content)))

    def _stand_in(self, content: bytes) -> bool:
        lowered = content.lower()
        other = any(name in lowered for name, _ in self.by_first.get(b"", ()))
        near = self._near(lowered) if self.by_first else ()
        return (
            other
            or any(_is_whole_word(lowered, found.start() - before, name) for found, name, before in near)
            or self._beside(lowered)
        )

    def are_in_record(self, record: bytes, dialect: CsvDialect | None = None) -> bool:
        """The same of a single record; of one without names, a short number in a field of its own as well.

        dialect: how its fields are parted, where its source says so: in others' records another character may stand within one.
        """
        if self.are_in_bytes(record):
            return True
        values = {value for _, value in self.short}
        plain = bool(values) and not record.lstrip().startswith((b"{", b"[", b"<"))
        return plain and any(
            found in values for found in _number_field_pattern(_choose_delimiters(record, dialect)).findall(record)
        )

    def _beside(self, lowered: bytes) -> bool:
        return any(pair in self.short for pair in self._named.findall(lowered)) if self._named else False

    @cached_property
    def _named(self) -> re.Pattern[bytes] | None:
        columns = b"|".join(
            re.escape(name) for name in sorted({name for name, _ in self.short}, key=lambda name: (-len(name), name))
        )
        return re.compile(rb"(?<![a-z0-9_])(" + columns + rb")[^a-z0-9\n]{1,16}([0-9]+)(?![0-9a-z])") if columns else None

    def _near(self, lowered: bytes) -> Iterator[tuple[re.Match[bytes], bytes, int]]:
        """Where words begin as a name does. So each word is looked up once, however many names there are."""
        for found in _WORD.finditer(lowered):
            for name, before in self.by_first.get(found.group(), ()):
                yield found, name, before

    def are_in(self, path: Path) -> bool:
        """Whether a file names one of them, as it lies there or, of a gzip stream that is damaged, in what can be read of it."""
        if not self:
            return False
        try:
            return self.are_in_content(path.read_bytes())
        except OSError:
            return False

    def are_in_content(self, content: bytes) -> bool:
        """The same of a whole file's bytes."""
        return self.are_in_bytes(content) or self.are_in_bytes(_inflate_gzip(content))


def load_erased_names(erasing: Erasing) -> ErasedNames:
    """The people of the requests that are carried out, as far as the vault still knows them."""
    records = erasing.workspace.records
    known = [
        one
        for request in erasing.waiting
        if vault.has_vault_entry(records, request.request)
        for one in vault.read_vault_identifiers(records, request.request)
        if not one.domain.startswith(PREFIX)
    ]
    handed_on = {(one.domain, one.value) for one in known if one.since or one.until}
    own = {(one.domain, one.value) for one in known} - handed_on
    columns = domain_columns.columns_by_domain(records.settings, erasing.workspace.graph)
    return index_erased_names(
        (value for _, value in own), ((name, value) for domain, value in own for name in columns.get(domain, {domain}))
    )


def index_erased_names(values: Iterable[str], beside: Iterable[tuple[str, str]] = ()) -> ErasedNames:
    """These identifiers. beside: columns that each may stand beside, which short numbers need."""
    by_first: dict[bytes, list[tuple[bytes, int]]] = {}
    long = {value.strip() for value in values if len(value.strip()) >= _SHORTEST and not _is_short_number(value)}
    for name in sorted(value.encode().lower() for value in long):
        first = _WORD.search(name)
        by_first.setdefault(first.group() if first else b"", []).append((name, first.start() if first else 0))
    short = {
        (column.rpartition(".")[2].lower().encode(), value.strip().encode())
        for column, value in beside
        if _is_short_number(value)
    }
    return ErasedNames(by_first, frozenset(short))


def _choose_delimiters(record: bytes, dialect: CsvDialect | None) -> str:
    """What parts the fields of a record: what its source says, unless others of them are more frequent, since it may be why nobody could read it."""
    if dialect is None:
        return "".join(USUAL_DELIMITERS)
    marks = [dialect.delimiter, *USUAL_DELIMITERS]
    return max(marks, key=lambda mark: record.count(mark.encode()))


@functools.cache
def _number_field_pattern(delimiters: str) -> re.Pattern[bytes]:
    """A number that is all that is between two of these."""
    parted = b"|".join(re.escape(one.encode()) for one in (*delimiters, "\r", "\n"))
    return re.compile(rb"(?:\A|" + parted + rb")[ \"']*([0-9]+)(?=[ \"']*(?:" + parted + rb"|\Z))")


def _is_short_number(value: str) -> bool:
    """Whether a value is a number that stands in many places by chance."""
    text = value.strip()
    return text.isascii() and text.isdigit() and len(text) < LEAST_DIGITS


def _is_whole_word(content: bytes, start: int, name: bytes) -> bool:
    """Whether a name is there, with no letter or digit beside it."""
    end = start + len(name)
    beside = content[max(start - 1, 0) : max(start, 0)] + content[end : end + 1]
    return start >= 0 and content[start:end] == name and _WORD.search(beside) is None


def erase_unattributed_quarantine(erasing: Erasing) -> None:
    """Take out of quarantine what names one of them and is nobody's as far as is known: ragged records, and files as a whole.

    Where a record may hold another person than its subject (`also_subjects`), also what is somebody else's.
    """
    workspace, looked_for = erasing.workspace, load_erased_names(erasing)
    for place in places.find_subject_quarantines(workspace):
        if not erasing.is_done("unattributed", place.name):
            entries = _find_naming_entries(place, looked_for) if looked_for else []
            workspace.note(f"erasure_{place.name}", sorted({delivery for delivery, _ in entries}))
            quarantine.remove_quarantine_entries(workspace.session, place.path, entries)
            report = FlowReport(flow=place.name, layer=DELETIONS.name, deleted=len(entries), rows_out=len(entries))
            erasing.reports += [report] if entries else []
            erasing.done("unattributed", place.name, rows=len(entries))


def _find_naming_entries(place: places.SubjectTable, looked_for: ErasedNames) -> list[quarantine.Entry]:
    """Read a part at a time, without a JVM: no value of anybody gets into a plan."""
    # A subject with a backslash is not what it says: lakes of before have it as a record that was cut off wrote it.
    wanted = 'SELECT "_delivery", "_row", "record", "made", "content" FROM t WHERE "_subject" IS NULL OR strpos("_subject", chr(92)) > 0'
    if place.others:
        wanted = wanted.partition(" WHERE ")[0]
    found = []
    for batch in open_table_snapshot(place.path).query_batches(wanted):
        rows: list[dict[str, Any]] = batch.to_pylist()
        found += [(int(row["_delivery"]), row["_row"]) for row in rows if _has_erased_name(row, looked_for, place.dialect)]
    return sorted(set(found), key=repr)


def _has_erased_name(row: dict[str, Any], looked_for: ErasedNames, dialect: CsvDialect | None) -> bool:
    texts = (row[name].encode() for name in ("record", "made") if row[name])
    return any(looked_for.are_in_record(text, dialect) for text in texts) or (
        bool(row["content"]) and looked_for.are_in_content(bytes(row["content"]))
    )


def _inflate_gzip(content: bytes) -> bytes:
    """What can be read of a gzip stream, damaged or not; nothing of what is none."""
    if not content.startswith(b"\x1f\x8b"):
        return b""
    stream, found = zlib.decompressobj(wbits=31), bytearray()
    try:
        for start in range(0, len(content), 1 << 12):
            found += stream.decompress(content[start : start + (1 << 12)])
    except zlib.error:
        pass
    return bytes(found)


_DEPTH = 4
"""How often a text is taken for one within another."""
_ESCAPE = re.compile(rb"((?:\\u[0-9a-fA-F]{4})+)|\\(?:x([0-9a-fA-F]{2})|([\"'/\\])|([bfnrt]))")
_CONTROL = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{8,}(?:[\r\n]+[ \t]*[A-Za-z0-9+/_-]+)*")
_BREAKS = b"\r\n \t"
_URL_SAFE = bytes.maketrans(b"-_", b"+/")


def _decode_possible_texts(content: bytes) -> Iterator[bytes]:
    """The bytes as they are, and all that they are found to mean."""
    for text in _unescape_repeatedly(content):
        yield text
        decoded = b"\n".join(_decode_base64_words(text))
        if decoded:
            yield from _unescape_repeatedly(decoded)


def _unescape_repeatedly(content: bytes) -> Iterator[bytes]:
    """The text as it is, without its escapes, without those that are left then."""
    yield content
    for _ in range(_DEPTH):
        if not _ESCAPE.search(content):
            return
        content = _ESCAPE.sub(_unescape_match, content)
        yield content


def _unescape_match(escape: re.Match[bytes]) -> bytes:
    units, byte, itself, control = escape.groups()
    if units:  # two of a pair are one letter
        text = bytes.fromhex(units.replace(b"\\u", b"").decode()).decode("utf-16-be", "surrogatepass")
        return text.encode("utf-8", "surrogatepass")
    return bytes([int(byte, 16)]) if byte else itself or _CONTROL[control]


def _decode_base64_words(content: bytes) -> Iterator[bytes]:
    """What words of the letters of base64 hold, those in several lines put together. Where one begins, letters of something else may stand."""
    for found in _BASE64.finditer(content):
        letters = found.group().translate(_URL_SAFE, _BREAKS)
        for start in range(4):
            whole = letters[start : len(letters) - ((len(letters) - start) % 4 == 1)]
            yield base64.b64decode(whole + b"=" * (-len(whole) % 4))
