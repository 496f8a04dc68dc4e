"""`@table`, `@materialized_view` and `@temporary_view`: they make a declaration from a function, or from an SQL text (`sql=`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_overloads, overload

from sluice.declare.datasets.tables import (
    Dataset,
    MaterializedView,
    Names,
    OnErasure,
    Personal,
    Recompute,
    Table,
    TemporaryView,
    split_personal_treatments,
)
from sluice.declare.datasets.time_reach import TimeReach
from sluice.declare.layout import Layout
from sluice.declare.names import check_names
from sluice.declare.quality.expectations import (
    Action,
    Declared,
    ExpectationDecorator,
    ExpectingTransform,
    P,
    flatten_expectations,
    select_row_expectations,
    select_table_expectations,
)
from sluice.declare.sql import texts
from sluice.declare.sql.texts import strip_sql_layout
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class _TableDecorator:
    options: dict[str, Any]
    expectations: tuple[Declared, ...]

    @overload
    def __call__(self, function: ExpectingTransform[P]) -> Table[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> Table[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | ExpectingTransform[P]) -> Table[P]:
        plain, own = _separate_expectations(function)
        return Table(function=plain, **_complete_options(self.options, plain.__name__, (*own, *self.expectations), "Table"))


@dataclass(frozen=True)
class _ViewDecorator:
    options: dict[str, Any]
    expectations: tuple[Declared, ...]

    @overload
    def __call__(self, function: ExpectingTransform[P]) -> MaterializedView[P]: ...
    @overload
    def __call__(self, function: Callable[P, DataFrame]) -> MaterializedView[P]: ...
    def __call__(self, function: Callable[P, DataFrame] | ExpectingTransform[P]) -> MaterializedView[P]:
        plain, own = _separate_expectations(function)
        options = _complete_options(self.options, plain.__name__, (*own, *self.expectations), "View")
        if any(one.action.takes_row_out for one in options["expectations"]):
            refused = " or ".join(action.counted_as for action in Action if action.takes_row_out)
            fitting = " or ".join(action.decorator for action in Action if not action.takes_row_out)
            raise DeclarationError(f"View '{options['name']}': a view's rows cannot be {refused}; {fitting}.")
        return MaterializedView(function=plain, **options)


@overload
def table(
    *,
    reads: Names,
    keys: Names,
    sequence_by: str | None = None,
    apply_as_deletes: str | None = None,
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    subject: str | None = None,
    subject_at: str | None = None,
    personal: Personal = (),
    key_in_one_file: bool = False,
    on_erasure: OnErasure = "delete",
    schema: str | None = None,
    restricted: bool = False,
    name: str | None = None,
    comment: str = "",
    expectations: tuple[ExpectationDecorator, ...] = (),
) -> _TableDecorator: ...
@overload
def table(
    *,
    name: str,
    reads: Names,
    keys: Names,
    sql: str,
    sequence_by: str | None = None,
    apply_as_deletes: str | None = None,
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    subject: str | None = None,
    subject_at: str | None = None,
    personal: Personal = (),
    key_in_one_file: bool = False,
    on_erasure: OnErasure = "delete",
    schema: str | None = None,
    restricted: bool = False,
    comment: str = "",
    expectations: tuple[ExpectationDecorator, ...] = (),
) -> Table[...]: ...
def table(
    *, sql: str | None = None, expectations: tuple[ExpectationDecorator, ...] = (), personal: Personal = (), **options: Any
) -> _TableDecorator | Table[...]:
    """Declares the decorated row-local transform as a keyed table of the source it reads. See `Table` and `Dataset`.

    name: the table's name if it differs from the function's, as for tables declared in a loop. sql: a query over the name in `reads`,
    instead of a function; `table` then returns the table itself. expectations: for an SQL text, what decorators below the function
    would add.
    """
    _check_options(table, options)
    found = {**options, **split_personal_treatments(personal)}
    if sql is None:
        return _TableDecorator(found, flatten_expectations(expectations))
    declared = {**found, **build_sql_options(sql, found)}
    return _TableDecorator(declared, flatten_expectations(expectations))(build_declaration_transform(sql, found, "Table"))


@overload
def materialized_view(
    *,
    reads: Names,
    keys: Names,
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    subject: str | None = None,
    subject_at: str | None = None,
    personal: Personal = (),
    schema: str | None = None,
    restricted: bool = False,
    reach: Mapping[str, TimeReach] | None = None,
    recompute: Recompute = "auto",
    at_least: int | None = None,
    subjects: str | None = None,
    name: str | None = None,
    comment: str = "",
    expectations: tuple[ExpectationDecorator, ...] = (),
) -> _ViewDecorator: ...
@overload
def materialized_view(
    *,
    name: str,
    reads: Names,
    keys: Names,
    sql: str,
    zorder_by: Names = (),
    cluster_by: Names = (),
    asked_by: Names = (),
    partition_by: Names = (),
    layout: Layout | None = None,
    subject: str | None = None,
    subject_at: str | None = None,
    personal: Personal = (),
    schema: str | None = None,
    restricted: bool = False,
    reach: Mapping[str, TimeReach] | None = None,
    recompute: Recompute = "auto",
    at_least: int | None = None,
    subjects: str | None = None,
    comment: str = "",
    expectations: tuple[ExpectationDecorator, ...] = (),
) -> MaterializedView[...]: ...
def materialized_view(
    *,
    sql: str | None = None,
    expectations: tuple[ExpectationDecorator, ...] = (),
    personal: Personal = (),
    reach: Mapping[str, TimeReach] | None = None,
    **options: Any,
) -> _ViewDecorator | MaterializedView[...]:
    """Declares the decorated transform as a view that always equals its full recompute. See `table`, `MaterializedView` and `Dataset`."""
    _check_options(materialized_view, options)
    found = {**options, **split_personal_treatments(personal), "reach": reach or {}}
    if sql is None:
        return _ViewDecorator(found, flatten_expectations(expectations))
    declared = {**found, **build_sql_options(sql, found)}
    return _ViewDecorator(declared, flatten_expectations(expectations))(build_declaration_transform(sql, found, "View"))


@overload
def temporary_view(*, reads: str, name: str | None = None) -> Callable[[Callable[[DataFrame], DataFrame]], TemporaryView]: ...
@overload
def temporary_view(*, name: str, reads: str, sql: str, comment: str = "") -> TemporaryView: ...
def temporary_view(
    *, reads: str, name: str | None = None, sql: str | None = None, comment: str = ""
) -> Callable[[Callable[[DataFrame], DataFrame]], TemporaryView] | TemporaryView:
    """Declares the decorated row-local transform as a view that is never stored: whatever reads it runs it. See `TemporaryView`.

    sql: a query over the name in `reads`, instead of a function; `temporary_view` then returns the view itself.
    """
    if sql is not None:
        options = {"name": name, "reads": reads}
        module = build_sql_options(sql, options)["declared_in"]
        function = build_declaration_transform(sql, options, "Temporary view")
        return TemporaryView(name=name or "", reads=(reads,), function=function, comment=comment, declared_in=module, sql=sql)

    def declare(function: Callable[[DataFrame], DataFrame]) -> TemporaryView:
        return TemporaryView(name=name or function.__name__, function=function, reads=(reads,), comment=comment)

    return declare


def find_calling_module() -> str:
    """The module two calls up the stack: where a declaration without a function of its own was written."""
    frame = inspect.currentframe()
    outer = frame.f_back.f_back if frame and frame.f_back else None
    while outer is not None and str(outer.f_globals.get("__name__", "")).startswith("sluice.declare"):
        outer = outer.f_back
    return str(outer.f_globals.get("__name__", "")) if outer else ""


def build_sql_options(sql: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a declaration made from an SQL text alone. Raises DeclarationError if the text or the name is missing."""
    if not sql.strip() or not options.get("name"):
        raise DeclarationError(
            "A table that is declared by a SQL text needs a name and a text: table(name='starts', sql='SELECT ...', ...)."
        )
    return {"sql": sql, "declared_in": find_calling_module(), "made_by": (strip_sql_layout(sql),)}


