"""What the run ledger stores about rules, and what `sluice runs --rules` and alerts report about them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from orchestration import alerts
from sluice.cli import main
from sluice.entries import ENTRY
from sluice.lake.flow_report import FlowReport
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger, summary
from sluice.settings import Settings

OF_GOLD = ("recomputed", "late", "unfollowed", "state_rows", "state_bytes")
AT = datetime(2026, 11, 21, 2, tzinfo=UTC)
FOUND = {"one_session": {"met": False, "count": 4, "text": "4 rows share their session with another", "at": ["x:1"], "rule": "f"}}


def report() -> FlowReport:
    found = FlowReport(flow="heart_rate", layer="silver", rows_in=9, rules_version="0123456789ab", table_rules=FOUND)
    found.rules.update({"positive": 3, "plausible": 0})
    found.null_rules.update({"positive": 1})
    found.recomputed, found.late = "keys: 12 of 80 rows", 7
    return found


def row(run: str, flow: dict[str, Any]) -> dict[str, Any]:
    return {
        **flow,
        "run": run,
        "pipeline": "gym",
        "stage": "silver",
        "state": "done",
        "started_at": AT,
        "ended_at": AT,
    }


@pytest.fixture
def recorded(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A ledger that was begun before rows had entries."""
    records = PipelineRecords(settings, "gym")
    flow = summary.summarize_flow(report())
    old = pa.schema([field for field in run_ledger.RUNS if field.name != ENTRY])
    earlier = {**row("old", {**flow, "null_rules": {}, "table_rules": {}}), "started_at": AT.replace(day=1)}
    with monkeypatch.context() as patch:
        patch.setattr(run_ledger, "RUNS", old)
        run_ledger.append_run_rows(records, [earlier])
    assert [one[ENTRY] for one in run_ledger.read_run_ledger(records)] == [None]
    run_ledger.append_run_rows(records, [row("new", flow)])
    return run_ledger.read_run_ledger(records)


def test_a_ledger_of_before_there_were_entries_is_read_and_goes_on(recorded: list[dict[str, Any]]) -> None:
    old, new = recorded
    assert (old["rules"], old["null_rules"], old["table_rules"]) == ({"positive": 3}, {}, {})
    assert (new["rules"], new["null_rules"], new["rules_version"]) == ({"positive": 3}, {"positive": 1}, "0123456789ab")
    assert new["table_rules"] == FOUND
    assert [new[name] for name in OF_GOLD] == ["keys: 12 of 80 rows", 7, 0, 0, 0]
    assert (old[ENTRY], new[ENTRY]) == (None, 1)


def test_runs_lists_what_rules_found(
    recorded: list[dict[str, Any]], settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLUICE_LAKE", settings.lake)
    with pytest.raises(SystemExit):
        main(["runs", "gym", "--rules", "--json"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["rules"]
    shown = [(one["run"], one["flow"], one["rule"], one["rows"], one.get("null"), one.get("met")) for one in found]
    assert shown == [
        ("new", "heart_rate", "positive", 3, 1, None),
        ("new", "heart_rate", "one_session", 4, None, False),
        ("old", "heart_rate", "positive", 3, 0, None),
    ]
    with pytest.raises(SystemExit):
        main(["runs", "gym", "--rules"])
    assert "4 rows share their session with another" in capsys.readouterr().out


def test_the_summary_of_a_run_names_rules_counts_and_nulls() -> None:
    shown = summary.format_run_summary(summary.summarize_run("r", "gym", "silver", "increment", 1.0, [report()]))
    assert "positive: 3 rows (1 NULL); one_session: 4 rows share their session with another" in shown
    assert "plausible" not in shown
    assert "recomputed keys: 12 of 80 rows; late: 7 rows;" in shown and "not followed" not in shown


def test_an_alert_may_be_on_a_rule_of_the_whole_table(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, int]] = []
    monkeypatch.setattr(alerts, "send_alert", lambda kind, text, **facts: sent.append((facts["rule"], facts["rows"])))
    told = summary.summarize_run("r", "gym", "silver", "increment", 1.0, [report()])
    alerts.alert_exceeded_rules("gym", "r", told, {"heart_rate.one_session": 0, "heart_rate.positive": 3, "other.one_session": 0})
    assert sent == [("one_session", 4)]
