"""Counting verdicts before anything is written, and failing where a rule must not fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sluice.declare.datasets.tables import Dataset
from sluice.declare.quality.expectations import ACTION_COUNTS
from sluice.lake.report import FlowReport
from sluice.quality import verdicts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def count_verdicts(dataset: Dataset[Any], rows: DataFrame, report: FlowReport) -> int:
    """Count rows with a verdict into the report. Returns how many are to be quarantined.

    Raises SluiceError where a row does not meet an `expect_or_fail`, or more rows fail a rule than its `at_most` allows. The report
    then has the counts of the rules, which say why, and none of the rows: nothing of them is written.
    """
    return count_verdicts_with_aggregates(dataset, rows, report, ())[0]


def count_verdicts_with_aggregates(
    dataset: Dataset[Any], rows: DataFrame, report: FlowReport, asked: Sequence[Column]
) -> tuple[int, dict[str, Any]]:
    """The same; with what else was asked of the rows, named aggregates, in the same pass."""
    aggregates = [column.alias(name) for name, column in verdicts.verdict_count_aggregates(dataset.expectations).items()]
    row = rows.agg(*aggregates, *asked).first()
    counted: dict[str, Any] = row.asDict() if row else {}
    _report_rule_counts(dataset, counted, report)
    verdicts.raise_on_failed_expectations(dataset.name, dataset.expectations, counted)
    report.rows_in += counted["rows"]
    for name in ACTION_COUNTS:
        report.add_to_count(name, counted[name])
    for one in dataset.expectations:
        if one.action.sets_row_aside and counted[f"rule:{one.name}"]:
            report.quarantine_reasons[one.name] += counted[f"rule:{one.name}"]
    return verdicts.number_of_rows_set_aside(counted), counted


def _report_rule_counts(dataset: Dataset[Any], counted: Mapping[str, int], report: FlowReport) -> None:
    if dataset.expectations:
        report.rules_version = verdicts.expectations_version(dataset.expectations)
    for one in dataset.expectations:
        report.rules[one.name] += counted[f"rule:{one.name}"]
        report.null_rules[one.name] += counted[f"null:{one.name}"]
