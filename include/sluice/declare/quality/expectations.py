"""Expectations: SQL conditions over one row, and what happens to a row that does not meet one.

A new action is a member of `Action` and its two decorators, which `sluice.declare` exports; one with a count of its own also needs the
field in `sluice.flow_counts`. Code that handles rows asks an action's properties and never tests for a particular action.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Generic, ParamSpec, Self, TypeAlias, overload

from sluice.declare.field_values import check_field_types, describe_value
from sluice.declare.quality.table_expectations import TableExpectation, refuse_reserved_name
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P = ParamSpec("P")


class RowFate(enum.Enum):
    """The fate of a row that does not meet an expectation."""

    STAYS = "stays"
    STOPS_FLOW = "stops the flow before anything is written"
    LEFT_OUT = "is left out"
    SET_ASIDE = "is set aside in quarantine"


class Action(enum.Enum):
    """What happens to a row whose condition is false or NULL: the name in rule sets, the row's fate, and how it is counted.

    counted_as: a count of `FlowCounts`; "" where the counts by rule suffice. A row that is taken out is always counted.

    The order is the precedence, so those that take rows out come last: of the actions whose expectations a row fails, the last decides
    where the row goes and how it is counted. Whether the flow stops is checked before that.
    """

    WARN = "warn", RowFate.STAYS
    FAIL = "fail", RowFate.STOPS_FLOW
    DROP = "drop", RowFate.LEFT_OUT, "dropped"
    QUARANTINE = "quarantine", RowFate.SET_ASIDE, "quarantined"

    def __new__(cls, name: str, fate: RowFate, counted_as: str = "") -> Self:
        """Makes the member with its name alone as the value: its repr is part of fingerprints, which are about rows."""
        made = object.__new__(cls)
        made._value_ = name
        return made

    def __init__(self, name: str, fate: RowFate, counted_as: str = "") -> None:
        self.fate, self.counted_as = fate, counted_as

    @property
    def decorator(self) -> str:
        """The decorator for an expectation with this action, as declarations write it."""
        return "expect" if self is Action.WARN else f"expect_or_{self.value}"

    @property
    def takes_row_out(self) -> bool:
        """Whether the row is kept out of the table. A view cannot leave rows out: it equals its transform."""
        return self.fate in (RowFate.LEFT_OUT, RowFate.SET_ASIDE)

    @property
    def sets_row_aside(self) -> bool:
        """Whether the row is kept in quarantine."""
        return self.fate is RowFate.SET_ASIDE

    @property
    def stops_flow(self) -> bool:
        """Whether no row may fail; if one does, nothing of its batch is written."""
        return self.fate is RowFate.STOPS_FLOW

    def goes_before(self, other: Action) -> bool:
        """Whether this action decides for a row that fails expectations of both."""
        order = list(Action)
        return order.index(self) > order.index(other)


ACTION_COUNTS = tuple(dict.fromkeys(action.counted_as for action in Action if action.counted_as))
"""The counts that actions add rows to."""


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A named SQL condition over the columns of one row. NULL counts as not met, unless `null_ok`.

    at_most: the share of a micro-batch's rows that may fail it, such as 0.02; if more fail, nothing of the batch is written and the run
    fails. tags: words by which a rule set selects rules.
    """

    name: str
    condition: str
    action: Action
    null_ok: bool = False
    at_most: float | Decimal | None = field(
        default=None, repr=False
    )  # the repr is part of the table's fingerprint, which is about its rows
    tags: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        check_field_types(self, f"Expectation '{self.name}'", {"condition": '"heartrate > 0"', "at_most": "0.02"})
        if not self.name or not self.condition.strip():
            raise DeclarationError("An expectation needs a name and a condition, as in @expect('positive', 'heartrate > 0').")
        refuse_reserved_name(self.name)
        if self.at_most is not None and not 0 <= self.at_most < 1:
            raise DeclarationError(f"Expectation '{self.name}': at_most is a share of the rows, as in 0.02, not {self.at_most}.")
        if self.at_most is not None and self.action.stops_flow:
            raise DeclarationError(
                f"Expectation '{self.name}': with at_most, use @expect; @{self.action.decorator} lets no row fail."
            )


