"""What a catalog is told about a pipeline's tables: which tables, and what about each. From real tables, without Spark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType, StructType

from sluice.catalogs.named_tables import locate_for_readers, plan_catalog_names, write_view_query
from sluice.declare import Pipeline, Source, materialized_view, role_view, table, view
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.open_tables import CatalogOwnsCommits, open_checked_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.settings import Settings

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
        write_deltalake(graph.location(settings, name), booking, mode="overwrite")
    fields = [
        Field("night", "date", metadata={"comment": "The evening's date."}),
        Field("rooms", "long"),
        Field("prices", StructType([Field("least", PrimitiveType("decimal(10,2)"))])),
        Field("_delivery", "long"),
    ]
    DeltaTable.create(graph.location(settings, "nights"), Schema(fields), mode="overwrite", description="Taken rooms by night.")
    return graph


def test_a_table_without_personal_columns_has_a_name(settings: Settings) -> None:
    graph = hotel(settings)
    plan = plan_catalog_names(settings, graph)
    assert set(plan.tables) == {"nights"}
    named = plan.tables["nights"]
    assert (named.pipeline, named.comment, named.query) == ("hotel", "Taken rooms by night.", None)
    assert named.location == Path(graph.location(settings, "nights")).as_uri()
    assert [(column.name, column.comment) for column in named.columns][:2] == [("night", "The evening's date."), ("rooms", "")]


def test_every_other_one_says_why_it_has_none(settings: Settings) -> None:
    left_out = plan_catalog_names(settings, hotel(settings)).left_out
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
    plan = plan_catalog_names(settings, hotel(settings, "bookings", "guests", "bookings_raw"))
    assert set(plan.tables) == {"bookings_raw", "bookings", "nights"}
    assert plan.left_out["guests"] == "is restricted"
    assert plan.views == ("busy", "of_guests")


def test_a_view_names_its_inputs_with_their_database_and_without_sluices_columns(settings: Settings) -> None:
    plan = plan_catalog_names(settings, hotel(settings))
    assert plan.views == ("busy",)
    assert write_view_query(str(busy.sql), [plan.tables["nights"]]) == (
        "WITH `nights` AS (SELECT `night`, `rooms`, `prices` FROM `hotel`.`nights`) SELECT * FROM (\n"
        "SELECT night FROM nights WHERE rooms > 5\n)"
    )


def test_nothing_of_a_row_is_told(settings: Settings) -> None:
    plan = plan_catalog_names(settings, hotel(settings, "bookings"))
    assert "ada lovelace" not in repr(plan)


def test_a_place_on_a_store_is_called_as_hadoop_calls_it(settings: Settings) -> None:
    assert locate_for_readers("s3://bucket/lake/hotel") == "s3a://bucket/lake/hotel"
    assert locate_for_readers(str(settings.root)).startswith("file:///")


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_a_table_whose_commits_a_catalog_owns_is_refused(settings: Settings, feature: str) -> None:
    graph = hotel(settings)
    path = graph.location(settings, "nights")
    give_commits_to_catalog(Path(path), feature)
    with pytest.raises(CatalogOwnsCommits, match="belong to a catalog"):
        open_checked_table(path)
    with pytest.raises(CatalogOwnsCommits, match="belong to a catalog"):
        plan_catalog_names(replace(settings), graph)


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
