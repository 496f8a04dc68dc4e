"""`sluice vacuum --dry-run`: which files would go, how large they are, and why others stay. Without Spark."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import ask_command, use_roots_of

from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake.clone_registry import register_shallow_clone
from sluice.lake.pipeline_lake import PipelineLake, load_pipeline_lake
from sluice.runs.status import removals
from sluice.settings import Settings
from sluice.table_properties import RETENTION


@pytest.fixture(autouse=True)
def two_tables(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tables: from one, two files can go; the other holds people, and its files are within the retention."""
    use_roots_of(monkeypatch, settings)
    graph = load_declaration_graph(settings, "gym")
    for name, keep in (("heart_rate", "0 seconds"), ("device_day", "7 days")):
        path = PipelineLake(settings, graph).path(name)
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
    path = Path(load_pipeline_lake(settings, "gym").path("heart_rate"))
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


def clone_without_spark(settings: Settings, lake: Path, name: str, version: int) -> None:
    """Makes a shallow clone of a table as Delta on Spark does: a log that names the files of the source by their addresses."""
    graph = load_declaration_graph(settings, "gym")
    path = Path(PipelineLake(settings, graph).path(name))
    target = lake / path.relative_to(settings.lake)
    (target / "_delta_log").mkdir(parents=True)
    kept = {Path(file).name for file in DeltaTable(str(path), version=version).file_uris()}
    actions = []
    for number in range(version + 1):
        for line in (path / "_delta_log" / f"{number:020}.json").read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                name = action["add"]["path"]
                action["add"]["path"] = (path / name).as_uri()
                actions += [action] if name in kept else []
            elif not number:
                actions.append(action)
    (target / "_delta_log" / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    register_shallow_clone(PipelineLake(settings, graph).records, "r", str(lake))


def test_a_shallow_clone_holds_the_files_that_it_reads_and_its_table_has_no_longer(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = tmp_path / "dev"
    clone_without_spark(settings, lake, "heart_rate", 1)
    (one,) = json.loads(ask_command(capsys, "vacuum", "gym.heart_rate", "--dry-run", "--json"))["tables"]
    assert (one["remove"], one["files"]) == (False, 2)
    assert one["why"].startswith(f"the shallow clone {lake} reads files that the table no longer has; remove that folder")
    planned = json.loads(ask_command(capsys, "plan", "gym", "--json").splitlines()[-1])
    (layout,) = [row for row in planned["vacuums"] if row["table"] == "heart_rate"]
    assert not layout["needed"] and layout["why"] == one["why"]
    assert f"No file of 'heart_rate' would be removed: {one['why']}" in planned["notes"]
    shutil.rmtree(lake / "gym")
    assert json.loads(ask_command(capsys, "vacuum", "gym.heart_rate", "--dry-run", "--json"))["tables"][0]["remove"]
    clone_without_spark(settings, tmp_path / "later", "heart_rate", 2)
    write_deltalake(
        str(Path(load_pipeline_lake(settings, "gym").path("heart_rate"))),
        pa.table({"device": ["t3"]}),
        mode="append",
    )
    assert json.loads(ask_command(capsys, "vacuum", "gym.heart_rate", "--dry-run", "--json"))["tables"][0]["remove"], (
        "it has its files"
    )


def test_a_clone_is_not_waited_for_longer_than_declared(settings: Settings, tmp_path: Path) -> None:
    clone_without_spark(settings, tmp_path / "dev", "heart_rate", 1)
    graph, now = load_declaration_graph(settings, "gym"), datetime.now(UTC)
    assert removals.decide_table_vacuums(PipelineLake(settings, graph), now + timedelta(days=999))["heart_rate"].held, (
        "without a limit for ever"
    )
    graph = replace(graph, pipeline=replace(graph.pipeline, vacuum_waits="30 days"))
    held = removals.decide_table_vacuums(PipelineLake(settings, graph), now + timedelta(days=29))["heart_rate"]
    assert held.held and held.due is not None and timedelta(days=29) < held.due - now <= timedelta(days=30)
    late = now + timedelta(days=31)
    broken = removals.decide_table_vacuums(PipelineLake(settings, graph), late)["heart_rate"]
    assert broken.needed and broken.why.endswith(f"; it breaks the shallow clone {tmp_path / 'dev'}")
    (reader,) = removals.find_slow_readers(PipelineLake(settings, graph), late)[PipelineLake(settings, graph).path("heart_rate")]
    assert reader.overdue and reader.let_go() == (
        f"the shallow clone {tmp_path / 'dev'} is broken now: VACUUM waited 30 days for it. Remove that folder and make the clone again, as a "
        f"copy or with --shallow: sluice clone gym --to {tmp_path / 'dev'}"
    )


def test_a_table_that_is_not_there_is_refused_before_spark_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert "heart_rate" in ask_command(capsys, "vacuum", "gym.heart_rat", code=2)
    assert "no table 'visits' yet" in ask_command(capsys, "vacuum", "gym.visits", code=2)
