"""Targets that take the changed keys from the merge into their log: without a stream of their own, and with the same rows whatever happens."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at
from tests.few_rows import append_delivery

from sluice.declare import Pipeline, Source, auto_cdc
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.gold import choice, view
from sluice.flows.progress import positions, streams
from sluice.lake import log
from sluice.locations import locate
from sluice.runs.status.books import PipelineBooks
from sluice.runs.status.lag import measure_flow_lag

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.flows.progress.checkpoints import Checkpoint
    from sluice.lake.workspace import Workspace
    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

SILVER = __name__.rsplit(".", 1)[-1]
PIPELINE = Pipeline(name="club", description="A club.", owner="tests", layers=("club.bronze", __name__))
PEOPLE = Source(
    name="people",
    format="json",
    path="people",
    redelivery="replace",
    comment="Changes.",
    schema="id BIGINT, city STRING, at BIGINT, change STRING",
)
OPTIONS: dict[str, Any] = {
    "reads": "people",
    "keys": "id",
    "sequence_by": "at",
    "apply_as_deletes": "change = 'delete'",
    "except_column_list": ("change", "at"),
}
members = auto_cdc("members", **OPTIONS)
history = auto_cdc("history", **OPTIONS, stored_as_scd_type=2, apply_as_truncates="change = 'truncate'")
GRAPH = build_declaration_graph(PIPELINE, [PEOPLE, members, history])
Change = tuple[int | None, str | None, int, str]


class Crash(BaseException):
    """Stands for a killed process: nothing of Sluice catches it."""


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """Twenty people."""
    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("first_run")), spark, GRAPH)
    deliver(lake, "1", *((id, "Rome", 1, "insert") for id in range(20)))
    lake.run(SILVER)
    return lake


@pytest.fixture
def lake(first_run: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lakehouse:
    """A lake where no table is too small to be followed by keys."""
    monkeypatch.setattr(choice, "SMALL_ROWS", 0)
    return copied_lakehouse(first_run, tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The flows whose streams were started."""
    found: list[str] = []
    run_stream = streams.run_stream

    def run_and_note(workspace: Workspace, frame: DataFrame, checkpoint: Checkpoint, *others: Any) -> Any:
        found.append(checkpoint.flow.removeprefix(f"{SILVER}_"))
        return run_stream(workspace, frame, checkpoint, *others)

    monkeypatch.setattr(streams, "run_stream", run_and_note)
    return found


def deliver(lake: Lakehouse, file: str, *changes: Change) -> None:
    """Put a file's changes into bronze."""
    lake.landed += 1
    append_delivery(lake.workspace(), PEOPLE, lake.landed, changes, file=f"{file}.json")


def rows_of_few(lake: Lakehouse) -> tuple[list[Any], list[Any]]:
    """What both targets hold for the keys that are changed here."""
    shown = lake.rows("members", "id", "city"), lake.rows("history", "id", "city", "__START_AT", "__END_AT")
    return tuple([row for row in rows if row[0] in (1, 2, 100)] for rows in shown)  # type: ignore[return-value]


def flow_folder(lake: Lakehouse, name: str) -> tuple[str, str]:
    flow = f"{SILVER}_{name}"
    return lake.workspace().checkpoints(flow), flow


def test_keys_are_handed_on_and_everybody_knows_how_far_the_target_is(lake: Lakehouse, started: list[str]) -> None:
    deliver(lake, "2", (1, "Oslo", 3, "update"), (2, None, 2, "delete"), (100, "Bern", 5, "insert"))
    reports = lake.run(SILVER)
    assert [flow for flow in started if flow in ("members", "history")] == []
    assert (reports["members"].inserted, reports["members"].updated, reports["members"].deleted) == (1, 1, 1)
    assert reports["members"].recomputed == "keys: 2 of 20 rows" and reports["members"].batches == 1
    assert rows_of_few(lake) == (
        [(1, "Oslo"), (100, "Bern")],
        [(1, "Oslo", 3, None), (1, "Rome", 1, 3), (100, "Bern", 5, None), (2, "Rome", 1, 2)],
    )
    folder, flow = flow_folder(lake, "members")
    log_path = lake.workspace().path("members_changes")
    progress = positions.read_flow_progress(folder, flow)
    assert progress is not None and progress.positions["members_changes"].version == (log.latest_table_version(log_path) or 0) + 1
    lag = measure_flow_lag(PipelineBooks(lake.settings, GRAPH), GRAPH["members"])
    assert (lag.anew, lag.versions, lag.waits) == (None, 0, False)
    assert positions.find_lagging_flows(lake.workspace(), datetime.now(UTC) + timedelta(days=60)) == {}

    # Late, taken back, and nothing new: each is followed in the same way, or not at all.
    deliver(lake, "3", (2, "Pisa", 1, "update"), (1, "Nice", 2, "update"))
    lake.run(SILVER)
    deliver(lake, "2", (1, "Oslo", 3, "update"))
    lake.run(SILVER)
    assert rows_of_few(lake)[0] == [(1, "Oslo"), (2, lake_content_winner(lake))]
    assert [row for row in rows_of_few(lake)[1] if row[0] == 1] == [
        (1, "Nice", 2, 3),
        (1, "Oslo", 3, None),
        (1, "Rome", 1, 2),
    ]
    before = lake.versions()
    started.clear()
    lake.run(SILVER)
    assert lake.versions() == before and started == []


