"""What lies below a pipeline's roots that no declaration accounts for: no erasure reaches it, and nobody knows by what it names people."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice.declare.assembly.graph import Graph
from sluice.erasure.proof import scope
from sluice.settings import Settings

_BOOKS = frozenset({
    "aging", "canary", "certificates", "checkpoints", "clone.json", "deliveries", "erasure", "erasure_requests", "idle", "kept_running.json",
    "lake.json", "lease.json", "lease.lock", "outcomes", "readmissions", "rewriting", "runs", "schemas", "shallow_clones", "staging",
    "stop_requests", "suppression",
})  # fmt: skip
"""Sluice's own records, by name."""
_HOLD_TABLES = ("changes", "checkpoints", "snapshots", "truncates")
"""Those of its folders in which something of each table lies."""


@dataclass(frozen=True)
class Undeclared:
    """A file or folder that no declaration accounts for. path: relative to the root."""

    root: str
    path: str


def found(settings: Settings, graph: Graph) -> list[Undeclared]:
    """What lies below the pipeline's lake and restricted root and is neither a declared table's nor Sluice's own, nor said to be there."""
    return [one for one in _unaccounted(settings, graph) if _said(graph, one) is None]


def said_to_be_there(settings: Settings, graph: Graph) -> list[str]:
    """The paths of `also_here` at which there is something."""
    return sorted({said for one in _unaccounted(settings, graph) if (said := _said(graph, one))})


def _said(graph: Graph, one: Undeclared) -> str | None:
    """By which path of `also_here` something is said to be there."""
    path = f"{one.root}/{one.path}"
    return next((said for said in graph.pipeline.also_here if path == said or path.startswith(f"{said}/")), None)


def _unaccounted(settings: Settings, graph: Graph) -> list[Undeclared]:
    pipeline = graph.pipeline.name
    known = {os.path.normpath(path) for path in scope.tables(settings, graph).values()}
    flows = {f"{graph.layer(one)}_{one.name}" for one in graph}
    found = []
    for name, root in (("lake", Path(settings.lake) / pipeline), ("restricted", settings.restricted / pipeline)):
        for path in _entries(root):
            of_books = path.parent.name == "_sluice" and path.name in _BOOKS
            of_flow = path.parent.name == "checkpoints" and path.name in flows
            if os.path.normpath(path) not in known and not of_books and not of_flow:
                found.append(Undeclared(name, str(path.relative_to(root))))
    return found


def _entries(root: Path) -> Iterator[Path]:
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
