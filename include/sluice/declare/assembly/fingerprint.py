"""The fingerprint of a declaration: changes when its transform, or anything of the pipeline that the transform uses, does."""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import Any

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import View
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table, TemporaryView
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.quality.expectations import Expected
from sluice.declare.sql.tokens import meaning

_DECLARED = (Dataset, TemporaryView, AutoCdc, View, Expected)
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
    seen: set[object] = set()
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


def _of(made_by: Callable[..., Any] | str, seen: set[object]) -> list[str]:
    if isinstance(made_by, View):
        # For itself: views that are made in a loop share the name of their function.
        return [f"{made_by.name}{made_by.reads}", *([meaning(made_by.sql)] if made_by.sql else _sources(made_by.function, set()))]
    return [made_by] if isinstance(made_by, str) else _sources(made_by, seen)


def _sources(function: Callable[..., Any], seen: set[object]) -> list[str]:
    """The code of a function, and of what it uses. seen: what was told already."""
    if not isinstance(function, FunctionType) or function in seen:
        return []
    seen.add(function)
    # Of its own code: of a function that wraps another, Python shows the other's source.
    parts = [_dumped(function.__code__)]
    names = _names(function.__code__)
    values = {name: function.__globals__.get(name) for name in names} | _enclosed(function)
    return parts + [part for name, value in sorted(values.items()) for part in _used(name, value, names, seen)]


def _used(name: str, value: object, names: set[str], seen: set[object]) -> list[str]:
    """What a name stands for that a function uses: code of the pipeline, or a value. names: all that the function names."""
    if isinstance(value, ModuleType):
        inside = {one: getattr(value, one) for one in names if hasattr(value, one)} if _ours(value.__name__) else {}
        fresh = {one: found for one, found in inside.items() if (value.__name__, one) not in seen}
        seen.update((value.__name__, one) for one in fresh)
        return [part for one, found in sorted(fresh.items()) for part in _used(one, found, names, seen)]
    if isinstance(value, _DECLARED) or "_Lazy" in type(value).__name__:
        return []
    if isinstance(value, partial):
        given = f"{name}={value.args!r}{sorted(value.keywords.items())!r}"
        return [given, *_used(name, value.func, names, seen)]
    if not callable(value):
        return [f"{name}={value!r}"]
    function: Any = value
    if not isinstance(value, FunctionType):
        function = getattr(value, "__wrapped__", getattr(value, "__func__", value))
    return _code(function, seen) if _ours(getattr(function, "__module__", None)) else []


def _code(value: Callable[..., Any], seen: set[object]) -> list[str]:
    """The code of a function of the pipeline; of a class with that of what its methods use."""
    if not isinstance(value, type):
        return _sources(value, seen)
    if value in seen:
        return []
    seen.add(value)
    methods = [method for _, method in sorted(vars(value).items()) if isinstance(method, FunctionType)]
    names = {name for method in methods for name in _names(method.__code__)}
    used = {name: found for name in names if (found := vars(sys.modules[value.__module__]).get(name)) is not None}
    return [_dumped(value), *(part for name, found in sorted(used.items()) for part in _used(name, found, names, seen))]


def _ours(module: str | None) -> bool:
    """Whether a module is one of pipelines, whose code counts: what they call of Sluice and of libraries does not."""
    return f"{module}.".startswith("pipelines.")


def _dumped(code: CodeType | type) -> str:
    try:
        source = inspect.getsource(code)
    except OSError:  # a class that was made by a call, as a namedtuple is
        return f"{code!r}{sorted(vars(code))}" if isinstance(code, type) else repr(code.co_code)
    return ast.dump(_without_docstring(ast.parse(textwrap.dedent(source))))


def _enclosed(function: FunctionType) -> dict[str, object]:
    """What the function takes from the one that it is declared in, as a table declared in a loop does."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _names(code: CodeType) -> set[str]:
    """The names that code uses, and the functions in it."""
    names: set[str] = set()
    codes = [code]
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
