"""Which names are registered, renewed, removed and left alone, against a catalog in memory; the real one is in system/test_catalogs.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice.catalog_address import CatalogAddress
from sluice.catalogs import registration
from sluice.catalogs.catalog import CatalogAway, CatalogFailed, HeldName, NamedTable
from sluice.catalogs.registration import register_pipeline
from sluice.declare import Pipeline, Source, materialized_view, view
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.pipeline_stages import DELETIONS, all_stages_of_pipeline
from sluice.runs import catalog_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.settings import Settings

ADDRESS = CatalogAddress("thrift", "metastore", 9083)


@dataclass
class MemoryCatalog:
    """A `Catalog` that stores what it gets. away: whether it does not answer. refuses: names that it refuses.

    leaves_at: the name at which it is gone.
    """

    held: dict[str, HeldName] = field(default_factory=dict)
    databases: list[str] = field(default_factory=list)
    away: bool = False
    refuses: frozenset[str] = frozenset()
    leaves_at: str = ""
    asked: list[str] = field(default_factory=list)

    def list_names(self, pipeline: str) -> Mapping[str, HeldName]:
        return dict(self.held)

    def create_database(self, pipeline: str, comment: str) -> None:
        self.databases.append(pipeline)

    def create_table(self, table: NamedTable) -> None:
        self.asked.append(table.name)
        if table.name == self.leaves_at:
            raise CatalogAway("TTransportException: timed out")
        if table.name in self.refuses:
            raise CatalogFailed("MetaException: no")
        self.held[table.name] = HeldName(table.name, table.location, table.pipeline, table)

    def is_current(self, held: HeldName, table: NamedTable) -> bool:
        return bool(held.entry == table)

    def replace_table(self, held: HeldName, table: NamedTable) -> None:
        self.create_table(table)

    def remove_name(self, pipeline: str, held: HeldName) -> None:
        del self.held[held.name]


@pytest.fixture
def catalog(monkeypatch: pytest.MonkeyPatch) -> MemoryCatalog:
    memory = MemoryCatalog()

    @contextmanager
    def opened(address: CatalogAddress) -> Iterator[MemoryCatalog]:
        assert address == ADDRESS
        if memory.away:
            raise CatalogAway("TTransportException: nobody answers")
        yield memory

    monkeypatch.setattr(registration, "open_catalog", opened)
    return memory


orders = Source(name="orders", format="json", path="orders", pattern="*.jsonl", comment="As delivered.")


@materialized_view(reads="orders", keys="day")
def day(orders: DataFrame) -> DataFrame:
    """Orders by day."""
    return orders


@materialized_view(reads="orders", keys="day")
def month(orders: DataFrame) -> DataFrame:
    """Orders by month."""
    return orders


many = view(name="many", reads="day", sql="SELECT id FROM day WHERE id > 1", comment="Days of many orders.")


@pytest.fixture
def lake(settings: Settings) -> Settings:
    """A lake with both tables."""
    found = replace(settings, catalog=ADDRESS)
    for name in ("day", "month"):
        make_table(found, name, id=[1])
    return found


def shop(*declared: Any) -> Graph:
    made = Pipeline(name="shop", description="A shop.", owner="t", layers=("shop.bronze", __name__))
    return build_declaration_graph(made, [orders, *declared])


def make_table(settings: Settings, table: str, **columns: list[int]) -> None:
    where = shop(day, month).location(settings, table)
    write_deltalake(where, pa.table(columns), mode="overwrite", schema_mode="overwrite")


def states(settings: Settings, *declared: Any, **options: bool) -> dict[str, str]:
    return {one.name: one.state for one in register_pipeline(settings, shop(*declared), **options)}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The graph that is loaded for a run."""
    from sluice.declare.assembly import loading

    graph = shop(day, month)
    monkeypatch.setattr(loading, "load_declaration_graph", lambda *_: graph)
    return graph


def test_names_come_change_and_go_with_their_tables(lake: Settings, catalog: MemoryCatalog) -> None:
    assert states(lake, day, month) == {"day": "registered", "month": "registered"}
    assert catalog.databases == ["shop"]
    assert states(lake, day, month) == {"day": "up to date", "month": "up to date"}
    make_table(lake, "day", id=[1], total=[2])
    assert states(lake, day, month) == {"day": "renewed", "month": "up to date"}
    assert states(lake, month) == {"day": "removed", "month": "up to date"}
    assert Path(shop(day).location(lake, "day"), "_delta_log").is_dir()


def test_a_name_that_somebody_dropped_comes_back(lake: Settings, catalog: MemoryCatalog) -> None:
    states(lake, day, month)
    del catalog.held["day"]
    assert states(lake, day, month) == {"day": "registered", "month": "up to date"}


