"""What the tables hold against what the maker of the deliveries knows they must hold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeAlias

Row: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class TruthVerdict:
    """How a table compares with the truth. Counts of rows; never a value, which may be personal."""

    table: str
    expected: int
    found: int
    missing: int
    surplus: int

    @property
    def equal(self) -> bool:
        """Whether every expected row is there and no other one."""
        return not self.missing and not self.surplus


def compare_with_truth(table: str, expected: Sequence[Row], found: Sequence[Row]) -> TruthVerdict:
    """Compare two multisets of rows on the columns that the expected rows have.

    Numbers with fractions are equal when close (1e-9, relative), instants when they are the same in UTC.
    """
    columns = sorted({column for row in expected for column in row})
    fractions = [column for column in columns if _has_value_of_type(float | Decimal, column, expected, found)]
    instants = {column for column in columns if _has_value_of_type(datetime, column, expected, found)}
    exact = [column for column in columns if column not in fractions]
    sides = [_group_rows(rows, exact, fractions, instants) for rows in (expected, found)]
    missing = surplus = 0
    for group in sides[0].keys() | sides[1].keys():
        lacking, left = _count_unmatched(sides[0].get(group, []), sides[1].get(group, []))
        missing, surplus = missing + lacking, surplus + left
    return TruthVerdict(table=table, expected=len(expected), found=len(found), missing=missing, surplus=surplus)


Numbers: TypeAlias = tuple[float, ...]


def _has_value_of_type(kind: object, column: str, *sides: Iterable[Row]) -> bool:
    return any(isinstance(row.get(column), kind) for rows in sides for row in rows)  # type: ignore[arg-type]  # the rows are plain mappings of object


def _group_rows(
    rows: Sequence[Row], exact: list[str], fractions: list[str], instants: set[str]
) -> dict[tuple[object, ...], list[Numbers]]:
    groups: dict[tuple[object, ...], list[Numbers]] = defaultdict(list)
    for row in rows:
        values = [_comparable_value(row.get(column), instant=column in instants) for column in exact]
        absent = [row.get(column) is None for column in fractions]
        numbers = tuple(float(str(row[column])) if row.get(column) is not None else 0.0 for column in fractions)
        groups[*values, *absent].append(numbers)
    return groups


def _comparable_value(value: object, *, instant: bool) -> object:
    if instant and isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | tuple | dict):
        return repr(value)
    return value


def _count_unmatched(expected: list[Numbers], found: list[Numbers]) -> tuple[int, int]:
    """How many of each side have no close partner on the other. Both are walked in order."""
    left, right = sorted(expected), sorted(found)
    i = j = matched = 0
    while i < len(left) and j < len(right):
        if all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) for a, b in zip(left[i], right[j], strict=True)):
            matched, i, j = matched + 1, i + 1, j + 1
        elif left[i] < right[j]:
            i += 1
        else:
            j += 1
    return len(left) - matched, len(right) - matched
