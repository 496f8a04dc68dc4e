"""What bronze does with deliveries that an earlier attempt has taken in part, and with those whose files an erasure rewrote meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.flows.bronze import append, intake, left_out_records
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.landed_file import FileState
from sluice.ingest.reading.records import DeliveredRecords
from sluice.lake.workspace import Workspace
from sluice.record_tables import create_record_table

PIPELINE = Pipeline(name="shop", description="A shop.", owner="t", layers=("pipelines.shop.bronze",))


@pytest.mark.parametrize(
    ("options", "when_nobody_is_erased", "when_somebody_is"),
    [
        ({}, False, False),
        ({"subject": "who", "domain": "who"}, False, True),
        ({"subject": "who", "domain": "who", "also_subjects": (("friend", "who"),)}, False, True),
        ({"dated_by": "at", "keep_for": "400 days"}, True, True),
    ],
    ids=["nothing", "erased people", "others' cells", "age"],
)
def test_records_are_counted_again_if_anything_can_leave_them_out(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], when_nobody_is_erased: bool, when_somebody_is: bool
) -> None:
    source = Source(name="visits", schema="id BIGINT, who STRING, friend STRING, at TIMESTAMP", **options)
    graph = build_declaration_graph(PIPELINE, [source])
    workspace = cast(Workspace, SimpleNamespace(graph=graph, session=None, staging=None))
    read: list[bool] = []

    def note_reading(*_: object) -> DeliveredRecords:
        read.append(True)
        return DeliveredRecords()

    monkeypatch.setattr(intake, "current_source_columns", lambda *_: SimpleNamespace(source=source, schema=None))
    monkeypatch.setattr(intake.records, "read_delivered_records", note_reading)
    for is_empty, expected in ((True, when_nobody_is_erased), (False, when_somebody_is)):
        read.clear()
        monkeypatch.setattr(left_out_records.suppression_list, "is_suppression_list_empty", lambda _, said=is_empty: said)
        assert intake._recount_suppressed_records(workspace, source, []) == {}
        assert bool(read) == expected


def test_a_delivery_that_waits_is_looked_for_as_an_erasure_has_rewritten_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object of a store gets another time and another ETag when it is rewritten."""
    deliveries = str(tmp_path / "deliveries")
    create_record_table(deliveries, delivery_tables.DELIVERIES)
    before, after = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    said = {"source": "a", "file": "x.json", "reason": None, "device": 0}
    first = {"event": "delivered", "size": 100, "modified_at": before, "sha256": "old", "etag": "e0"}
    again = {"event": "rewritten", "size": 60, "modified_at": after, "sha256": "new", "etag": "e1"}
    delivery_tables.append_numbered_deliveries(deliveries, [[said | first]], 0, "r1")
    delivery_tables.append_numbered_deliveries(deliveries, [[said | again]], 1, "r2")
    (waiting,) = (row for row in delivery_tables.read_delivery_ledger_rows(deliveries) if row["event"] == "delivered")
    monkeypatch.setattr(append.suppression_list, "is_suppression_list_empty", lambda _: False)
    workspace = cast(Workspace, SimpleNamespace(deliveries=deliveries))
    (row,) = append._refresh_states_and_hashes(workspace, [waiting])
    assert FileState.of_delivery(row["size"], row["modified_at"], row["etag"]) == FileState.of_delivery(60, after, "e1")
    assert (row["sha256"], row["delivery"], row["event"]) == ("new", 1, "delivered")
