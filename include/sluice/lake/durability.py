"""Flushes files to the disk. Spark, delta-rs and Python leave it to the operating system when their files get there."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from sluice.locations import Location, is_on_disk, locate
from sluice.settings import Settings


def flush_run_output(settings: Settings) -> None:
    """Flushes everything that a run may have written, so that what is reported as done survives a power failure. Raises OSError."""
    places = (locate(settings.lake), settings.restricted, settings.landing, settings.vault, settings.released)
    flush_file_systems(place for place in places if is_on_disk(place) and place.is_dir())


def flush_file_systems(folders: Iterable[Location]) -> None:
    """Flushes the file systems of these folders, each once. Raises OSError if that fails."""
    one_of_each = {folder.stat().st_dev: folder for folder in folders}
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:  # only Linux can flush one file system
        os.sync()
        return
    for folder in one_of_each.values():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            if syncfs(descriptor) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(folder))
        finally:
            os.close(descriptor)
