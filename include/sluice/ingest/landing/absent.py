"""Landing folders whose files are not there: a disk may not be mounted, with all that is on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries.known import EXISTING, Seen
from sluice.ingest.deliveries.listing import DELIVERED, path_of

REMEDY = "Mount it. Or, where the files were removed for good, see that the folder is there, and run the pipeline, which takes note of that."


def is_absent(source: Source, landing: Path, seen: Mapping[str, Seen]) -> bool:
    """Whether there are files that should be in a source's folder and none of them is. landing: the pipeline's; seen: what the ledger knows.

    One that is missing beside others was removed by somebody: the next run takes note of it.
    """
    files = [file for file, last in seen.items() if file and last.event in (DELIVERED, EXISTING)]
    return bool(files) and not any(os.path.lexists(path_of(landing / source.path, file)) for file in files)
