"""How much waits for a process that starts: what came since the last run, or what the run's earlier stages wrote; and what follows of it."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.conftest import settings_at

from sluice.pipeline_records import PipelineRecords
from sluice.runs import quiet, waiting_bytes
from sluice.runs.quiet import QuietMark
from sluice.runs.waiting_bytes import choose_session_conf, measure_waiting_bytes
from sluice.spark_process import session_conf_with_all_compilers


@pytest.fixture
def records(tmp_path: Path) -> PipelineRecords:
    for name, size in (("landing/shop/sales/1.csv", 1_000), ("lake/shop/bronze/sales/part-0.parquet", 100)):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * size)
    (tmp_path / "lake/shop/_sluice").mkdir()
    return PipelineRecords(settings_at(tmp_path), "shop")


def mark(records: PipelineRecords, run: str, ago: timedelta) -> None:
    quiet.write_quiet_mark(records, QuietMark(run, datetime.now(UTC) - ago, (), "", ""))


def test_without_a_run_all_there_is_counts(records: PipelineRecords) -> None:
    assert measure_waiting_bytes(records, "") == 1_000 + 4 * 100


def test_a_new_run_counts_the_files_that_came_since_the_last_began(records: PipelineRecords) -> None:
    mark(records, "r1", timedelta(hours=1))
    assert measure_waiting_bytes(records, "r2") == 1_000
    mark(records, "r1", -timedelta(hours=1))
    assert measure_waiting_bytes(records, "r2") == 0
    moved = records.landing / "sales" / "old.csv"
    moved.write_bytes(b"12345")
    os.utime(moved, (0, 0))
    mark(records, "r1", timedelta(hours=1))
    assert measure_waiting_bytes(records, "r2") == 1_005, "a file that is old and came now has come now"


def test_a_later_stage_counts_what_its_run_has_written(records: PipelineRecords) -> None:
    mark(records, "r1", timedelta(hours=1))
    assert measure_waiting_bytes(records, "r1") // 4 >= 100
    assert measure_waiting_bytes(records, "r1") < 1_000 + 4 * 100, "its mark counts, and the landing folder does not"


def test_much_gets_all_compilers_and_little_what_the_profile_says(
    records: PipelineRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_session_conf(records, "") == {}
    monkeypatch.setattr(waiting_bytes, "WORTH_ALL_COMPILERS", 1_400)
    assert choose_session_conf(records, "") == session_conf_with_all_compilers(records.settings) != {}


def test_what_cannot_be_looked_at_does_not_keep_a_run_from_starting(
    records: PipelineRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(records: PipelineRecords, run: str) -> int:
        raise PermissionError

    monkeypatch.setattr(waiting_bytes, "measure_waiting_bytes", refuse)
    assert choose_session_conf(records, "") == {}


def test_a_lake_that_has_run_and_has_no_mark_is_taken_for_one_with_little_to_do(records: PipelineRecords) -> None:
    """As where Airflow provides the secrets: there is never a mark, and each of its jobs would have all compilers."""
    Path(records.run_ledger).mkdir()
    assert measure_waiting_bytes(records, "r2") == 0
