"""`sluice runs`: what each run did is seen, however many tables had nothing to do."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sluice.cli import main
from sluice.lake.flow_report import FlowReport
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger, summary
from sluice.settings import Settings

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)


def row(report: FlowReport, run: str, after: int) -> dict[str, Any]:
    flow = summary.summarize_flow(report)
    at = AT + timedelta(minutes=after)
    common = {"run": run, "pipeline": "gym", "stage": report.layer, "mode": "increment", "state": "done"}
    return {**flow, **common, "started_at": at, "ended_at": at}


def listed(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "gym", *options])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.fixture(autouse=True)
def three_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that did something, and two that found nothing; a table of the last looked at rows and left them as they were."""
    monkeypatch.setenv("SLUICE_LAKE", settings.lake)
    first = [
        row(
            FlowReport("heart_rate", "silver", version_before=0, version_after=1, deliveries=1, rows_in=9, rows_out=8), "first", 0
        )
    ]
    second = [row(FlowReport(f"table_{number}", "vacuum"), "second", 1) for number in range(60)]
    third = [row(FlowReport(name, "silver"), "third", 2) for name in ("bpm", "visits")]
    third += [row(FlowReport("workouts", "silver", rows_in=5), "third", 2), row(FlowReport("device_day", "gold"), "third", 3)]
    run_ledger.append_run_rows(PipelineRecords(settings, "gym"), first + second + third)


def test_tables_of_a_stage_that_had_nothing_new_share_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    header, *lines = listed(capsys).splitlines()
    assert "flow" in header
    shown = [(words[2], " ".join(words[5 : 7 if words[6] == "tables" else 6])) for words in (line.split() for line in lines)]
    assert sorted(shown) == [
        ("first", "heart_rate"),
        ("second", "60 tables"),
        ("third", "2 tables"),
        ("third", "device_day"),
        ("third", "workouts"),
    ]
    assert "older" not in "".join(lines)


def test_a_flow_that_failed_has_a_row_of_its_own(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    failed = [row(FlowReport(name, "silver"), "fourth", 4) | {"state": state} for name, state in (("a", "failed"), ("b", "done"))]
    run_ledger.append_run_rows(PipelineRecords(settings, "gym"), failed)
    assert {line.split()[5] for line in listed(capsys).splitlines() if "fourth" in line} == {"a", "b"}


def test_a_machine_gets_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(listed(capsys, "--json", "--limit", "100").splitlines()[-1])
    assert told["total"] == len(told["runs"]) == 65
    assert {run["flow"] for run in told["runs"]} >= {"table_0", "table_59", "heart_rate"}