def test_names_of_others_stay_as_they_are(lake: Settings, catalog: MemoryCatalog) -> None:
    theirs = {"day": HeldName("day", "file:///elsewhere", None, "theirs")}
    theirs["by_hand"] = HeldName("by_hand", (Path(lake.lake) / "shop" / "gold" / "day").as_uri(), None, "theirs")
    catalog.held |= theirs
    outcome, _ = register_pipeline(lake, shop(day, month))
    assert (outcome.name, outcome.state) == ("day", "refused") and "somebody else" in outcome.why
    assert theirs.items() <= catalog.held.items()


def test_names_of_another_lake_are_taken_over_only_if_that_is_asked_for(
    lake: Settings, catalog: MemoryCatalog, tmp_path: Path
) -> None:
    catalog.held["day"] = HeldName("day", (tmp_path / "lake-old/shop/day").as_uri(), "shop", "moved")
    catalog.held["gone"] = HeldName("gone", (tmp_path / "lake-old/shop/gone").as_uri(), "shop", "moved")
    outcome, _ = register_pipeline(lake, shop(day, month))
    assert outcome.state == "refused" and "sluice catalog shop --take-over" in outcome.why
    assert states(lake, day, month, take_over=True)["day"] == "renewed"
    assert "gone" in catalog.held, "what is not below this lake is never removed"


def test_what_is_refused_for_one_name_does_not_hold_up_the_others(lake: Settings, catalog: MemoryCatalog) -> None:
    catalog.refuses = frozenset({"day"})
    assert states(lake, day, month) == {"day": "refused", "month": "registered"}


def test_a_catalog_that_leaves_in_the_middle_is_asked_nothing_more(
    lake: Settings, catalog: MemoryCatalog, declared: Graph
) -> None:
    """Each further question would wait for its time, or take the late answer to an earlier one for its own."""
    catalog.leaves_at = "day"
    (line,) = catalog_names.register_after_stage(declared.records(lake), DELETIONS.name)
    assert "the next run registers what is missing: TTransportException" in line
    assert catalog.asked == ["day"]


def test_a_view_waits_for_a_run_with_spark_and_stays_without_it(lake: Settings, catalog: MemoryCatalog) -> None:
    assert states(lake, day, many) == {"day": "registered", "many": "waiting"}
    catalog.held["many"] = HeldName("many", (Path(lake.lake) / "shop").as_uri(), "shop", "as it was")
    assert states(lake, day, many) == {"day": "up to date", "many": "up to date"}


def test_a_run_says_what_changed_and_is_silent_where_nothing_did(lake: Settings, catalog: MemoryCatalog, declared: Graph) -> None:
    records = declared.records(lake)
    assert catalog_names.register_after_stage(records, DELETIONS.name) == [f"catalog {ADDRESS}: registered day, month"]
    assert catalog_names.register_after_stage(records, DELETIONS.name) == []
    catalog.held["day"] = HeldName("day", "file:///elsewhere", None, "theirs")
    (refused,) = catalog_names.register_after_stage(records, DELETIONS.name)
    assert f"catalog {ADDRESS}: shop.day was refused" in refused


def test_a_catalog_that_is_away_fails_no_run_and_the_next_one_makes_up_for_it(
    lake: Settings, catalog: MemoryCatalog, declared: Graph
) -> None:
    records, catalog.away = declared.records(lake), True
    (line,) = catalog_names.register_after_stage(records, DELETIONS.name)
    assert "it cannot be used now; the next run registers what is missing: TTransportException" in line
    catalog.away = False
    assert catalog_names.register_after_stage(records, DELETIONS.name) == [f"catalog {ADDRESS}: registered day, month"]


def test_what_nobody_foresaw_fails_no_run_and_its_text_is_not_told(
    lake: Settings, catalog: MemoryCatalog, declared: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("Anna")

    monkeypatch.setattr(catalog, "list_names", fail)
    (line,) = catalog_names.register_after_stage(declared.records(lake), DELETIONS.name)
    assert "(ValueError)" in line and "Anna" not in line


def test_nobody_is_asked_without_a_catalog_or_after_another_stage(
    lake: Settings, catalog: MemoryCatalog, declared: Graph
) -> None:
    catalog.away = True
    assert catalog_names.register_after_stage(declared.records(replace(lake, catalog=None)), DELETIONS.name) == []
    assert catalog_names.register_after_stage(declared.records(lake), "gold") == []


def test_a_clone_registers_nothing() -> None:
    """Its names would be those of the lake that it was cloned from."""
    stages = all_stages_of_pipeline(shop(day).pipeline)
    assert [one.name for one in stages if one.registers_names] == [DELETIONS.name]
    assert [one.name for one in stages if one.registers_names and one.in_clone != "never"] == []
