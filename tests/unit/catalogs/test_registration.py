"""Which names are registered, renewed, removed and left alone, against a catalog in memory; the real one is in system/test_catalogs.py.

What a catalog is told about a pipeline's tables: which tables, and what about each. From real tables, without Spark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType, StructType

from sluice.catalog_address import CatalogAddress
from sluice.catalogs import registration
from sluice.catalogs.catalog import CatalogAway, CatalogFailed, HeldName, NamedTable
from sluice.catalogs.registration import locate_for_readers, plan_catalog_names, register_pipeline, write_view_query
from sluice.declare import Pipeline, Source, materialized_view, role_view, table, view
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.open_tables import CatalogOwnsCommits, open_checked_table
from sluice.pipeline_stages import DELETIONS, GOLD, all_stages_of_pipeline
from sluice.runs import job

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
    where = PipelineLake(settings, shop(day, month)).path(table)
    write_deltalake(where, pa.table(columns), mode="overwrite", schema_mode="overwrite")


def states(settings: Settings, *declared: Any, **options: bool) -> dict[str, str]:
    return {one.name: one.state for one in register_pipeline(PipelineLake(settings, shop(*declared)), **options)}


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> Graph:
    """The graph that is loaded for a run."""
    graph = shop(day, month)
    monkeypatch.setattr(job, "load_pipeline_lake", lambda settings, _: PipelineLake(settings, graph))
    return graph


def test_names_come_change_and_go_with_their_tables(lake: Settings, catalog: MemoryCatalog) -> None:
    assert states(lake, day, month) == {"day": "registered", "month": "registered"}
    assert catalog.databases == ["shop"]
    assert states(lake, day, month) == {"day": "up to date", "month": "up to date"}
    make_table(lake, "day", id=[1], total=[2])
    assert states(lake, day, month) == {"day": "renewed", "month": "up to date"}
    assert states(lake, month) == {"day": "removed", "month": "up to date"}
    assert Path(PipelineLake(lake, shop(day)).path("day"), "_delta_log").is_dir()


def test_a_name_that_somebody_dropped_comes_back(lake: Settings, catalog: MemoryCatalog) -> None:
    states(lake, day, month)
    del catalog.held["day"]
    assert states(lake, day, month) == {"day": "registered", "month": "up to date"}


def test_names_of_others_stay_as_they_are(lake: Settings, catalog: MemoryCatalog) -> None:
    theirs = {"day": HeldName("day", "file:///elsewhere", None, "theirs")}
    theirs["by_hand"] = HeldName("by_hand", (Path(lake.lake) / "shop" / "gold" / "day").as_uri(), None, "theirs")
    catalog.held |= theirs
    outcome, _ = register_pipeline(PipelineLake(lake, shop(day, month)))
    assert (outcome.name, outcome.state) == ("day", "refused") and "somebody else" in outcome.why
    assert theirs.items() <= catalog.held.items()


def test_names_of_another_lake_are_taken_over_only_if_that_is_asked_for(
    lake: Settings, catalog: MemoryCatalog, tmp_path: Path
) -> None:
    catalog.held["day"] = HeldName("day", (tmp_path / "lake-old/shop/day").as_uri(), "shop", "moved")
    catalog.held["gone"] = HeldName("gone", (tmp_path / "lake-old/shop/gone").as_uri(), "shop", "moved")
    outcome, _ = register_pipeline(PipelineLake(lake, shop(day, month)))
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
    (line,) = job.register_after_stage(PipelineLake(lake, declared).records, DELETIONS)
    assert "the next run registers what is missing: TTransportException" in line
    assert catalog.asked == ["day"]


def test_a_view_waits_for_a_run_with_spark_and_stays_without_it(lake: Settings, catalog: MemoryCatalog) -> None:
    assert states(lake, day, many) == {"day": "registered", "many": "waiting"}
    catalog.held["many"] = HeldName("many", (Path(lake.lake) / "shop").as_uri(), "shop", "as it was")
    assert states(lake, day, many) == {"day": "up to date", "many": "up to date"}


def test_a_run_says_what_changed_and_is_silent_where_nothing_did(lake: Settings, catalog: MemoryCatalog, declared: Graph) -> None:
    records = PipelineLake(lake, declared).records
    assert job.register_after_stage(records, DELETIONS) == [f"catalog {ADDRESS}: registered day, month"]
    assert job.register_after_stage(records, DELETIONS) == []
    catalog.held["day"] = HeldName("day", "file:///elsewhere", None, "theirs")
    (refused,) = job.register_after_stage(records, DELETIONS)
    assert f"catalog {ADDRESS}: shop.day was refused" in refused


def test_a_catalog_that_is_away_fails_no_run_and_the_next_one_makes_up_for_it(
    lake: Settings, catalog: MemoryCatalog, declared: Graph
) -> None:
    records, catalog.away = PipelineLake(lake, declared).records, True
    (line,) = job.register_after_stage(records, DELETIONS)
    assert "it cannot be used now; the next run registers what is missing: TTransportException" in line
    catalog.away = False
    assert job.register_after_stage(records, DELETIONS) == [f"catalog {ADDRESS}: registered day, month"]


def test_what_nobody_foresaw_fails_no_run_and_its_text_is_not_told(
    lake: Settings, catalog: MemoryCatalog, declared: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("Anna")

    monkeypatch.setattr(catalog, "list_names", fail)
    (line,) = job.register_after_stage(PipelineLake(lake, declared).records, DELETIONS)
    assert "(ValueError)" in line and "Anna" not in line


def test_nobody_is_asked_without_a_catalog_or_after_another_stage(
    lake: Settings, catalog: MemoryCatalog, declared: Graph
) -> None:
    catalog.away = True
    assert job.register_after_stage(PipelineLake(replace(lake, catalog=None), declared).records, DELETIONS) == []
    assert job.register_after_stage(PipelineLake(lake, declared).records, GOLD) == []


def test_a_clone_registers_nothing() -> None:
    """Its names would be those of the lake that it was cloned from."""
    stages = all_stages_of_pipeline(shop(day).pipeline)
    assert [one.name for one in stages if one.registers_names] == [DELETIONS.name]
    assert [one.name for one in stages if one.registers_names and one.in_clone != "never"] == []


bookings_raw = Source(
    name="bookings_raw", format="json", path="bookings", pattern="*.jsonl", comment="As delivered.", subject="guest"
)


@table(reads="bookings_raw", keys="id", subject="guest")
def bookings(bookings_raw: DataFrame) -> DataFrame:
    """A booking of a guest."""
    return bookings_raw


@table(reads="bookings_raw", keys="id", subject="guest", restricted=True)
def guests(bookings_raw: DataFrame) -> DataFrame:
    """Whoever booked."""
    return bookings_raw


@materialized_view(reads="bookings", keys="night")
def nights(bookings: DataFrame) -> DataFrame:
    """How many rooms are taken in a night."""
    return bookings


@materialized_view(reads="nights", keys="night")
def full_nights(nights: DataFrame) -> DataFrame:
    """Nights without a free room. Not made yet."""
    return nights


busy = view(name="busy", reads="nights", sql="SELECT night FROM nights WHERE rooms > 5;", comment="Nights of many rooms.")
of_guests = view(name="of_guests", reads="bookings", sql="SELECT count(*) AS bookings FROM bookings")


@view(reads="nights")
def quiet(nights: DataFrame) -> DataFrame:
    """A view in Python."""
    return nights


front_desk = role_view("front_desk", reads="nights", role="desk", columns=("night",))


def hotel(settings: Settings, *publishes: str) -> Graph:
    """The declarations of this file, with tables where a run would have made them."""
    layers = ("hotel.bronze", __name__)
    pipeline = Pipeline(
        name="hotel", description="h", owner="t", layers=layers, publishes=publishes, roles={"desk": "Who is at the desk."}
    )
    everything = [bookings_raw, bookings, guests, nights, full_nights, busy, of_guests, quiet, front_desk]
    graph = build_declaration_graph(pipeline, everything)
    booking = pa.table({"id": [1], "guest": ["ada lovelace"], "_delivery": pa.array([1], pa.int64())})
    for name in ("bookings_raw", "bookings", "guests"):
        write_deltalake(PipelineLake(settings, graph).path(name), booking, mode="overwrite")
    fields = [
        Field("night", "date", metadata={"comment": "The evening's date."}),
        Field("rooms", "long"),
        Field("prices", StructType([Field("least", PrimitiveType("decimal(10,2)"))])),
        Field("_delivery", "long"),
    ]
    DeltaTable.create(
        PipelineLake(settings, graph).path("nights"), Schema(fields), mode="overwrite", description="Taken rooms by night."
    )
    return graph


def test_a_table_without_personal_columns_has_a_name(settings: Settings) -> None:
    graph = hotel(settings)
    plan = plan_catalog_names(PipelineLake(settings, graph))
    assert set(plan.tables) == {"nights"}
    named = plan.tables["nights"]
    assert (named.pipeline, named.comment, named.query) == ("hotel", "Taken rooms by night.", None)
    assert named.location == Path(PipelineLake(settings, graph).path("nights")).as_uri()
    assert [(column.name, column.comment) for column in named.columns][:2] == [("night", "The evening's date."), ("rooms", "")]


def test_every_other_one_says_why_it_has_none(settings: Settings) -> None:
    left_out = plan_catalog_names(PipelineLake(settings, hotel(settings))).left_out
    for name, why in {
        "bookings_raw": "as they were delivered",
        "bookings": r"personal columns (guest)",
        "guests": "restricted",
        "full_nights": "not been made yet",
        "of_guests": "reads 'bookings', which has no name",
        "quiet": "in Python",
        "front_desk": "the role 'desk'",
    }.items():
        assert why in left_out.pop(name)
    assert left_out == {}


def test_a_personal_table_gets_a_name_by_publishes_and_a_restricted_one_never(settings: Settings) -> None:
    plan = plan_catalog_names(PipelineLake(settings, hotel(settings, "bookings", "guests", "bookings_raw")))
    assert set(plan.tables) == {"bookings_raw", "bookings", "nights"}
    assert plan.left_out["guests"] == "is restricted"
    assert plan.views == ("busy", "of_guests")


def test_a_view_names_its_inputs_with_their_database_and_without_sluices_columns(settings: Settings) -> None:
    plan = plan_catalog_names(PipelineLake(settings, hotel(settings)))
    assert plan.views == ("busy",)
    assert write_view_query(str(busy.sql), [plan.tables["nights"]]) == (
        "WITH `nights` AS (SELECT `night`, `rooms`, `prices` FROM `hotel`.`nights`) SELECT * FROM (\n"
        "SELECT night FROM nights WHERE rooms > 5\n)"
    )


def test_nothing_of_a_row_is_told(settings: Settings) -> None:
    plan = plan_catalog_names(PipelineLake(settings, hotel(settings, "bookings")))
    assert "ada lovelace" not in repr(plan)


def test_a_location_on_a_store_is_called_as_hadoop_calls_it(settings: Settings) -> None:
    assert locate_for_readers("s3://bucket/lake/hotel") == "s3a://bucket/lake/hotel"
    assert locate_for_readers(str(settings.root)).startswith("file:///")


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_whose_commits_a_catalog_owns_is_refused(settings: Settings, feature: str) -> None:
    graph = hotel(settings)
    path = PipelineLake(settings, graph).path("nights")
    give_commits_to_catalog(Path(path), feature)
    with pytest.raises(CatalogOwnsCommits, match="belong to a catalog"):
        open_checked_table(path)
    with pytest.raises(CatalogOwnsCommits, match="belong to a catalog"):
        plan_catalog_names(PipelineLake(replace(settings), graph))


def give_commits_to_catalog(table: Path, feature: str) -> None:
    """Writes into a table's log what a catalog that owns its commits writes there."""
    commit = table / "_delta_log" / f"{0:020}.json"
    features = [feature, "vacuumProtocolCheck"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "inCommitTimestamp"],
    }
    lines: list[dict[str, Any]] = [json.loads(line) for line in commit.read_text().splitlines()]
    for action in lines:
        if "protocol" in action:
            action["protocol"] = protocol
        if "metaData" in action:
            action["metaData"]["configuration"] = {"delta.enableInCommitTimestamps": "true"}
    commit.write_text("\n".join(json.dumps(action) for action in lines) + "\n")
