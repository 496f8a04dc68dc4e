"""Enforces what is declared about a table's rows before they are written: its `schema=` and its expectations.

The transform must return the columns that `schema=` lists, and the table itself refuses what slips through. Verdicts are counted, and the
flow fails if a rule fails that must not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from sluice.declare.datasets.dataset import Dataset
from sluice.declare.quality.expectations import ACTION_COUNTS
from sluice.declare.sql.schema import SchemaText, split_schema_declaration
from sluice.errors import DeclarationError, nearest_name_hint
from sluice.lake import table_creation
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import PROVENANCE
from sluice.printable import count_noun, match_number
from sluice.quality import verdicts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def check_declared_schema(dataset: Dataset[Any], given: StructType) -> None:
    """Raises DeclarationError, with all differences, if the transform returns other columns than `schema=` lists.

    given: what the transform returns, before treatments. Sluice's own columns, which begin with an underscore, do not count.
    """
    text = _parse_schema_text(dataset)
    if text is None:
        return
    wanted = _parse_schema_columns(dataset, text)
    found = StructType([field for field in given if field.name in wanted.names or not _is_provenance_column(field.name)])
    mistakes = list(_describe_schema_differences(wanted, found))
    if mistakes:
        raise DeclarationError(f"{dataset.label}: " + "; ".join(mistakes) + ".")


def enforceable_schema(dataset: Dataset[Any], stored: StructType) -> tuple[StructType, dict[str, str]]:
    """Returns the part of a `schema=` that stored rows can be held to: columns with NOT NULL and comments, and the CHECKs by name.

    stored: the columns of the rows as they are stored. A treated column does not hold the value that its condition is about, and the rows of a
    change log have another shape. For those, only the expectations are enforced.
    """
    text = _parse_schema_text(dataset)
    if text is None:
        return StructType([StructField(field.name, field.dataType, True) for field in stored]), {}
    declared = {field.name: field for field in _parse_schema_columns(dataset, text)}
    loose = set(declared) if getattr(dataset, "shape", None) else set(dataset.treatments)
    fields = []
    for field in stored:
        said = declared.get(field.name)
        nullable = said is None or said.nullable or field.name in loose
        fields.append(StructField(field.name, field.dataType, nullable, said.metadata if said else {}))
    return StructType(fields), {one.name: one.condition for one in text.checks if not one.columns & loose}


def declared_schema_columns(dataset: Dataset[Any]) -> StructType | None:
    """Returns the columns that a `schema=` names, or None if there is none."""
    text = _parse_schema_text(dataset)
    return _parse_schema_columns(dataset, text) if text else None


def constraint_refusal_text(pipeline: str, dataset: Dataset[Any], bad: Mapping[str, int]) -> str:
    """Returns why an existing table does not get the constraints of its `schema=`, with the remedy. bad: how many rows violate each constraint."""
    name = max(bad, key=lambda one: bad[one])
    then = " and sets such rows aside" if dataset.kind.sets_rows_aside else ""
    return (
        f"{dataset.label}: schema= now says '{name}', which {count_noun(bad[name], 'row')} of "
        f"the table {match_number(bad[name], 'does', 'do')} not meet. Nothing was changed. Correct "
        f"schema=, or make the table anew, which judges every row again{then}: sluice run {pipeline} --mode refresh --table {dataset.name}."
    )


def _parse_schema_text(dataset: Dataset[Any]) -> SchemaText | None:
    return split_schema_declaration(dataset.schema, dataset.label) if dataset.schema is not None else None


def _parse_schema_columns(dataset: Dataset[Any], text: SchemaText) -> StructType:
    try:
        return table_creation.parse_ddl_schema(text.ddl)
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise DeclarationError(f"{dataset.label}: schema= is not understood by Spark: {reason}") from None


def _describe_schema_differences(wanted: StructType, given: StructType) -> Iterator[str]:
    for field in wanted:
        kind = field.dataType.simpleString()
        if field.name not in given.names:
            yield f"schema= names the column '{field.name}' ({kind}), which its transform does not give.{nearest_name_hint(field.name, given.names)}"
        elif given[field.name].dataType.simpleString() != kind:
            is_now = given[field.name].dataType.simpleString()
            yield f"schema= says that its column '{field.name}' is {kind}, its transform gives {is_now}: cast it there, or correct schema="
    for field in given:
        if field.name not in wanted.names:
            yield (
                f"its transform gives the column '{field.name}' ({field.dataType.simpleString()}), which schema= does not name: "
                "add it there, or leave it out of the transform"
            )


def _is_provenance_column(name: str) -> bool:
    return name in PROVENANCE


def count_verdicts(dataset: Dataset[Any], rows: DataFrame, report: FlowReport) -> int:
    """Counts rows with a verdict into the report. Returns how many are to be quarantined.

    Raises SluiceError if a row does not meet an `expect_or_fail`, or if more rows fail a rule than its `at_most` allows. The report then has
    the counts of the rules, which say why, and no counts of rows, because none is written.
    """
    return count_verdicts_with_aggregates(dataset, rows, report, ())[0]


def count_verdicts_with_aggregates(
    dataset: Dataset[Any], rows: DataFrame, report: FlowReport, asked: Sequence[Column]
) -> tuple[int, dict[str, Any]]:
    """Counts rows with a verdict as `count_verdicts` does, and computes further named aggregates of the rows in the same pass.

    Returns how many are to be quarantined, and the aggregates by name. Errors are those of `count_verdicts`.
    """
    aggregates = [column.alias(name) for name, column in verdicts.verdict_count_aggregates(dataset.expectations).items()]
    counted = compute_aggregates(rows, *aggregates, *asked)
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
