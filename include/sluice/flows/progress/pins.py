"""The versions that a run reads a flow's inputs at: one state of them all, not older than what the batch's changes tell of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from sluice.lake import log

Versions = Mapping[str, int]
"""By input, the version of its table."""


class PinnedVersions:
    """The versions of one run. paths, identities: of the inputs' tables, by name. checkpoint: of the run's query."""

    def __init__(self, checkpoint: str, paths: Mapping[str, str], identities: Mapping[str, str]) -> None:
        """Nothing is pinned yet."""
        self._offsets = Path(checkpoint) / "offsets"
        self._paths, self._identities = paths, identities
        self._versions: dict[str, int] = {}

    def of(self, batch: int) -> Versions:
        """The versions to read at in a batch: those of the run's first, unless the batch tells of later ones.

        To be called inside foreachBatch: what is pinned before could be older than the end of the batch.
        """
        if any(self._versions.get(name, -1) < end for name, end in self.ends_of(batch).items()):
            self._versions = {
                name: version for name, path in self._paths.items() if (version := log.latest_table_version(path)) is not None
            }
        return self._versions

    def followed(self, batch: int) -> Mapping[str, tuple[int, int]]:
        """By input that a batch has changes of, the version up to which it was followed before, -1 for none, and the last one with it."""
        before = self._places(batch - 1) if (self._offsets / str(batch - 1)).exists() else {}
        now, spans = self._places(batch), {}
        for name, place in now.items():
            end, since = _last_taken_version(place), _last_taken_version(before[name]) if name in before else -1
            if place != before.get(name):
                # Of a version that is followed in parts all counts for each.
                spans[name] = (min(since, end - 1), end)
        return spans

    def ends_of(self, batch: int) -> dict[str, int]:
        """By input, the last version that the batch's changes are of."""
        return dict.fromkeys(self._paths, 0) | {name: _last_taken_version(place) for name, place in self._places(batch).items()}

    def _places(self, batch: int) -> dict[str, tuple[int, int]]:
        """By input, the version and the index in it that a batch ends with."""
        names, found = {identity: name for name, identity in self._identities.items()}, {}
        for line in (self._offsets / str(batch)).read_text().splitlines():
            offset = json.loads(line) if line.startswith("{") else {}
            name = names.get(offset.get("reservoirId", ""))
            if name is not None:
                found[name] = (int(offset["reservoirVersion"]), int(offset["index"]))
        return found


def _last_taken_version(place: tuple[int, int]) -> int:
    """The last version of what ends there: without an index, that is before the first file of its version."""
    version, index = place
    return version if index >= 0 else version - 1
