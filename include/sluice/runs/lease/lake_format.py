"""The version of a lake's inner layout, so that an older Sluice does not write into a newer lake."""

from __future__ import annotations

import json
from pathlib import Path

from sluice.errors import LakeTooNew
from sluice.settings import LAKE_FORMAT, Settings


def check(settings: Settings, pipeline: str) -> None:
    """Raises LakeTooNew for a lake that a newer Sluice wrote."""
    place = Path(settings.bookkeeping(pipeline)) / "lake.json"
    try:
        found = json.loads(place.read_text()).get("format")
    except FileNotFoundError:
        return
    except ValueError:
        found = None
    if not isinstance(found, int) or found > LAKE_FORMAT:
        raise LakeTooNew(
            f"The lake {settings.lake} has format {found} for pipeline '{pipeline}'; this Sluice knows up to {LAKE_FORMAT}. Use the newer Sluice."
        )


def mark(settings: Settings, pipeline: str) -> None:
    """Write the format into a new lake."""
    place = Path(settings.bookkeeping(pipeline)) / "lake.json"
    if not place.exists():
        place.write_text(json.dumps({"format": LAKE_FORMAT}))
