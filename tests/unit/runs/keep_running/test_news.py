"""What is new for which flow, by logs and folders alone: everything at first, then only what concerns it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.declare import Pipeline, Source, Watermark, materialized_view, table, windowed
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import request_events, requests
from sluice.ingest import delivery_tables
from sluice.lake import log
from sluice.lake.workspace import Workspace
from sluice.pipeline_records import PipelineRecords
from sluice.record_tables import create_record_table
from sluice.runs.keep_running import news
from sluice.runs.keep_running.news import FlowNews
from sluice.settings import Settings

PIPELINE = Pipeline(name="wards", description="Wards.", owner="t", layers=("wards.bronze", __name__))
STAYS = Source(name="stays", schema="patient STRING, at TIMESTAMP", subject="patient")
stay = table(name="stay", reads="stays", keys="patient", subject="patient", sql="SELECT patient, at FROM stays")
VISITS = Source(name="visits", schema="id INT")
MORE = Source(name="more_visits", into="visits", schema="id INT")
visit = table(name="visit", reads="visits", keys="id", sql="SELECT id FROM visits")
both = materialized_view(name="both", reads=("stay", "visit"), keys="id", sql="SELECT id FROM visit, stay")


@windowed(reads="stays", keys="at", watermark=Watermark("at", "1 hour"), closes_when_idle="1 hour")
def stays_by_time(stays: Any) -> Any:
    """By time."""
    return stays


ALL = (STAYS, stay, VISITS, MORE, visit, both, stays_by_time)


@pytest.fixture
def wards(settings: Settings) -> Workspace:
    found = Workspace(settings, build_declaration_graph(PIPELINE, ALL), None, "r1")  # type: ignore[arg-type]  # no Spark is asked
    create_record_table(found.deliveries, delivery_tables.DELIVERIES)
    create_record_table(found.outcomes, delivery_tables.OUTCOMES)
    for name in ("stays", "visits", "stay", "visit"):
        write(found, name)
    return found


def write(wards: Workspace, name: str) -> None:
    write_deltalake(wards.path(name), pa.table({"id": [1]}), mode="append")


def looked(wards: Workspace) -> FlowNews:
    """Everybody has taken everything."""
    found = FlowNews(wards)
    assert waiting(found, wards.graph) == {item.name for item in wards.graph}, "nobody has looked yet"
    for item in wards.graph:
        found.took(item.name)
    assert waiting(found, wards.graph) == set()
    return found


def waiting(found: FlowNews, declared: Graph) -> set[str]:
    return {item.name for item in declared if found.waits(item)}


def deliver(wards: Workspace, source: str) -> None:
    row: dict[str, object] = {"source": source, "file": "a", "event": "delivered", "size": 1, "modified_at": datetime.now(UTC)}
    delivery_tables.append_numbered_deliveries(wards.deliveries, [[row]], DeltaTable(wards.deliveries).version(), "r1")


def ingest(wards: Workspace, source: str) -> None:
    delivery_tables.append_delivery_ledger_rows(
        wards.outcomes, [{"delivery": 1, "source": source, "file": "a", "state": "ingested"}], delivery_tables.OUTCOMES, "r1"
    )


def test_a_delivery_concerns_its_source_and_an_outcome_the_tables_of_its_source(wards: Workspace) -> None:
    found = looked(wards)
    deliver(wards, "more_visits")
    assert waiting(found, wards.graph) == {"more_visits"}
    found.took("more_visits")
    ingest(wards, "more_visits")
    assert waiting(found, wards.graph) == {"visit"}, "whose table the source goes into"
    assert waiting(found, wards.graph) == {"visit"}, "until it has taken it"
    write(wards, "visit")
    assert waiting(found, wards.graph) == {"visit", "both"}
    write(wards, "stays")
    assert waiting(found, wards.graph) == {"visit", "both", "stays_by_time"}


def test_a_table_that_was_made_anew_is_new(wards: Workspace) -> None:
    found = looked(wards)
    before = log.latest_table_version(wards.path("visit"))
    write_deltalake(wards.path("visit") + "_2", pa.table({"id": [2]}))
    os.rename(wards.path("visit"), wards.path("visit") + "_1")  # noqa: PTH104  # a path as text
    os.rename(wards.path("visit") + "_2", wards.path("visit"))  # noqa: PTH104
    assert log.latest_table_version(wards.path("visit")) == before
    assert waiting(found, wards.graph) == {"both"}


def test_upkeep_is_left_out_and_what_waits_goes_on_waiting(wards: Workspace) -> None:
    found = looked(wards)
    write(wards, "visit")
    settled = found.up_to_date()
    DeltaTable(wards.path("stays")).alter.set_table_properties({"optimized": "1"}, False)
    found.leave_out(settled)
    assert waiting(found, wards.graph) == {"both"}


def test_a_quiet_stream_looks_once_more_when_its_windows_are_to_be_closed(
    wards: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, now = looked(wards), time.monotonic()
    monkeypatch.setattr(news.time, "monotonic", lambda: now + 3601)
    assert waiting(found, wards.graph) == {"stays_by_time"}
    assert waiting(found, wards.graph) == {"stays_by_time"}, "a stage asks again before it runs the flow"
    found.took("stays_by_time")
    assert waiting(found, wards.graph) == set(), "once"
    write(wards, "stays")
    assert waiting(found, wards.graph) == {"stays_by_time"}
    found.took("stays_by_time")
    monkeypatch.setattr(news.time, "monotonic", lambda: now + 7203)
    assert waiting(found, wards.graph) == {"stays_by_time"}, "and of what came since, once more"


def test_of_a_log_that_did_not_change_nothing_is_read(wards: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    found = looked(wards)
    time.sleep(2 * news._TICK)
    waiting(found, wards.graph)
    read: list[str] = []
    monkeypatch.setattr(news.log, "table_change_mark", lambda path: read.append(path))
    assert waiting(found, wards.graph) == set() and read == []


def test_what_arrived_is_seen_and_what_cannot_be_looked_at_is_left_to_the_discovery(wards: Workspace) -> None:
    found = looked(wards)
    sources = [*wards.graph.sources.values()]
    assert found.arrived(sources), "there is no landing folder, which the discovery will say"
    folder = wards.landing / "stays"
    folder.mkdir(parents=True)
    assert not found.arrived(sources)
    (folder / "1.csv").write_text("patient,at\n")
    assert found.arrived(sources)


def test_a_request_of_erasure_waits_until_it_is_done(wards: Workspace) -> None:
    found = looked(wards)
    assert not found.deletions_wait()
    request = requests.receive_erasure_request(wards.lake, ["p"])
    assert found.deletions_wait() and found.deletions_wait()
    requests.advance_request_state(wards.records, request, request_events.LOGICALLY)
    assert not found.deletions_wait()
    time.sleep(2 * news._TICK)
    assert not found.deletions_wait()
    requests.receive_erasure_request(wards.lake, ["q"])
    assert found.deletions_wait()
    assert Path(PipelineRecords(wards.settings, "wards").erasure_requests).is_dir()


def test_a_request_of_erasure_on_a_store_waits_until_it_is_done(
    wards: Workspace, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store has no folder whose time would say that a request came."""
    lake = Workspace(replace(wards.settings, lake=f"{bucket_url}/lake"), wards.graph, None, "r1")  # type: ignore[arg-type]  # no Spark is asked
    found = FlowNews(lake)
    monkeypatch.setattr(news.searched_tables, "has_unseen_request_rows", lambda *_: False)
    assert not found.deletions_wait()
    request = requests.receive_erasure_request(lake.lake, ["p"])
    assert found.deletions_wait() and found.deletions_wait()
    requests.advance_request_state(lake.records, request, request_events.LOGICALLY)
    assert not found.deletions_wait()
    read: list[object] = []
    with monkeypatch.context() as patch:
        patch.setattr(news.request_record, "list_waiting_requests", read.append)
        assert not found.deletions_wait() and read == [], "nothing is read again while nothing changes"
    requests.receive_erasure_request(lake.lake, ["q"])
    assert found.deletions_wait()
