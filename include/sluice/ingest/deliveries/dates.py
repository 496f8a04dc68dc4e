"""Which date a delivery is for: a backfill takes its interval by it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache

from sluice.declare.ingest.checks import DATE_PARTS
from sluice.declare.ingest.source import Source


def of_file(source: Source, file: str, modified_at: datetime) -> datetime:
    """The date in the file's path where the source declares one and it is there, else the time of delivery. In UTC.

    file: below the source's folder. Of several dates in a path the last counts: the file's name says more than its folder.
    """
    if source.date_in_path is not None:
        for found in reversed(list(_pattern(source.date_in_path).finditer(file))):
            try:
                return datetime.strptime(found.group(1), source.date_in_path).replace(tzinfo=UTC)
            except ValueError:  # such as the 31st of February: digits that mean something else
                continue
    return modified_at


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """What finds a date so written, overlapping others."""
    parts = re.split("(%[A-Za-z])", text)
    return re.compile("(?=(" + "".join(DATE_PARTS.get(part) or re.escape(part) for part in parts) + "))")
