"""Names and types of the columns for delivered values, and how a schema grows with them.

Types are Arrow's; names in capitals are SQL's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from sluice.declare.ingest.field_names import becomes_column
from sluice.declare.ingest.source import Source
from sluice.ingest.values import conversion
from sluice.ingest.values.json_values import JsonConstant, JsonInteger, JsonReal, RepeatedKeys

DEEPEST = 30
"""How many levels of nesting a column may have. Deeper values are rescued."""

_LONGEST = 255
_BIGINT, _DOUBLE, _STRING, _NULL = pa.int64(), pa.float64(), pa.string(), pa.null()
_LARGE = pa.decimal128(38, 0)
_MOMENT = pa.timestamp("us", tz="UTC")
_ORDERS = ((pa.int8(), pa.int16(), pa.int32(), _BIGINT, _LARGE, _DOUBLE), (pa.float32(), _DOUBLE), (pa.date32(), _MOMENT))
_TEXTS = (_BIGINT, _LARGE, _DOUBLE, pa.bool_(), pa.date32(), _MOMENT)
_WIDER: tuple[tuple[Callable[[pa.DataType, pa.DataType], bool], pa.DataType], ...] = (
    (lambda known, seen: pa.types.is_signed_integer(known) and known != _BIGINT and seen == _BIGINT, _BIGINT),
    (lambda known, seen: pa.types.is_signed_integer(known) and seen == _DOUBLE, _DOUBLE),
    (lambda known, seen: known == pa.date32() and pa.types.is_timestamp(seen), _MOMENT),
)
_UNFIT = re.compile(r"[^\w]", re.UNICODE)


def infer_json_type(value: Any, level: int = 0) -> pa.DataType:
    """Returns the type of a JSON value. NULL for null, NaN and infinities.

    value: from `json_values.parse_json_text` or `json.loads`. Integers beyond BIGINT are DECIMAL(38, 0), beyond that STRING. Values deeper than
    `DEEPEST` get STRING, which does not hold them, so they are rescued. Leaves out members whose name cannot be a column's.
    """
    if type(value) is str:
        return _STRING
    if value is None or isinstance(value, JsonConstant):
        return _NULL
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, (JsonInteger, int)):
        return _infer_integer_type(str(value))
    if isinstance(value, (JsonReal, float)):
        return _NULL if conversion.parse_double(str(value)) is conversion.MISFIT else _DOUBLE
    if level >= DEEPEST:
        return _STRING
    if isinstance(value, (dict, RepeatedKeys)):
        members = value.items() if isinstance(value, dict) else value.first().items()
        return pa.struct(
            _merge_fields_by_name([
                pa.field(name, infer_json_type(member, level + 1)) for name, member in members if is_column_name(name)
            ])
        )
    element = _NULL
    for item in value:
        element = merge_types(element, infer_json_type(item, level + 1))
    return pa.list_(element)


def infer_text_type(text: str) -> pa.DataType:
    """Returns the narrowest type that holds a CSV cell or a value in a path exactly. NULL for "", STRING if no other type fits."""
    if not text:
        return _NULL
    return next(
        (
            type
            for type in _TEXTS
            if conversion.parse_text_value(text, type) is not conversion.MISFIT and _is_stated_type(text, type)
        ),
        _STRING,
    )


def merge_types(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Returns the narrowest type for values of both: the wider number, TIMESTAMP for a date and a time, the fields of both structs.

    STRING if there is none. BIGINT and DOUBLE give DOUBLE: an integer that no double holds exactly is then rescued.
    """
    return a if a is b else _merge_distinct_types(a, b)


def grow_schema(schema: pa.Schema, news: pa.StructType, source: Source, hints: pa.Schema | None = None) -> pa.Schema:
    """Adds new fields to a schema, with types as the source wants them. Returns the same schema if nothing may be added.

    news: from `ParsedBlock`. hints: the columns of schema_hints. It adds unknown fields with a valid name that were not always null. A known column's
    type changes only if the source has widen_types. Fields that differ only in case are one, the first. The schema gets no more fields, including
    nested ones, than the source's most_columns.
    """
    declared = {field.name: field.type for field in hints or ()}
    fields = _add_new_fields(list(schema), list(news), source, _Room(count_remaining_fields(schema, source)), declared, top=True)
    return pa.schema(fields, schema.metadata)


def count_remaining_fields(schema: pa.Schema, source: Source) -> int:
    """Returns how many more fields the source's table may get."""
    return source.most_columns - _count_nested_fields(pa.struct(list(schema)))


def new_column_type(type: pa.DataType, source: Source) -> pa.DataType | None:
    """Returns the type of a column for such a field, if there is room. None if it was always null."""
    return _new_field_type(type, source, _Room(source.most_columns))


@lru_cache(maxsize=4096)
def is_column_name(name: str) -> bool:
    """Whether a column may have a name's characters. `becomes_column` decides on names that begin with an underscore."""
    return 0 < len(name) <= _LONGEST and column_names([name]) == [name]


