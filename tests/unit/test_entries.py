"""Outcomes and runs are in the order in which they were recorded, whatever the clock said; and one delivery of each file counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice import entries
from sluice.entries import AcceptedDelivery, select_counting_deliveries
from sluice.erasure import erasure_ledger
from sluice.ingest import delivery_tables
from sluice.pipeline_records import PipelineRecords
from sluice.record_tables import create_record_table
from sluice.runs import run_ledger
from sluice.settings import Settings

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(hours=3)
"""What a clock says that was set back after NOW."""
EARLY, LATE = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def outcomes(settings: Settings) -> str:
    path = PipelineRecords(settings, "shop").outcome_ledger
    create_record_table(path, delivery_tables.OUTCOMES)
    return path


def outcome(state: str, at: datetime, number: int = 1, rows: int = 0) -> dict[str, Any]:
    return {"delivery": number, "source": "a", "file": "x", "state": state, "rows": rows, "recorded_at": at}


def run(flow: str, at: datetime, state: str = "done") -> dict[str, Any]:
    common = {"run": f"{at:%H}", "pipeline": "shop", "stage": "bronze", "mode": "increment", "ended_at": at}
    return {**common, "flow": flow, "started_at": at, "state": state}


def test_of_a_clock_that_was_set_back_the_later_outcome_counts_everywhere(settings: Settings, outcomes: str) -> None:
    delivered = {"source": "a", "file": "x", "event": "delivered", "size": 1, "modified_at": NOW}
    delivery_tables.append_numbered_deliveries(PipelineRecords(settings, "shop").delivery_ledger, [[delivered]], 0, "r")
    delivery_tables.append_delivery_ledger_rows(outcomes, [outcome("missed", NOW)], delivery_tables.OUTCOMES, "r")
    delivery_tables.append_delivery_ledger_rows(outcomes, [outcome("ingested", BEFORE, rows=7)], delivery_tables.OUTCOMES, "r")
    assert delivery_tables.read_last_delivery_states(outcomes) == {1: ("ingested", None)}
    (one,) = delivery_tables.read_source_outcomes(outcomes, "a")
    assert (one.state, one.rows, delivery_tables.select_live_deliveries([one], replaces=False)) == ("ingested", 7, {1})
    assert delivery_tables.find_deliveries_in_state(outcomes, "missed") == set()
    (row,) = run_ledger.read_delivery_ledger(PipelineRecords(settings, "shop"))
    assert (row["state"], run_ledger.find_missed_files([row])) == ("ingested", [])


def test_runs_are_in_the_order_in_which_they_were_recorded(settings: Settings, outcomes: str) -> None:
    records = PipelineRecords(settings, "shop")
    run_ledger.append_run_rows(records, [run("a", NOW, "failed"), run("b", NOW)])
    delivery_tables.append_delivery_ledger_rows(outcomes, [outcome("ingested", NOW)], delivery_tables.OUTCOMES, "r")
    run_ledger.append_run_rows(records, [run("a", BEFORE)])
    found = run_ledger.read_run_ledger(records)
    assert [(row["flow"], row["state"], row["entry"]) for row in found] == [
        ("a", "failed", 1),
        ("b", "done", 2),
        ("a", "done", 4),
    ]
    (one,) = delivery_tables.read_delivery_ledger_rows(outcomes)
    positions = [
        entries.entry_order_key(found[0], run_ledger.STARTED),
        entries.entry_order_key(one, delivery_tables.RECORDED),
        entries.entry_order_key(found[2], run_ledger.STARTED),
    ]
    assert positions == sorted(positions), "an outcome has its position among the runs"


def test_rows_of_before_there_were_entries_come_first_in_the_order_of_their_times(settings: Settings, outcomes: str) -> None:
    records = PipelineRecords(settings, "shop")
    older = pa.schema([field for field in run_ledger.RUNS if field.name != entries.ENTRY])
    path = records.run_ledger
    for at in (NOW, NOW - timedelta(days=1)):
        write_deltalake(path, pa.Table.from_pylist([run("a", at)], schema=older), mode="append")
    run_ledger.append_run_rows(records, [run("b", BEFORE - timedelta(days=9))])
    assert [row["flow"] for row in run_ledger.read_run_ledger(records)] == ["a", "a", "b"]
    assert [row["started_at"] for row in run_ledger.read_run_ledger(records)][:2] == [NOW - timedelta(days=1), NOW]
    assert run_ledger.read_run_ledger(records)[2]["entry"] == 1


def test_flows_that_run_side_by_side_give_no_entry_twice(settings: Settings, outcomes: str) -> None:
    def record(number: int) -> None:
        delivery_tables.append_delivery_ledger_rows(
            outcomes, [outcome("ingested", NOW, number), outcome("missed", NOW, number)], delivery_tables.OUTCOMES, "r"
        )

    threads = [Thread(target=record, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(row["entry"] for row in delivery_tables.read_delivery_ledger_rows(outcomes)) == list(range(1, 9))


def test_files_without_statistics_are_read(tmp_path: Path) -> None:
    path = str(tmp_path / "outcomes")
    rows = pa.Table.from_pylist([outcome("ingested", NOW) | {"entry": 41}], schema=delivery_tables.OUTCOMES)
    write_deltalake(path, rows, configuration={"delta.dataSkippingNumIndexedCols": "0"})
    delivery_tables.append_delivery_ledger_rows(path, [outcome("missed", BEFORE)], delivery_tables.OUTCOMES, "r")
    assert sorted(row["entry"] for row in delivery_tables.read_delivery_ledger_rows(path)) == [41, 42]


def test_steps_of_an_erasure_are_in_the_order_in_which_they_were_done_whatever_the_clock_said(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = PipelineRecords(settings, "shop")
    where = erasure_ledger.erasure_ledger_path(records)
    before = pa.schema([field for field in erasure_ledger.SCHEMA if field.name != "entry"])
    old = [
        {"request": "r", "table": "t", "step": step, "at": at, "rows": 0, "files": 0} for step, at in (("b", NOW), ("a", BEFORE))
    ]
    write_deltalake(where, pa.Table.from_pylist(old, schema=before))
    for step, at in (("c", NOW), ("d", BEFORE)):
        monkeypatch.setattr(erasure_ledger, "datetime", SimpleNamespace(now=lambda _, at=at: at))
        erasure_ledger.record_erasure_step(records, ["r", "s"], "t", step)
    found = erasure_ledger.read_erasure_ledger(records)
    assert [(row.step, row.request, row.entry) for row in found] == [
        ("a", "r", None),
        ("b", "r", None),
        ("c", "r", 1),
        ("c", "s", 2),
        ("d", "r", 3),
        ("d", "s", 4),
    ]
    run_ledger.append_run_rows(records, [{"run": "later"}])
    assert run_ledger.read_run_ledger(records)[0]["entry"] == 5, "one count for all"


@pytest.mark.parametrize(
    ("accepted", "counting"),
    [
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "f", EARLY, "b")], {1}),
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "f", LATE, "b")], {2}),
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "f", LATE, "a")], {1}),
        ([AcceptedDelivery(1, "f", None, "b"), AcceptedDelivery(2, "f", EARLY, "a")], {2}),
        ([AcceptedDelivery(1, "f", EARLY, "a"), AcceptedDelivery(2, "f", EARLY, None)], {1}),
        ([AcceptedDelivery(1, "f", LATE, "a"), AcceptedDelivery(2, "g", EARLY, "a")], {1, 2}),
    ],
    ids=["later", "greater hash", "came first", "time not known", "hash not known", "two files"],
)
def test_one_delivery_of_each_file_counts_whatever_came_when(accepted: list[AcceptedDelivery], counting: set[int]) -> None:
    assert select_counting_deliveries(accepted) == select_counting_deliveries(reversed(accepted)) == counting
