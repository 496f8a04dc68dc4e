"""The journal of a readmission: what leaves quarantine, written before anything does, so that a killed one is brought to its end.

Numbers of deliveries and rows only, and the words of whoever discards; nothing of a record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sluice.kept_json import load_kept_json
from sluice.lake.workspace import Workspace
from sluice.quality.quarantine import Entry


@dataclass(frozen=True)
class Leaving:
    """What leaves a source's quarantine in one run. moved: to bronze; suppressed: of erased people; discarded: by somebody.

    rescued: how many records of what is moved have something in _rescued_data, by delivery. reason: of a discard.
    """

    run: str
    source: str
    moved: list[Entry] = field(default_factory=list)
    suppressed: list[Entry] = field(default_factory=list)
    discarded: list[Entry] = field(default_factory=list)
    rescued: dict[int, int] = field(default_factory=dict)
    reason: str | None = None

    @property
    def entries(self) -> list[Entry]:
        """All of it."""
        return [*self.moved, *self.suppressed, *self.discarded]


def write(workspace: Workspace, leaving: Leaving) -> Path:
    """Keep it until it is done. Returns its file."""
    folder = _folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{leaving.run}-{leaving.source}.json"
    partial = path.with_name(f".{path.name}.part")
    with partial.open("w", encoding="utf-8") as file:
        json.dump(asdict(leaving), file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    return path


def unfinished(workspace: Workspace) -> Iterator[tuple[Path, Leaving]]:
    """What killed runs have left, oldest first."""
    for path in sorted(_folder(workspace).glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        yield path, load_kept_json(path, "which rows a replay was about to take out of quarantine", _REMEDY, _leaving)


_REMEDY = (
    "Put a copy of it back. Without one, move it away, replay the quarantined rows again and compare the tables: sluice verify"
)


def _leaving(loaded: dict[str, Any]) -> Leaving:
    for name in ("moved", "suppressed", "discarded"):
        loaded[name] = [(delivery, row) for delivery, row in loaded[name]]
    loaded["rescued"] = {int(delivery): count for delivery, count in loaded["rescued"].items()}
    return Leaving(**loaded)


def _folder(workspace: Workspace) -> Path:
    return Path(workspace.places.bookkeeping("readmissions"))
