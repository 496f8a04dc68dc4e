"""A made-up person, planted in every kind of store and erased by the same steps as people are: the control of the scan.

What stands for it lies below <lake>/<pipeline>/_sluice/canary/<request>/, with somebody else beside it wherever rows are rewritten. A scan
that does not find it beforehand proves nothing by finding nobody afterwards.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sluice.erasure import scan, vault
from sluice.erasure.control import planting, stores
from sluice.erasure.control.planting import Marks
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import needles
from sluice.erasure.subjects.identifiers import Identifier
from sluice.lake.workspace import Workspace
from sluice.settings import Settings

PREFIX = "canary:"
"""In front of a domain in the vault: an identifier of the canary, not of the person."""
DOMAIN = stores.TEXT
COLUMN = "canary_id"
_COLUMNS = {stores.SHORT: (stores.SHORT, f"{stores.SHORT}_text")}
PLANTED = "planted.json"
"""What was found of the canary when it had been planted: numbers by kind of store, and nothing else."""

Kind = Literal["table", "quarantine", "landing", "archive", "state", "temporary"]


@dataclass(frozen=True)
class Place:
    """Where the canary of a request stands. `kind` says which step erases it.

    table, quarantine: a Delta table at `path`, rows by `column` (values of `domain`, without PREFIX): merge-delete, REORG PURGE, VACUUM.
    landing: a folder of .jsonl and .csv files, rewritten without the records whose `column` is the subject's.
    archive: the same, of compressed files. state: a folder of checkpoints of a stream, removed whole as a reset stream's is.
    temporary: a folder of left-over files, swept as orphans, spark-local and event logs are.
    """

    kind: Kind
    name: str
    path: str
    column: str = ""
    domain: str = ""


_PLACES: Mapping[str, tuple[Kind, str]] = {
    "table": ("table", COLUMN),
    "vectors": ("table", COLUMN),
    "quarantine": ("quarantine", "_subject"),
    "landing": ("landing", COLUMN),
    "archive": ("archive", COLUMN),
    "state": ("state", ""),
    "temporary": ("temporary", ""),
}
"""By the name of a folder."""


def root(settings: Settings, pipeline: str, request: str) -> Path:
    """The folder that holds the canary of a request: <lake>/<pipeline>/_sluice/canary/<request>."""
    return Path(settings.bookkeeping(pipeline, "canary")) / request


def plant(workspace: Workspace, request: ErasureRequest) -> None:
    """Plant the canary of a request in a place of every kind, unless it was. Before the first step of the propagation.

    Its identifiers go into the vault with the request's; what a scan finds of them is kept as numbers.
    """
    settings, pipeline = workspace.settings, workspace.pipeline
    folder = root(settings, pipeline, request.request)
    if (folder / PLANTED).is_file():
        return
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was killed while it planted
    marks = _marks(identifiers(settings, pipeline, request.request)) or Marks.by_chance()
    vault.add(settings, pipeline, request.request, [Identifier(f"{PREFIX}{domain}", value) for domain, value in _values(marks)])
    planting.everything(folder, COLUMN, marks, workspace.graph.pipeline.retain)
    planting.with_vectors(workspace, folder / "vectors")
    found = look(settings, pipeline, request.request)
    partial = folder / f".{PLANTED}"
    partial.write_text(json.dumps(found), encoding="utf-8")
    partial.replace(folder / PLANTED)


def places(workspace: Workspace, request: ErasureRequest) -> list[Place]:
    """Where the canary of a request stands, for the steps that erase it; [] where none was planted."""
    folder = root(workspace.settings, workspace.pipeline, request.request)
    if not (folder / PLANTED).is_file():
        return []
    return [Place(kind, name, str(folder / name), column, DOMAIN if column else "") for name, (kind, column) in _PLACES.items()]


def identifiers(settings: Settings, pipeline: str, request: str) -> list[Identifier]:
    """Those of the canary of a request, without the prefix of their domain. [] where the vault has none."""
    if not vault.holds(settings, pipeline, request):
        return []
    found = vault.read(settings, pipeline, request)
    return [Identifier(one.domain.removeprefix(PREFIX), one.value) for one in found if one.domain.startswith(PREFIX)]


def needles_of(settings: Settings, pipeline: str, request: str) -> list[scan.Needle]:
    """What the scan looks for of the canary."""
    return needles.of(((one.domain, one.value) for one in identifiers(settings, pipeline, request)), _COLUMNS)


def look(settings: Settings, pipeline: str, request: str) -> dict[str, int]:
    """Scan the canary's own places. By kind of store, how often it was found; each kind is there, with 0 where it was not."""
    return _found(root(settings, pipeline, request), needles_of(settings, pipeline, request))


def witnessed(settings: Settings, pipeline: str) -> dict[str, int]:
    """Plant another canary, look for it, and remove it: whether the scanner of now finds one. By kind of store, how often it did."""
    folder = root(settings, pipeline, f"now-{secrets.token_hex(6)}")
    marks = Marks.by_chance()
    try:
        planting.everything(folder, COLUMN, marks, "7 days")
        return _found(folder, needles.of(_values(marks), _COLUMNS))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _values(marks: Marks) -> list[tuple[str, str]]:
    return [(stores.TEXT, marks.text), (stores.SHORT, str(marks.short)), (stores.LONG, str(marks.long))]


def _marks(known: list[Identifier]) -> Marks | None:
    """Those that the vault has already, of a run that was killed."""
    by_domain = {one.domain: one.value for one in known}
    if not {stores.TEXT, stores.SHORT, stores.LONG} <= set(by_domain):
        return None
    return Marks(by_domain[stores.TEXT], int(by_domain[stores.SHORT]), int(by_domain[stores.LONG]))


def _found(folder: Path, wanted: list[scan.Needle]) -> dict[str, int]:
    return counted(scan.run([scan.Root("canary", str(folder))], [], wanted, processes=1).hits, "")


def counted(hits: list[scan.Hit], below: str) -> dict[str, int]:
    """Hits of the control by kind of store. below: the canary's folder, relative to the root that was scanned."""
    found = dict.fromkeys(stores.STORES, 0)
    for hit in hits:
        path = os.path.relpath(hit.path, below) if below else hit.path
        store = stores.store_of(path, hit)
        if hit.control and store:
            found[store] += hit.times
    return found


def planted(settings: Settings, pipeline: str, request: str) -> dict[str, int] | None:
    """What was found of the canary when it had been planted; None where it was not."""
    path = root(settings, pipeline, request) / PLANTED
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None
