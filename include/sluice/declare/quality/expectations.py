"""Expectations: SQL conditions over one row, and what happens to a row that does not meet one."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeAlias, overload

from sluice.declare.quality.whole_table import TableExpectation, refuse_reserved_name
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P = ParamSpec("P")


class Action(enum.Enum):
    """What happens to a row whose condition is false or NULL."""

    WARN = "warn"
    DROP = "drop"
    QUARANTINE = "quarantine"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A named condition, SQL over the columns of one row. NULL counts as not met, unless `null_ok`.

    at_most: the share of a micro-batch's rows that may fail it, such as 0.02; with more, nothing of the batch is written and the run fails.
    tags: what a rule set selects rules by.
    """

    name: str
    condition: str
    action: Action
    null_ok: bool = False
    at_most: float | None = field(
        default=None, repr=False
    )  # the repr is part of the table's fingerprint, which is about its rows
    tags: frozenset[str] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        if not self.name or not self.condition.strip():
            raise DeclarationError("An expectation needs a name and a condition, as in @expect('positive', 'heartrate > 0').")
        refuse_reserved_name(self.name)
        if self.at_most is not None and not 0 <= self.at_most < 1:
            raise DeclarationError(f"Expectation '{self.name}': at_most is a share of the rows, as in 0.02, not {self.at_most}.")
        if self.at_most is not None and self.action is Action.FAIL:
            raise DeclarationError(f"Expectation '{self.name}': with at_most, use @expect; @expect_or_fail lets no row fail.")


Declared: TypeAlias = Expectation | TableExpectation


@dataclass(frozen=True)
class ExpectingTransform(Generic[P]):
    """A transform with expectations, waiting for the `@table` above it."""

    function: Callable[P, DataFrame]
    expectations: tuple[Declared, ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """What the transform makes of these inputs."""
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
        from sluice.declare.datasets.tables import Dataset

        if isinstance(function, Dataset):
            raise DeclarationError(f"@table must stand above @expect at '{function.name}'.")
        if isinstance(function, ExpectingTransform):
            return ExpectingTransform(function.function, (*self.expectations, *function.expectations))
        return ExpectingTransform(function, self.expectations)


class _Expect:
    """A decorator `@expect...(name, condition)` that adds one expectation to a transform."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def __call__(self, name: str, condition: str, *, null_ok: bool = False, at_most: float | None = None) -> ExpectationDecorator:
        return ExpectationDecorator((
            Expectation(name=name, condition=condition, action=self._action, null_ok=null_ok, at_most=at_most),
        ))


class _ExpectAll:
    """A decorator `@expect_all...({name: condition})` that adds several expectations with one action."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def __call__(self, rules: Mapping[str, str], *, null_ok: bool = False, at_most: float | None = None) -> ExpectationDecorator:
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
    """The expectations on single rows. Raises DeclarationError where two expectations of any kind share a name."""
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
    """The expectations that `expectations=` was given."""
    return tuple(one for adds in given for one in adds.expectations)
