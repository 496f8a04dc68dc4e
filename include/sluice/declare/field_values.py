"""Checks what the fields of a declaration are given: values by the annotations of the fields, and names.

Python itself takes any value: "false" would be true, and a lone string a tuple of letters. Also reads amounts of bytes.
"""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import Field, fields
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from sluice.errors import DeclarationError
from sluice.settings import is_valid_name

CHECKED_BY_ITSELF = {"checked_by_itself": True}
"""The metadata of a field that its declaration checks, since that has more to say about it."""
_PLAIN_NAMES: Mapping[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    Decimal: "a number",
    str: "a text",
    Callable: "a function",
    Mapping: "a dict",
    dict: "a dict",
    tuple: "a tuple",
    frozenset: "a set of texts",
}
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


class _NotLoaded:
    """Stands for a type that a declaration's module loads for type checkers alone, such as pyspark's. No value is of it."""


class _Names(dict[str, Any]):
    """The names of a module, in which annotations are evaluated."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, _NotLoaded)


def check_field_types(declared: Any, owner: str, examples: Mapping[str, str] | None = None) -> None:
    """Raises DeclarationError for the first field whose value is not of its annotated type.

    What can be gone through once only, such as a generator, becomes a tuple first, where one is expected.

    owner: how the message begins. examples: by field, a value as the file would have it, where the default is none.
    """
    kind: Any = type(declared)
    hints = _field_hints(kind)
    for field in fields(declared):
        if CHECKED_BY_ITSELF.items() <= field.metadata.items():
            continue
        said, hint = getattr(declared, field.name), hints[field.name]
        if isinstance(said, Iterator) and _takes_tuple(hint):
            said = tuple(said)
            object.__setattr__(declared, field.name, said)  # a declaration is frozen
        if not _fits_annotation(said, hint):
            example = (examples or {}).get(field.name) or _example_of(field)
            shown = f", as in {field.name}={example}" if example else ""
            raise DeclarationError(
                f"{owner}: {field.name} is {_describe_hint(hint)}{shown}, not {describe_value(_find_wrong_part(said, hint))}."
            )


def describe_value(said: object) -> str:
    """How a message names a value of the wrong type, with what to write instead where that is clear."""
    if said is None or isinstance(said, bool):
        return str(said)
    if isinstance(said, str):
        return f"the text '{said}'"
    if isinstance(said, int | float):
        return f"the number {said}"
    if hasattr(said, "declared_in") and (name := getattr(said, "name", "")):
        return f"the declaration itself: write its name, '{name}'"
    if type(said).__name__ == "ExpectationDecorator":
        return "an expectation alone: write (expect(...),)"
    return f"a {type(said).__name__}"


@cache
def _field_hints(declaration: type[Any]) -> Mapping[str, Any]:
    """The annotations of a class's fields, evaluated where each was written."""
    found: dict[str, Any] = {}
    for one in reversed(declaration.__mro__):
        names = _Names(vars(sys.modules[one.__module__]))
        own: Mapping[str, Any] = inspect.get_annotations(one)
        found |= {name: eval(text, {}, names) if isinstance(text, str) else text for name, text in own.items()}
    return found


def _example_of(field: Field[Any]) -> str:
    whole_number = isinstance(field.default, int | float) and not isinstance(field.default, bool)
    return repr(field.default) if whole_number else ""


def _fits_annotation(said: object, hint: Any) -> bool:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits_annotation(said, one) for one in inner)
    if origin is Literal:  # the declaration itself says which words it knows
        return any(type(said) is type(one) for one in inner)
    if origin is tuple and inner[-1:] == (...,):
        return _fits_each_part(said, inner[0])
    if origin is Mapping or origin is dict:
        return isinstance(said, Mapping) and all(
            _fits_annotation(key, inner[0]) and _fits_annotation(one, inner[1]) for key, one in said.items()
        )
    if origin is frozenset:
        return isinstance(said, Set) and all(_fits_annotation(one, inner[0]) for one in said)
    return _fits_plain(said, origin)


def _takes_tuple(hint: Any) -> bool:
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return any(get_origin(one) is tuple for one in alternatives)


def _find_wrong_part(said: object, hint: Any) -> object:
    """The first part of a tuple or a dict that does not fit, if it may be one; else the whole value."""
    for one in get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,):
        if get_origin(one) is tuple and isinstance(said, tuple | list):
            return next((part for part in said if not _fits_annotation(part, get_args(one)[0])), said)
        if get_origin(one) is Mapping and isinstance(said, Mapping):
            return next((part for part in said.values() if not _fits_annotation(part, get_args(one)[1])), said)
    return said


