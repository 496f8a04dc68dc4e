"""Whose fault it is that records could not be written. Only what is known to come of the records themselves counts as theirs.

A full disk, a stop request, a lost lease, storage that is gone, a concurrent commit and whatever nobody has thought of are not.
"""

from __future__ import annotations

import builtins
import re
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sluice.errors import SluiceError

_OF_VALUES = (ValueError, ArithmeticError, RecursionError, pa.ArrowTypeError, pa.ArrowNotImplementedError)
"""What Python raises over a value. Arrow's ArrowInvalid is a ValueError; that a disk is full is an OSError."""

_STATES_OF_COLUMNS = frozenset({
    *("42602", "42622", "42702", "42703", "42704", "42711"),  # a name that is none, is too long, ambiguous or there twice
    *("42804", "42806", "42846", "42K09", "42KD9"),  # a type that does not go with another
    *("42939", "42K05"),  # a name that is taken, or has signs that a column cannot have
    "0AKDC",  # a type that Delta has not
})
"""SQLSTATEs by which Spark and Delta refuse columns. Others of class 42 say that a table or a path is gone."""

_CLASS_OF_VALUES, _OF_PYTHON = "22", "38000"
_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Invalid))(?::|$)", re.MULTILINE)


def is_of_delivery(error: BaseException) -> bool:
    """Whether the records that were to be written are the cause of an error."""
    if isinstance(error, SluiceError):
        return False
    if isinstance(error, PySparkException | Py4JJavaError):
        state, text = _innermost(error)
        if state == _OF_PYTHON:
            return issubclass(_raised_by_worker(text), _OF_VALUES)
        return state.startswith(_CLASS_OF_VALUES) or state in _STATES_OF_COLUMNS
    return isinstance(error, _OF_VALUES)


def fault_name(error: BaseException) -> str:
    """What an error is called, without anything of the records."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return str(condition or type(error).__name__)


def _innermost(error: PySparkException | Py4JJavaError) -> tuple[str, str]:
    """The SQLSTATE and the text of what happened first, which is the last cause. "" where that has no SQLSTATE, as a failing disk."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if java is None:
        return (error.getSqlState() or "" if isinstance(error, PySparkException) else ""), str(error)
    while java.getCause() is not None:
        java = java.getCause()
    try:
        return str(java.getSqlState() or ""), str(java.getMessage())
    except Py4JError:  # of a class that has no such method
        return "", ""


def _raised_by_worker(text: str) -> type[BaseException]:
    """What a worker has raised, by the last line of its traceback that says so."""
    names = _RAISED.findall(text)
    name = names[-1].rpartition(".")[2] if names else ""
    found = getattr(builtins, name, None) or getattr(pa, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else BaseException
