"""Landed files through all layers of the gym: the truth, nothing twice, nothing for nothing, commits that say who made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import polars
import pytest
from tests.conftest import Lakehouse, settings_at

from pipelines.gym import maker
from sluice.cli.truth import compare
from sluice.declare.loading import load
from sluice.lake import log
from sluice.runs import ledger
from sluice.runs.job import Request, perform

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STAGES = ("bronze", "silver", "gold", "propagate_deletions", "optimize", "vacuum")


@pytest.fixture(scope="module")
def gym(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """Two days of the gym, each taken through the six stages as a job takes them."""
    settings = settings_at(tmp_path_factory.mktemp("gym"))
    lake = Lakehouse(settings, spark, load(settings, "gym"))
    for _ in range(2):
        maker.land(settings.landing / "gym", settings.truth / "gym", days=1, scale=0.2)
        for stage in STAGES:
            perform(settings, Request("gym", stage))
    return lake


def test_the_tables_are_the_truth(gym: Lakehouse) -> None:
    expected = maker.expected(gym.settings.truth / "gym")
    assert set(expected) == {"heart_rate", "device_day"}
    for table, rows in expected.items():
        assert rows and compare(table, rows, ledger.rows(gym.settings, "gym", table)).equal, table


def test_every_record_is_accounted_for(gym: Lakehouse) -> None:
    lines = {
        path.name: sum(1 for line in path.read_text().splitlines() if line.strip())
        for path in (gym.settings.landing / "gym" / "readings").glob("*.jsonl")
    }
    assert {row["file"]: row["rows"] + row["quarantined"] + row["suppressed"] for row in gym.outcomes()} == lines
    assert len(gym.rows("readings")) == sum(row["rows"] for row in gym.outcomes())


def test_a_run_without_input_makes_no_commit_and_says_so(gym: Lakehouse) -> None:
    before = gym.versions()
    reports = [perform(gym.settings, Request("gym", stage)) for stage in STAGES]
    assert gym.versions() == before
    assert [report["committed"] for report in reports] == [False] * 6
    assert {flow["note"] for report in reports[:3] for flow in report["flows"]} == {"nothing new"}


def test_the_same_content_delivered_again_changes_no_file_of_silver_or_gold(gym: Lakehouse) -> None:
    before, versions = gym.files(), gym.versions()
    first = min((gym.settings.landing / "gym" / "readings").glob("*.jsonl"))
    (first.parent / "again.jsonl").write_bytes(first.read_bytes())
    reports = gym.run("bronze", "silver", "gold")
    assert reports["readings"].rows_out > 0
    assert (gym.files(), gym.versions()["heart_rate"]) == (before, versions["heart_rate"])
    (first.parent / "again.jsonl").unlink()


def test_commits_say_which_run_made_them_and_of_which_deliveries(gym: Lakehouse) -> None:
    for table, path in gym.workspace().tables().items():
        for commit in log.commits(path):
            assert commit["note"].get("sluice") == 1, (table, commit["version"], commit["operation"])
            assert commit["note"]["run"]
    merge = next(c for c in log.commits(gym.workspace().path("heart_rate")) if c["operation"] == "MERGE")
    assert merge["note"]["deliveries"] == {"first": 6, "last": 10, "count": 5}


def test_optimize_sorts_by_what_is_declared(gym: Lakehouse) -> None:
    found = [c["parameters"] for c in log.commits(gym.workspace().path("heart_rate")) if c["operation"] == "OPTIMIZE"]
    assert found and json.loads(found[0]["zOrderBy"]) == ["time"]


def test_no_personal_column_is_in_the_statistics_of_any_commit(gym: Lakehouse) -> None:
    for table in ("readings", "heart_rate", "device_day"):
        for file in Path(gym.workspace().path(table), "_delta_log").glob("*.json"):
            for line in file.read_text().splitlines():
                statistics = json.loads(line).get("add", {}).get("stats")
                assert statistics is None or "device_id" not in statistics, (table, file.name)


def test_other_engines_read_gold(gym: Lakehouse) -> None:
    path = gym.workspace().path("device_day")
    rows = len(gym.rows("device_day"))
    assert rows > 0
    files = [str(file) for file in Path(path).glob("*.parquet")]
    live = [file for file in files if Path(file).name in {Path(uri).name for uri in _uris(path)}]
    assert duckdb.sql(f"SELECT count(*) FROM read_parquet({live})").fetchall() == [(rows,)]
    assert polars.read_delta(path).height == rows


def _uris(path: str) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(path).file_uris()


def test_refresh_gives_the_same_table_and_everything_below_it(gym: Lakehouse) -> None:
    before = {table: gym.rows(table) for table in ("heart_rate", "device_day")}
    reports = gym.run("silver", "gold", mode="refresh", tables=["heart_rate"])
    assert "refresh" in reports["heart_rate"].notes[0] and "refresh" in reports["device_day"].notes[0]
    assert {table: gym.rows(table) for table in before} == before


def test_the_run_ledger_has_every_stage(gym: Lakehouse) -> None:
    runs = ledger.runs(gym.settings, "gym")
    assert {row["stage"] for row in runs} == {"bronze", "silver", "gold", "optimize", "vacuum"}
    first = runs[0]
    assert (first["flow"], first["state"], first["mode"]) == ("readings", "done", "increment")
    assert first["rows_in"] == first["rows_out"] + first["quarantined"] > 0
