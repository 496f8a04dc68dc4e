"""Collects what the modules of a pipeline declare: whatever was declared while they were loaded, held by a variable or not."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from sluice.declare.declaration import Declaration
from sluice.declare.declared_places import list_lost_decorators, list_recorded_declarations, was_copied
from sluice.declare.quality.expectations import ExpectingTransform
from sluice.errors import DeclarationError


def collect_declarations(modules: Sequence[ModuleType], kind: type[Any]) -> list[Any]:
    """Returns the declarations of a kind that the modules made or hold, each once.

    What one of the modules declares and another imports is the first one's. What is imported from another package, for its function, is
    none of theirs, except a source, which says of no module that it declares it. A copy (`dataclasses.replace`) counts if a variable holds
    it; it takes the place of its original, and of the declaration of its name, that no variable holds.
    """
    recorded = {id(one): one for module in modules for one in list_recorded_declarations(module) if isinstance(one, kind)}
    names = {module.__name__ for module in modules}
    held = {
        id(one): one
        for module in modules
        for one in _list_held_values(module)
        if isinstance(one, kind) and _belongs_to(one, module.__name__, names)
    }
    copied = {(type(one), one.name) for key, one in held.items() if key not in recorded}
    original = {key for key, one in recorded.items() if was_copied(one) or (type(one), one.name) in copied}
    return [one for key, one in {**recorded, **held}.items() if key in held or key not in original]


def _belongs_to(declared: Any, holder: str, names: set[str]) -> bool:
    """Whether what a variable of a module holds is to be collected with it. holder: that module; names: all modules that are collected."""
    if declared.module in ("", holder):
        return True
    return declared.module not in names and _package_name(declared.module) in map(_package_name, names)


def _package_name(module: str) -> str:
    return module.rpartition(".")[0]


def prefer_held_declarations(modules: Sequence[ModuleType], declared: Sequence[Any]) -> list[Any]:
    """Leaves out what shares its name with a declaration that a variable holds.

    In a pipeline such names are a mistake. A test's file may declare others in passing, as in the parameters of a test.
    """
    held = {id(one) for module in modules for one in _list_held_values(module)}
    names = {one.name for one in declared if id(one) in held}
    return [one for one in declared if id(one) in held or one.name not in names]


def refuse_lost_decorators(modules: Sequence[ModuleType]) -> None:
    """Raises DeclarationError for a decorator that stands above no function: it declares nothing."""
    for called, place in (lost for module in modules for lost in list_lost_decorators(module)):
        by_sql = "" if called == "windowed" else ", or say sql='SELECT ...'"
        raise DeclarationError(
            f"{place}: {called}(...) declares nothing without a function: write @{called}(...) above one{by_sql}."
        )


def refuse_unfinished_transforms(modules: Sequence[ModuleType], declared: Iterable[Declaration]) -> None:
    """Raises DeclarationError for a function with expectations of which no table was made."""
    used = {id(getattr(one, "function", None)) for one in declared}
    for module in modules:
        for one in _list_held_values(module):
            if (
                isinstance(one, ExpectingTransform)
                and one.function.__module__ == module.__name__
                and id(one.function) not in used
            ):
                code = inspect.unwrap(one.function).__code__
                raise DeclarationError(
                    f"{code.co_filename}, line {code.co_firstlineno}: '{one.function.__name__}' has expectations, and no @table or "
                    "@materialized_view above them."
                )


def _list_held_values(module: ModuleType) -> Iterator[object]:
    """The values of a module's variables, and those in its lists, tuples and dicts."""
    for value in vars(module).values():
        yield from _contained_values(value)


def _contained_values(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else (value,)
