"""What lies below a pipeline's roots that no declaration accounts for. No erasure reaches it, and nobody knows how it names people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.declare.assembly.graph import Graph
from sluice.erasure.personal_places.place import LAKE, LANDING, RELEASED, RESTRICTED, Claim
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.lake import releases
from sluice.locations import Location, locate, walk_folders
from sluice.settings import Settings

_HOLD_TABLES = ("changes", "checkpoints", "snapshots", "truncates")
"""The folders of Sluice's own records that have an entry for each table."""


@dataclass(frozen=True)
class UndeclaredPath:
    """A file or folder that no declaration accounts for. path: relative to the root."""

    root: str
    path: str


def find_undeclared_paths(settings: Settings, graph: Graph) -> list[UndeclaredPath]:
    """The paths below the pipeline's folders that no place claims and `also_here` does not list."""
    return [one for one in _find_unclaimed_paths(settings, graph) if _find_acknowledging_path(graph, one) is None]


def find_acknowledged_paths(settings: Settings, graph: Graph) -> list[str]:
    """The paths in `also_here` that exist."""
    return sorted({said for one in _find_unclaimed_paths(settings, graph) if (said := _find_acknowledging_path(graph, one))})


def _find_acknowledging_path(graph: Graph, one: UndeclaredPath) -> str | None:
    """The path of `also_here` that covers something."""
    path = f"{one.root}/{one.path}"
    return next((said for said in graph.pipeline.also_here if path == said or path.startswith(f"{said}/")), None)


def _find_unclaimed_paths(settings: Settings, graph: Graph) -> list[UndeclaredPath]:
    records = graph.records(settings)
    claims = [place.claims(settings, graph) for place in PERSONAL_PLACES if place.claims]
    found = []
    for name, root in ((LAKE, locate(settings.lake) / records.pipeline), (RESTRICTED, settings.restricted / records.pipeline)):
        unclaimed = (path for path in _list_pipeline_entries(root) if not any(claim(name, path) for claim in claims))
        found += [UndeclaredPath(name, str(path.relative_to(root))) for path in unclaimed]
    for name, root, depth in ((LANDING, records.landing, None), (RELEASED, releases.releases_folder(records), 2)):
        found += [UndeclaredPath(name, str(path.relative_to(root))) for path in _walk_unclaimed(name, root, claims, depth)]
    return found


def _list_pipeline_entries(root: Location) -> Iterator[Location]:
    """Tables, records and checkpoints of flows: the two upper levels of a pipeline's folder, and files at any level."""
    for layer in sorted(root.iterdir()) if root.is_dir() else []:
        if not layer.is_dir():
            yield layer
            continue
        for one in sorted(layer.iterdir()):
            if layer.name == "_sluice" and one.name in _HOLD_TABLES:
                yield from sorted(one.iterdir())
            elif not (layer.name == "_sluice" and one.name.startswith(".")):
                yield one


def _walk_unclaimed(name: str, root: Location, claims: Sequence[Claim], depth: int | None) -> Iterator[Location]:
    """What nobody claims: a whole folder, or the unclaimed contents of a claimed one. depth: how many levels to look at."""
    for here, below, files in walk_folders(root):
        unclaimed = {one for one in (*below, *files) if not any(claim(name, here / one) for claim in claims)}
        yield from (here / one for one in sorted(unclaimed))
        last = depth is not None and len(here.relative_to(root).parts) + 1 >= depth
        below[:] = [] if last else sorted(one for one in below if one not in unclaimed)
