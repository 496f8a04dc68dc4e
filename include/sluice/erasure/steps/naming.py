"""Whether bytes name somebody who was erased, where nothing says whose they are: records and files that nobody could read.

Needs the identifiers themselves, which the vault has; they stay in this process. Too short ones are not looked for: a number of four digits
is in many records by chance.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Names:
    """Who is looked for; None for nobody."""

    pattern: re.Pattern[bytes] | None = None

    def are_in_bytes(self, content: bytes) -> bool:
        """Whether one of them stands there as a word of its own, letter case apart."""
        return self.pattern is not None and self.pattern.search(content) is not None

    def are_in(self, path: Path) -> bool:
        """Whether a file names one of them, as it lies there or, of a gzip stream that is damaged, in what can be read of it."""
        if self.pattern is None:
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
    words = sorted({value.strip() for value in values if len(value.strip()) >= SHORTEST})
    if not words:
        return Names()
    either = b"|".join(re.escape(word).encode() for word in words)
    return Names(re.compile(rb"(?<![0-9A-Za-z])(?:" + either + rb")(?![0-9A-Za-z])", re.IGNORECASE))


def unattributed(erasing: Erasing) -> None:
    """Take out of quarantine what names one of them and is nobody's as far as is known: ragged records, and files as a whole."""
    workspace, looked_for = erasing.workspace, of(erasing)
    for place in places.quarantines(workspace):
        if not erasing.is_done("unattributed", place.name):
            entries = _entries(place.path, looked_for) if looked_for.pattern else []
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
