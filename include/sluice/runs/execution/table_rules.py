"""Evaluates expectations on whole tables after the tables change. The run ledger keeps the findings.

A finding is valid until the table, the one it refers to, or the rule changes. So a run with nothing new costs nothing, and a task that
failed by a rule fails again when it is only repeated. Freshness is evaluated in every run, because time passes by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from sluice import delta_log
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.quality.table_expectations import TableExpectation
from sluice.errors import DeclarationError, SluiceError
from sluice.lake import log, table_frames
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.quality import whole_table
from sluice.quality.whole_table import WholeTable
from sluice.runs import run_ledger
from sluice.step_times import CHECKING, measure_step


@measure_step(CHECKING)
def judge_own_table_rules(workspace: Workspace, dataset: Dataset[Any], report: FlowReport) -> None:
    """Evaluates a table's own rules, after its flow. Raises SluiceError if a rule with or_fail is not met."""
    _judge_table_rules(workspace, dataset, report, [rule for rule in dataset.table_expectations if rule.refers_to is None])


def judge_reference_rules(workspace: Workspace, reports: Iterable[FlowReport]) -> dict[str, BaseException]:
    """Evaluates references after all flows of a stage, which may make the tables referred to. Returns the errors by flow."""
    errors: dict[str, BaseException] = {}
    for report in reports:
        dataset = workspace.graph.datasets.get(report.flow)
        rules = [rule for rule in dataset.table_expectations if rule.refers_to is not None] if dataset else []
        if dataset and rules:
            try:
                _judge_table_rules(workspace, dataset, report, rules)
            except Exception as error:
                errors[dataset.name] = error
    return errors


def _judge_table_rules(
    workspace: Workspace, dataset: Dataset[Any], report: FlowReport, rules: Sequence[TableExpectation]
) -> None:
    path = workspace.path(dataset.name)
    if not rules or not delta_log.is_delta_table(path):
        return
    _check_rule_references(workspace, dataset, rules)
    before = [row for row in run_ledger.read_run_ledger(workspace.records) if row["flow"] == dataset.name]
    for rule in rules:
        report.table_rules[rule.name] = _evaluate_table_rule(workspace, dataset, rule, before)
    for rule in rules:
        found = report.table_rules[rule.name]
        if rule.or_fail and found["met"] is False:
            raise SluiceError(
                f"Table '{dataset.name}' does not meet '{rule.name}', which it must: {found['text']}. The new rows are in the table; later "
                f"stages did not run."
            )


def _evaluate_table_rule(
    workspace: Workspace, dataset: Dataset[Any], rule: TableExpectation, before: list[run_ledger.Row]
) -> dict[str, Any]:
    """Returns the finding of a rule, as the ledger keeps it: a valid one of an earlier run, or a new one from the table."""
    path = workspace.path(dataset.name)
    other = workspace.path(rule.refers_to) if rule.refers_to is not None else None
    version = hashlib.sha256(repr(rule).encode()).hexdigest()[:12]
    at = [log.table_change_mark(path), *([log.table_change_mark(other)] if other else [])]
    last: dict[str, Any] = next(
        (row["table_rules"][rule.name] for row in reversed(before) if rule.name in row["table_rules"]), {}
    )
    if not rule.depends_on_time and (last.get("at"), last.get("rule")) == (at, version):
        return dict(last)
    earlier = _list_earlier_row_counts(before)[-rule.runs_compared :] if rule.runs_compared else []
    finding = whole_table.evaluate_table_rule(rule, WholeTable(workspace.session, path, other, earlier))
    found = {"met": finding.met, "count": finding.count, "text": finding.text, "at": at, "rule": version}
    return found if finding.rows is None else {**found, "rows": finding.rows}


def _list_earlier_row_counts(before: list[run_ledger.Row]) -> list[int]:
    """Returns the table's row counts after earlier runs that changed it, newest last."""
    changed = [row for row in before if row["version_before"] != row["version_after"]]
    counts = ([found["rows"] for found in row["table_rules"].values() if "rows" in found] for row in changed)
    return [of_run[0] for of_run in counts if of_run]


def _check_rule_references(workspace: Workspace, dataset: Dataset[Any], rules: Sequence[TableExpectation]) -> None:
    """Raises DeclarationError for a rule that names something that does not exist. `sluice check --plans` would have said so."""
    wanted = {dataset.name, *(rule.refers_to for rule in rules if rule.refers_to is not None)}
    paths = {name: workspace.path(name) for name in wanted}
    schemas = {
        name: table_frames.read_table(workspace.session, path).schema
        for name, path in paths.items()
        if delta_log.is_delta_table(path)
    }
    for rule in rules:
        wrong = whole_table.find_table_rule_mistake(rule, schemas, dataset.name)
        if wrong:
            raise DeclarationError(f"Table '{dataset.name}', expectation '{rule.name}': {wrong}")
