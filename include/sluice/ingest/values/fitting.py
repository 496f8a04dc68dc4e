"""Fits a JSON value into a type: what the type holds exactly, and what is left over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from sluice.ingest.values import conversion, json_values, types
from sluice.ingest.values.conversion import MISFIT
from sluice.ingest.values.json_values import JsonConstant, JsonInteger, JsonReal


class Nothing:
    """The type of NOTHING."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING: Final = Nothing()
"""What is left over of a value that fits."""

Fit = Callable[[Any], tuple[Any, Any]]
"""Turns a value that is not null into what the column takes, and what is left over: NOTHING, or a JSON value."""


def build_value_fitter(type: pa.DataType, as_text: bool, drops_unknown: bool) -> Fit:
    """Returns a function that fits values into a type.

    as_text: whether STRING takes any value as its JSON text (infer_types=False). drops_unknown: whether fields that a struct lacks are left out
    (schema_evolution="none"). Members of a struct that fit stay; a list or map fits as a whole or not at all.
    """
    if pa.types.is_struct(type):
        return _build_struct_fitter(type, as_text, drops_unknown)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return _build_whole_fitter(list, _build_list_converter(build_value_fitter(type.value_type, as_text, drops_unknown)))
    if pa.types.is_map(type):
        named = conversion.is_string_type(type.key_type)
        return _build_whole_fitter(
            dict if named else None, _build_map_converter(build_value_fitter(type.item_type, as_text, drops_unknown))
        )
    scalar = _write_as_text if as_text and conversion.is_string_type(type) else _build_scalar_converter(type)

    def fit(value: Any) -> tuple[Any, Any]:
        found = scalar(value)
        return (None, value) if found is MISFIT else (found, NOTHING)

    return fit


def infer_leftover_type(left: Any, type: pa.DataType | None) -> pa.DataType:
    """Returns the type of what is left over. type: the column's, or None if there is none. Text that a date column did not hold has its own type."""
    if type is not None and pa.types.is_struct(type) and isinstance(left, dict):
        known = {field.name: field.type for field in type}
        return pa.struct([
            (name, infer_leftover_type(left[name], known.get(name))) for name in left if may_be_column(name, known)
        ])
    if type is not None and pa.types.is_date(type) and isinstance(left, str):
        return types.infer_text_type(left)
    return types.infer_json_type(left)


def may_be_column(name: str, known: Mapping[str, object]) -> bool:
    """Whether a field of that name is a column or could become one. Not if it differs from a column only in case."""
    return name in known or (types.is_column_name(name) and name.lower() not in _lowercase_names(tuple(known)))


@lru_cache(maxsize=256)
def _lowercase_names(names: tuple[str, ...]) -> frozenset[str]:
    return frozenset(name.lower() for name in names)


def _build_struct_fitter(type: pa.DataType, as_text: bool, drops_unknown: bool) -> Fit:
    fits = {field.name: build_value_fitter(field.type, as_text, drops_unknown) for field in type}
    spellings = {name.lower() for name in fits}

    def fit(value: Any) -> tuple[Any, Any]:
        if not isinstance(value, dict):
            return None, value
        kept, left = {}, {}
        for name, member in value.items():
            if member is None:
                continue
            if name in fits:
                kept[name], over = fits[name](member)
            else:
                over = NOTHING if drops_unknown and name.lower() not in spellings else member
            if over is not NOTHING:
                left[name] = over
        return kept, left or NOTHING

    return fit


def _build_whole_fitter(kind: Any, items: Callable[[Any], Any]) -> Fit:
    def fit(value: Any) -> tuple[Any, Any]:
        found = items(value) if type(value) is kind else MISFIT  # an object with a repeated key is a list of its own class
        return (None, value) if found is MISFIT else (found, NOTHING)

    return fit


def _build_list_converter(fit: Fit) -> Callable[[Any], Any]:
    def items(value: list[Any]) -> Any:
        found = [(None, NOTHING) if item is None else fit(item) for item in value]
        return MISFIT if any(left is not NOTHING for _, left in found) else [kept for kept, _ in found]

    return items


def _build_map_converter(fit: Fit) -> Callable[[Any], Any]:
    def items(value: dict[str, Any]) -> Any:
        found = [(name, *((None, NOTHING) if item is None else fit(item))) for name, item in value.items()]
        unfit = any(left is not NOTHING for _, _, left in found) or conversion.reject_unencodable_text("".join(value)) is MISFIT
        return MISFIT if unfit else [(name, kept) for name, kept, _ in found]

    return items


def _write_as_text(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return conversion.reject_unencodable_text(value)
    if kind is JsonInteger or kind is JsonReal:
        return str(value)
    return MISFIT if kind is JsonConstant else json_values.write_exact_json(value)


def _build_scalar_converter(type: pa.DataType) -> Callable[[Any], Any]:
    """Returns a function that converts a value to a type without parts, or MISFIT. Numbers come from numbers, everything else from strings."""
    if pa.types.is_boolean(type):
        return lambda value: value if isinstance(value, bool) else MISFIT
    if pa.types.is_signed_integer(type):
        return lambda value: conversion.parse_integer(value, type) if isinstance(value, JsonInteger) else MISFIT
    if pa.types.is_decimal(type):
        return lambda value: conversion.parse_decimal(value, type) if isinstance(value, (JsonInteger, JsonReal)) else MISFIT
    if pa.types.is_floating(type):
        parsed = conversion.parse_double if pa.types.is_float64(type) else conversion.parse_float32
        return lambda value: parsed(value) if isinstance(value, (JsonInteger, JsonReal)) else MISFIT
    parse = conversion.build_text_parser(type)
    return lambda value: parse(value) if value.__class__ is str else MISFIT
