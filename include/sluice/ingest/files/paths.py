"""What the path of a delivered file says: the date that the delivery is for, by which a backfill selects, and values of each of its records."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from urllib.parse import unquote

from sluice.declare.ingest.source import Source
from sluice.declare.ingest.source_mistakes import DATE_PARTS

_YEARS_AMONG_DIGITS = range(1900, 2200)
"""The years that part of a longer number can be. The digits of a longer number, such as seconds since 1970, often look like another year."""


def find_delivery_date(source: Source, file: str, modified_at: datetime) -> datetime:
    """Returns the date in the file's path if the source declares one and it is there, otherwise the time of delivery. In UTC.

    file: relative to the source's folder. Of several dates in a path one that no other digit touches counts before one that begins a longer
    number, such as 20261120 in 20261120153045, and that before one within a number. Of equal ones the last counts: the file's name says more
    than its folder.
    """
    found = _date_in_path(source, file)
    return found[0] if found else modified_at


def find_date_folders(source: Source, file: str) -> set[str]:
    """Returns the folders of a file's path in which its source's `date_in_path` finds the delivery's date, as written."""
    found = _date_in_path(source, file)
    if found is None:
        return set()
    _, start, end = found
    names, position = set(), 0
    for folder in file.split("/")[:-1]:
        if position < end and start < position + len(folder):
            names.add(folder)
        position += len(folder) + 1
    return names


def _date_in_path(source: Source, file: str) -> tuple[datetime, int, int] | None:
    """Returns the date, and where in the path it begins and ends."""
    if source.date_in_path is None:
        return None
    dates = []
    for found in _date_pattern(source.date_in_path).finditer(file):
        start, end = found.span(1)
        try:
            at = datetime.strptime(found.group(1), source.date_in_path).replace(tzinfo=UTC)
        except ValueError:  # such as the 31st of February: the digits mean something else
            continue
        continues, goes_on = _is_within_digits(file, start), _is_within_digits(file, end)
        if not (continues or goes_on) or at.year in _YEARS_AMONG_DIGITS:
            dates.append((not (continues or goes_on), not continues, start, (at, start, end)))
    return max(dates)[-1] if dates else None


def _is_within_digits(text: str, position: int) -> bool:
    return text[position - 1 : position].isdigit() and text[position : position + 1].isdigit()


@cache
def _date_pattern(text: str) -> re.Pattern[str]:
    """Returns the pattern that finds a date in this form, even if it overlaps another."""
    parts = re.split("(%[A-Za-z])", text)
    return re.compile("(?=(" + "".join(DATE_PARTS.get(part) or re.escape(part) for part in parts) + "))")


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def parse_path_values(file: str) -> dict[str, str | None]:
    """Returns, by name, the values in the folders of a path, URL-decoded. file: the name relative to the source's folder.

    Only folders count, not the file's own name. A folder without a name or without "=" says nothing; `NO_VALUE` is None. If a name comes
    twice, the inner folder counts. An empty value is a value.
    """
    values: dict[str, str | None] = {}
    for folder in file.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign and unquote(name).strip():
            values.pop(unquote(name), None)
            values[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return values
