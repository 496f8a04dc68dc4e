"""A ledger of deliveries that lost its last commits: nothing is read twice, and no number is given out again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.ingest.deliveries.test_discovery import A, Folder

from sluice.declare import Pipeline
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError
from sluice.flows.bronze import accounting
from sluice.flows.progress.checkpoints import open_checkpoint
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries.known_files import read_known_files
from sluice.lake import log
from sluice.lake.flow_report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.record_states import DELIVERED, INGESTED, VANISHED
from sluice.runs.execution import layers
from sluice.settings import Settings

SHOP = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """Five deliveries in three commits, all but the last with an outcome."""
    found = Folder(tmp_path)
    for name in ("x", "y"):
        found.land(f"a/{name}", name)
    found.discover(A)
    found.land("a/x", "other")
    found.discover(A)
    (found.landing / "a" / "y").unlink()
    found.discover(A)
    found.judge(INGESTED, 1, 2, 3)
    found.judge(VANISHED, 4)
    return found


def lose(table: str, commits: int) -> None:
    """What a loss of power takes that comes before the disk has it: the last commits, and what was written after them."""
    last = DeltaTable(table).version()
    for version in range(last - commits + 1, last + 1):
        for kind in ("crc", "json"):
            (Path(table) / "_delta_log" / f"{version:020}.{kind}").unlink()


def of_interest(rows: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    return [tuple(row[name] for name in ("delivery", "source", "file", "event", "modified_at", "sha256")) for row in rows]


@pytest.mark.parametrize("commits", [1, 2, 3])
def test_what_has_an_outcome_is_put_back_and_new_files_get_new_numbers(folder: Folder, commits: int) -> None:
    before = of_interest(folder.rows())
    lose(folder.deliveries, commits)
    known = read_known_files(folder.deliveries, folder.outcomes)
    assert known.last == [3, 2, 0][commits - 1]
    assert accounting.restore_lost_deliveries([A], folder.landing, known, "run") == 4 - known.last
    assert of_interest(folder.rows()) == before
    assert folder.discover(A) == []
    folder.land("a/new")
    assert folder.discover(A) == [(DELIVERED, "new")] and folder.rows()[-1]["delivery"] == 5
    folder.land("a/y", "y")
    assert [event for event, _ in folder.discover(A)] == ["returned"], "its content is known"


def test_a_delivery_without_an_outcome_is_found_again(folder: Folder) -> None:
    folder.land("a/new")
    folder.discover(A)
    lose(folder.deliveries, 1)
    assert (
        accounting.restore_lost_deliveries([A], folder.landing, read_known_files(folder.deliveries, folder.outcomes), "run") == 0
    )
    assert folder.discover(A) == [(DELIVERED, "new")]


def test_numbers_follow_the_highest_outcome_whatever_the_deliveries_say(folder: Folder) -> None:
    lose(folder.deliveries, 1)
    assert folder.discover(A) == [(VANISHED, "y")]
    assert [row["delivery"] for row in folder.rows()] == [1, 2, 3, 5]


def test_bronze_with_a_delivery_that_nothing_else_knows_is_refused(folder: Folder, tmp_path: Path) -> None:
    bronze = str(tmp_path / "lake" / "a")
    write_deltalake(bronze, pa.table({"_delivery": [1, 4]}))
    known = read_known_files(folder.deliveries, folder.outcomes)
    accounting.refuse_unknown_bronze_rows(known, {"a": bronze, "never": str(tmp_path / "never")})
    write_deltalake(bronze, pa.table({"_delivery": [7]}), mode="append")
    with pytest.raises(
        SluiceError, match=r"'a' has rows of delivery 7, and the ledger knows none after 4: .* delete the rows with"
    ):
        accounting.refuse_unknown_bronze_rows(known, {"a": bronze})


def test_the_stage_puts_back_starts_the_streams_anew_and_says_what_is_missed(settings: Settings) -> None:
    """What a run does before Spark is asked: the ledger, the checkpoint, and the notes."""
    workspace = Workspace(settings, build_declaration_graph(SHOP, (A,)), None, "r1")  # type: ignore[arg-type]  # no Spark is asked
    here = Folder(settings.landing.parent)
    here.land("a/x")
    for _ in range(2):
        assert layers.discover_run_deliveries(workspace, set()).refused == {}
        row = {"delivery": 1, "source": "a", "file": "x", "state": "ingested"}
        told = {
            name: delivery_tables.read_delivery_ledger_rows(workspace.deliveries)[0][name] for name in ("modified_at", "sha256")
        }
        delivery_tables.append_delivery_ledger_rows(workspace.outcomes, [row | told], delivery_tables.OUTCOMES, "r1")
    flow, inputs = "bronze_a", {"deliveries": log.read_table_id(workspace.deliveries)}
    open_checkpoint(workspace.checkpoints(flow), flow, inputs)
    lose(workspace.deliveries, 1)
    here.land("a/y")
    assert layers.discover_run_deliveries(workspace, set()).refused == {}
    assert [
        (row["delivery"], row["file"])
        for row in delivery_tables.sort_deliveries_by_number(delivery_tables.read_delivery_ledger_rows(workspace.deliveries))
    ] == [(1, "x"), (2, "y")]
    memory = read_flow_memory(workspace.checkpoints(flow), flow)
    assert memory is not None and memory.reset == accounting.LEDGER_LOST_COMMITS
    delivery_tables.append_delivery_ledger_rows(
        workspace.outcomes, [{**row, "delivery": 2, "file": "y", "state": "missed"}], delivery_tables.OUTCOMES, "r1"
    )
    report = FlowReport(flow="a", layer="bronze")
    layers.note_missed_files(workspace, [report])
    assert report.notes == ["1 file is missed, which every run tries again: sluice ledger shop --state missed"]
