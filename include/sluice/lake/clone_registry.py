"""Which shallow clones there are of a pipeline: a lake keeps a file for each, with where it lies. Loads neither Spark nor Arrow."""

from __future__ import annotations

from sluice.durable_files import load_kept_json, write_json_durably
from sluice.locations import Location, locate
from sluice.own_records import SHALLOW_CLONES
from sluice.pipeline_records import PipelineRecords


def register_shallow_clone(records: PipelineRecords, run: str, lake: str) -> None:
    """Records, in the lake that is cloned, where its clone lies."""
    folder = _shallow_clones_folder(records)
    folder.mkdir(parents=True, exist_ok=True)
    write_json_durably(folder / f"{run}.json", {"lake": lake})


_REMEDY = 'Write the clone\'s lake into it as {"lake": "/its/folder"}. Where that clone is no more, remove the file.'


def _lake_of_clone(said: dict[str, str]) -> str:
    return said["lake"]


def find_shallow_clone_lakes(records: PipelineRecords) -> list[str]:
    """Returns the lakes of the shallow clones that still exist."""
    found = {
        load_kept_json(file, "where a shallow clone lies", _REMEDY, _lake_of_clone)
        for file in _shallow_clones_folder(records).glob("*.json")
    }
    return sorted(lake for lake in found if (locate(lake) / records.pipeline).is_dir())


def _shallow_clones_folder(records: PipelineRecords) -> Location:
    return locate(records.bookkeeping(SHALLOW_CLONES.name))
