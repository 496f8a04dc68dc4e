"""Expectations on a table as a whole. They warn or fail and never drop a row, since their result depends on the order of batches.

A new one is a class here with its decorator, and its handler in `sluice.quality.whole_table`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from sluice.declare.field_values import check_field_types, check_names
from sluice.declare.pipeline import is_interval
from sluice.errors import DeclarationError
from sluice.flow_counts import ALERT_COUNTS

if TYPE_CHECKING:
    from sluice.declare.quality.expectations import ExpectationDecorator


@dataclass(frozen=True, kw_only=True)
class TableExpectation:
    """A condition on a table as a whole. or_fail: the flow fails if it is not met; otherwise the failure is counted and shown.

    It is evaluated after the flow has written. The batch is not undone, but flows that read the table do not run.

    depends_on_time: whether the result may change while the table stays as it is.
    """

    depends_on_time: ClassVar[bool] = False
    name: str
    or_fail: bool = False

    @property
    def refers_to(self) -> str | None:
        """The other table that it is about, which must be made first. None if it is about its own table alone."""
        return None

    @property
    def runs_compared(self) -> int:
        """How many earlier runs the table is compared with."""
        return 0

    def __post_init__(self) -> None:
        if not self.name:
            raise DeclarationError(
                "An expectation on a whole table needs a name first, as in @expect_unique('one_session', 'session_id')."
            )
        refuse_reserved_name(self.name)
        check_field_types(self, f"Expectation '{self.name}'")


@dataclass(frozen=True, kw_only=True)
class Unique(TableExpectation):
    """No two rows have equal values in these columns. Rows with NULL in one of them do not count."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", _check_column_names(self.columns, "columns", self.name))


@dataclass(frozen=True, kw_only=True)
class RowCount(TableExpectation):
    """The table's number of rows lies within limits, given as rows or as multiples of an earlier median. None: no limit.

    at_least, at_most: rows. least_times, most_times: multiples of the median row count over the last `runs` runs that changed the
    table.
    """

    at_least: int | None = None
    at_most: int | None = None
    least_times: float | None = None
    most_times: float | None = None
    runs: int = 7

    @property
    def runs_compared(self) -> int:
        """How many earlier runs the table is compared with."""
        return self.runs

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.at_least is self.at_most is self.least_times is self.most_times is None:
            raise DeclarationError(f"Expectation '{self.name}': say at_least, at_most, least_times or most_times.")
        for low, high in (("at_least", "at_most"), ("least_times", "most_times")):
            least, most = getattr(self, low), getattr(self, high)
            if any(limit is not None and limit < 0 for limit in (least, most)):
                raise DeclarationError(f"Expectation '{self.name}': {low} and {high} are not negative.")
            if least is not None and most is not None and least > most:
                raise DeclarationError(f"Expectation '{self.name}': {low}={least} is more than {high}={most}.")
        if self.runs < 1:
            raise DeclarationError(
                f"Expectation '{self.name}': runs is how many runs to look back at, 1 or more, not {self.runs}."
            )


@dataclass(frozen=True, kw_only=True)
class Fresh(TableExpectation):
    """At the end of the run, the latest value of a DATE or TIMESTAMP column is not older than `within`, such as "2 days".

    A DATE counts from its midnight (UTC). A table without any value is not fresh.
    """

    depends_on_time: ClassVar[bool] = True
    column: str
    within: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.column:
            raise DeclarationError(f"Expectation '{self.name}' names no column.")
        if not is_interval(self.within):
            raise DeclarationError(f"Expectation '{self.name}': within is an interval such as '2 days', not '{self.within}'.")


@dataclass(frozen=True, kw_only=True)
class References(TableExpectation):
    """Each combination of values in the columns, unless one is NULL, occurs in the columns `of_columns` of another table of the pipeline."""

    columns: tuple[str, ...]
    of: str
    of_columns: tuple[str, ...]

    @property
    def refers_to(self) -> str:
        """The table that must contain the values."""
        return self.of

    def __post_init__(self) -> None:
        super().__post_init__()
        found = _check_column_names(self.columns, "columns", self.name)
        there = _check_column_names(self.of_columns, "of_columns", self.name)
        object.__setattr__(self, "columns", found)
        object.__setattr__(self, "of_columns", there)
        if len(there) != len(found):
            raise DeclarationError(
                f"Expectation '{self.name}': columns and of_columns are pairs; it has {len(found)} and {len(there)}."
            )


def expect_unique(name: str, columns: str | tuple[str, ...], *, or_fail: bool = False) -> ExpectationDecorator:
    """Expects the columns to identify a row of the whole table. See `Unique`."""
    return _wrap_expectation(Unique(name=name, or_fail=or_fail, columns=check_names(columns, "columns", f"Expectation '{name}'")))


def expect_row_count(
    name: str,
    *,
    at_least: int | None = None,
    at_most: int | None = None,
    least_times: float | None = None,
    most_times: float | None = None,
    runs: int = 7,
    or_fail: bool = False,
) -> ExpectationDecorator:
    """Expects the whole table's number of rows to lie within limits. See `RowCount`."""
    rule = RowCount(
        name=name,
        or_fail=or_fail,
        at_least=at_least,
        at_most=at_most,
        least_times=least_times,
        most_times=most_times,
        runs=runs,
    )
    return _wrap_expectation(rule)


def expect_fresh(name: str, column: str, *, within: str, or_fail: bool = False) -> ExpectationDecorator:
    """Expects recent rows in the whole table. See `Fresh`."""
    return _wrap_expectation(Fresh(name=name, or_fail=or_fail, column=column, within=within))


def expect_references(
    name: str, columns: str | tuple[str, ...], *, of: str, of_columns: str | tuple[str, ...] = (), or_fail: bool = False
) -> ExpectationDecorator:
    """Expects the values of the columns to occur in another table. See `References`.

    of_columns: the columns of that table; by default they have the same names.
    """
    owner = f"Expectation '{name}'"
    found = check_names(columns, "columns", owner)
    there = check_names(of_columns, "of_columns", owner) or found
    return _wrap_expectation(References(name=name, or_fail=or_fail, columns=found, of=of, of_columns=there))


def refuse_reserved_name(name: str) -> None:
    """Raises DeclarationError for a name that alerts and ledgers already use for another count."""
    if name in ALERT_COUNTS:
        raise DeclarationError(
            f"An expectation may not be named '{name}': every table has a count of that name. Name it after what it expects."
        )


def _wrap_expectation(rule: TableExpectation) -> ExpectationDecorator:
    from sluice.declare.quality.expectations import ExpectationDecorator

    return ExpectationDecorator((rule,))


def _check_column_names(given: tuple[str, ...], field: str, name: str) -> tuple[str, ...]:
    found = check_names(given, field, f"Expectation '{name}'")
    if not found:
        raise DeclarationError(f"Expectation '{name}': {field} names no column.")
    return found
