"""Which folders a tour fills, and whether those that are there are a tour's alone: only these it may empty."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from rich.console import Console

from sluice.settings import Settings


def starts_afresh(settings: Settings, console: Console, name: str) -> bool:
    """Whether the pipeline's folders are empty, after emptying those that an earlier tour filled alone."""
    folders = _folders(settings, name)
    if not any(folder.exists() and any(folder.iterdir()) for folder in folders):
        return True
    marker = _marker(settings, name)
    names = ", ".join(str(folder) for folder in folders)
    if marker.exists() and json.loads(marker.read_text()) == _fingerprint(settings, name):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        console.print(f"Emptied what the last tour left: {names}", highlight=False, soft_wrap=True)
        return True
    console.print(f"Not a tour's alone, so it goes on from what is there: {names}", highlight=False, soft_wrap=True)
    console.print("Remove them all for a tour from the start.")
    return False


def leave_marker(settings: Settings, name: str, *, own: bool) -> None:
    """Note what the tour leaves if all of it is its own; the next one sees by it whether it was used."""
    marker = _marker(settings, name)
    if not own:
        marker.unlink(missing_ok=True)
        return
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(json.dumps(_fingerprint(settings, name)))


def _folders(settings: Settings, name: str) -> list[Path]:
    lake = [] if "://" in settings.lake else [Path(settings.lake) / name]
    return [*lake, settings.restricted / name, settings.landing / name, settings.truth / name]


def _marker(settings: Settings, name: str) -> Path:
    return settings.state / "tours" / f"{name}.json"


def _fingerprint(settings: Settings, name: str) -> dict[str, object]:
    """Which folders, and how much is in them; every use of a lake or landing folder changes that."""
    folders = _folders(settings, name)
    files = [path.stat() for folder in folders for path in folder.rglob("*") if path.is_file()]
    return {
        "folders": [str(folder) for folder in folders],
        "files": len(files),
        "newest": max((file.st_ctime_ns for file in files), default=0),
    }
