"""Turns an error of loading a pipeline's file into a sentence about the file: the line that declares something wrong, and what to write.

A mistake that a declaration found, a name or an argument that does not exist, and a Spark expression where there is no Spark are
explained. Of any other error, the kind is said; its text only where Python writes it about code, since it may hold a value elsewhere.
"""

from __future__ import annotations

import importlib
import inspect
import linecache
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sluice.declare.datasets.decorator_options import describe_missing_arguments, describe_unknown_argument, list_needed_arguments
from sluice.errors import UsageError, nearest_name_hint

_DECLARE = "sluice.declare"
_NO_SUCH_NAME = re.compile(rf"cannot import name '(\w+)' from '{_DECLARE}'|module '{_DECLARE}' has no attribute '(\w+)'")
_WRONG_ARGUMENTS = re.compile(r"([\w.]+)\(\) ((?:missing|takes|got) .+)")
_UNKNOWN_ARGUMENT = re.compile(r"got an unexpected keyword argument '(\w+)'")
_NO_SESSION = re.compile(r"\[\w*SESSION\w*\]")
_OUTSIDE_THE_FILE = frozenset({"sluice", "pyspark", *sys.stdlib_module_names})
"""The packages that a file calls, to declare something or else."""
_ABOUT_CODE = (NameError, AttributeError, ImportError, TypeError)
"""The kinds of errors whose text names code."""


_GUIDE = "docs/gold.md#for-people-from-databricks"
_INSTEAD: Mapping[str, str] = MappingProxyType({
    "dlt": "declare with sluice.declare",
    "dp": "declare with sluice.declare",
    "pyspark.pipelines": "declare with sluice.declare",
    "apply_changes": "use auto_cdc",
    "create_auto_cdc_flow": "use auto_cdc",
    "apply_changes_from_snapshot": "use auto_cdc_from_snapshot",
    "create_auto_cdc_from_snapshot_flow": "use auto_cdc_from_snapshot",
    "read": "name the inputs in reads=",
    "read_stream": "name the inputs in reads=",
    "streaming_table": "declare a Source (bronze) or a @table (silver)",
    "create_streaming_table": "declare a Source (bronze) or a @table (silver)",
})
"""By a module, function or decorator of Databricks, what to do in Sluice."""


@dataclass(frozen=True)
class _Raised:
    """An error and the line of the pipeline's file that led to it.

    text: that line. module: the one that raised the error. by_the_line: whether the line raised it, and nothing that it called.
    """

    error: Exception
    file: str
    line: int
    text: str
    module: str
    by_the_line: bool

    @property
    def package(self) -> str:
        return self.module.partition(".")[0]


def describe_databricks_name(name: str) -> str | None:
    """Returns sentences that say what to do instead of using this name; None if it is none of Databricks'."""
    return f"'{name}' is a name of Databricks: {_INSTEAD[name]}. See {_GUIDE}" if name in _INSTEAD else None


def describe_loading_error(error: Exception, pipeline: str) -> str:
    """Returns pipeline, file, line and a sentence that says what is wrong.

    error: raised by the import of a file of this pipeline.
    """
    owner = f"Pipeline '{pipeline}': "
    raised = _find_declaring_line(error)
    if raised is None:
        return f"{owner}{type(error).__name__} while it was loaded. SLUICE_DEBUG=1 shows where."
    said = next((said for describe in _DESCRIPTIONS if (said := describe(raised))), None) or _describe_mistake_in_code(raised)
    return f"{owner}{raised.file}, line {raised.line}: {said.removeprefix(owner)}"


def _find_declaring_line(error: Exception) -> _Raised | None:
    """The last line of a file before Sluice or pyspark were called."""
    call_site: tuple[str, int] | None = None
    module, by_the_line, called = "", False, False
    # Of a call of several lines, Python names the first.
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = frame.f_code.co_filename
        name = str(frame.f_globals.get("__name__", ""))
        # Not a frozen module of Python, the __init__ of a dataclass, or what loads a module.
        if not file.startswith("<") and name.partition(".")[0] != "importlib":
            module = name
            outside = module.partition(".")[0] in _OUTSIDE_THE_FILE
            called = called or (outside and call_site is not None)
            by_the_line = not outside and not called
            call_site = (file, line) if by_the_line else call_site
    if call_site is None:
        return None
    linecache.checkcache(call_site[0])
    return _Raised(error, *call_site, linecache.getline(*call_site), module, by_the_line)


