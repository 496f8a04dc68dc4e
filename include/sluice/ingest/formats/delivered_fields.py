"""Fits a block's fields into the known columns, and finds what does not fit and what is new. For formats whose fields are arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from json.encoder import encode_basestring
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sluice.declare.ingest.source import Source
from sluice.ingest.formats import ParsedBlock, append_technical_columns
from sluice.ingest.values import conversion, types
from sluice.ingest.values.types import match_table_spelling


class FittedValues(NamedTuple):
    """column: the values that fit, NULL elsewhere. rest: JSON of what does not fit, NULL if all does; None: all fits. news: the rest's type."""

    column: pa.Array
    rest: pa.Array | None
    news: pa.DataType


class FieldValues(Protocol):
    """The values of one field in a block."""

    def fitted(self, type: pa.DataType) -> FittedValues:
        """Fits the values into a type."""

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        """Returns all values as JSON, NULL if there is none, and the narrowest type that holds them."""


@dataclass(frozen=True)
class DeliveredField:
    """name: that of its column, or under which it is rescued. can_be_column: whether there may be a column of that name."""

    name: str
    values: FieldValues
    can_be_column: bool = True


@dataclass(frozen=True)
class TextValues:
    """Values that are text: cells, lines, values in a path. kind: their type, if it must not be inferred."""

    cells: pa.Array
    kind: pa.DataType | None = None

    def fitted(self, type: pa.DataType) -> FittedValues:
        """Fits the cells as `conversion.convert_text_cells` does."""
        column, unfit = conversion.convert_text_cells(self.cells, type)
        if not pc.any(unfit).as_py():
            return FittedValues(column, None, pa.null())
        rest = TextValues(pc.if_else(unfit, self.cells, pa.scalar(None, pa.string())), self.kind)
        return FittedValues(column, *rest.whole())

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        """Returns the cells as JSON strings, and their type."""
        written = [None if cell is None else encode_basestring(cell) for cell in self.cells.to_pylist()]
        return pa.array(written, pa.string()), self.kind or _infer_cells_type(self.cells)


def fit_delivered_fields(
    source: Source, schema: pa.Schema, fields: Sequence[DeliveredField], count: int, problems: Mapping[int, tuple[str, str]]
) -> ParsedBlock:
    """Returns the block. fields: each column's name at most once. count: how many records. problems: by a record's position, why, and its text."""
    by_name = {field.name: field for field in fields if field.can_be_column}
    columns: list[pa.Array] = []
    rests: list[tuple[str, pa.Array]] = []
    news: list[pa.Field] = []
    for column in schema:
        found = by_name.pop(column.name, None)
        fitted = found.values.fitted(column.type) if found else FittedValues(pa.nulls(count, column.type), None, pa.null())
        columns.append(fitted.column)
        if fitted.rest is not None:
            rests.append((column.name, fitted.rest))
            if not pa.types.is_null(fitted.news):  # as where only the path's value is rescued
                news.append(pa.field(column.name, fitted.news))
    for field in fields if source.schema_evolution != "none" else ():
        if not field.can_be_column or field.name in by_name:
            written, kind = field.values.whole()
            rests.append((field.name, written))
            if field.can_be_column:
                news.append(pa.field(field.name, kind))
    rows = append_technical_columns(columns, schema, join_json_objects(rests, count), *_problem_columns(problems, count))
    return ParsedBlock(rows, pa.struct(news))


def add_path_fields(
    values: Mapping[str, str | None], fields: Sequence[DeliveredField], schema: pa.Schema, present: pa.Array
) -> list[DeliveredField]:
    """Returns the fields, and the values in the path as fields of each record. present: booleans that say which records there are.

    If the records have a field of that name, the path's value is taken where a record has none, and rescued where it differs.
    """
    found = list(fields)
    positions = {field.name.lower(): position for position, field in reversed(list(enumerate(fields)))}
    for delivered, value in values.items():
        if value is None:
            continue
        name = match_table_spelling([delivered], schema.names)[0] if types.is_column_name(delivered) else delivered
        cells = TextValues(pc.if_else(present, pa.scalar(value), pa.scalar(None, pa.string())))
        position = positions.setdefault(name.lower(), len(found))
        if position == len(found):
            found.append(DeliveredField(name, cells, types.is_column_name(delivered)))
        elif position < len(fields):
            found[position] = replace(found[position], values=_WithPathValue(found[position].values, cells))
    return found


