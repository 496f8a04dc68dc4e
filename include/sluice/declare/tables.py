"""Tables and materialised views: a transform, and how its result is kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, overload

from sluice.declare.expectations import Expectation, Expected, P
from sluice.declare.names import names, own_name
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Names = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Dataset(Generic[P]):
    """A declared table. It can be called with DataFrames, in the order of `reads`, like the function it was made from."""

    name: str
    function: Callable[P, DataFrame]
    reads: tuple[str, ...]
    keys: tuple[str, ...]
    zorder_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    subject: str | None = None
    personal: tuple[str, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> DataFrame:
        """What the transform makes of these inputs."""
        return self.function(*args, **kwargs)

    def __post_init__(self) -> None:
        owner = f"Table '{self.name}'"
        own_name(self.name, "Table")
        for field in ("reads", "keys", "zorder_by", "partition_by", "personal"):
            object.__setattr__(self, field, names(getattr(self, field), field, owner))
        if not self.reads or not self.keys:
            raise DeclarationError(f"{owner}: reads and keys may not be empty.")
        parameters = len(inspect.signature(self.function).parameters)
        if parameters != len(self.reads):
            raise DeclarationError(f"{owner}: reads names {len(self.reads)} inputs, the function takes {parameters}.")
        for field in ("zorder_by", "partition_by"):
            used = sorted(self.private & set(getattr(self, field)))
            if used:
                raise DeclarationError(
                    f"{owner}: {field} names the personal column '{used[0]}'; such a column must not lay out files."
                )

    @property
    def comment(self) -> str:
        """The transform's docstring."""
        return inspect.getdoc(self.function) or ""

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.function.__module__

    @property
    def private(self) -> frozenset[str]:
        """Columns that must not get into statistics, partitions or clustering."""
        return frozenset(self.personal) | ({self.subject} if self.subject else set())


@dataclass(frozen=True, kw_only=True)
class Table(Dataset[P]):
    """One row per key: the fold of the live deliveries of its source. The transform is row-local.

    sequence_by: the column whose highest value wins among rows of one key; ties, and tables without one, go by content.
    key_in_one_file: the rows of a key come from one file only; folding again then reads that file alone.
    """

    sequence_by: str | None = None
    key_in_one_file: bool = False


@dataclass(frozen=True, kw_only=True)
class MaterializedView(Dataset[P]):
    """Always equal to its transform over its inputs as they are, kept so by affected keys."""


@dataclass(frozen=True)
class _TableDecorator:
    options: dict[str, Any]

    @overload
    def __call__(self, function: Expected[P]) -> Table[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> Table[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | Expected[P]) -> Table[P]:
        plain, expectations = _undecorated(function)
        options = {**self.options, "name": self.options["name"] or plain.__name__}
        return Table(function=plain, expectations=expectations, **options)


@dataclass(frozen=True)
class _ViewDecorator:
    options: dict[str, Any]

    @overload
    def __call__(self, function: Expected[P]) -> MaterializedView[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> MaterializedView[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | Expected[P]) -> MaterializedView[P]:
        plain, expectations = _undecorated(function)
        if any(expectation.action.value in ("drop", "quarantine") for expectation in expectations):
            raise DeclarationError(
                f"View '{self.options['name'] or plain.__name__}': a view's rows cannot be dropped or quarantined; expect or expect_or_fail."
            )
        options = {**self.options, "name": self.options["name"] or plain.__name__}
        return MaterializedView(function=plain, expectations=expectations, **options)


def table(
    *,
    reads: Names,
    keys: Names,
    sequence_by: str | None = None,
    zorder_by: Names = (),
    partition_by: Names = (),
    subject: str | None = None,
    personal: Names = (),
    key_in_one_file: bool = False,
    name: str | None = None,
) -> _TableDecorator:
    """Declare the decorated row-local transform as a keyed table of the source it reads. See `Table` and `Dataset`.

    name: the table's, where it is not to be the function's, as of tables that are declared in a loop.
    """
    return _TableDecorator(dict(locals()))


def materialized_view(
    *,
    reads: Names,
    keys: Names,
    zorder_by: Names = (),
    partition_by: Names = (),
    subject: str | None = None,
    personal: Names = (),
    name: str | None = None,
) -> _ViewDecorator:
    """Declare the decorated transform as a view that is kept equal to its full recompute. See `table`, `MaterializedView` and `Dataset`."""
    return _ViewDecorator(dict(locals()))


def with_private(dataset: Dataset[Any], inherited: frozenset[str]) -> Dataset[Any]:
    """The dataset with the personal columns that it inherits by name from its inputs. Raises DeclarationError as its making does."""
    return replace(dataset, personal=tuple(sorted(set(dataset.personal) | inherited)))


def _undecorated(
    function: Callable[P, DataFrame] | Expected[P],
) -> tuple[Callable[P, DataFrame], tuple[Expectation, ...]]:
    if isinstance(function, Expected):
        return function.function, function.expectations
    if isinstance(function, Dataset):
        raise DeclarationError(f"'{function.name}' is declared twice: one of @table and @materialized_view is enough.")
    return function, ()
