"""The error conditions that Spark, PySpark and Delta define. Only these may be shown of an error, since the rest of its text may quote rows.

Conditions come from the lists that these libraries ship. A word in brackets that is in none of them may be a cell of a row.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

_WORD = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_PYTHON_LINE = re.compile(r"\.py:\d+$")
_LISTS = (("spark-common-utils_", "error/error-conditions.json"), ("delta-spark_", "error/delta-error-classes.json"))
"""The prefixes of the jars that hold such a list, and the list's path in them."""

_SAYS_NAMES_ONLY = frozenset({
    "AMBIGUOUS_COLUMN_REFERENCE",
    "AMBIGUOUS_REFERENCE",
    "COLUMN_ALREADY_EXISTS",
    "DELTA_METADATA_MISMATCH",
    "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION",
    "DELTA_NEW_NOT_NULL_VIOLATION",
    "DELTA_TABLE_NOT_FOUND",
    "FIELD_NOT_FOUND",
    "INVALID_IDENTIFIER",
    "TABLE_OR_VIEW_NOT_FOUND",
    "UNRESOLVED_COLUMN",
    "UNRESOLVED_FIELD",
    "UNRESOLVED_ROUTINE",
    "UNRESOLVED_USING_COLUMN_FOR_JOIN",
})
"""Conditions whose first line holds at most names of tables, columns and functions, a position in a query and a count. Others show
expressions, and with them literals, which may be values of rows or an erased identifier."""


def last_error_condition(text: str) -> str | None:
    """The last condition in an error's text, which is that of its innermost cause; None if there is none."""
    known = _known_error_conditions()
    return next((word for word in reversed(_WORD.findall(text)) if word in known), None)


def explain_refused_query(error: Any) -> str:
    """Why Spark does not run a query: its own sentence if that holds only names, else the condition and its call site.

    error: an AnalysisException.
    """
    text = str(error)
    condition = error.getCondition() or last_error_condition(text)
    if condition and condition.split(".")[0] in _SAYS_NAMES_ONLY:
        return text.splitlines()[0]
    call_sites = dict.fromkeys(call_site for one in error.getQueryContext() if (call_site := _call_site(one)))
    where = f", at {' and '.join(call_sites)}" if call_sites else ""
    return f"Spark refused a query: {condition or type(error).__name__}{where}. SLUICE_DEBUG=1 shows it (and may show data)."


def _call_site(context: Any) -> str:
    """Where in the code a part of a query was written; empty for SQL, which has only a text."""
    if context.contextType().name != "DataFrame":
        return ""
    call_site = str(context.callSite())
    # A JVM that has compiled its calls by reflection gives a line of its own instead, which helps nobody.
    return call_site if _PYTHON_LINE.search(call_site) else ""


@cache
def _known_error_conditions() -> frozenset[str]:
    return frozenset(name for defined in _load_condition_definitions() for name in _conditions_with_subclasses(defined))


def _conditions_with_subclasses(defined: dict[str, Any]) -> Iterator[str]:
    for name, definition in defined.items():
        yield name
        below = definition.get("subClass") or definition.get("sub_class") or {}
        yield from (f"{name}.{part}" for part in below)


def _load_condition_definitions() -> Iterator[dict[str, Any]]:
    found = importlib.util.find_spec("pyspark")
    home = Path(found.origin).parent if found and found.origin else None
    if home:
        own = home / "errors" / "error-conditions.json"
        if own.is_file():
            yield json.loads(own.read_text(encoding="utf-8"))
    added = (Path(one).parent for one in os.environ.get("SPARK_DIST_CLASSPATH", "").split(os.pathsep) if one)
    for folder in ([home / "jars"] if home else []) + list(added):
        for begins, inside in _LISTS:
            for jar in folder.glob(f"{begins}*.jar"):
                with zipfile.ZipFile(jar) as opened:
                    yield json.loads(opened.read(inside))