def lake_content_winner(lake: Lakehouse) -> str:
    """Of two updates with the same instant, the one with the higher content."""
    changes = lake.rows("members_changes", "id", "_sequence", "_content", "city")
    return str(max(row[1:] for row in changes if row[0] == 2)[2])


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_crash_between_log_and_target_is_healed_by_the_targets_stream(
    lake: Lakehouse, started: list[str], monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    owner, name = (view, "record_followed_versions") if after else (view, "_follow_merged_keys")

    def crash(*arguments: Any, **options: Any) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, crash)
        deliver(lake, "2", (1, "Oslo", 3, "update"), (2, None, 2, "delete"))
        with pytest.raises(Crash):
            lake.run(SILVER)
    started.clear()
    lake.run(SILVER)
    assert "members" in started
    assert rows_of_few(lake) == ([(1, "Oslo")], [(1, "Oslo", 3, None), (1, "Rome", 1, 3), (2, "Rome", 1, 2)])
    started.clear()
    deliver(lake, "3", (1, "Nice", 4, "update"))
    lake.run(SILVER)
    assert "members" not in started and rows_of_few(lake)[0] == [(1, "Nice")]


@pytest.mark.thorough
def test_after_keys_that_were_handed_on_a_stream_begins_behind_them(
    lake: Lakehouse, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change files of what was followed without the stream may be gone. An older lake, without such keys, works as before."""
    deliver(lake, "2", (1, "Oslo", 3, "update"))
    lake.run(SILVER)
    folder, _ = flow_folder(lake, "members")
    made = json.loads((locate(folder) / "flow.json").read_text())
    for file in locate(lake.workspace().path("members_changes"), "_change_data").glob("*.parquet"):
        file.unlink()
    with monkeypatch.context() as before:  # as in another process, or of more rows than are handed on
        before.setattr("sluice.lake.workspace.MOST_KEYS", 0)
        deliver(lake, "3", (1, "Nice", 4, "update"), (100, "Bern", 1, "insert"))
        started.clear()
        reports = lake.run(SILVER)
    assert "members" in started and reports["members"].notes == []
    assert reports["members"].recomputed == "keys: 2 of 20 rows"
    assert json.loads((locate(folder) / "flow.json").read_text())["identity"] != made["identity"]
    deliver(lake, "4", (2, None, 9, "delete"))
    started.clear()
    lake.run(SILVER)
    assert "members" not in started and rows_of_few(lake)[0] == [(1, "Nice"), (100, "Bern")]
    deliver(lake, "5", (None, None, 7, "truncate"))
    reports = lake.run(SILVER)
    assert lake.rows("history", "id", "city", "__END_AT") and {row[2] for row in rows_of_few(lake)[1]} <= {1, 3, 4}
    assert reports["history"].recomputed == "full: a change of 'history_truncates' can touch any row"


@pytest.mark.thorough
def test_a_key_of_empty_text_that_is_a_partition_is_not_followed_by_itself(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta keeps the empty text of a partition as NULL, so that the table has another key than its log."""
    monkeypatch.setattr(choice, "SMALL_ROWS", 0)
    parted = auto_cdc("parted", **{**OPTIONS, "keys": ("city", "id"), "partition_by": "city"})
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [PEOPLE, parted]))
    deliver(lake, "1", *((id, "Rome", 1, "insert") for id in range(20)), (30, "", 1, "insert"))
    lake.run(SILVER)
    deliver(lake, "2", (30, "", 2, "delete"), (31, "", 2, "insert"), (1, "Rome", 2, "delete"))
    lake.run(SILVER)
    shown = {(row[0], row[1]) for row in lake.rows("parted", "id", "city")}
    assert shown == {(id, "Rome") for id in range(20) if id != 1} | {(31, None)}
