"""The fingerprint of a declaration: changes when its transform, or anything of the pipeline that the transform uses, does."""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from sluice.declare.auto_cdc import AutoCdc
from sluice.declare.computed import View
from sluice.declare.expectations import Expected
from sluice.declare.sql_tokens import meaning
from sluice.declare.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.windowed import Windowed

_DECLARED = (ModuleType, Dataset, TemporaryView, AutoCdc, View, Expected)
"""What a transform may name without using it."""


def fingerprint(dataset: Dataset[Any]) -> str:
    """16 hex digits. Comments and layout do not count; expectations, keys, functions of the pipeline that are called, and values used do."""
    sequence = dataset.sequence_by if isinstance(dataset, Table) else None
    # A view that does not wait for all its inputs is the same over some of them; what it is made by says which it reads.
    reads = () if isinstance(dataset, MaterializedView) and dataset.of_some else dataset.reads
    declared = (reads, dataset.keys, sequence, dataset.expectations, type(dataset).__name__)
    # What came later is left out where it is not used: the fingerprints of tables that are there must not change.
    # Of a schema what counts is among the expectations; its types are the transform's.
    later = (None, sorted(dataset.treatments.items()), *_of_kind(dataset))
    seen: set[str] = set()
    code = "".join(part for made_by in dataset.made_by or (dataset.function,) for part in _of(made_by, seen))
    text = repr(declared) + (repr(later) if any(later) else "") + code
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _of_kind(dataset: Dataset[Any]) -> tuple[object, ...]:
    """What else counts of a kind of declaration. How cheaply a view is kept does not."""
    if isinstance(dataset, Windowed):
        return (dataset.output, sorted((name, repr(one)) for name, one in dataset.watermarks.items()))
    if not isinstance(dataset, MaterializedView):
        return ()
    groups = ((dataset.at_least, dataset.subjects),) if dataset.at_least else ()
    return (*((sorted((name, repr(one)) for name, one in dataset.reach.items()),) if dataset.reach else ()), *groups)


def _of(made_by: Callable[..., Any] | str, seen: set[str]) -> list[str]:
    if isinstance(made_by, View):
        # For itself: views that are made in a loop share the name of their function.
        return [f"{made_by.name}{made_by.reads}", *([meaning(made_by.sql)] if made_by.sql else _sources(made_by.function, set()))]
    return [made_by] if isinstance(made_by, str) else _sources(made_by, seen)


def _sources(function: Callable[..., Any], seen: set[str]) -> list[str]:
    if not isinstance(function, FunctionType) or function.__qualname__ in seen:
        return []
    seen.add(function.__qualname__)
    parts = [ast.dump(_without_docstring(ast.parse(textwrap.dedent(inspect.getsource(function)))))]
    values = {name: function.__globals__.get(name) for name in _global_names(function)} | _enclosed(function)
    for name, value in sorted(values.items()):
        if isinstance(value, FunctionType) and value.__module__.startswith("pipelines."):
            parts += _sources(value, seen)
        elif not callable(value) and not isinstance(value, _DECLARED) and "_Lazy" not in type(value).__name__:
            parts.append(f"{name}={value!r}")
    return parts


def _enclosed(function: FunctionType) -> dict[str, object]:
    """What the function takes from the one that it is declared in, as a table declared in a loop does."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _global_names(function: FunctionType) -> set[str]:
    names: set[str] = set()
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return names


def _without_docstring(tree: ast.Module) -> ast.Module:
    function = tree.body[0]
    if isinstance(function, ast.FunctionDef) and ast.get_docstring(function):
        function.body = function.body[1:] or [ast.Pass()]
    if isinstance(function, ast.FunctionDef):
        function.decorator_list = []
        function.name = ""
    return tree
