"""Parses identifiers that people write down: one per line, as JSON, or as CSV. Errors name the line, never a value."""

from __future__ import annotations

import csv
import io
import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.erasure.requests import resolve_identifier_domain
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError

_RECEIVED_AT = "received_at"
AT = "at"
_BYTE_ORDER_MARK = "\ufeff"
"""Other programs write it at the beginning of a file, where nobody sees it."""
_UNSEEN = ("Cc", "Cf")
"""The categories of characters that nobody sees: control and format characters, except those that part words and lines."""
_BLANKS = "\t\r\n"


@dataclass(frozen=True)
class PersonLine:
    """One person's identifiers from a line of a file. received_at: when the person asked, if given."""

    line: int
    identifiers: tuple[Identifier, ...]
    received_at: datetime | None = None


@dataclass(frozen=True)
class RejectedLine:
    """A line that was set aside, with the reason but without its values."""

    line: int
    why: str


def parse_identifier_text(graph: Graph, text: str, domain: str | None) -> list[Identifier]:
    """Parses one identifier per line, of one domain, or JSON such as [{"user_id": "12140"}, {"device_id": "17", "at": "2026-11-20"}].

    Raises UsageError if it is neither, or if somebody would not see a character of an identifier.
    """
    text = text.removeprefix(_BYTE_ORDER_MARK)
    lines = [line.strip() for line in io.StringIO(text, newline=None)]
    for number, line in enumerate(lines, start=1):
        unseen = _name_unseen_character(line)
        if unseen:
            raise UsageError(f"Line {number}: {unseen}.")
    if text.lstrip()[:1] in ("[", "{"):
        return [one for given in _parse_json_people(graph, text) for one in given.identifiers]
    return [Identifier(resolve_identifier_domain(graph, domain), line) for line in lines if line]


def parse_identifier_csv(graph: Graph, text: str) -> tuple[list[PersonLine], list[RejectedLine]]:
    """Parses one person per line. The columns are domains, `received_at`, and `at` (when the identifiers were the person's).

    Lines that cannot be used are set aside. Raises UsageError if the header is wrong.
    """
    lines = csv.reader(io.StringIO(text.removeprefix(_BYTE_ORDER_MARK), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(lines, [])]
    except csv.Error as error:
        raise UsageError(f"The header is not CSV: {error}.") from None
    for number, name in enumerate(header, start=1):
        if name not in (_RECEIVED_AT, AT):
            _check_domain_exists(graph, name, f"The first line: column {number}")
    if len(set(header)) != len(header) or not set(header) - {_RECEIVED_AT, AT}:
        raise UsageError("The first line names the columns, each once: kinds of identifiers, and received_at if it is known.")
    good: list[PersonLine] = []
    bad: list[RejectedLine] = []
    for line, cells in _read_csv_lines(lines):
        found = cells if isinstance(cells, RejectedLine) else _parse_csv_person(line, header, cells)
        if isinstance(found, RejectedLine):
            bad.append(found)
        elif found is not None:
            good.append(found)
    return good, bad


def _read_csv_lines(lines: Any) -> Iterator[tuple[int, list[str] | RejectedLine]]:
    while True:
        line = lines.line_num + 1
        try:
            yield line, next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, RejectedLine(line, f"not CSV: {error}")


def _parse_csv_person(line: int, header: list[str], cells: list[str]) -> PersonLine | RejectedLine | None:
    if not any(cell.strip() for cell in cells):
        return None
    if len(cells) != len(header):
        return RejectedLine(line, f"{len(cells)} fields; the header has {len(header)}")
    given = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if cell.strip()}
    unseen = _name_unseen_character("".join(given.values()))
    if unseen:
        return RejectedLine(line, unseen)
    try:
        received = _parse_optional_instant(given.pop(_RECEIVED_AT, None), _RECEIVED_AT)
        at = _parse_optional_instant(given.pop(AT, None), AT)
    except ValueError as error:
        return RejectedLine(line, str(error))
    if received is not None and received > datetime.now(UTC):
        return RejectedLine(line, f"{_RECEIVED_AT} is in the future")
    if not given:
        return RejectedLine(line, "no identifier")
    return PersonLine(
        line, tuple(Identifier(name, value, at=at.isoformat() if at else None) for name, value in given.items()), received
    )


def _name_unseen_character(text: str) -> str | None:
    """Why a text is not what it looks like, or None. Such an identifier would match nobody, and nobody would notice.

    JSON can write such a character as an escape, which everybody sees: so who has one can be asked for.
    """
    found = next((one for one in text if unicodedata.category(one) in _UNSEEN and one not in _BLANKS), None)
    if found is None:
        return None
    return (
        f"it has the character U+{ord(found):04X}, which nobody sees. Remove it; if the identifier does have it, write JSON, with "
        f"{json.dumps(found)[1:-1]} for it"
    )


def _check_domain_exists(graph: Graph, domain: str, where: str) -> None:
    """Raises UsageError for an unknown domain without naming it: in a file without a header, it is somebody's address."""
    if graph.domains() and domain not in graph.domains():
        raise UsageError(f"{where} is no kind of identifier. There are: {', '.join(sorted(graph.domains()))}.")
    resolve_identifier_domain(graph, domain)


def _parse_json_people(graph: Graph, text: str) -> list[PersonLine]:
    try:
        read = json.loads(text)
    except ValueError as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise UsageError(
            f'This begins like JSON but is not valid{where}. Write [{{"user_id": "12140"}}], or one identifier per line.'
        ) from None
    return [
        _parse_json_person(graph, number, given)
        for number, given in enumerate(read if isinstance(read, list) else [read], start=1)
    ]


def _parse_json_person(graph: Graph, number: int, given: Any) -> PersonLine:
    fits = isinstance(given, dict) and all(isinstance(one, str | int) and not isinstance(one, bool) for one in given.values())
    if not fits or not set(given) - {AT}:
        raise UsageError(
            f'Entry {number} is not as in {{"user_id": "12140"}}: kinds of identifiers, each with a text or a number.'
        )
    for name in set(given) - {AT}:
        _check_domain_exists(graph, name, f"Entry {number}: what it names")
    try:
        at = _parse_optional_instant(str(given[AT]) if AT in given else None, AT)
    except ValueError as error:
        raise UsageError(f"Entry {number}: {error}.") from None
    return PersonLine(
        number,
        tuple(Identifier(name, str(value), at=at.isoformat() if at else None) for name, value in given.items() if name != AT),
    )


def _parse_optional_instant(text: str | None, field: str) -> datetime | None:
    if text is None:
        return None
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{field} is no date or instant such as 2026-11-20 or 2026-11-20T09:30:00Z") from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
