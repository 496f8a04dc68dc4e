"""Draws lineage as pictures: which table is made from which, and the columns of a table between their origins and what is made of them.

Needs no lake: the declarations, and the record of where columns come from, are enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice.column_origins import TableOrigins
from sluice.declare.assembly.graph import Graph
from sluice.runs.status.column_lineage_record import list_column_uses

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
    rows: dict[str, int] = {}
    for column in range(max(columns.values(), default=-1) + 1):
        names = [name for name, of in columns.items() if of == column]

        def mean(name: str) -> float:
            before = [rows[read] for read in reads[name]]
            return sum(before) / len(before) if before else 0.0

        for row, name in enumerate(sorted(names, key=mean)):
            rows[name] = row
    return rows


COLUMN_WIDTH, COLUMN_HEIGHT = 200, 18
"""The size of a column's box, in units of the picture."""
_COLUMN_ACROSS, _COLUMN_DOWN = 270, 22
_MARGIN = 4
_LETTERS = 32

_Column = tuple[str, str]
"""A table, and a column of it."""


@dataclass(frozen=True)
class ColumnBox:
    """The box of a column. shown: its name; with the table's name if it is another table. x, y: the upper left corner."""

    table: str
    shown: str
    x: int
    y: int


@dataclass(frozen=True)
class ColumnPicture:
    """The columns of one table, of its inputs and of its readers. curves: the edges between them, each as the path of an SVG."""

    boxes: tuple[ColumnBox, ...]
    curves: tuple[str, ...]
    size: tuple[int, int]


def draw_column_lineage(known: Mapping[str, TableOrigins], found: TableOrigins) -> ColumnPicture | None:
    """A table's columns with their origins and the columns made from them. None if no origin or use is known."""
    own = [(found.table, column.name) for column in found.columns]
    before = {(found.table, column.name): [(one.table, one.column) for one in column.origins] for column in found.columns}
    after = {
        (table, name): [(use.table, use.column) for use in list_column_uses(known, table, name) if use.column is not None]
        for table, name in own
    }
    corners = {
        **_locate_boxes(0, (one for ends in before.values() for one in ends)),
        **_locate_boxes(2, (one for ends in after.values() for one in ends)),
        **_locate_boxes(1, own),
    }
    edges = [(start, end) for end, starts in before.items() for start in starts]
    edges += [(start, end) for start, ends in after.items() for end in ends]
    if not edges:
        return None
    boxes = tuple(
        ColumnBox(table, _shorten_to_width(name if (table, name) in own else f"{table}.{name}"), x, y)
        for (table, name), (x, y) in corners.items()
    )
    return ColumnPicture(
        boxes,
        tuple(draw_curve(_right_end(corners[start]), _left_end(corners[end])) for start, end in edges),
        (max(box.x for box in boxes) + COLUMN_WIDTH + _MARGIN, max(box.y for box in boxes) + COLUMN_HEIGHT + _MARGIN),
    )


def _locate_boxes(number: int, columns: Iterable[_Column]) -> dict[_Column, tuple[int, int]]:
    return {
        column: (_MARGIN + number * _COLUMN_ACROSS, _MARGIN + row * _COLUMN_DOWN)
        for row, column in enumerate(dict.fromkeys(columns))
    }


def _right_end(corner: tuple[int, int]) -> tuple[int, int]:
    return corner[0] + COLUMN_WIDTH, corner[1] + COLUMN_HEIGHT // 2


def _left_end(corner: tuple[int, int]) -> tuple[int, int]:
    return corner[0], corner[1] + COLUMN_HEIGHT // 2


def _shorten_to_width(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
