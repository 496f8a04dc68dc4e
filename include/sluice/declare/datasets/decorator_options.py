"""What the decorators of tables and views take, how the fields of a declaration are made of it, and what is said of wrong arguments.

A hint about a wrong name looks among the arguments of Databricks before it looks for a similar one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, get_overloads

from sluice.declare.datasets.dataset import Dataset, Names, Personal
from sluice.declare.field_values import check_names
from sluice.declare.quality.expectations import (
    Declared,
    ExpectationDecorator,
    ExpectingTransform,
    P,
    flatten_expectations,
    select_row_expectations,
    select_table_expectations,
)
from sluice.declare.recorded_declarations import find_calling_module, watch_decorator
from sluice.declare.sql import texts
from sluice.declare.sql.texts import strip_sql_layout
from sluice.declare.table_layout import Layout
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.printable import join_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_ARGUMENTS: Mapping[str, str] = MappingProxyType({"target": "name", "source": "reads", "partition_cols": "partition_by"})
"""By an argument of Databricks, the argument of Sluice's declarations."""


class DatasetOptions(TypedDict, total=False):
    """What every decorator of a stored table takes beside its inputs, keys, name and text. See `Dataset`."""

    zorder_by: Names
    cluster_by: Names
    asked_by: Names
    partition_by: Names
    layout: Layout | None
    subject: str | None
    subject_at: str | None
    personal: Personal
    schema: str | StructType | None
    restricted: bool
    comment: str
    expectations: tuple[ExpectationDecorator, ...]


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


def build_unstored_fields(sql: str, name: str | None, reads: Names, kind: str) -> dict[str, Any]:
    """The fields of a view that is not stored, made from an SQL text. kind: what is declared, for error messages."""
    options = {"name": name, "reads": reads}
    module = build_sql_options(sql, options)["declared_in"]
    return {"name": name, "sql": sql, "declared_in": module, "function": build_declaration_transform(sql, options, kind)}


def check_options(declaration: Callable[..., Any], further: type[Any], options: Mapping[str, Any]) -> None:
    """Raises DeclarationError for an option that no overload of the declaration has, and for a missing one that all of them require.

    further: the TypedDict of the options that all overloads take.
    """
    overloads = [inspect.signature(one).parameters for one in get_overloads(declaration)]
    known = {name for one in overloads for name, parameter in one.items() if parameter.kind is parameter.KEYWORD_ONLY}
    known |= further.__annotations__.keys()
    for name in options:
        if name not in known:
            raise DeclarationError(describe_unknown_argument(declaration.__name__, name, known))
    if missing := [name for name in list_needed_arguments(declaration) if name not in options]:
        raise DeclarationError(describe_missing_arguments(declaration.__name__, missing))


def _hint_at_argument(name: str, valid: Iterable[str]) -> str:
    """A hint to append to a message about a wrong argument: what it is called here, the most similar one, or all."""
    names = set(valid)
    here = _ARGUMENTS.get(name)
    return f" Did you mean '{here}'?" if here in names else nearest_name_hint(name, names)


def list_needed_arguments(declaration: Callable[..., Any]) -> list[str]:
    """The arguments that every call must give. A declaration with overloads needs what its first overload does."""
    overloads = get_overloads(declaration) if inspect.isfunction(declaration) else []
    taken = inspect.signature(overloads[0] if overloads else declaration).parameters.values()
    return [one.name for one in taken if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)]


def describe_unknown_argument(called: str, name: str, known: Iterable[str]) -> str:
    """The sentence about an argument that a declaration does not have."""
    return f"{called} has no argument '{name}'.{_hint_at_argument(name, known)}"


def describe_missing_arguments(called: str, missing: Iterable[str]) -> str:
    """The sentence about arguments that a declaration needs and a call does not give."""
    return f"{called} needs {join_names(missing)}."


def decorate_function_or_text(
    decorator: Callable[[dict[str, Any], tuple[Declared, ...]], Any],
    options: dict[str, Any],
    expectations: tuple[ExpectationDecorator, ...],
    sql: str | None,
    kind: str,
) -> Any:
    """The decorator of these options, or the declaration that it makes of an SQL text. kind: what is declared, for error messages."""
    declared = flatten_expectations(expectations)
    if sql is None:
        return watch_decorator(decorator(options, declared), "table" if kind == "Table" else "materialized_view")
    named = {**options, **build_sql_options(sql, options)}
    return decorator(named, declared)(build_declaration_transform(sql, options, kind))


def complete_options(options: dict[str, Any], named: str, declared: tuple[Declared, ...], kind: str) -> dict[str, Any]:
    """The fields of a declaration: its options, its name, which is the function's unless it is said, and its expectations."""
    name = options.get("name") or named
    rows = select_row_expectations(declared, f"{kind} '{name}'")
    return {**options, "name": name, "expectations": rows, "table_expectations": select_table_expectations(declared)}


def separate_expectations(
    function: Callable[P, DataFrame] | ExpectingTransform[P],
) -> tuple[Callable[P, DataFrame], tuple[Declared, ...]]:
    """The function without its expectations, and these. Raises DeclarationError for what is a declaration already."""
    if isinstance(function, ExpectingTransform):
        return function.function, function.expectations
    if isinstance(function, Dataset):
        raise DeclarationError(f"'{function.name}' is declared twice: one of @table and @materialized_view is enough.")
    return function, ()
