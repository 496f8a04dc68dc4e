"""`sluice why`: stages, tables and what would help, of a run and of a table; names that are wrong; JSON."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from tests.commands import ask_command, use_roots_of

from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings

AT = datetime(2026, 11, 21, 2, tzinfo=UTC)


def row(run: str, stage: str, flow: str, after: int, **said: Any) -> dict[str, Any]:
    common = {"run": run, "pipeline": "gym", "stage": stage, "mode": "increment", "flow": flow, "state": "done", "note": ""}
    at = AT + timedelta(minutes=after)
    times = {"started_at": at, "ended_at": at + timedelta(seconds=30)}
    return {**common, **times, **said}


@pytest.fixture(autouse=True)
def two_runs(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    use_roots_of(monkeypatch, settings)
    begun = {"starting Spark": 6.0, "tables": 20.0}
    anew = "full: a change of 'heart_rate' can touch any row"
    rows = [
        row("first", "gold", "device_day", 0, seconds=4.0, recomputed="keys: 3 of 80 rows"),
        row("second", "silver", "heart_rate", 60, seconds=12.0, steps={"computing": 9.0}, stage_steps=begun, rows_out=801),
        row("second", "gold", "device_day", 61, seconds=8.0, recomputed=anew, steps={"writing": 2.5}),
    ]
    run_ledger.append_run_rows(PipelineRecords(settings, "gym"), rows)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    return ask_command(capsys, "why", *arguments, code=code)


def test_the_last_run_is_shown_by_stage_and_table_with_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    said = ask(capsys)
    assert "gym, run second (increment), 2026-11-21 03:00:00 UTC" in said
    lines = [line.split() for line in said.splitlines()]
    assert ["silver", "done", "30.0", "6.0", "20.0", "4.0"] in lines
    assert next(line for line in lines if line[:1] == ["heart_rate"])[:5] == ["heart_rate", "silver", "12.0", "9.0", "3.0"]
    assert "* device_day: made again in full (a change of 'heart_rate' can touch any row), 8.0 s." in said
    assert "sluice check gym --plans" in said
    assert "first" not in ask(capsys, "gym") and "Nothing stands out" in ask(capsys, "gym", "--run", "first")


def test_of_a_table_its_last_runs_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    said = ask(capsys, "gym.device_day")
    assert [line.split()[2] for line in said.splitlines() if line.startswith("2026")] == ["second", "first"]
    assert "heart_rate:" not in said, "what is found of other tables is not said"
    assert "* device_day: made again in full" in said


def test_a_machine_gets_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(ask(capsys, "gym", "--json").splitlines()[-1])
    assert [found["run"], [stage["stage"] for stage in found["stages"]]] == ["second", ["silver", "gold"]]
    assert [one["rule"] for one in found["findings"]] == ["unbounded change"]
    of_table = json.loads(ask(capsys, "gym.heart_rate", "--json").splitlines()[-1])
    assert [run["computing"] for run in of_table["runs"]] == [9.0] and of_table["findings"] == []


def test_a_wrong_name_is_told_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "heart_rate" in ask(capsys, "gym.heart_rat", code=2)
    assert "second" in ask(capsys, "gym", "--run", "secnd", code=2)
    assert "gym" in ask(capsys, "gim", code=2)


def test_before_the_first_run_there_is_nothing_to_tell(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Nothing has been run yet" in ask(capsys, "italy")
    assert json.loads(ask(capsys, "italy", "--json")) == {"run": None}


def test_a_stream_has_a_line_and_a_ledger_of_before_goes_on(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """The ledger of the commit before had no column for it: it gets one, and its rows have no stream."""
    records = PipelineRecords(settings, "gym")
    shutil.rmtree(records.run_ledger)
    old = pa.schema([field for field in run_ledger.RUNS if field.name != "stream"])
    run_ledger.append_record_rows(records.run_ledger, [row("r0", "silver", "heart_rate", 0, seconds=4.0)], old)
    assert "Streams" not in ask(capsys, "gym")
    stream = {"batches": 3, "input_rows": 120, "seconds": 4.0, "longest_batch_seconds": 2.5, "computing_seconds": 3.0}
    state = {"state_rows": 1_200, "state_bytes": 3_400_000, "watermark_lag_seconds": 600}
    rows = [
        row("r1", "silver", "heart_rate", 9, seconds=5.0, stream=stream),
        row("r1", "gold", "busy", 9, seconds=6.0, stream=state | stream),
    ]
    run_ledger.append_run_rows(records, rows)
    assert [one["stream"] for one in run_ledger.read_run_ledger(records)] == [{}, stream, state | stream]
    lines = ask(capsys, "gym").partition("Streams")[2].splitlines()
    assert next(line for line in lines if line.strip().startswith("heart_rate")).split() == [
        "heart_rate",
        "3",
        "120",
        "30.0",
        "4.0",
        "2.5",
        "3.0",
    ]
    assert next(line for line in lines if line.strip().startswith("busy")).split()[7:] == ["1200", "3.4", "MB", "10", "min"]
    assert (
        len(ask(capsys, "gym.heart_rate").partition("Streams")[2].split("What")[0].split("Nothing")[0].strip().splitlines()) >= 2
    )
    assert json.loads(ask(capsys, "gym", "--json"))["tables"][0]["stream"]["watermark_lag_seconds"] == 600