def _fits_each_part(said: object, hint: Any) -> bool:
    """A text alone stands for one name; a set would be as good as a tuple."""
    if isinstance(said, str):
        return hint in (str, Any)
    return (
        isinstance(said, Collection)
        and not isinstance(said, bytes | Mapping)
        and all(_fits_annotation(one, hint) for one in said)
    )


def _fits_plain(said: object, hint: Any) -> bool:
    if hint is Any or isinstance(hint, TypeVar | ParamSpec):
        return True
    if hint is None or hint is NoneType:
        return said is None
    if hint is Callable or hint is tuple:
        return callable(said) if hint is Callable else isinstance(said, tuple | list)
    if hint in (int, float):
        whole = isinstance(said, int) or (isinstance(said, float) and said.is_integer())
        return (whole or (hint is float and isinstance(said, float))) and not isinstance(said, bool)
    return isinstance(said, hint)


def _describe_hint(hint: Any) -> str:
    origin, inner = get_origin(hint) or hint, get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_describe_hint(one) for one in inner if one not in (NoneType, _NotLoaded)))
    if origin is Literal:
        return f"one of {_list_words(inner)}"
    if origin is tuple and inner[-1:] == (...,):
        return "a text or a tuple of texts" if inner[0] in (str, Any) else f"a tuple, each part of it {_describe_hint(inner[0])}"
    if origin is Mapping:
        return f"a dict with {_describe_hint(inner[1])} for each name"
    name = getattr(origin, "__name__", str(origin))
    return _PLAIN_NAMES.get(origin) or f"{'an' if name[0] in 'AEIOU' else 'a'} {name}(...)"


def _list_words(words: Iterable[object]) -> str:
    return ", ".join(repr(word) for word in words)


def parse_byte_amount(owner: str, field: str, said: int | str) -> int:
    """Returns the bytes in 500000000 or "500m" (k, m, g, t: powers of 1000). Raises DeclarationError."""
    found = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", str(said).strip().lower())
    if not found:
        raise DeclarationError(f"{owner}: {field} is a number of bytes such as 500000000 or '500m', not '{said}'.")
    return int(found.group(1)) * _UNITS[found.group(2)]


def check_names(value: str | tuple[str, ...] | list[str], field: str, owner: str) -> tuple[str, ...]:
    """Returns the names as a tuple; a single string stands for one name. Raises DeclarationError for anything else, or a duplicate."""
    if not isinstance(value, Collection | Iterator) or isinstance(value, bytes):
        raise DeclarationError(f"{owner}: {field} takes a name or a tuple of names, not {describe_value(value)}.")
    found = (value,) if isinstance(value, str) else tuple(value)
    for name in found:
        if not isinstance(name, str) or not name:
            raise DeclarationError(f"{owner}: {field} takes column or table names, not {type(name).__name__}.")
    if len(set(found)) != len(found):
        raise DeclarationError(f"{owner}: {field} names something twice.")
    return found


def add_parent_columns(columns: Iterable[str]) -> frozenset[str]:
    """The names, and for a field within a column (`address.email`) also its column, which contains the field."""
    return frozenset(part for name in columns for part in (name, name.partition(".")[0]))


def find_column_spelling(name: str | None, columns: Iterable[str]) -> str | None:
    """The column of that name, as the table spells it. None if there is none. Spark and Delta ignore the letter case of names."""
    every = [column for column in columns if name is not None and column.lower() == name.lower()]
    return name if name in every else next(iter(every), None)


def check_declared_name(name: str, owner: str) -> str:
    """Returns the name. Raises DeclarationError if it is not lower-case snake case."""
    if not is_valid_name(name):
        raise DeclarationError(f"{owner} '{name}': a name is lower-case snake case, as in 'heart_rate'.")
    return name


def check_secret_name(name: str) -> str:
    """Returns the name. Raises DeclarationError if it is no valid name of a secret: a file name without a folder."""
    if not re.fullmatch(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)*", name) or len(name) > 64:
        raise DeclarationError(
            f"Secret '{name[:64]}': a name has lower-case letters, digits, _ - and single dots, as in 'research.key'."
        )
    return name
