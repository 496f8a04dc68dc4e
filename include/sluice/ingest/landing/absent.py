"""Folders that landed files should lie in and that are not there: a disk may not be mounted, with all that is on it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries.known import CLEANED, GONE, Seen
from sluice.ingest.deliveries.listing import path_of
from sluice.ingest.landing.cleaning import ARCHIVE

REMEDY = "Mount it; or, where its files were removed for good, make an empty folder there and run the pipeline."


def absent(source: Source, landing: Path, seen: Mapping[str, Seen]) -> list[str]:
    """Those of a source's folder and its archive, relative to the pipeline's landing folder, of which something is not there.

    seen: what the ledger knows of its files. A file alone may be removed by anybody: the next run takes note of that.
    """
    folder, archive = landing / source.path, landing / ARCHIVE / source.path
    folders = {path_of(folder, file).parent for file, last in seen.items() if last.event not in (GONE, CLEANED)}
    found = [] if all(one.is_dir() for one in folders) else [source.path]
    archived = source.clean_source == "archive" and any(last.event == CLEANED for last in seen.values())
    return found + ([f"{ARCHIVE}/{source.path}"] if archived and not archive.is_dir() else [])
