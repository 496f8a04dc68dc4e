"""Takes deliveries one by one if their records cannot be written together, so that one bad delivery does not stop its source for good.

This module also decides whether the records caused an error. Only errors that are known to come from records count. A full disk, a stop
request, a lost lease, missing storage, a concurrent commit and every unknown error do not.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError
from sluice.flows.bronze import intake
from sluice.flows.progress.streams import stop_if_requested
from sluice.ingest import schema_evolution
from sluice.ingest.reading.examination import ExaminedDelivery
from sluice.lake import commits, table_frames
from sluice.lake.commits import Transaction
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.record_states import QUARANTINED


def ingest_together_or_singly(
    workspace: Workspace,
    source: Source,
    examined: list[ExaminedDelivery],
    report: FlowReport,
    transaction: Transaction | None = None,
) -> None:
    """Does what `intake.ingest_deliveries` does. If that fails because of the records, takes each delivery by itself.

    A delivery that fails again goes to quarantine whole, provided that others can be written. If none can, raises the error of the first
    attempt. An error that the records did not cause is raised at once.
    """
    try:
        intake.ingest_deliveries(workspace, source, examined, report, transaction)
    except Exception as error:
        # All topics have the same columns, so no record of a topic can be refused.
        if not source.kind.in_files or not is_fault_of_records(error):
            raise
        refused = _ingest_one_by_one(workspace, source, examined, report)
        if refused and not _has_writable_others(workspace, source, examined, refused):
            raise
        _quarantine_whole_deliveries(workspace, source, refused, report)


def _ingest_one_by_one(
    workspace: Workspace, source: Source, examined: Sequence[ExaminedDelivery], report: FlowReport
) -> list[tuple[ExaminedDelivery, Exception]]:
    """Returns the deliveries that could not be written by themselves either, each with its error."""
    refused = []
    for item in examined:
        stop_if_requested(workspace)
        _withdraw_unwritten_columns(workspace, source)
        try:
            intake.ingest_deliveries(workspace, source, [item], report)
        except Exception as error:
            if not is_fault_of_records(error):
                raise
            refused.append((item, error))
    _withdraw_unwritten_columns(workspace, source)
    return refused


def _withdraw_unwritten_columns(workspace: Workspace, source: Source) -> None:
    """Withdraws the columns that a failed attempt recorded before it could write its rows, so that they do not hinder the next attempt."""
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name)).schema
    schema_evolution.withdraw_unwritten_versions(workspace.schemas(source.table), bronze)


def _has_writable_others(
    workspace: Workspace,
    source: Source,
    examined: Sequence[ExaminedDelivery],
    refused: Sequence[tuple[ExaminedDelivery, Exception]],
) -> bool:
    """Whether other deliveries can be written. If there are none, it tries to append no rows: where that fails, the table is at fault."""
    if len(examined) > 1:
        return len(refused) < len(examined)
    path = workspace.path(source.name)
    try:
        commits.append_rows(table_frames.read_table(workspace.session, path).limit(0), path, None)
    except Exception:
        return False
    return True


def _quarantine_whole_deliveries(
    workspace: Workspace, source: Source, refused: Sequence[tuple[ExaminedDelivery, Exception]], report: FlowReport
) -> None:
    for item, error in refused:
        reason = f"its records cannot be written, and those of other deliveries can: {fault_name(error)}"
        intake.ingest_deliveries(workspace, source, [replace(item, state=QUARANTINED, reason=reason)], report)


_OF_VALUES = (ValueError, ArithmeticError, RecursionError, pa.ArrowTypeError, pa.ArrowNotImplementedError)


"""The errors that Python raises because of a value. Arrow's ArrowInvalid is a ValueError; a full disk raises an OSError."""


_STATES_OF_COLUMNS = frozenset({
    *("42602", "42622", "42702", "42703", "42704", "42711"),  # a name that is invalid, too long, ambiguous or used twice
    *("42804", "42806", "42846", "42K09", "42KD9"),  # types that do not go together
    *("42939", "42K05"),  # a name that is taken, or has characters that no column may have
    "0AKDC",  # a type that Delta does not have
})


"""The SQLSTATEs with which Spark and Delta refuse columns. Others of class 42 mean that a table or a path is gone."""


_CLASS_OF_VALUES, _OF_PYTHON = "22", "38000"


_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Invalid))(?::|$)", re.MULTILINE)


def is_fault_of_records(error: BaseException) -> bool:
    """Whether the records that were being written caused the error."""
    if isinstance(error, SluiceError):
        return False
    if isinstance(error, PySparkException | Py4JJavaError):
        state, text = _innermost_cause(error)
        if state == _OF_PYTHON:
            return issubclass(_exception_raised_by_worker(text), _OF_VALUES)
        return state.startswith(_CLASS_OF_VALUES) or state in _STATES_OF_COLUMNS
    return isinstance(error, _OF_VALUES)


def fault_name(error: BaseException) -> str:
    """Returns the name of an error, which holds nothing of the records."""
    condition = error.getCondition() if isinstance(error, PySparkException) else None
    return str(condition or type(error).__name__)


def _innermost_cause(error: PySparkException | Py4JJavaError) -> tuple[str, str]:
    """Returns the SQLSTATE and the text of the innermost cause. The SQLSTATE is "" if the cause has none, as for a failing disk."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    if java is None:
        return (error.getSqlState() or "" if isinstance(error, PySparkException) else ""), str(error)
    while java.getCause() is not None:
        java = java.getCause()
    try:
        return str(java.getSqlState() or ""), str(java.getMessage())
    except Py4JError:  # the class has no such method
        return "", ""


def _exception_raised_by_worker(text: str) -> type[BaseException]:
    """Returns the class of the exception that a Python worker raised, by the last line of its traceback that names one."""
    names = _RAISED.findall(text)
    name = names[-1].rpartition(".")[2] if names else ""
    found = getattr(builtins, name, None) or getattr(pa, name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else BaseException
