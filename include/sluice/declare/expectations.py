"""Expectations: SQL conditions over one row, and what becomes of a row that does not meet one."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, ParamSpec, overload

from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

P = ParamSpec("P")


class Action(enum.Enum):
    """What becomes of a row whose condition is false or NULL."""

    WARN = "warn"
    DROP = "drop"
    QUARANTINE = "quarantine"
    FAIL = "fail"


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A named condition. NULL counts as not met, unless `null_ok`."""

    name: str
    condition: str
    action: Action
    null_ok: bool = False

    def __post_init__(self) -> None:
        if not self.name or not self.condition.strip():
            raise DeclarationError("An expectation needs a name and a condition, as in @expect('positive', 'heartrate > 0').")


@dataclass(frozen=True)
class Expected(Generic[P]):
    """A transform with expectations, waiting for the `@table` above it."""

    function: Callable[P, DataFrame]
    expectations: tuple[Expectation, ...]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """What the transform makes of these inputs."""
        return self.function(*args, **kwargs)


class _Expect:
    """A decorator `@expect...(name, condition)` that adds one expectation to a transform."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def __call__(self, name: str, condition: str, *, null_ok: bool = False) -> _Adds:
        return _Adds(Expectation(name=name, condition=condition, action=self._action, null_ok=null_ok))


@dataclass(frozen=True)
class _Adds:
    expectation: Expectation

    @overload
    def __call__(self, function: Expected[P]) -> Expected[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> Expected[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | Expected[P]) -> Expected[P]:
        from sluice.declare.tables import Dataset

        if isinstance(function, Dataset):
            raise DeclarationError(f"@table must stand above @expect at '{function.name}'.")
        if isinstance(function, Expected):
            return Expected(function.function, (self.expectation, *function.expectations))
        return Expected(function, (self.expectation,))


expect = _Expect(Action.WARN)
expect_or_drop = _Expect(Action.DROP)
expect_or_quarantine = _Expect(Action.QUARANTINE)
expect_or_fail = _Expect(Action.FAIL)