def _infer_integer_type(digits: str) -> pa.DataType:
    if conversion.parse_integer(digits, _BIGINT) is not conversion.MISFIT:
        return _BIGINT
    return _LARGE if len(digits.lstrip("-")) <= _LARGE.precision else _STRING


def _is_stated_type(text: str, type: pa.DataType) -> bool:
    """Whether the text states that type and does not only fit it: 1.0 is not an integer, and a date is not a time."""
    if pa.types.is_decimal(type):
        return text.lstrip("-").isdigit()
    return not (pa.types.is_floating(type) and text.lstrip("-").isdigit() and text not in ("-0",))


@lru_cache(maxsize=4096)
def _merge_distinct_types(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    if a == b or pa.types.is_null(b):
        return a
    if pa.types.is_null(a):
        return b
    if pa.types.is_struct(a) and pa.types.is_struct(b):
        return pa.struct(_merge_fields_by_name([*a, *b]))
    if pa.types.is_list(a) and pa.types.is_list(b):
        return pa.list_(merge_types(a.value_type, b.value_type))
    for order in _ORDERS:
        if a in order and b in order:
            return order[max(order.index(a), order.index(b))]
    return _STRING


def _merge_fields_by_name(fields: list[pa.Field]) -> list[pa.Field]:
    """Returns one field for each name, in any case, in the order in which they were first seen, under the first spelling that was not always null."""
    found: dict[str, pa.Field] = {}
    for field in fields:
        known = found.setdefault(field.name.lower(), field)
        if known.name == field.name:
            found[field.name.lower()] = known.with_type(merge_types(known.type, field.type))
        elif pa.types.is_null(known.type):
            found[field.name.lower()] = field
    return list(found.values())


@dataclass
class _Room:
    """How many more fields a table may get."""

    left: int


def _count_nested_fields(type: pa.DataType) -> int:
    """Returns the number of fields in a type, including nested ones."""
    if pa.types.is_list(type):
        return _count_nested_fields(type.value_type)
    return sum(1 + _count_nested_fields(field.type) for field in type) if pa.types.is_struct(type) else 0


def _add_new_fields(
    known: list[pa.Field],
    news: list[pa.Field],
    source: Source,
    room: _Room,
    hints: Mapping[str, pa.DataType] = MappingProxyType({}),
    top: bool = False,
) -> list[pa.Field]:
    """Returns the known fields and the new ones. top: whether they are columns, and not nested in one."""
    found = {field.name.lower(): field for field in known}
    for field in news:
        there = found.get(field.name.lower())
        if there is None and room.left > 0 and is_column_name(field.name) and (not top or becomes_column(source, field.name)):
            room.left -= 1
            kind = hints.get(field.name) or _new_field_type(field.type, source, room)
            if kind is not None:
                found[field.name.lower()] = pa.field(field.name, kind)
            else:
                room.left += 1
        elif there is not None and there.name == field.name:
            found[field.name.lower()] = there.with_type(_widen_column_type(there.type, field.type, source, room))
    return list(found.values())


def _new_field_type(type: pa.DataType, source: Source, room: _Room) -> pa.DataType | None:
    """Returns the type of a new field. None if it was always null, or held nothing that could have a column."""
    if pa.types.is_struct(type):
        # A text is one column, whatever is in it.
        fields = _add_new_fields([], list(type), source, room if source.infer_types else _Room(1))
        return (pa.struct(fields) if source.infer_types else _STRING) if fields else None
    if pa.types.is_list(type):
        element = _new_field_type(type.value_type, source, room)
        return element and (pa.list_(element) if source.infer_types else _STRING)
    if pa.types.is_null(type):
        return None
    return type if source.infer_types else _STRING


def _widen_column_type(known: pa.DataType, seen: pa.DataType, source: Source, room: _Room) -> pa.DataType:
    """Returns a known column's type after a value that it did not hold."""
    if pa.types.is_struct(known) and pa.types.is_struct(seen):
        return pa.struct(_add_new_fields(list(known), list(seen), source, room))
    if pa.types.is_list(known) and pa.types.is_list(seen):
        element = known.value_field
        return pa.list_(element.with_type(_widen_column_type(element.type, seen.value_type, source, room)))
    return next((type for holds, type in _WIDER if source.widen_types and holds(known, seen)), known)


def column_names(header: Sequence[str]) -> list[str]:
    """The header's names as a Delta table takes them; "" for a field that has none of its own.

    Blanks around a name and a byte order mark go, characters other than letters, digits and underscores become underscores.
    Nameless: empty names, and names that repeat an earlier one (letter case apart).
    """
    taken = set[str]()
    names = []
    for delivered in header:
        name = _UNFIT.sub("_", delivered.replace("\ufeff", "").strip())
        fit = "" if not name.strip("_") or name.lower() in taken else name
        taken.add(fit.lower())
        names.append(fit)
    return names


def match_table_spelling(names: Sequence[str], known: Iterable[str]) -> list[str]:
    """The names in the letter case in which the table has them already, since Delta's names ignore case."""
    spelling = {name.lower(): name for name in known}
    return [spelling.get(name.lower(), name) for name in names]
