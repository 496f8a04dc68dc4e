"""What of a pipeline is cloned, at which version, and why what is not is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Dataset
from sluice.declare.ingest.source import Source
from sluice.errors import UsageError, nearest
from sluice.lake import log
from sluice.lake.places import OfPipeline
from sluice.runs.execution.clones import SHALLOW
from sluice.settings import Settings


@dataclass(frozen=True)
class Chosen:
    """A table to clone. dataset: None of bronze and quarantines. private: its columns with personal data; keys: those that it cannot lack."""

    name: str
    path: str
    version: int
    dataset: Dataset[Any] | None = None
    private: frozenset[str] = frozenset()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """What is cloned, and why what is not is not. joining: personal columns that tables are joined by."""

    kind: str
    tables: tuple[Chosen, ...]
    left_out: dict[str, str] = field(default_factory=dict)
    joining: frozenset[str] = frozenset()


def planned(settings: Settings, graph: Graph, kind: str, names: Sequence[str] = ()) -> Plan:
    """What would be cloned, at the versions of now. Raises UsageError for a named table that is not there, or is not cloned."""
    found, left_out = [], {}
    for one in _present(settings, graph):
        why = _refused(settings, graph, one, kind)
        if why:
            left_out[one.name] = why
        else:
            found.append(one)
    for stream in graph.streams.values():
        left_out[stream.late] = f"it is kept beside '{stream.name}', whose stream does not run in a clone"
    known = {*(one.name for one in found), *left_out}
    for name in names:
        if name not in known:
            raise UsageError(f"There is no table '{graph.pipeline.name}.{name}'.{nearest(name, known)}")
        if name in left_out:
            raise UsageError(f"'{graph.pipeline.name}.{name}' is not cloned: {left_out[name]}.")
    if names:
        return Plan(kind, tuple(one for one in found if one.name in names), {}, _joining(graph))
    return Plan(kind, tuple(found), left_out, _joining(graph))


def _present(settings: Settings, graph: Graph) -> list[Chosen]:
    """Every table that is there: declared ones and quarantines."""
    from sluice.lake.workspace import has_quarantine

    places, found = OfPipeline(settings, graph), []
    for one in graph:
        private = one.private if isinstance(one, Dataset) else _private(graph, one)
        dataset = one if isinstance(one, Dataset) else None
        keys = one.keys if isinstance(one, Dataset) else ()
        if graph.table_of(one.name) == one.name:
            found.append((one.name, places.table(one.name), dataset, private, keys))
        if has_quarantine(one):
            found.append((f"{one.name}_quarantine", places.quarantine(one.name), None, private, ()))
    versions = {path: log.version(path) for _, path, *_ in found}
    return [
        Chosen(name, path, version, dataset, private, keys)
        for name, path, dataset, private, keys in found
        if (version := versions[path]) is not None
    ]


def _private(graph: Graph, source: Source) -> frozenset[str]:
    return frozenset().union(*(one.private for one in graph.feeding(source.name)))


def _joining(graph: Graph) -> frozenset[str]:
    """The names of columns that are keys or subjects somewhere: a copy without them could not be joined."""
    datasets = [one for one in graph if isinstance(one, Dataset) and not one.serves]
    return frozenset(name for one in datasets for name in (*one.keys, one.subject) if name)


def _refused(settings: Settings, graph: Graph, one: Chosen, kind: str) -> str | None:
    """Why a table is not cloned. None: it is."""
    if one.path.startswith(f"{settings.restricted}/"):
        return "it is restricted"
    if kind == SHALLOW or not one.private:
        return None
    if one.dataset is None:
        return "it holds records as they came, and there is personal data in them"
    if one.dataset.serves:
        return f"it is kept for '{one.dataset.serves}' and holds what was personal in each change"
    from sluice.flows.copies import copying

    bad = copying.without_stand_in(one.path, [name for name in one.keys if name in one.private])
    return f"its key {bad} is personal and of a type that has no stand-in" if bad else None
