"""`sluice optimize` without --now: which tables are worth rewriting, and why, without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.commands import ask_command, use_roots_of

from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.settings import Settings


@pytest.fixture(autouse=True)
def two_tables(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables: one whose second file is as large as its first, and one with a single file."""
    use_roots_of(monkeypatch, settings)
    graph = load_declaration_graph(settings, "gym")
    for name, files in (("heart_rate", 2), ("device_day", 1)):
        path = PipelineLake(settings, graph).path(name)
        Path(path).mkdir(parents=True)
        for number in range(files):
            write_deltalake(path, pa.table({"device": [f"t{number}"]}), mode="append")


def test_each_table_that_is_there_is_told_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(ask_command(capsys, "optimize", "gym", "--json"))["tables"]
    assert {one["table"]: one["needed"] for one in found} == {"heart_rate": "yes", "device_day": "no"}
    assert all("of new data since the last rewrite, which left" in one["why"] for one in found)
    assert "device_day" not in ask_command(capsys, "optimize", "gym.heart_rate")


def test_a_plan_says_which_files_would_be_written_anew(capsys: pytest.CaptureFixture[str]) -> None:
    said = ask_command(capsys, "plan", "gym")
    part = said[said.index("Files that would be rewritten") :]
    assert "heart_rate" in part and "1 of 1" in part and "device_day" not in part
    found = {
        one["table"]: one["needed"]
        for one in json.loads(ask_command(capsys, "plan", "gym", "--json").splitlines()[-1])["layouts"]
    }
    assert found == {"heart_rate": True, "device_day": False}


def test_a_damaged_log_of_one_table_does_not_keep_the_others_from_being_told(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = load_declaration_graph(settings, "gym")
    (Path(PipelineLake(settings, graph).path("heart_rate")) / "_delta_log" / "00000000000000000000.json").write_text("cut")
    found = json.loads(ask_command(capsys, "optimize", "gym", "--json"))["tables"]
    assert [one["table"] for one in found] == ["device_day"]


def test_what_cannot_be_laid_out_is_refused_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sluice optimize gym.TABLE --now" in ask_command(capsys, "optimize", "gym", "--now", code=2)
    assert "no table of its own yet" in ask_command(capsys, "optimize", "gym.visits", "--now", code=2)
    assert "heart_rate" in ask_command(capsys, "optimize", "gym.heart_rat", code=2)
