"""Reads JSON records one at a time: slowly, but correctly for any input. The faster readers hand over what they cannot read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sluice.declare.ingest.source import Source
from sluice.ingest.formats import NO_OBJECT, TOO_DEEP, append_technical_columns
from sluice.ingest.values import conversion, fitting, json_values, types
from sluice.ingest.values.conversion import MISFIT
from sluice.ingest.values.fitting import NOTHING
from sluice.ingest.values.json_values import RepeatedKeys


class NewFields:
    """The fields that are not among the columns, collected over records."""

    def __init__(self, schema: pa.Schema) -> None:
        self._known: dict[str, pa.DataType] = {field.name: field.type for field in schema}
        self._seen: dict[str, pa.DataType] = {}

    def add(self, name: str, left: Any) -> None:
        """Adds a field. left: the part of it that did not fit, from `json_values.parse_json_text`."""
        self.add_type(name, fitting.infer_leftover_type(left, self._known.get(name)))

    def add_type(self, name: str, type: pa.DataType) -> None:
        """Adds a field of a known type. Below a known struct, new members count more than another kind of value."""
        if not fitting.may_be_column(name, self._known):
            return
        seen = self._seen.get(name)
        known = self._known.get(name)
        if seen is None:
            self._seen[name] = type
        elif known is not None and pa.types.is_struct(known) and pa.types.is_struct(seen) != pa.types.is_struct(type):
            self._seen[name] = seen if pa.types.is_struct(seen) else type
        else:
            self._seen[name] = types.merge_types(seen, type)

    def fields(self) -> pa.StructType:
        """Returns the fields in the order in which they were first seen."""
        return pa.struct(list(self._seen.items()))


@dataclass
class _Row:
    """One record while it is read: by name, what its columns take and what is left over, as a list if a key came more than once."""

    kept: dict[str, Any] = field(default_factory=dict)
    left: dict[str, list[Any]] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)

    def also(self, name: str, first: Any, more: Any) -> None:
        """Rescues another value of a name. If a part of the first did not fit, the first is rescued whole: a list cannot mix parts and wholes."""
        if name in self.partial:
            self.partial.discard(name)
            del self.kept[name]
            self.left[name] = [_replace_repeated_by_text(first)]
        self.left.setdefault(name, []).append(more)


class ExactJsonReader:
    """Reads records into columns."""

    def __init__(self, source: Source, schema: pa.Schema, path_values: Mapping[str, str | None]) -> None:
        as_text, self._drops = not source.infer_types, source.schema_evolution == "none"
        self._schema = schema
        self._fits = {column.name: fitting.build_value_fitter(column.type, as_text, self._drops) for column in schema}
        self._types = {column.name: column.type for column in schema}
        self._spellings = {name.lower() for name in self._fits}
        self._path = {name: cell for name, cell in path_values.items() if cell is not None}

    def news(self) -> NewFields:
        """Returns the fields that the columns lack before any record is read: those of values in the path."""
        news = NewFields(self._schema)
        for name, cell in self._path.items():
            kind = self._types.get(name)
            if not self._left_out(name) if kind is None else conversion.parse_cell_value(cell, kind) is MISFIT:
                news.add_type(name, types.infer_text_type(cell))
        return news

    def rows(self, texts: Iterable[str], news: NewFields) -> pa.Table:
        """Returns the rows of records, in order. texts: one for each record, as delivered. news: collects the fields that the columns lack."""
        columns: list[list[Any]] = [[] for _ in self._schema]
        ends: list[tuple[str | None, str | None, str | None]] = []
        for text in texts:
            kept, *end = self._one(text, news)
            ends.append((end[0], end[1], end[2]))
            for column, name in zip(columns, self._fits, strict=True):
                column.append(kept.get(name))
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self._types.values(), strict=True)]
        rescued, problem, record = (pa.array([end[at] for end in ends], pa.string()) for at in range(3))
        return append_technical_columns(arrays, self._schema, rescued, problem, record)

    def _one(self, delivered: str, news: NewFields) -> tuple[dict[str, Any], str | None, str | None, str | None]:
        text = delivered.removeprefix("\ufeff")
        try:
            if json_values.count_deep_levels(text):
                with json_values.recursion_room():
                    return self._read_record(text, delivered, news)
            return self._read_record(text, delivered, news)
        except json_values.TooDeep:
            return {}, None, TOO_DEEP, delivered

    def _read_record(
        self, text: str, delivered: str, news: NewFields
    ) -> tuple[dict[str, Any], str | None, str | None, str | None]:
        try:
            value = json_values.parse_json_text(text)
        except ValueError:
            return {}, None, NO_OBJECT, delivered
        if not isinstance(value, (dict, RepeatedKeys)):
            return {}, None, NO_OBJECT, delivered
        row, fits = _Row(), self._fits
        members = value.first() if isinstance(value, RepeatedKeys) else value
        for name, member in members.items():
            if member is None:
                continue
            if name not in fits or isinstance(member, (dict, list)):
                self._take_member(row, name, member, news)
                continue
            row.kept[name], left = fits[name](member)
            if left is not NOTHING:
                row.left[name] = [left]
                news.add(name, left)
        if isinstance(value, RepeatedKeys):
            self._further(row, value)
        if self._path:
            self._from_path(row, members)
        if not row.left:
            return row.kept, None, None, None
        return (
            row.kept,
            json_values.write_exact_json({name: left[0] if len(left) == 1 else left for name, left in row.left.items()}),
            None,
            None,
        )

    def _take_member(self, row: _Row, name: str, member: Any, news: NewFields) -> None:
        """Takes the first member of a name, an unknown one, or one with parts."""
        fit = self._fits.get(name)
        if fit is None and self._left_out(name):
            return
        kept, left = (None, member) if fit is None else fit(member)
        if isinstance(member, (dict, list)) and not isinstance(kept, str) and json_values.has_repeated_key(member):
            # An object with a repeated key fits no column, and written as JSON again a reader would see one of the two members. So its text is kept.
            kept, left = None, member
        if kept is not None:
            row.kept[name] = kept
        if left is not NOTHING:
            row.left[name] = [_replace_repeated_by_text(left)]
            if kept is not None:
                row.partial.add(name)
            news.add(name, left)

    def _further(self, row: _Row, members: RepeatedKeys) -> None:
        """Takes a value whose name has come before."""
        seen: dict[str, Any] = {}
        for name, member in members:
            if name in seen and member is not None and (name in self._fits or not self._left_out(name)):
                row.also(name, seen[name], _replace_repeated_by_text(member))
            seen.setdefault(name, member)

    def _from_path(self, row: _Row, own: Mapping[str, Any]) -> None:
        for name, cell in self._path.items():
            kind = self._types.get(name)
            if kind is None:
                if not self._left_out(name) and own.get(name) != cell:
                    row.also(name, own.get(name), cell)
                continue
            value = conversion.parse_cell_value(cell, kind)
            if own.get(name) is None and value is not MISFIT:
                row.kept[name] = value
            elif value is MISFIT or (value is not None and row.kept.get(name) != value):
                row.also(name, own.get(name), cell)

    def _left_out(self, name: str) -> bool:
        """Whether an unknown field is dropped. One that differs from a column only in case is not a new field, and is kept."""
        return self._drops and name.lower() not in self._spellings


def _replace_repeated_by_text(left: Any) -> Any:
    """Returns what is left over in the form in which it is rescued: objects that have a key twice become their text."""
    return json_values.write_exact_json(left) if isinstance(left, (dict, list)) and json_values.has_repeated_key(left) else left