@dataclass(frozen=True)
class _WithPathValue:
    """A field's values, and that of the path beside them."""

    own: FieldValues
    path: TextValues

    def fitted(self, type: pa.DataType) -> FittedValues:
        own, path = self.own.fitted(type), self.path.fitted(type)
        nowhere = pa.repeat(pa.scalar(False), len(own.column))
        column, differs = own.column, pc.is_valid(path.rest) if path.rest is not None else nowhere
        # Where it fits no type, as in a struct, there is nothing to compare; where it is empty, it is no value.
        if path.column.null_count < len(path.column):
            unfit = pc.is_valid(own.rest) if own.rest is not None else nowhere
            column = pc.if_else(pc.and_(pc.is_null(column), pc.invert(unfit)), path.column, column)
            same = pc.fill_null(pc.equal(column, path.column), False)
            differs = pc.or_(differs, pc.and_(pc.is_valid(path.column), pc.invert(same)))
        rest = _join_other_values(own.rest, self.path, differs)
        return FittedValues(column, rest if rest.null_count < len(rest) else None, own.news)

    def whole(self) -> tuple[pa.Array, pa.DataType]:
        (written, kind), (other, other_kind) = self.own.whole(), self.path.whole()
        rest = _join_other_values(written, self.path, pc.fill_null(pc.not_equal(written, other), True))
        return rest, other_kind if written.null_count == len(written) else kind


def _join_other_values(rest: pa.Array | None, path: TextValues, differs: pa.Array) -> pa.Array:
    """Returns what is rescued of a field: JSON of what does not fit, of the path's value where it differs, or of both as a list."""
    written = pc.if_else(differs, path.whole()[0], pa.scalar(None, pa.string()))
    if rest is None:
        return written
    both = pc.binary_join_element_wise("[", rest, ",", written, "]", "")
    return pc.coalesce(both, rest, written)


def join_json_objects(members: Sequence[tuple[str, pa.Array]], count: int) -> pa.Array:
    """Joins members that are JSON into objects. Leaves out NULL members; NULL if none is left."""
    parts = [
        pc.coalesce(pc.binary_join_element_wise(f",{encode_basestring(name)}:", written, ""), "")
        for name, written in members
        if written.null_count < count
    ]
    if not parts:
        return pa.nulls(count, pa.string())
    joined = pc.binary_join_element_wise(*parts, "")
    written = pc.binary_join_element_wise(pc.binary_replace_slice(joined, 0, 1, "{"), "}", "")
    return pc.if_else(pc.equal(joined, ""), pa.scalar(None, pa.string()), written)


def _infer_cells_type(cells: pa.Array) -> pa.DataType:
    """Returns the narrowest type that holds all cells. Cells that a wider type is known to hold are not looked at again."""
    kind: pa.DataType = pa.null()
    rest = cells.drop_null().unique()
    while len(rest) and not conversion.is_string_type(kind):
        wider = types.merge_types(kind, types.infer_text_type(rest[0].as_py()))
        if wider == kind:
            rest = rest[1:]
            continue
        kind = wider
        rest = rest.filter(conversion.convert_text_cells(rest, kind)[1])
    return kind


def _problem_columns(problems: Mapping[int, tuple[str, str]], count: int) -> tuple[pa.Array | None, pa.Array | None]:
    if not problems:
        return None, None
    found = [problems.get(position, (None, None)) for position in range(count)]
    return pa.array([why for why, _ in found], pa.string()), pa.array([text for _, text in found], pa.string())
