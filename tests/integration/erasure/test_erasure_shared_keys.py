"""A key that rows of several people have: when the winner is erased, the next best row of the others takes its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import emptied_cells, erasure_ledger, request_events, request_record, requests
from sluice.erasure.steps import rows, shared_keys
from sluice.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.declare.datasets.tables import AnyTable
    from sluice.lake.workspace import Workspace

pytestmark = pytest.mark.usefixtures("uncontrolled")

ANNA, ROBERT, CLEO = "anna-schmidt-4711", "robert-meier-0815", "cleo-nagy-2342"

owners = Source(name="owners", pattern="*.jsonl", schema="device BIGINT, who STRING, at BIGINT", subject="who", comment="Owners.")


@table(reads="owners", keys="device", sequence_by="at", subject="who")
def owner(owners: DataFrame) -> DataFrame:
    """Who had a device last."""
    return owners.select("device", "who", "at")


@table(reads="owners", keys=("who", "device"), sequence_by="at", subject="who")
def owned(owners: DataFrame) -> DataFrame:
    """What somebody had."""
    return owners.select("who", "device", "at")


stays = Source(
    name="stays", pattern="*.jsonl", schema="id BIGINT, locker BIGINT, who STRING, at BIGINT", subject="who", comment="Stays."
)


@table(reads="stays", keys="id", subject="who", on_erasure="anonymise")
def stay(stays: DataFrame) -> DataFrame:
    """A stay, which remains without its guest."""
    return stays.select("id", "who", "at")


@table(reads="stays", keys="locker", sequence_by="at", subject="who")
def locker(stays: DataFrame) -> DataFrame:
    """Who had a locker last; erased with the person."""
    return stays.select("locker", "who", "at")


def lines(columns: tuple[str, ...], *rows: tuple[Any, ...]) -> str:
    return "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    pipeline = Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze", __name__))
    declared = (owners, owner, owned, stays, stay, locker)
    house = Lakehouse(settings_at(tmp_path_factory.mktemp("first_run")), spark, build_declaration_graph(pipeline, declared))
    house.land("owners/1.jsonl", lines(("device", "who", "at"), (1, ANNA, 1), (1, ROBERT, 2), (2, CLEO, 1), (3, ROBERT, 1)))
    house.land("stays/1.jsonl", lines(("id", "locker", "who", "at"), (1, 7, ANNA, 1), (2, 7, ROBERT, 2), (3, 8, ROBERT, 3)))
    house.run()
    assert house.rows("owner", "device", "who") == [(1, ROBERT), (2, CLEO), (3, ROBERT)]
    assert house.rows("locker", "locker", "who") == [(7, ROBERT), (8, ROBERT)]
    return house


@pytest.fixture
def lake(first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    return copied_lakehouse(first_run, tmp_path)


def assert_as_in_a_lake_without_robert(lake: Lakehouse) -> None:
    assert lake.rows("owners", "device", "who") == [(1, ANNA), (2, CLEO)]
    assert lake.rows("owner", "device", "who") == [(1, ANNA), (2, CLEO)]
    assert lake.rows("owned", "who", "device") == [(ANNA, 1), (CLEO, 2)]
    assert lake.rows("stay", "id", "who") == [(1, ANNA), (2, None), (3, None)], "the facts stay"
    assert lake.rows("locker", "locker", "who") == [(7, ANNA)]
    assert not list(Path(lake.records.bookkeeping("erased_rows")).glob("*"))


def assert_erased_and_nothing_is_left_to_do(lake: Lakehouse) -> None:
    (request,) = request_record.list_erasure_requests(lake.records)
    assert request.state == request_events.LOGICALLY
    before = lake.versions()
    lake.run("propagate_deletions")
    lake.run()
    assert lake.versions() == before


@pytest.mark.slow
def test_the_next_best_row_takes_the_place_of_the_erased_winner(lake: Lakehouse) -> None:
    """Also where another table keeps the facts, so that bronze loses no row."""
    requests.receive_erasure_request(lake.lake, [ROBERT], "who")
    reports = lake.run("propagate_deletions")
    assert_as_in_a_lake_without_robert(lake)
    assert reports["owners"].deleted == 2
    noted = {one.table: one.rows for one in erasure_ledger.read_erasure_ledger(lake.records) if one.step == "tables"}
    assert noted == {"owners": 2, "owner": 2, "owned": 2, "locker": 2}
    assert_erased_and_nothing_is_left_to_do(lake)


@pytest.mark.thorough
def test_an_erasure_that_is_killed_before_a_table_is_folded_is_made_up_for(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First where bronze keeps the facts, then where bronze has lost the rows; each time the flows run before the erasure goes on."""

    def kill(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def kill_at_owners(workspace: Workspace, source: Source, *others: Any, **more: Any) -> Any:
        return kill() if source is owners else rows.refold_tables_of_source(workspace, source, *others, **more)

    requests.receive_erasure_request(lake.lake, [ROBERT], "who")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(emptied_cells, "_refold_shared_keys", kill)
        lake.run("propagate_deletions")
    assert (3, None) in lake.rows("stays", "id", "who") and (8, ROBERT) in lake.rows("locker", "locker", "who")
    lake.run()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(shared_keys, "refold_tables_of_source", kill_at_owners)
        lake.run("propagate_deletions")
    assert lake.rows("owners", "device", "who") == [(1, ANNA), (2, CLEO)], "bronze only"
    assert (1, ROBERT) in lake.rows("owner", "device", "who")
    lake.run()
    lake.run("propagate_deletions")
    assert_as_in_a_lake_without_robert(lake)
    assert_erased_and_nothing_is_left_to_do(lake)


def test_a_table_that_cannot_be_folded_keeps_nobody_in_the_lake_and_is_made_up_later(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    refold_rows = rows.refold.refold_rows

    def broken(workspace: Workspace, table: AnyTable, *others: Any, **more: Any) -> None:
        if table.name in ("owner", "locker"):
            raise SluiceError("the flow fails")
        refold_rows(workspace, table, *others, **more)

    requests.receive_erasure_request(lake.lake, [ROBERT], "who")
    with monkeypatch.context() as patch:
        patch.setattr(rows.refold, "refold_rows", broken)
        lake.run("propagate_deletions")
    assert ROBERT not in str([lake.rows("owner", "device", "who"), lake.rows("locker", "locker", "who")])
    lake.run()
    assert_as_in_a_lake_without_robert(lake)
