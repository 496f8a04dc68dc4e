"""The checkpoint directory: everything that autoload_to_table keeps, and the table and source that it belongs to (autoload.json).

A directory that belongs to others, or that somebody else filled, is refused: its deliveries would count as ingested although this table
never got them.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from sluice import delta_log
from sluice.durable_files import write_json_durably
from sluice.errors import LakeTooNew, UsageError
from sluice.lake import log
from sluice.own_records import CHECKPOINTS, LEASE_DESCRIPTION, LEASE_FILES, STOP_REQUESTS
from sluice.pipeline_records import QUARANTINE

_FORMAT = 1
_FILE = "autoload.json"
_OF_THE_LEASE = (*LEASE_FILES, f".{LEASE_DESCRIPTION.name}.*.tmp")


@dataclass(frozen=True)
class AutoloadPaths:
    """The paths of everything: all in the checkpoint directory, except the table and the data's folder."""

    folder: Path
    data: Path
    table: str

    @property
    def landing(self) -> Path:
        """The parent of the data's folder."""
        return self.data.parent

    def path(self, name: str) -> str:
        """The path of the only table."""
        return self.table

    def quarantine(self, name: str) -> str:
        """The path of the rows and files that the table did not accept."""
        return str(self.folder / QUARANTINE)

    def checkpoints(self, flow: str) -> str:
        """The folder of the flow's checkpoint generations."""
        return str(self.folder / CHECKPOINTS.name / flow)

    def bookkeeping(self, name: str) -> str:
        """The folder of deliveries, outcomes and other records."""
        return str(self.folder / name)

    def stop_request(self, run: str) -> Path:
        """The file that, once it exists, makes the run stop before its next batch."""
        return self.folder / STOP_REQUESTS.name / run


@dataclass(frozen=True)
class CheckpointPurpose:
    """What a checkpoint directory belongs to. source: the source's name. made_here: whether this directory's first run made the table.

    first_delivery: the number of its first delivery. The table also holds the numbers of deliveries, and they show whether a delivery
    has been written, so two directories that write into one table must not use the same numbers.
    """

    source: str
    data_source: str
    source_format: str
    location: str
    table_id: str
    made_here: bool
    first_delivery: int
    format: int = _FORMAT


def read_checkpoint_purpose(folder: Path) -> CheckpointPurpose | None:
    """Reads what the directory belongs to; None if it is new. Raises UsageError if it is no checkpoint directory of autoload_to_table."""
    try:
        said = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        _refuse_filled_folder(folder)
        return None
    except ValueError:
        raise UsageError(f"{folder / _FILE} is not JSON. Restore it, or give another checkpoint directory.") from None
    if not isinstance(said.get("format"), int) or said["format"] > _FORMAT:
        raise LakeTooNew(
            f"The checkpoint directory {folder} has format {said.get('format')}; this Sluice knows up to {_FORMAT}. Use the newer Sluice."
        )
    return CheckpointPurpose(**said)


def write_checkpoint_purpose(folder: Path, new: CheckpointPurpose) -> None:
    """Writes what the directory belongs to."""
    write_json_durably(folder / _FILE, asdict(new), indent=1)


def refuse_foreign_checkpoint(folder: Path, known: CheckpointPurpose, data: Path, source_format: str, path: str | None) -> None:
    """Raises UsageError if the directory belongs to another source or table, or to a table that has been made anew since."""
    another = "Give another checkpoint directory: each pair of source and table has its own."
    if (known.data_source, known.source_format) != (str(data), source_format):
        raise UsageError(
            f"The checkpoint directory {folder} belongs to the {known.source_format} source {known.data_source}, "
            f"not to the {source_format} source {data}. {another}"
        )
    if known.location != path:
        where = path or "one that is yet to be made"
        raise UsageError(
            f"The checkpoint directory {folder} belongs to the table at {known.location}, not to {where}. {another} "
            f"If that table was moved, write its new path into {_FILE}."
        )
    if not delta_log.is_delta_table(known.location) or log.read_table_id(known.location) != known.table_id:
        raise UsageError(
            f"The checkpoint directory {folder} belongs to the table that was at {known.location} and is there no more; what it says is "
            f"ingested is not in a new one. Give a new checkpoint directory: every file is then read into the new table."
        )


def choose_first_delivery(table_is_new: bool) -> int:
    """The first number for a new directory: 1 for a new table, else one of 2^31 ranges of 2^32, since others may write the table too."""
    return 1 if table_is_new else ((secrets.randbits(31) | 1) << 32) + 1


def _refuse_filled_folder(folder: Path) -> None:
    if folder.is_dir() and not all(any(map(path.match, _OF_THE_LEASE)) for path in folder.iterdir()):
        raise UsageError(
            f"The checkpoint directory {folder} holds something other than a checkpoint of autoload_to_table (it may be Spark's). "
            "Give a new or an empty one."
        )
