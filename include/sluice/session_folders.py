"""Folders of Spark sessions' local files: blocks, shuffled and spilt rows. Each session removes its own at its end, unless it is killed.

The environment of each live process names the folder that is its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import psutil  # type: ignore[import-untyped]  # it ships no types

from sluice.settings import OF_SESSION, Settings

_DAY = 86_400


def session_folders_in_use(settings: Settings) -> list[Path]:
    """Those of sessions that go on, this process's own among them."""
    every = list(_list_processes())
    return [path for path in _list_session_folders(settings) if _is_session_folder_in_use(path, every)]


def abandoned_session_folders(settings: Settings) -> list[Path]:
    """Those of sessions that go on no more: they were killed."""
    in_use = set(session_folders_in_use(settings))
    return [path for path in _list_session_folders(settings) if path not in in_use]


def remove_empty_session_folders(settings: Settings) -> None:
    """Remove the empty folders of sessions that have ended: Spark leaves them. One of a day ago is nobody's that is about to start."""
    for path in settings.spark_local.glob(f"{OF_SESSION}*"):
        try:
            if time.time() - path.stat().st_mtime > _DAY:
                path.rmdir()
        except OSError:
            continue  # not empty, or gone


class _Process(NamedTuple):
    """local: the folder of its local files; "" where it has none, None where that may not be looked at. started: seconds since 1970."""

    is_spark: bool
    local: str | None
    started: float
    user: int | None


def _list_processes() -> Iterator[_Process]:
    for one in psutil.process_iter(["cmdline", "environ", "create_time", "uids"]):
        told = one.info
        is_spark = any("org.apache.spark" in word for word in told["cmdline"] or ())
        local = None if told["environ"] is None else told["environ"].get("SPARK_LOCAL_DIRS", "")
        yield _Process(is_spark, local, told["create_time"] or 0.0, told["uids"].real if told["uids"] else None)


def _list_session_folders(settings: Settings) -> list[Path]:
    return sorted(settings.spark_local.glob(f"{OF_SESSION}*"))


def _is_session_folder_in_use(path: Path, processes: Sequence[_Process]) -> bool:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    real = os.path.realpath(path)  # the same folder may be called otherwise elsewhere
    if any(one.local and os.path.realpath(one.local) == real for one in processes):
        return True
    unknown = (one for one in processes if one.is_spark and one.local is None)
    return any(one.user in (None, status.st_uid) and status.st_mtime >= one.started for one in unknown)
