"""From every version of a table `sluice history` leads to the deliveries that it came from, as ranges, through views too."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.commands import use_roots_of
from tests.conftest import Lakehouse

from sluice.cli import main
from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.lake.commit_marks import merge_into_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.slow  # unit/lake/test_delivery_origins.py holds the same without Spark
DATA = ("MERGE", "WRITE", "CREATE OR REPLACE TABLE AS SELECT", "STREAMING UPDATE", "REPLACE TABLE AS SELECT")
sales = Source(name="sales", schema="id INT, town STRING, amount INT")
towns = Source(name="towns", schema="town STRING, land STRING")


@table(reads="sales", keys="id")
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "town", "amount")


@table(reads="towns", keys="town")
def town(towns: DataFrame) -> DataFrame:
    """A town."""
    return towns.select("town", "land")


@materialized_view(reads=("sale", "town"), keys="town", recompute="keys")
def of_town(sale: DataFrame, town: DataFrame) -> DataFrame:
    """What a town spends."""
    return sale.join(town, "town").groupBy("town", "land").agg(F.sum("amount").alias("amount"))


@materialized_view(reads="of_town", keys="land", recompute="keys")
def of_land(of_town: DataFrame) -> DataFrame:
    """What a land spends."""
    return of_town.groupBy("land").agg(F.sum("amount").alias("amount"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    # It bears the name of a pipeline that is there, by which the command line finds it.
    pipeline = Pipeline(name="gym", description="Sales.", owner="t", layers=("gym.bronze", __name__))
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, [sales, towns, sale, town, of_town, of_land]))


def history(lake: Lakehouse, name: str, capsys: pytest.CaptureFixture[str]) -> list[tuple[Any, Any]]:
    """Inputs and deliveries of the versions that hold data, newest first."""
    with pytest.MonkeyPatch.context() as patch:
        use_roots_of(patch, lake.settings)
        with pytest.raises(SystemExit) as ended:
            main(("history", f"gym.{name}", "--json"))
    assert ended.value.code == 0
    versions = json.loads(capsys.readouterr().out.splitlines()[-1])["versions"]
    return [(row["inputs"], row["deliveries"]) for row in versions if row["operation"] in DATA]


def test_every_version_leads_to_its_deliveries(lake: Lakehouse, capsys: pytest.CaptureFixture[str]) -> None:
    lake.land("sales/1.jsonl", '{"id": 1, "town": "Rome", "amount": 1}\n')
    lake.land("sales/2.jsonl", '{"id": 2, "town": "Bari", "amount": 2}\n')
    lake.land("towns/1.jsonl", '{"town": "Rome", "land": "Lazio"}\n{"town": "Bari", "land": "Apulia"}\n')
    lake.run()
    numbers = {(row["source"], row["file"]): row["delivery"] for row in lake.outcomes()}
    assert sorted(numbers.values()) == [1, 2, 3]
    of_sales = ranges_text(numbers, "sales")
    assert history(lake, "sale", capsys) == [(None, of_sales)], "the first fold too"
    assert [deliveries for _, deliveries in history(lake, "of_town", capsys)] == ["1 to 3"]
    assert [deliveries for _, deliveries in history(lake, "of_land", capsys)] == ["1 to 3"], "through a view"

    lake.land("sales/3.jsonl", '{"id": 3, "town": "Rome", "amount": 4}\n')
    lake.run()
    assert history(lake, "sale", capsys)[0] == (None, "4")
    newest, inputs = history(lake, "of_land", capsys)[0], history(lake, "of_town", capsys)[0]
    assert newest[1] == inputs[1] == "4" and newest[0].startswith("of_town ") and "sale " in inputs[0] and "town " in inputs[0]


def ranges_text(numbers: dict[Any, int], source: str) -> str:
    ranges = merge_into_ranges(number for (of, _), number in numbers.items() if of == source)
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in ranges)
