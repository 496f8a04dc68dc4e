"""Counting verdicts before anything is written, and failing where a rule must not fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.expectations import Action
from sluice.declare.tables import Dataset
from sluice.lake.report import FlowReport
from sluice.quality import verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judge(dataset: Dataset[Any], rows: DataFrame, report: FlowReport) -> int:
    """Count rows with a verdict into the report. Returns how many are to be quarantined.

    Raises SluiceError where a row does not meet an `expect_or_fail`.
    """
    aggregates = {**verdicts.counts(dataset.expectations), "rows": F.count("*")}
    row = rows.agg(*(column.alias(name) for name, column in aggregates.items())).first()
    counted: dict[str, int] = row.asDict() if row else {}
    verdicts.fail_if_asked(dataset.name, dataset.expectations, counted)
    report.rows_in += counted["rows"]
    report.quarantined += counted["quarantined"]
    report.dropped += counted["dropped"]
    for expectation in dataset.expectations:
        failed = counted[f"rule:{expectation.name}"]
        report.rules[expectation.name] += failed
        if failed and expectation.action is Action.QUARANTINE:
            report.quarantine_reasons[expectation.name] += failed
    return counted["quarantined"]
