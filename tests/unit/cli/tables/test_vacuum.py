"""`sluice vacuum --dry-run`: which files would go, how large they are, and why others stay. Without Spark."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import ask_command, set_places

from sluice.declare.assembly.loading import load_declaration_graph
from sluice.settings import Settings
from sluice.table_properties import RETENTION


@pytest.fixture(autouse=True)
def two_tables(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables: from one, two files can go; the other holds people, and its files are within the retention."""
    set_places(monkeypatch, settings)
    graph = load_declaration_graph(settings, "gym")
    for name, keep in (("heart_rate", "0 seconds"), ("device_day", "7 days")):
        path = graph.location(settings, name)
        Path(path).mkdir(parents=True)
        for number in range(2):
            write_deltalake(
                path,
                pa.table({"device": [f"t{number}"]}),
                mode="append",
                configuration={RETENTION: f"interval {keep}"} if not number else None,
            )
        DeltaTable(path).optimize.compact()
    time.sleep(0.01)


def test_what_would_go_is_told_with_files_bytes_and_reason_and_stays(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {one["table"]: one for one in json.loads(ask_command(capsys, "vacuum", "gym", "--dry-run", "--json"))["tables"]}
    yes, no = found["heart_rate"], found["device_day"]
    assert (yes["remove"], yes["files"], no["remove"], no["files"]) == (True, 2, False, 0)
    path = Path(load_declaration_graph(settings, "gym").location(settings, "heart_rate"))
    assert yes["bytes"] == sum((path / name).stat().st_size for name in yes["names"]) > 0
    assert "2 files" in yes["why"] and "within the retention" in no["why"]
    said = ask_command(capsys, "vacuum", "gym.heart_rate", "--dry-run")
    assert "can go" in said and "device_day" not in said
    assert len(list(path.glob("*.parquet"))) == 3 and DeltaTable(path).version() == 2


def test_a_plan_says_which_files_would_be_removed(capsys: pytest.CaptureFixture[str]) -> None:
    said = ask_command(capsys, "plan", "gym")
    part = said[said.index("Files that would be removed") :]
    assert "heart_rate" in part and "device_day" not in part
    found = json.loads(ask_command(capsys, "plan", "gym", "--json").splitlines()[-1])["vacuums"]
    assert {one["table"]: (one["needed"], one["files"]) for one in found} == {"heart_rate": (True, 2), "device_day": (False, 0)}


def test_a_table_that_is_not_there_is_refused_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "heart_rate" in ask_command(capsys, "vacuum", "gym.heart_rat", code=2)
    assert "no table 'visits' yet" in ask_command(capsys, "vacuum", "gym.visits", code=2)
