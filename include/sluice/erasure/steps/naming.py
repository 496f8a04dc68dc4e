"""Whether bytes name somebody who was erased, where nothing says whose they are: records and files that nobody could read.

Needs the identifiers themselves, which the vault has; they stay in this process. Too short ones are not looked for: a number of four digits
is in many records by chance.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from sluice.erasure import vault
from sluice.erasure.control.canary import PREFIX
from sluice.erasure.steps import places
from sluice.erasure.steps.erasing import Erasing
from sluice.lake.report import FlowReport
from sluice.quality import quarantine

SHORTEST = 5
"""Characters."""
_WORD = re.compile(rb"[0-9A-Za-z]+")


@dataclass(frozen=True)
class Names:
    """Who is looked for: by the first letters and digits of names, in lower case, the whole names, and how far in these are.

    Letters that are none of ASCII's count as what stands beside a word; names of these alone are found wherever they stand.
    """

    by_first: Mapping[bytes, Sequence[tuple[bytes, int]]] = field(default_factory=dict, repr=False)

    def are_in_bytes(self, content: bytes) -> bool:
        """Whether one of them stands there as a word of its own, letter case apart."""
        if not self.by_first:
            return False
        lowered = content.lower()
        other = any(name in lowered for name, _ in self.by_first.get(b"", ()))
        return other or any(_stands(lowered, found.start() - before, name) for found, name, before in self._near(lowered))

    def _near(self, lowered: bytes) -> Iterator[tuple[re.Match[bytes], bytes, int]]:
        """Where words begin as a name does. So each word is looked up once, however many names there are."""
        for found in _WORD.finditer(lowered):
            for name, before in self.by_first.get(found.group(), ()):
                yield found, name, before

    def are_in(self, path: Path) -> bool:
        """Whether a file names one of them, as it lies there or, of a gzip stream that is damaged, in what can be read of it."""
        if not self.by_first:
            return False
        try:
            return self.are_in_content(path.read_bytes())
        except OSError:
            return False

    def are_in_content(self, content: bytes) -> bool:
        """The same of a whole file's bytes."""
        return self.are_in_bytes(content) or self.are_in_bytes(_inflated(content))


def of(erasing: Erasing) -> Names:
    """The people of the requests that are carried out, as far as the vault still knows them."""
    settings, pipeline = erasing.workspace.settings, erasing.workspace.pipeline
    found = [
        one.value
        for request in erasing.waiting
        if vault.holds(settings, pipeline, request.request)
        for one in vault.read(settings, pipeline, request.request)
        if not one.domain.startswith(PREFIX)
    ]
    return names(found)


def names(values: Iterable[str]) -> Names:
    """These identifiers."""
    by_first: dict[bytes, list[tuple[bytes, int]]] = {}
    for name in sorted({value.strip().encode().lower() for value in values if len(value.strip()) >= SHORTEST}):
        first = _WORD.search(name)
        by_first.setdefault(first.group() if first else b"", []).append((name, first.start() if first else 0))
    return Names(by_first)


def _stands(content: bytes, start: int, name: bytes) -> bool:
    """Whether a name is there, with no letter or digit beside it."""
    end = start + len(name)
    beside = content[max(start - 1, 0) : max(start, 0)] + content[end : end + 1]
    return start >= 0 and content[start:end] == name and _WORD.search(beside) is None


def unattributed(erasing: Erasing) -> None:
    """Take out of quarantine what names one of them and is nobody's as far as is known: ragged records, and files as a whole."""
    workspace, looked_for = erasing.workspace, of(erasing)
    for place in places.quarantines(workspace):
        if not erasing.is_done("unattributed", place.name):
            entries = _entries(place.path, looked_for) if looked_for.by_first else []
            workspace.note(f"erasure_{place.name}")
            quarantine.remove(workspace.session, place.path, entries)
            report = FlowReport(flow=place.name, layer="propagate_deletions", deleted=len(entries), rows_out=len(entries))
            erasing.reports += [report] if entries else []
            erasing.done("unattributed", place.name, rows=len(entries))


def _entries(path: str, looked_for: Names) -> list[quarantine.Entry]:
    """Read a part at a time, without a JVM: no value of anybody gets into a plan."""
    wanted = 'SELECT "_delivery", "_row", "record", "made", "content" FROM t WHERE "_subject" IS NULL'
    table = DeltaTable(path)
    if {"made", "content"} - {field.name for field in table.schema().fields}:
        wanted = wanted.replace(', "made"', ', NULL AS "made"')
    found = []
    for batch in QueryBuilder().register("t", table).execute(wanted):
        rows: list[dict[str, Any]] = pa.record_batch(batch).to_pylist()
        found += [(int(row["_delivery"]), row["_row"]) for row in rows if _is_named(row, looked_for)]
    return sorted(set(found), key=repr)


def _is_named(row: dict[str, Any], looked_for: Names) -> bool:
    texts = (row[name].encode() for name in ("record", "made") if row[name])
    return any(map(looked_for.are_in_bytes, texts)) or (bool(row["content"]) and looked_for.are_in_content(bytes(row["content"])))


def _inflated(content: bytes) -> bytes:
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
