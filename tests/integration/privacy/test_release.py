"""De-identified copies with numbers: who is in them under another name, and leaves them when erased."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, materialized_view, table, treat
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError, UsageError
from sluice.lake import releases
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import is_on_disk, walk_folders
from sluice.open_tables import open_delta_table
from sluice.pipeline_records import PipelineRecords
from sluice.runs.copies import releasing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = [pytest.mark.on_store, pytest.mark.usefixtures("uncontrolled")]

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze", __name__))
ORDERS = Source(
    name="orders", schema="id BIGINT, who BIGINT, email STRING, age INT, town STRING", subject="who", personal=("email", "age")
)


@table(reads="orders", keys="id", subject="who", personal={"email": None, "age": treat.bin(18, 65)})
def order(orders: DataFrame) -> DataFrame:
    """Orders."""
    return orders.select("id", "who", "email", "age", "town")


@table(reads="orders", keys="who", subject="who", restricted=True)
def customer(orders: DataFrame) -> DataFrame:
    """Who is who."""
    return orders.select("who", "email")


@materialized_view(reads="order", keys="town", at_least=2, subjects="people")
def towns(order: DataFrame) -> DataFrame:
    """People by town."""
    return order.groupBy("town").agg(F.count_distinct("who").alias("people"))


@materialized_view(reads="order", keys="town")
def last_order(order: DataFrame) -> DataFrame:
    """Of somebody, and nothing says of whom."""
    return order.groupBy("town").agg(F.max("id").alias("id"))


def read(release: releases.Release, name: str) -> list[dict[str, object]]:
    from pyarrow import table as arrow

    found: list[dict[str, object]] = arrow(
        open_delta_table(str(release.folder / name)).to_pyarrow_dataset().to_table()
    ).to_pylist()
    return sorted(found, key=str)


def test_releases_name_nobody_and_an_erasure_reaches_each(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [ORDERS, order, customer, towns, last_order]))
    people = ((1, 1700001), (2, 1700001), (3, 1700002), (4, 1700003))
    told = ({"id": n, "who": who, "email": f"{who}@x.it", "age": 30, "town": "Rome"} for n, who in people)
    lake.land("orders/1.jsonl", "".join(json.dumps(one) + "\n" for one in told))
    lake.run()
    for name, why in (
        ("customer", "it is restricted"),
        ("last_order", "no column says whose"),
        ("orders", "no table that can be"),
    ):
        with pytest.raises(UsageError, match=why):
            releasing.release_tables(PipelineLake(settings, lake.graph), [name])
    first = releasing.release_tables(PipelineLake(settings, lake.graph), ["order", "towns"])
    rows = read(first, "order")
    assert [set(row) for row in rows] == [{"id", "who", "age", "town"}] * 4, "no e-mail, and not where a row came from"
    assert len({row["who"] for row in rows}) == 3 and {row["age"] for row in rows} == {"18-64"}
    assert read(first, "towns") == [{"town": "Rome", "people": 3}]
    second = releasing.release_tables(PipelineLake(settings, lake.graph), ["order"])
    assert (first.number, second.number) == (1, 2)
    assert not {row["who"] for row in rows} & {row["who"] for row in read(second, "order")}, (
        "two releases are not joined by person"
    )
    if is_on_disk(first.folder):
        modes = {file.stat().st_mode & 0o777 for file in first.folder.rglob("*") if file.is_file()}
        assert (first.folder.stat().st_mode & 0o777, modes) == (0o555, {0o444})

    requests.receive_erasure_request(PipelineLake(settings, lake.graph), [Identifier("who", "1700001")])
    with pytest.raises(SluiceError, match="Erasure requests of 'shop' wait"):
        releasing.release_tables(PipelineLake(settings, lake.graph), ["order"])
    lake.run("propagate_deletions")
    first, second = releases.read_pipeline_releases(PipelineRecords(settings, "shop"))
    for release in (first, second):
        assert [row["id"] for row in read(release, "order")] == [3, 4] and release.tables["order"]["erased"][0]["rows"] == 2
        assert (
            len(list((release.folder / "order").glob("*.parquet"))) <= 2
            and open_delta_table(str(release.folder / "order")).version() == 0
        )
    assert {str(row["who"]) for row in read(first, "order")} < {str(row["who"]) for row in rows}, "others are as they were"
    assert "withdrawn" in first.tables["towns"] and not (first.folder / "towns").exists()
    left = [name for _, folders, files in walk_folders(settings.released) for name in (*folders, *files)]
    assert not [name for name in left if name.endswith((".new", ".old", ".swapping"))]

    releases.remove_release(second)
    third = releasing.release_tables(PipelineLake(settings, lake.graph), ["towns"])
    assert third.number == 3 and read(third, "towns") == [{"town": "Rome", "people": 2}]
