"""When rows of a source were last removed by age: from then on, no version of a table made from it has them.

A file of the lake says so, and not the run ledger: a killed run removes rows and records nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sluice.durable_files import load_kept_json, write_json_durably
from sluice.locations import Location, locate
from sluice.own_records import REMOVALS_BY_AGE
from sluice.pipeline_records import PipelineRecords


def record_removal_by_age(records: PipelineRecords, source: str) -> None:
    """Records that rows of the source have been removed, and that the flows that read them have followed."""
    file = _locate_removal(records, source)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json_durably(file, {"at": datetime.now(UTC).isoformat()})


def find_last_removal_by_age(records: PipelineRecords, sources: Iterable[str]) -> datetime | None:
    """Returns when rows of one of these sources were last removed by age; None if none ever were. Raises KeptFileDamaged."""
    remedy = "Remove it only if no rows of that source were ever removed by age: a restore of a view could bring them back."
    files = [file for source in sources if (file := _locate_removal(records, source)).exists()]
    return max((load_kept_json(file, "when rows were last removed by age", remedy, _read_time) for file in files), default=None)


def _read_time(said: Any) -> datetime:
    return datetime.fromisoformat(said["at"])


def _locate_removal(records: PipelineRecords, source: str) -> Location:
    return locate(records.bookkeeping(f"{REMOVALS_BY_AGE.name}/{source}.json"))
