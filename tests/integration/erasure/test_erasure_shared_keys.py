"""A key that rows of several people have: when the winner is erased, the next best row of the others takes its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse, copied_lakehouse, settings_at

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import emptied_cells, ledger, receiving, request_events, requests
from sluice.erasure.steps import rows, shared_keys
from sluice.errors import SluiceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

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


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    pipeline = Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze", __name__))
    house = Lakehouse(
        settings_at(tmp_path_factory.mktemp("first_run")), spark, build_declaration_graph(pipeline, (owners, owner, owned))
    )
    delivered = ((1, ANNA, 1), (1, ROBERT, 2), (2, CLEO, 1), (3, ROBERT, 1))
    house.land(
        "owners/1.jsonl", "".join(json.dumps(dict(zip(("device", "who", "at"), row, strict=True))) + "\n" for row in delivered)
    )
    house.run()
    assert house.rows("owner", "device", "who") == [(1, ROBERT), (2, CLEO), (3, ROBERT)]
    return house


@pytest.fixture
def lake(first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    return copied_lakehouse(first_run, tmp_path)


def ask(lake: Lakehouse) -> str:
    return receiving.receive_erasure_request(lake.settings, lake.graph, [ROBERT], "who").request


def is_as_in_a_lake_without_robert(lake: Lakehouse) -> bool:
    found = (lake.rows("owner", "device", "who"), lake.rows("owned", "who", "device"), lake.rows("owners", "device", "who"))
    return found == ([(1, ANNA), (2, CLEO)], [(ANNA, 1), (CLEO, 2)], [(1, ANNA), (2, CLEO)])


def test_the_next_best_row_takes_the_place_of_the_erased_winner(lake: Lakehouse) -> None:
    request = ask(lake)
    reports = lake.run("propagate_deletions")
    assert is_as_in_a_lake_without_robert(lake) and reports["owners"].deleted == 2
    noted = {one.table: one.rows for one in ledger.read_erasure_ledger(lake.records) if one.step == "tables"}
    assert noted == {"owners": 2, "owner": 2, "owned": 2}
    assert requests.read_erasure_request(lake.records, request).state == request_events.LOGICALLY
    assert not list(Path(lake.records.bookkeeping("erased_rows")).glob("*"))
    before = lake.versions()
    lake.run("propagate_deletions")
    assert lake.versions() == before


@pytest.mark.parametrize("killed_in", ["delete_by_merge", "refold_tables_of_source"])
def test_an_erasure_that_is_killed_between_bronze_and_the_fold_is_made_up_for(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    def killed(*arguments: Any, **more: Any) -> Any:
        if killed_in == "delete_by_merge":
            rows.delete_by_merge(*arguments, **more)
        raise KeyboardInterrupt

    ask(lake)
    with monkeypatch.context() as patch:
        patch.setattr(shared_keys, killed_in, killed)
        with pytest.raises(KeyboardInterrupt):
            lake.run("propagate_deletions")
    assert lake.rows("owners", "device", "who") == [(1, ANNA), (2, CLEO)], "bronze only"
    assert (1, ROBERT) in lake.rows("owner", "device", "who")
    lake.run()
    lake.run("propagate_deletions")
    assert is_as_in_a_lake_without_robert(lake)
    assert not list(Path(lake.records.bookkeeping("erased_rows")).glob("*"))


def test_a_table_that_cannot_be_folded_keeps_nobody_in_the_lake_and_is_made_up_later(
    lake: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise SluiceError("the flow fails")

    ask(lake)
    with monkeypatch.context() as patch:
        patch.setattr(rows.refold, "refold_rows", broken)
        lake.run("propagate_deletions")
    assert ROBERT not in str(lake.rows("owner", "device", "who"))
    lake.run()
    assert is_as_in_a_lake_without_robert(lake)


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


@pytest.mark.parametrize("killed", [False, True])
def test_the_next_best_row_takes_the_place_also_where_another_table_keeps_the_facts(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    pipeline = Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze", __name__))
    house = Lakehouse(settings, spark, build_declaration_graph(pipeline, (stays, stay, locker)))
    delivered = ((1, 7, ANNA, 1), (2, 7, ROBERT, 2), (3, 8, ROBERT, 3))
    house.land(
        "stays/1.jsonl",
        "".join(json.dumps(dict(zip(("id", "locker", "who", "at"), row, strict=True))) + "\n" for row in delivered),
    )
    house.run()
    assert house.rows("locker", "locker", "who") == [(7, ROBERT), (8, ROBERT)]
    ask(house)
    if killed:

        def kill(*_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(emptied_cells, "_refold_shared_keys", kill)
            house.run("propagate_deletions")
        house.run()
    house.run("propagate_deletions")
    assert house.rows("locker", "locker", "who") == [(7, ANNA)]
    assert house.rows("stay", "id", "who") == [(1, ANNA), (2, None), (3, None)]
    house.run()
    assert house.rows("locker", "locker", "who") == [(7, ANNA)]
