"""Expectations on a table as a whole. They warn or fail and never touch a row: what they say depends on which batch came when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from sluice.declare.expectations import Adds


@dataclass(frozen=True, kw_only=True)
class TableExpectation:
    """What a table as a whole must meet. or_fail: the flow fails where it does not; otherwise it is counted and shown."""

    name: str
    or_fail: bool = False


@dataclass(frozen=True, kw_only=True)
class Unique(TableExpectation):
    """No two rows have equal values in these columns; rows with a NULL among them do not count."""

    columns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RowCount(TableExpectation):
    """The table has so many rows, or so many times the median of what its last runs left it with. None: no limit.

    at_least, at_most: rows. least_times, most_times: of the median of the last `runs` runs that changed the table.
    """

    at_least: int | None = None
    at_most: int | None = None
    least_times: float | None = None
    most_times: float | None = None
    runs: int = 7


@dataclass(frozen=True, kw_only=True)
class Fresh(TableExpectation):
    """The latest value of a DATE or TIMESTAMP column is not older than `within`, an interval such as "2 days", at the end of the run."""

    column: str
    within: str


@dataclass(frozen=True, kw_only=True)
class References(TableExpectation):
    """Every value of the columns that has no NULL is in the columns `of_columns` of another table of the pipeline."""

    columns: tuple[str, ...]
    of: str
    of_columns: tuple[str, ...]


def expect_unique(name: str, columns: str | tuple[str, ...], *, or_fail: bool = False) -> Adds:
    """Expect the columns to identify a row of the whole table. See `Unique`."""
    return _adds(Unique(name=_name(name), or_fail=or_fail, columns=_names(columns)))


def expect_row_count(
    name: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    least_times: float | None = None,
    most_times: float | None = None,
    runs: int = 7,
    or_fail: bool = False,
) -> Adds:
    """Expect so many rows in the whole table. See `RowCount`."""
    if at_least is at_most is least_times is most_times is None:
        raise DeclarationError(f"Expectation '{name}': say at_least, at_most, least_times or most_times.")
    rule = RowCount(
        name=_name(name),
        or_fail=or_fail,
        at_least=at_least,
        at_most=at_most,
        least_times=least_times,
        most_times=most_times,
        runs=runs,
    )
    return _adds(rule)


def expect_fresh(name: str, column: str, *, within: str, or_fail: bool = False) -> Adds:
    """Expect recent rows in the whole table. See `Fresh`."""
    return _adds(Fresh(name=_name(name), or_fail=or_fail, column=column, within=within))


def expect_references(
    name: str, columns: str | tuple[str, ...], *, of: str, of_columns: str | tuple[str, ...] = (), or_fail: bool = False
) -> Adds:
    """Expect every row's columns to be found in another table. of_columns: there; by themselves named the same. See `References`."""
    found = _names(columns)
    there = _names(of_columns) or found
    if len(there) != len(found):
        raise DeclarationError(f"Expectation '{name}': columns and of_columns are pairs; it has {len(found)} and {len(there)}.")
    return _adds(References(name=_name(name), or_fail=or_fail, columns=found, of=of, of_columns=there))


def _adds(rule: TableExpectation) -> Adds:
    from sluice.declare.expectations import Adds

    return Adds((rule,))


def _names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _name(name: str) -> str:
    if not name:
        raise DeclarationError(
            "An expectation on a whole table needs a name first, as in @expect_unique('one_session', 'session_id')."
        )
    return name
