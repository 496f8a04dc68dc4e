"""What a job script says at its end: also of a job that failed, what its flows did nevertheless."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import SluiceError, StopRequested, UsageError
from sluice.runs import script
from sluice.runs.execution.verifying import TablesDiffer
from sluice.runs.followed_job import RETRY_HELPS, JobEnd


def stage_report(stage: str, quarantined: int) -> dict[str, Any]:
    return {
        "run": "r1",
        "pipeline": "gym",
        "stage": stage,
        "mode": "increment",
        "seconds": 1.0,
        "committed": True,
        "flows": [],
        "quarantined": quarantined,
    }


def fail_after_silver(with_report: bool) -> Iterator[dict[str, Any]]:
    yield stage_report("silver", 2)
    error = SluiceError("View 'device_day' failed.")
    if with_report:
        error.report = stage_report("gold", 3)
    raise error


@pytest.mark.parametrize(("with_report", "quarantined", "seconds"), [(True, 3, 2.0), (False, 2, 1.0)])
def test_a_job_that_failed_writes_what_it_did(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    with_report: bool,
    quarantined: int,
    seconds: float,
) -> None:
    report = tmp_path / "report.json"
    monkeypatch.setattr(sys, "argv", ["layers.py", "--pipeline", "gym", "--report", str(report)])
    monkeypatch.setattr(script.summary, "format_run_summary", lambda one: one["stage"])
    with pytest.raises(SystemExit) as ended:
        script.run_job_script("layers", script.build_stage_parser("layers"), lambda _: fail_after_silver(with_report))
    assert ended.value.code == 1
    assert "View 'device_day' failed." in capsys.readouterr().err
    written = json.loads(report.read_text())
    assert (written["stage"], written["quarantined"], written["seconds"]) == ("layers", quarantined, seconds)


@pytest.mark.parametrize(("kind", "said"), [(TablesDiffer, False), (SluiceError, None), (StopRequested, None)])
def test_a_job_whose_tables_differ_says_that_a_retry_does_not_help(kind: type[SluiceError], said: bool | None) -> None:
    def fail() -> list[dict[str, Any]]:
        error = kind("no")
        error.report = stage_report("verify", 0)
        raise error

    end = script._do_job("verify", fail)
    assert end.exit_code == 1 and end.report is not None and end.report.get(RETRY_HELPS) is said


def test_a_job_that_did_nothing_before_it_failed_has_no_report(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> list[dict[str, Any]]:
        raise SluiceError("no")

    assert script._do_job("silver", fail) == JobEnd(1, "no")


def test_a_run_that_is_given_no_name_gets_one_and_an_empty_name_is_refused() -> None:
    parser = script.build_stage_parser("silver")
    assert parser.parse_args(["--pipeline", "gym"]).run_id
    with pytest.raises((SystemExit, UsageError)):
        parser.parse_args(["--pipeline", "gym", "--run-id", ""])
