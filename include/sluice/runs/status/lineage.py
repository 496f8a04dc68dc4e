"""Draws which table is made from which, as a picture of nodes and edges. It needs only declarations, no lake."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.declare.assembly.graph import Graph

WIDTH, HEIGHT = 190, 62
"""The size of a node, in units of the picture."""
_ACROSS, _DOWN = 250, 76
"""The distance from a node to one in the next column, and to the one below it."""


@dataclass(frozen=True)
class LineageNode:
    """A declared source, table, stream, view or computed view. x, y: its upper left corner."""

    name: str
    kind: str
    layer: str
    x: int
    y: int


@dataclass(frozen=True)
class LineagePicture:
    """nodes: by name. edges: pairs of names, from what is read to what reads it."""

    nodes: Mapping[str, LineageNode]
    edges: Sequence[tuple[str, str]]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return (
            max((node.x for node in self.nodes.values()), default=0) + WIDTH + 10,
            max((node.y for node in self.nodes.values()), default=0) + HEIGHT + 10,
        )

    def curve(self, edge: tuple[str, str]) -> str:
        """An edge as the path of an SVG."""
        start, end = (self.nodes[name] for name in edge)
        return draw_curve((start.x + WIDTH, start.y + HEIGHT // 2), (end.x, end.y + HEIGHT // 2))


def draw_curve(start: tuple[int, int], end: tuple[int, int]) -> str:
    """A curve that leaves one point and reaches another from the left, as the path of an SVG."""
    middle = (start[0] + end[0]) // 2
    return f"M{start[0]},{start[1]} C{middle},{start[1]} {middle},{end[1]} {end[0]},{end[1]}"


def draw_lineage(graph: Graph) -> LineagePicture:
    """A pipeline's lineage: inputs stand left of their readers, and within a column each node is near the middle of its inputs."""
    declared = [(one.name, one.kind.label, graph.layer(one), one.reads) for one in graph]
    declared += [(view.name, "@view", "", view.reads) for view in graph.computed.values()]
    edges = [(read, name) for name, _, _, reads in declared for read in reads]
    columns: dict[str, int] = {}
    for name, _, _, reads in declared:  # inputs come before their readers
        columns[name] = max((columns[read] + 1 for read in reads), default=0)
    rows = _order_columns(columns, edges)
    nodes = {
        name: LineageNode(name, kind, layer, 10 + columns[name] * _ACROSS, 10 + rows[name] * _DOWN)
        for name, kind, layer, _ in declared
    }
    return LineagePicture(nodes, edges)


def _order_columns(columns: Mapping[str, int], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The position of each node in its column: by the mean position of its inputs, so that few edges cross."""
    reads: dict[str, list[str]] = defaultdict(list)
    for read, name in edges:
        reads[name].append(read)
    placed: dict[str, int] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        names = [name for name, place in columns.items() if place == column]

        def mean(name: str) -> float:
            places = [placed[read] for read in reads[name]]
            return sum(places) / len(places) if places else 0.0

        for place, name in enumerate(sorted(names, key=mean)):
            placed[name] = place
    return placed
