"""The counts of a flow: one list, by which the run ledger, reports and alerts go."""

from __future__ import annotations

from typing import Any

from deltalake import DeltaTable

from sluice.entries import ENTRY
from sluice.flow_counts import ALERT_COUNTS, FLOW_COUNTS, NEWS_COUNTS
from sluice.lake.flow_report import FlowReport
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger, summary
from sluice.settings import Settings

KEPT = {
    *("batches", "deliveries", "rows_in", "rows_out", "inserted", "updated", "deleted"),
    *("quarantined", "dropped", "suppressed", "rescued"),
    *("late", "unfollowed", "state_rows", "state_bytes"),
}


def test_the_counts_that_lakes_have_stay() -> None:
    assert set(FLOW_COUNTS) >= KEPT
    assert set(ALERT_COUNTS) >= {"quarantined", "dropped", "rescued", "suppressed"}
    assert set(NEWS_COUNTS) >= {"deliveries", "rows_in", "rows_out", "quarantined", "dropped", "suppressed", "late", "unfollowed"}


def test_every_count_is_in_the_report_of_a_run_and_in_the_run_ledger(settings: Settings) -> None:
    report = FlowReport("sale", "silver")
    for number, name in enumerate(FLOW_COUNTS, start=1):
        report.add_to_count(name, number)
        report.add_to_count(name, number)
    flow = summary.summarize_flow(report)
    wanted = {name: 2 * number for number, name in enumerate(FLOW_COUNTS, start=1)}
    assert {name: flow[name] for name in FLOW_COUNTS} == wanted
    run_ledger.append_run_rows(PipelineRecords(settings, "shop"), [{"run": "r", **{name: flow[name] for name in FLOW_COUNTS}}])
    (row,) = run_ledger.read_run_ledger(PipelineRecords(settings, "shop"))
    assert {name: row[name] for name in FLOW_COUNTS} == wanted


def test_a_ledger_of_before_a_count_goes_on_and_has_none_of_it_in_its_old_rows(settings: Settings, monkeypatch: Any) -> None:
    records = PipelineRecords(settings, "shop")
    before = run_ledger.RUNS
    for name in ("dropped", "late", ENTRY):
        before = before.remove(before.get_field_index(name))
    with monkeypatch.context() as patch:
        patch.setattr(run_ledger, "RUNS", before)
        run_ledger.append_run_rows(records, [{"run": "old", "quarantined": 1}])
    assert "dropped" not in DeltaTable(records.run_ledger).schema().to_arrow().names
    (old,) = run_ledger.read_run_ledger(records)
    assert (old["quarantined"], old["dropped"], old["late"]) == (1, None, None)
    run_ledger.append_run_rows(records, [{"run": "new", "quarantined": 2, "dropped": 3, "late": 4}])
    found = {row["run"]: (row["quarantined"], row["dropped"], row["late"]) for row in run_ledger.read_run_ledger(records)}
    assert found == {"old": (1, None, None), "new": (2, 3, 4)}
