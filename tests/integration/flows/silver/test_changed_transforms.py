"""A silver table after its transform was changed, while nothing asked for a refresh."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.runs.status.stale import find_stale_intervals
from sluice.verification.verify import verify_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="club", description="A club.", owner="tests", layers=("club.bronze", __name__))
PEOPLE = Source(
    name="people",
    format="json",
    path="people",
    redelivery="replace",
    comment="People.",
    schema="id BIGINT, name STRING, city STRING, at BIGINT",
)


def declare(shift: int = 0, columns: tuple[str, ...] = ("name", "city", "at")) -> Graph:
    """The pipeline whose one table has these columns, and keys that are shifted."""

    @table(reads="people", keys="id", sequence_by="at")
    def person(people: DataFrame) -> DataFrame:
        """People."""
        return people.select((F.col("id") + shift).alias("id"), *columns)

    return build_declaration_graph(PIPELINE, [PEOPLE, person])


def deliver(lake: Lakehouse, file: str, day: int, *people: tuple[int, str]) -> None:
    lines = (json.dumps({"id": id, "name": name, "city": "Rome", "at": 1}) for id, name in people)
    lake.land(f"people/{file}.json", "\n".join(lines) + "\n", at=datetime(2026, 1, day, 12, tzinfo=UTC).timestamp())


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Lakehouse:
    return Lakehouse(settings, spark, declare())


def test_a_column_that_the_transform_no_longer_gives_is_null_in_new_rows(lake: Lakehouse) -> None:
    deliver(lake, "1", 1, (1, "a"), (2, "b"))
    lake.run()
    lake.graph = declare(columns=("name", "at"))
    deliver(lake, "2", 2, (2, "a"), (3, "c"))
    lake.run()
    rows = {id: (name, city) for id, name, city in lake.rows("person", "id", "name", "city")}
    assert rows[1] == ("a", "Rome") and rows[3] == ("c", None) and rows[2] in (("b", "Rome"), ("a", None))


def test_a_replay_of_a_file_that_came_again_leaves_no_row_of_its_earlier_delivery(lake: Lakehouse) -> None:
    deliver(lake, "1", 1, (1, "a"))
    lake.run()
    deliver(lake, "1", 5, (1, "a"), (2, "b"))
    lake.run()
    lake.graph = declare(shift=100)
    assert [str(one) for one in find_stale_intervals(lake.lake, lake.graph.tables["person"])] != []
    lake.replay("2026-01-05", "2026-01-05")
    assert lake.rows("person", "id", "name") == [(101, "a"), (102, "b")]
    assert find_stale_intervals(lake.lake, lake.graph.tables["person"]) == []
    assert all(one.equal for one in verify_tables(lake.settings, lake.spark, lake.graph))