def _repeat_own_mistake(raised: _Raised) -> str | None:
    return str(raised.error) if isinstance(raised.error, UsageError) else None


def _describe_unknown_name(raised: _Raised) -> str | None:
    found = _NO_SUCH_NAME.match(str(raised.error)) if isinstance(raised.error, ImportError | AttributeError) else None
    if found is None or not raised.by_the_line:
        return None
    name = found[1] or found[2]
    names: list[str] = importlib.import_module(_DECLARE).__all__
    elsewhere = describe_databricks_name(name)
    return f"{_DECLARE} has no '{name}'.{f' {elsewhere}' if elsewhere else nearest_name_hint(name, names)}"


def _describe_wrong_call(raised: _Raised) -> str | None:
    """About a declaration that was called with wrong arguments. Python checks them before it enters a function, so the line is the call's."""
    found = _WRONG_ARGUMENTS.match(str(raised.error)) if isinstance(raised.error, TypeError) else None
    if found is None or not raised.by_the_line:
        return None
    declarations = vars(importlib.import_module(_DECLARE))
    names = [name for name, one in declarations.items() if _qualified_name(one) == found[1]]
    if not names:
        return None
    called = next((name for name in names if re.search(rf"\b{name}\b", raised.text)), names[0])
    return _explain_call(called, declarations[called], found[2], raised.text.lstrip().startswith("@"))


def _explain_call(called: str, declaration: Callable[..., Any], said: str, decorates: bool) -> str:
    """The sentences about a call that Python refused. said: what Python says of its arguments; decorates: whether it is a decorator.

    A declaration whose attribute `usage` says how it is called is explained by that.
    """
    usage = getattr(declaration, "usage", None)
    if found := _UNKNOWN_ARGUMENT.match(said):
        wrong = describe_unknown_argument(called, found[1], inspect.signature(declaration).parameters)
    elif said.startswith("missing"):
        wrong = describe_missing_arguments(called, re.findall(r"'(\w+)'", said))
    elif usage is None:
        whole = f"{'@' if decorates else ''}{called}"
        needed = ", ".join(f'{name}="…"' for name in list_needed_arguments(declaration))
        return f"{whole} takes its arguments by name: {whole}({needed})."
    else:
        wrong = f"{called} {said}."
    return f"{wrong} {called} takes {usage.format(called)}" if usage else wrong


def _qualified_name(declaration: Any) -> str:
    """What Python calls it in an error about its arguments."""
    if isinstance(declaration, type):
        return f"{declaration.__qualname__}.__init__"
    return str(declaration.__qualname__) if inspect.isroutine(declaration) else f"{type(declaration).__qualname__}.__call__"


def _describe_spark_outside_function(raised: _Raised) -> str | None:
    if raised.package != "pyspark":
        return None
    if raised.module.startswith("pyspark.pipelines"):
        return describe_databricks_name("pyspark.pipelines")
    # An assertion with a text is about something else, such as the type of a field.
    is_bare_assertion = isinstance(raised.error, AssertionError) and not str(raised.error)
    if not is_bare_assertion and not _NO_SESSION.match(str(raised.error)):
        return None
    return (
        "a Spark expression (F.col, F.expr, Window…) is made where the file is loaded, which has no Spark. Use text: "
        'sequence_by="at", apply_as_deletes="bpm = 0", @expect("positive", "bpm > 0"); or move it into the function.'
    )


def _describe_mistake_in_code(raised: _Raised) -> str:
    kind = type(raised.error).__name__
    if raised.package == "sluice":
        return f"{kind} in Sluice itself, which this line calls. SLUICE_DEBUG=1 shows where."
    said = f"{kind}: {raised.error}" if isinstance(raised.error, _ABOUT_CODE) else f"{kind}"
    return f"{said.rstrip('.')}.{_hint_at_name(raised.error)}"


def _hint_at_name(error: Exception) -> str:
    name = error.name if isinstance(error, NameError) else None
    if name == "spark":
        return " Files are loaded without Spark: move this into the function, which is given its inputs as DataFrames."
    return f" Import it: from {_DECLARE} import {name}" if name in importlib.import_module(_DECLARE).__all__ else ""


_DESCRIPTIONS: tuple[Callable[[_Raised], str | None], ...] = (
    _repeat_own_mistake,
    _describe_unknown_name,
    _describe_wrong_call,
    _describe_spark_outside_function,
)
