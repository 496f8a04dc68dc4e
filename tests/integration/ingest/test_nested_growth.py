"""Fields that appear below a column, also within an array: they are columns in the same run, and no delivery is set aside for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError
from sluice.record_states import INGESTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("pipelines.shop.bronze",))


@pytest.fixture
def shop(settings: Settings, spark: SparkSession) -> Callable[..., Lakehouse]:
    """A lakehouse with a source of visits that has these options."""
    return lambda **options: Lakehouse(
        settings, spark, build_declaration_graph(PIPELINE, [Source(name="visits", may_refresh=True, **options)])
    )


def lines(*records: dict[str, Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def values(lake: Lakehouse, *columns: str) -> list[Any]:
    """The columns of bronze as JSON has them, by the column `id`. Nested fields that are NULL are left out."""
    rows = lake.spark.read.format("delta").load(lake.workspace().path("visits"))
    return [
        json.loads(row.text) for row in rows.orderBy("id").select(F.to_json(F.struct("id", *columns)).alias("text")).collect()
    ]


def all_ingested(lake: Lakehouse) -> bool:
    return all(row["state"] == INGESTED and not row["rescued"] for row in lake.outcomes() if row["event"] == "delivered")


@pytest.mark.thorough
@pytest.mark.parametrize("files", [1, 2])
def test_a_field_within_an_array_is_added_and_a_refresh_keeps_the_rows_whose_file_is_gone(
    shop: Callable[..., Lakehouse], files: int
) -> None:
    lake = shop()
    first = lake.land("visits/1.json", lines({"id": 1, "items": [{"a": 1, "deep": {"of": [{"c": 1}]}}, None]}))
    lake.run()
    expected = [{"id": 1, "items": [{"a": 1, "deep": {"of": [{"c": 1}]}}, None]}]
    for number in range(2, 2 + files):
        record = {"id": number, "items": [{"a": 2, "deep": {"of": [{"c": 2, "d": "y"}]}, "b": "x"}]}
        lake.land(f"visits/{number}.json", lines(record))
        expected.append(record)
    lake.run()
    assert values(lake, "items") == expected
    assert all_ingested(lake)
    first.unlink()
    lake.run(mode="refresh", tables=["visits"])
    assert values(lake, "items") == expected
    assert all_ingested(lake)


@pytest.mark.thorough
def test_a_field_within_an_array_of_parquet_files_is_added(shop: Callable[..., Lakehouse], settings: Settings) -> None:
    lake = shop(format="parquet")
    days = [{"id": 1, "items": [{"a": 1}]}], [{"id": 2, "items": [{"a": 1, "b": "x"}]}]
    for number, rows in enumerate(days):
        sink = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist(rows), sink)
        lake.land(f"visits/{number}.parquet", sink.getvalue().to_pybytes())
        lake.run()
    assert values(lake, "items") == [*days[0], *days[1]]
    assert all_ingested(lake)


def test_a_number_below_a_column_is_widened(shop: Callable[..., Lakehouse]) -> None:
    lake = shop(widen_types=True)
    lake.land("visits/1.json", lines({"id": 1, "at": {"n": 1, "m": "x"}, "all": [{"n": 1}]}, {"id": 2, "at": {"n": 2**53 + 1}}))
    lake.run()
    lake.land("visits/2.json", lines({"id": 3, "at": {"n": 1.5, "k": True}, "all": [{"n": 0.5}]}))
    lake.run()
    assert values(lake, "at", "all", "_rescued_data") == [
        {"id": 1, "at": {"n": 1.0, "m": "x"}, "all": [{"n": 1.0}]},
        {"id": 2, "_rescued_data": '{"at":{"n":9007199254740993}}'},
        {"id": 3, "at": {"n": 1.5, "k": True}, "all": [{"n": 0.5}]},
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "after"), [("at STRUCT<n: BIGINT>", "at STRING"), ("at STRING", "at STRUCT<n: BIGINT>")])
def test_a_declared_type_that_no_value_can_get_is_refused_and_no_delivery_is_set_aside(
    shop: Callable[..., Lakehouse], before: str, after: str
) -> None:
    record = {"at STRING": "there", "at STRUCT<n: BIGINT>": {"n": 1}}
    lake = shop(schema=f"id BIGINT, {before}")
    lake.land("visits/1.json", lines({"id": 1, "at": record[before]}))
    lake.run()
    lake = shop(schema=f"id BIGINT, {after}")
    lake.land("visits/2.json", lines({"id": 2, "at": record[after]}))
    with pytest.raises(SluiceError, match=r"'visits': its column 'at' .*sluice run shop --mode refresh --table visits"):
        lake.run()
    assert [row["state"] for row in lake.outcomes()] == [INGESTED, "waiting"]
