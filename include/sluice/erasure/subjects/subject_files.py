"""Identifiers as people write them down: one a line, as JSON, or as CSV. What is wrong is told by its line, never by its value."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.erasure.receiving import kind
from sluice.erasure.subjects.identifiers import Identifier
from sluice.errors import UsageError

RECEIVED_AT = "received_at"
AT = "at"


@dataclass(frozen=True)
class Asked:
    """One person's identifiers, of a line of a file. received_at: when the person asked, where that is said."""

    line: int
    identifiers: tuple[Identifier, ...]
    received_at: datetime | None = None


@dataclass(frozen=True)
class Bad:
    """A line that was set aside, and why, without its values."""

    line: int
    why: str


def of_text(graph: Graph, text: str, domain: str | None) -> list[Identifier]:
    """One identifier a line, of one domain; or JSON such as [{"user_id": "12140"}, {"device_id": "17", "at": "2026-11-20"}].

    Raises UsageError where it is neither.
    """
    if text.lstrip()[:1] in ("[", "{"):
        return [one for given in _objects(graph, text) for one in given.identifiers]
    return [Identifier(kind(graph, domain), line.strip()) for line in text.splitlines() if line.strip()]


def of_csv(graph: Graph, text: str) -> tuple[list[Asked], list[Bad]]:
    """A person a line. The columns are domains, and may be `received_at` and `at` (when the identifiers were the person's).

    Lines that cannot be taken are set aside. Raises UsageError where the header is wrong.
    """
    lines = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(lines, [])]
    except csv.Error as error:
        raise UsageError(f"The header is not CSV: {error}.") from None
    for number, name in enumerate(header, start=1):
        if name not in (RECEIVED_AT, AT):
            _known(graph, name, f"The first line: column {number}")
    if len(set(header)) != len(header) or not set(header) - {RECEIVED_AT, AT}:
        raise UsageError(
            "The first line names the columns, each once: kinds of identifiers, and received_at where that is known."
        )
    good: list[Asked] = []
    bad: list[Bad] = []
    for line, cells in _rows(lines):
        found = cells if isinstance(cells, Bad) else _person(line, header, cells)
        if isinstance(found, Bad):
            bad.append(found)
        elif found is not None:
            good.append(found)
    return good, bad


def _rows(lines: Any) -> Iterator[tuple[int, list[str] | Bad]]:
    while True:
        line = lines.line_num + 1
        try:
            yield line, next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, Bad(line, f"not CSV: {error}")


def _person(line: int, header: list[str], cells: list[str]) -> Asked | Bad | None:
    if not any(cell.strip() for cell in cells):
        return None
    if len(cells) != len(header):
        return Bad(line, f"{len(cells)} fields; the header has {len(header)}")
    given = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
    try:
        received = _instant(given.pop(RECEIVED_AT, None), RECEIVED_AT)
        at = _instant(given.pop(AT, None), AT)
    except ValueError as error:
        return Bad(line, str(error))
    if received is not None and received > datetime.now(UTC):
        return Bad(line, f"{RECEIVED_AT} is in the future")
    if not given:
        return Bad(line, "no identifier")
    return Asked(
        line, tuple(Identifier(name, value, at=at.isoformat() if at else None) for name, value in given.items()), received
    )


def _known(graph: Graph, domain: str, where: str) -> None:
    """Raises UsageError for a kind that there is none of, without saying it: where a file has no header it is somebody's address."""
    if graph.domains() and domain not in graph.domains():
        raise UsageError(f"{where} is no kind of identifier. There are: {', '.join(sorted(graph.domains()))}.")
    kind(graph, domain)


def _objects(graph: Graph, text: str) -> list[Asked]:
    try:
        read = json.loads(text)
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(
            f'This begins as JSON and is none{where}. Write [{{"user_id": "12140"}}], or one identifier a line.'
        ) from None
    return [_object(graph, number, given) for number, given in enumerate(read if isinstance(read, list) else [read], start=1)]


def _object(graph: Graph, number: int, given: Any) -> Asked:
    fits = isinstance(given, dict) and all(isinstance(one, str | int) and not isinstance(one, bool) for one in given.values())
    if not fits or not set(given) - {AT}:
        raise UsageError(
            f'Entry {number} is not as in {{"user_id": "12140"}}: kinds of identifiers, each with a text or a number.'
        )
    for name in set(given) - {AT}:
        _known(graph, name, f"Entry {number}: what it names")
    try:
        at = _instant(str(given[AT]) if AT in given else None, AT)
    except ValueError as error:
        raise UsageError(f"Entry {number}: {error}.") from None
    return Asked(
        number,
        tuple(Identifier(name, str(value), at=at.isoformat() if at else None) for name, value in given.items() if name != AT),
    )


def _instant(text: str | None, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{field} is no date or instant such as 2026-11-20 or 2026-11-20T09:30:00Z") from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
