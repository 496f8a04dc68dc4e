"""What lies below a pipeline's roots that no declaration accounts for: no erasure reaches it, and nobody knows by what it names people."""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice.declare.assembly.graph import Graph
from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.erasure.proof import scope
from sluice.ingest.deliveries.listing import AT_REST, PARTIAL
from sluice.ingest.landing.cleaning import ARCHIVE, archived_file_names
from sluice.ingest.landing.rewriting import MARK
from sluice.lake import releases
from sluice.settings import Settings

_BOOKS = frozenset({
    "aging", "canary", "certificates", "checkpoints", "clone.json", "deliveries", "erasure", "erasure_requests", "idle", "kept_running.json",
    "lake.json", "lease.json", "lease.lock", "outcomes", "readmissions", "rewriting", "runs", "schemas", "set_aside", "shallow_clones", "staging",
    "stop_requests", "suppression",
})  # fmt: skip
"""Sluice's own records, by name."""
_HOLD_TABLES = ("changes", "checkpoints", "snapshots", "truncates")
"""Those of its folders in which something of each table lies."""


@dataclass(frozen=True)
class UndeclaredPath:
    """A file or folder that no declaration accounts for. path: relative to the root."""

    root: str
    path: str


def find_undeclared_paths(settings: Settings, graph: Graph) -> list[UndeclaredPath]:
    """What lies below the pipeline's folders and is neither a declared table's, a source's, a release's nor Sluice's own, nor said to be there."""
    return [one for one in _find_unaccounted_paths(settings, graph) if _find_acknowledging_path(graph, one) is None]


def find_acknowledged_paths(settings: Settings, graph: Graph) -> list[str]:
    """The paths of `also_here` at which there is something."""
    return sorted({said for one in _find_unaccounted_paths(settings, graph) if (said := _find_acknowledging_path(graph, one))})


def _find_acknowledging_path(graph: Graph, one: UndeclaredPath) -> str | None:
    """By which path of `also_here` something is said to be there."""
    path = f"{one.root}/{one.path}"
    return next((said for said in graph.pipeline.also_here if path == said or path.startswith(f"{said}/")), None)


def _find_unaccounted_paths(settings: Settings, graph: Graph) -> list[UndeclaredPath]:
    pipeline = graph.pipeline.name
    known = {os.path.normpath(path) for path in scope.find_searched_tables(settings, graph).values()}
    flows = {f"{graph.layer(one)}_{one.name}" for one in graph}
    found = []
    for name, root in (("lake", Path(settings.lake) / pipeline), ("restricted", settings.restricted / pipeline)):
        for path in _list_pipeline_entries(root):  # of tables
            of_books = path.parent.name == "_sluice" and path.name in _BOOKS
            of_flow = path.parent.name == "checkpoints" and path.name in flows
            if os.path.normpath(path) not in known and not of_books and not of_flow:
                found.append(UndeclaredPath(name, str(path.relative_to(root))))
    return [*found, *_find_undeclared_landings(settings, graph), *_find_undeclared_releases(settings, pipeline)]


def _list_pipeline_entries(root: Path) -> Iterator[Path]:
    """Tables, books and flows' checkpoints: what a pipeline's folder has two levels deep; files at any of them."""
    for layer in sorted(root.iterdir()) if root.is_dir() else []:
        if not layer.is_dir():
            yield layer
            continue
        for one in sorted(layer.iterdir()):
            if layer.name == "_sluice" and one.name in _HOLD_TABLES:
                yield from sorted(one.iterdir())
            elif not (layer.name == "_sluice" and one.name.startswith(".")):
                yield one


def _find_undeclared_landings(settings: Settings, graph: Graph) -> Iterator[UndeclaredPath]:
    """Landed and archived files that no source would take, whatever became of them: no erasure looks into them."""
    root = settings.landing / graph.pipeline.name
    sources = [one for one in graph.sources.values() if not isinstance(one, KafkaSource)]
    folders = {one.name: [root / one.path, root / ARCHIVE / one.path] for one in sources}
    every = [Path(os.path.normpath(folder)) for two in folders.values() for folder in two]
    for folder, below, files in os.walk(root):
        here = Path(folder)
        theirs = [one for one in sources if any(here.is_relative_to(path) for path in folders[one.name])]
        if not theirs:
            strange = [name for name in below if not any(path.is_relative_to(here / name) for path in every)]
            below[:] = [name for name in below if name not in strange]
            files += strange
        for name in sorted(files):
            if not any(_is_file_of_source(one, here / name) for one in theirs):
                yield UndeclaredPath(scope.LANDING, str((here / name).relative_to(root)))


def _is_file_of_source(source: Source, path: Path) -> bool:
    """Whether a file is one of a source's, or will be one, or says that one is ready; a link or an empty file is nobody's record.

    One that will be is written now. What was left half written nobody delivers, and no erasure looks into it.
    """
    bare = re.sub(f"({'|'.join(map(re.escape, PARTIAL))})\\Z", "", path.name.lstrip("._"), flags=re.IGNORECASE)
    names = {*archived_file_names(path.name), *([bare] if _is_recently_written(path) else [])}
    marker = re.escape(source.ready_marker or "").replace(re.escape("{name}"), ".*")
    if any(fnmatch.fnmatch(name, source.pattern) for name in names) or path.name.endswith(MARK):
        return True
    return bool(marker and re.fullmatch(marker, path.name)) or path.is_symlink() or _is_empty_file(path)


def _is_recently_written(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime < AT_REST
    except OSError:
        return False


def _is_empty_file(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return not path.exists()  # gone since its folder was listed


def _find_undeclared_releases(settings: Settings, pipeline: str) -> Iterator[UndeclaredPath]:
    """What is beside releases, and what is in one that its own list of tables does not name."""
    root, known = (
        releases.releases_folder(settings, pipeline),
        {one.folder: one for one in releases.read_pipeline_releases(settings, pipeline)},
    )
    for path in sorted(root.iterdir()) if root.is_dir() else []:
        if path in known:
            named = {releases.MANIFEST, *known[path].tables}
            yield from (
                UndeclaredPath("released", f"{path.name}/{one.name}") for one in sorted(path.iterdir()) if one.name not in named
            )
        elif path.name != releases.LAST:
            yield UndeclaredPath("released", path.name)
