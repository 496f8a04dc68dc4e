"""Checks of the names in declarations. Python does not check fields by itself, and a lone string is not a tuple of names."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from sluice.declare.field_types import describe_value
from sluice.errors import DeclarationError
from sluice.settings import is_valid_name


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