Declared: TypeAlias = Expectation | TableExpectation


@dataclass(frozen=True)
class ExpectingTransform(Generic[P]):
    """A transform with expectations, waiting for the `@table` above it."""

    function: Callable[P, DataFrame]
    expectations: tuple[Declared, ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """Returns what the transform makes of these inputs."""
        return self.function(*args, **kwargs)


@dataclass(frozen=True)
class ExpectationDecorator:
    """A decorator that adds expectations to a transform; also what `expectations=` takes."""

    expectations: tuple[Declared, ...]

    @overload
    def __call__(self, function: ExpectingTransform[P]) -> ExpectingTransform[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> ExpectingTransform[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | ExpectingTransform[P]) -> ExpectingTransform[P]:
        """The transform with these expectations, waiting for the `@table` above it."""
        from sluice.declare.datasets.dataset import Dataset

        if isinstance(function, Dataset):
            raise DeclarationError(f"@table must stand above @expect at '{function.name}'.")
        if isinstance(function, ExpectingTransform):
            return ExpectingTransform(function.function, (*self.expectations, *function.expectations))
        return ExpectingTransform(function, self.expectations)


class _Expect:
    """A decorator `@expect...(name, condition)` that adds one expectation to a transform."""

    usage = 'a name and a condition: @{}("positive", "bpm > 0")'

    def __init__(self, action: Action) -> None:
        self._action = action

    def __call__(
        self, name: str, condition: str, *, null_ok: bool = False, at_most: float | Decimal | None = None
    ) -> ExpectationDecorator:
        return ExpectationDecorator((
            Expectation(name=name, condition=condition, action=self._action, null_ok=null_ok, at_most=at_most),
        ))


class _ExpectAll:
    """A decorator `@expect_all...({name: condition})` that adds several expectations with one action."""

    usage = 'a dict: @{}({{"positive": "bpm > 0"}})'

    def __init__(self, action: Action) -> None:
        self._action = action

    def __call__(
        self, rules: Mapping[str, str], *, null_ok: bool = False, at_most: float | Decimal | None = None
    ) -> ExpectationDecorator:
        if not isinstance(rules, Mapping) or not rules:
            raise DeclarationError("@expect_all takes rules by name, as in {'positive': 'heartrate > 0'}.")
        one = _Expect(self._action)
        return ExpectationDecorator(
            tuple(e for n, c in rules.items() for e in one(n, c, null_ok=null_ok, at_most=at_most).expectations)
        )


expect = _Expect(Action.WARN)
expect_or_drop = _Expect(Action.DROP)
expect_or_quarantine = _Expect(Action.QUARANTINE)
expect_or_fail = _Expect(Action.FAIL)
expect_all = _ExpectAll(Action.WARN)
expect_all_or_drop = _ExpectAll(Action.DROP)
expect_all_or_quarantine = _ExpectAll(Action.QUARANTINE)
expect_all_or_fail = _ExpectAll(Action.FAIL)


def select_row_expectations(declared: Iterable[Declared], owner: str) -> tuple[Expectation, ...]:
    """The expectations on single rows. Raises DeclarationError if two expectations of any kind share a name."""
    found = tuple(declared)
    seen: set[str] = set()
    for one in found:
        if one.name in seen:
            raise DeclarationError(f"{owner}: two expectations are named '{one.name}'.")
        seen.add(one.name)
    return tuple(one for one in found if isinstance(one, Expectation))


def select_table_expectations(declared: Iterable[Declared]) -> tuple[TableExpectation, ...]:
    """The expectations on the whole table."""
    return tuple(one for one in declared if isinstance(one, TableExpectation))


def flatten_expectations(given: Iterable[ExpectationDecorator]) -> tuple[Declared, ...]:
    """The expectations in the value of `expectations=`."""
    found = tuple(given) if isinstance(given, Collection | Iterator) else None
    if found is None or not all(isinstance(adds, ExpectationDecorator) for adds in found):
        raise DeclarationError(
            "expectations is a tuple of expectations, as in expectations=(expect('positive', 'heartrate > 0'),), not "
            f"{describe_value(given)}."
        )
    return tuple(one for adds in found for one in adds.expectations)
