"""The fingerprint of a declaration. It changes when its transform changes, or any pipeline code that the transform uses."""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.computed import MaskedProjection, TemporaryView, View
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.ingest.source import Source
from sluice.declare.quality.expectations import ExpectingTransform
from sluice.declare.sql.texts import strip_sql_layout

_DECLARED = (Dataset, TemporaryView, AutoCdc, View, ExpectingTransform)
"""The kinds of values that a transform may name without using their code."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
"""What `repr` says of an object that has no text of its own."""
_BUILT_IN: tuple[type[Any], ...] = (dict, list, tuple, set, frozenset, int, float, str, bytes)
"""Types that a class of a pipeline may extend, and that hold a value themselves."""
_PARSING = threading.Lock()
"""Python 3.11.7 counts recursion depth in a syntax tree for all threads together, and flows run in threads: two that parse may fail.

Source: python/cpython issue 106905.
"""


def compute_declaration_fingerprint(dataset: Dataset[Any]) -> str:
    """Returns 16 hex digits. They cover expectations, keys, called functions of the pipeline and used values, but no comments or layout."""
    # A view that does not wait for all its inputs stays the same over some of them; its makers say which inputs it reads.
    reads = () if dataset.of_some else dataset.reads
    declared = (reads, dataset.keys, dataset.sequence_by, dataset.expectations, type(dataset).__name__)
    # Options added later are left out where they are not used: the fingerprints of existing tables must not change.
    later = (None, sorted(dataset.treatments.items()), *dataset.list_fingerprint_fields())
    seen: set[object] = set()
    code = "".join(part for made_by in dataset.made_by or (dataset.function,) for part in _collect_maker_code(made_by, seen))
    text = repr(declared) + (repr(later) if any(later) else "") + code
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def compute_view_fingerprint(view: View[Any]) -> str:
    """Returns 16 hex digits that cover what a computed view reads, and its transform as `compute_declaration_fingerprint` does."""
    masks = [repr(view.function)] if isinstance(view.function, MaskedProjection) else []
    return hashlib.sha256("".join([*_collect_maker_code(view, set()), *masks]).encode()).hexdigest()[:16]


def digest_declarations(graph: Iterable[Source | Dataset[Any]]) -> str:
    """One digest of all a pipeline's declarations: of sources as declared, of the rest by fingerprint and whole table expectations.

    It also covers layouts, which a run applies to tables although no row changes.
    """
    told = [
        f"{one!r}" if isinstance(one, Source) else f"{one.name} {compute_declaration_fingerprint(one)} {one.table_expectations}"
        for one in graph
    ]
    laid_out = [(one.name, one.layout, one.zorder_by, one.cluster_by, one.partition_by) for one in graph]
    told += [repr(layout) for layout in laid_out if any(layout[1:])]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()


def _collect_maker_code(made_by: Callable[..., Any] | str, seen: set[object]) -> list[str]:
    if isinstance(made_by, View):
        # The code of each function is collected alone, since views made in a loop share their function's name.
        return [
            f"{made_by.name}{made_by.reads}",
            *([strip_sql_layout(made_by.sql)] if made_by.sql else _collect_function_code(made_by.function, set())),
        ]
    return [made_by] if isinstance(made_by, str) else _collect_function_code(made_by, seen)


def _collect_function_code(function: Callable[..., Any], seen: set[object]) -> list[str]:
    """The code of a function and of everything it uses. seen: what has been collected already."""
    if not isinstance(function, FunctionType) or function in seen:
        return []
    seen.add(function)
    # Only its own code: for a function that wraps another, Python would show the other's source.
    parts = [_dump_syntax_tree(function.__code__)]
    names = _find_names_in_code(function.__code__)
    values = {name: function.__globals__.get(name) for name in names} | _closure_values(function)
    # A default is evaluated where the function is defined: the code that names it is none of the function's.
    values |= {f"default {number}": value for number, value in enumerate(function.__defaults__ or ())}
    values |= {f"default {name}": value for name, value in (function.__kwdefaults__ or {}).items()}
    return parts + [part for name, value in sorted(values.items()) for part in _collect_code_of_value(name, value, names, seen)]


def _collect_code_of_value(name: str, value: object, names: set[str], seen: set[object]) -> list[str]:
    """The code or value behind a name that a function uses. names: all names that the function uses."""
    if isinstance(value, ModuleType):
        inside = {one: getattr(value, one) for one in names if hasattr(value, one)} if _is_pipeline_module(value.__name__) else {}
        fresh = {one: found for one, found in inside.items() if (value.__name__, one) not in seen}
        seen.update((value.__name__, one) for one in fresh)
        return [part for one, found in sorted(fresh.items()) for part in _collect_code_of_value(one, found, names, seen)]
    if isinstance(value, _DECLARED) or "_Lazy" in type(value).__name__:
        return []
    if isinstance(value, partial):
        text, parts = _describe_value((value.args, sorted(value.keywords.items())), names, seen)
        return [f"{name}={text}", *parts, *_collect_code_of_value(name, value.func, names, seen)]
    if not callable(value) or _is_pipeline_object(value):
        text, parts = _describe_value(value, names, seen)
        return [f"{name}={text}", *parts]
    function: Any = value
    if isinstance(value, MethodType):
        bound = _collect_code_of_value(name, value.__self__, names, seen)
        return [*bound, *_collect_code_of_value(name, value.__func__, names, seen)]
    if not isinstance(value, FunctionType):
        function = getattr(value, "__wrapped__", getattr(value, "__func__", value))
    return _collect_callable_code(function, seen) if _is_pipeline_module(getattr(function, "__module__", None)) else []


def _describe_value(value: object, names: set[str], seen: set[object]) -> tuple[str, list[str]]:
    """The text of a value, which is the same in every process, and the code of the functions and classes in it.

    A set's order and an object's address differ from process to process. An object of the pipeline counts by its class and its state, one
    of a library by what its `repr` says.
    """
    parts: list[str] = []

    def describe(one: object) -> str:
        within = ("within", id(one))
        if within in seen:  # it holds itself
            return "..."
        seen.add(within)
        text, code = _describe_value(one, names, seen)
        seen.discard(within)
        parts.extend(code)
        return text

    if _is_pipeline_object(value):
        return _describe_pipeline_object(value, names, seen)
    if isinstance(value, set | frozenset):
        return f"{type(value).__name__}({', '.join(sorted(map(describe, value)))})", parts
    if isinstance(value, Mapping):
        text = f"{{{', '.join(f'{describe(key)}: {describe(one)}' for key, one in value.items())}}}"
        return text if type(value) is dict else f"{type(value).__name__}({text})", parts
    if type(value) is list:
        return f"[{', '.join(map(describe, value))}]", parts
    if type(value) is tuple:
        return f"({', '.join(map(describe, value))}{',' if len(value) == 1 else ''})", parts
    if isinstance(value, _DECLARED) or "_Lazy" in type(value).__name__:
        return type(value).__name__, parts
    if isinstance(value, ModuleType) or callable(value):
        module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
        return name if _is_pipeline_module(module) else f"{module}.{name}", _collect_code_of_value("", value, names, seen)
    return _ADDRESS.sub("", repr(value)), parts


def _describe_pipeline_object(value: object, names: set[str], seen: set[object]) -> tuple[str, list[str]]:
    kind = type(value)
    if ("object", id(value)) in seen:
        return kind.__qualname__, []
    seen.add(("object", id(value)))
    text, parts = _describe_value(_read_object_state(value), names, seen)
    return f"{kind.__qualname__}({text})", [*parts, *_collect_callable_code(kind, seen)]


def _is_pipeline_object(value: object) -> bool:
    """Whether a value is an object of a class of the pipeline, and no class, function or declaration."""
    return _is_pipeline_module(type(value).__module__) and not isinstance(value, (type, *_DECLARED))


def _read_object_state(value: object) -> dict[str, object]:
    """The fields of an object, and what it holds if its class is a kind of dictionary, list, number or text."""
    said = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    slots = [name for names in said for name in ((names,) if isinstance(names, str) else names)]
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
    held: list[object] = [kind(value) for kind in _BUILT_IN if isinstance(value, kind)]
    return dict(sorted(found.items())) | ({"": held[0]} if held else {})


def _collect_callable_code(value: Callable[..., Any], seen: set[object]) -> list[str]:
    """The code of a function of the pipeline; for a class, with the code that its methods use."""
    if not isinstance(value, type):
        return _collect_function_code(value, seen)
    if value in seen:
        return []
    seen.add(value)
    methods = [method for _, method in sorted(vars(value).items()) if isinstance(method, FunctionType)]
    names = {name for method in methods for name in _find_names_in_code(method.__code__)}
    used = {name: found for name in names if (found := vars(sys.modules[value.__module__]).get(name)) is not None}
    bases = [base for base in value.__mro__[1:] if _is_pipeline_module(base.__module__)]
    # What is set in the body of a class is evaluated there, too.
    texts = [
        (name, _describe_value(one, names, seen)) for name, one in sorted(vars(value).items()) if _is_class_constant(name, one)
    ]
    return [
        _dump_syntax_tree(value),
        *(part for base in bases for part in _collect_callable_code(base, seen)),
        *(part for name, (text, parts) in texts for part in (f"{name}={text}", *parts)),
        *(part for name, found in sorted(used.items()) for part in _collect_code_of_value(name, found, names, seen)),
    ]


def _is_class_constant(name: str, value: object) -> bool:
    """Whether a name in a class is a value, and nothing that Python put there or that its methods are."""
    plain = (bool, int, float, str, bytes, Decimal, date, time, timedelta, tuple, list, dict, set, frozenset)
    return not (name.startswith("_") and name.endswith("_")) and isinstance(value, plain)


def _is_pipeline_module(module: str | None) -> bool:
    """Whether a module belongs to a pipeline. Only such code counts, not the code of Sluice or of libraries that it calls."""
    return f"{module}.".startswith("pipelines.")


def _dump_syntax_tree(code: CodeType | type) -> str:
    try:
        with _PARSING:
            source = inspect.getsource(code)
            tree = ast.parse(textwrap.dedent(source))
    except OSError:  # A class made by a call, such as a namedtuple, has no source.
        return f"{code!r}{sorted(vars(code))}" if isinstance(code, type) else repr(code.co_code)
    return ast.dump(_strip_docstring_and_decorators(tree))


def _closure_values(function: FunctionType) -> dict[str, object]:
    """The values a function takes from the function that declares it, as for tables declared in a loop."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells}


def _find_names_in_code(code: CodeType) -> set[str]:
    """The names that code uses, and the functions in it."""
    names: set[str] = set()
    codes = [code]
    while codes:
        code = codes.pop()
        names.update(code.co_names)
        codes += [constant for constant in code.co_consts if inspect.iscode(constant)]
    return names


def _strip_docstring_and_decorators(tree: ast.Module) -> ast.Module:
    function = tree.body[0]
    if isinstance(function, ast.FunctionDef) and ast.get_docstring(function):
        function.body = function.body[1:] or [ast.Pass()]
    if isinstance(function, ast.FunctionDef):
        function.decorator_list = []
        function.name = ""
    return tree
