"""The version of a lake's inner layout, so that an older Sluice does not write into a newer lake."""

from __future__ import annotations

from pathlib import Path

from sluice.durable_files import load_kept_json, write_json_durably
from sluice.errors import LakeTooNew
from sluice.pipeline_records import PipelineRecords
from sluice.settings import LAKE_FORMAT

_REMEDY = "Put a copy of it back. If no newer Sluice has written this lake, you may also remove it: the next run writes it anew."


def check_lake_format(records: PipelineRecords) -> None:
    """Raises LakeTooNew for a lake that a newer Sluice wrote."""
    place = Path(records.bookkeeping()) / "lake.json"
    try:
        found = load_kept_json(place, "the format of the lake", _REMEDY, lambda said: int(said["format"]))
    except FileNotFoundError:
        return
    if found > LAKE_FORMAT:
        raise LakeTooNew(
            f"The lake {records.settings.lake} has format {found} for pipeline '{records.pipeline}'; "
            f"this Sluice knows up to {LAKE_FORMAT}. Use the newer Sluice."
        )


def write_lake_format(records: PipelineRecords) -> None:
    """Write the format into a new lake."""
    place = Path(records.bookkeeping()) / "lake.json"
    if not place.exists():
        write_json_durably(place, {"format": LAKE_FORMAT})