def build_declaration_transform(sql: str, options: dict[str, Any], kind: str) -> Callable[..., DataFrame]:
    """The function that runs the SQL text. kind: what is declared, for error messages."""
    owner = f"{kind} '{options['name']}'"
    return texts.build_sql_transform(sql, check_names(options["reads"], "reads", owner), owner)


def _check_options(declaration: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises DeclarationError for an option that no overload of the declaration has, and for one that is missing of those that all need."""
    overloads = [inspect.signature(one).parameters for one in get_overloads(declaration)]
    known = set().union(*overloads)
    for name in options:
        if name not in known:
            raise DeclarationError(f"{declaration.__name__} has no argument '{name}'.{nearest_name_hint(name, known)}")
    for name, parameter in overloads[0].items():
        if parameter.default is parameter.empty and name not in options:
            raise DeclarationError(f"{declaration.__name__} lacks its argument '{name}'.")


def _complete_options(options: dict[str, Any], named: str, declared: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    name = options.get("name") or named
    rows = select_row_expectations(declared, f"{kind} '{name}'")
    return {**options, "name": name, "expectations": rows, "table_expectations": select_table_expectations(declared)}


def _separate_expectations(
    function: Callable[P, DataFrame] | ExpectingTransform[P],
) -> tuple[Callable[P, DataFrame], tuple[Declared, ...]]:
    if isinstance(function, ExpectingTransform):
        return function.function, function.expectations
    if isinstance(function, Dataset):
        raise DeclarationError(f"'{function.name}' is declared twice: one of @table and @materialized_view is enough.")
    return function, ()
