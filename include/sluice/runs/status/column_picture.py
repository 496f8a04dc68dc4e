"""The columns of one table as a picture: their origins on the left, and the columns made from them on the right. Needs no lake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sluice.column_origins import TableOrigins
from sluice.runs.status.column_lineage import list_column_uses
from sluice.runs.status.lineage import draw_curve

WIDTH, HEIGHT = 200, 18
"""The size of a column's box, in units of the picture."""
_ACROSS, _DOWN = 270, 22
_MARGIN = 4
_LETTERS = 32

_Place = tuple[str, str]
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
    places = {
        **_place_in_column(0, (one for ends in before.values() for one in ends)),
        **_place_in_column(2, (one for ends in after.values() for one in ends)),
        **_place_in_column(1, own),
    }
    edges = [(start, end) for end, starts in before.items() for start in starts]
    edges += [(start, end) for start, ends in after.items() for end in ends]
    if not edges:
        return None
    boxes = tuple(
        ColumnBox(table, _shorten(name if (table, name) in own else f"{table}.{name}"), x, y)
        for (table, name), (x, y) in places.items()
    )
    return ColumnPicture(
        boxes,
        tuple(draw_curve(_right_end(places[start]), _left_end(places[end])) for start, end in edges),
        (max(box.x for box in boxes) + WIDTH + _MARGIN, max(box.y for box in boxes) + HEIGHT + _MARGIN),
    )


def _place_in_column(number: int, columns: Iterable[_Place]) -> dict[_Place, tuple[int, int]]:
    return {column: (_MARGIN + number * _ACROSS, _MARGIN + row * _DOWN) for row, column in enumerate(dict.fromkeys(columns))}


def _right_end(corner: tuple[int, int]) -> tuple[int, int]:
    return corner[0] + WIDTH, corner[1] + HEIGHT // 2


def _left_end(corner: tuple[int, int]) -> tuple[int, int]:
    return corner[0], corner[1] + HEIGHT // 2


def _shorten(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"
