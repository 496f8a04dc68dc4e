"""The date that a delivery is for, by which a backfill selects its interval."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache

from sluice.declare.ingest.checks import DATE_PARTS
from sluice.declare.ingest.source import Source


def find_delivery_date(source: Source, file: str, modified_at: datetime) -> datetime:
    """Returns the date in the file's path if the source declares one and it is there, otherwise the time of delivery. In UTC.

    file: relative to the source's folder. The last of several dates in a path counts: the file's name says more than its folder.
    """
    found = _date_in_path(source, file)
    return found[0] if found else modified_at


def find_date_folders(source: Source, file: str) -> set[str]:
    """Returns the folders of a file's path in which its source's `date_in_path` finds the delivery's date, as written."""
    found = _date_in_path(source, file)
    if found is None:
        return set()
    _, start, end = found
    names, place = set(), 0
    for folder in file.split("/")[:-1]:
        if place < end and start < place + len(folder):
            names.add(folder)
        place += len(folder) + 1
    return names


def _date_in_path(source: Source, file: str) -> tuple[datetime, int, int] | None:
    """Returns the date, and where in the path it begins and ends."""
    if source.date_in_path is None:
        return None
    for found in reversed(list(_date_pattern(source.date_in_path).finditer(file))):
        try:
            return datetime.strptime(found.group(1), source.date_in_path).replace(tzinfo=UTC), *found.span(1)
        except ValueError:  # such as the 31st of February: the digits mean something else
            continue
    return None


@cache
def _date_pattern(text: str) -> re.Pattern[str]:
    """Returns the pattern that finds a date in this form, even if it overlaps another."""
    parts = re.split("(%[A-Za-z])", text)
    return re.compile("(?=(" + "".join(DATE_PARTS.get(part) or re.escape(part) for part in parts) + "))")
