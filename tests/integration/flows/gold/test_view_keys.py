"""Views whose keys do not bound them, tables that have a key twice, empty texts in partitions, inputs that grow (I5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.conftest import Lakehouse, copy_roots, settings_at
from tests.few_rows import append_rows

from sluice.declare import Pipeline, Source, materialized_view
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.errors import SluiceError
from sluice.lake import table_creation
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.runs.execution import stages
from sluice.runs.execution.stages import StageOptions
from sluice.settings import Settings

pytestmark = pytest.mark.spark

PIPELINE = Pipeline(name="held", description="Views.", owner="tests", layers=("held.bronze", __name__))
DDL = "device INT, member STRING, city STRING, since INT, active BOOLEAN"


@materialized_view(reads="trackers", keys="who", recompute="keys")
def holders(trackers: DataFrame) -> DataFrame:
    """The device that a member has. Its key is a hash, so a change does not say which keys it affects; device and city are bounds."""
    return trackers.where("active").select(F.sha2("member", 256).alias("who"), "device", "city")


@materialized_view(reads="trackers", keys=("city", "since"), partition_by="city", recompute="keys")
def by_city(trackers: DataFrame) -> DataFrame:
    """How many devices each city has."""
    return trackers.groupBy("city", "since").agg(F.count(F.lit(1)).alias("devices"))


@materialized_view(reads="trackers", keys="device", recompute="keys")
def filled(trackers: DataFrame) -> DataFrame:
    """Every column there is."""
    return trackers.drop("active").na.fill(0)


class Lake:
    """A table of trackers, and views of it."""

    def __init__(self, settings: Settings, spark: SparkSession, *views: MaterializedView[...], made: bool = False) -> None:
        """made: whether the tables are there."""
        source = Source(name="trackers", format="json", path="trackers", schema=DDL, comment="Stands for a table.")
        self.workspace = Workspace(settings, build_declaration_graph(PIPELINE, [source, *views]), spark, "run")
        self.path = self.workspace.path("trackers")
        if not made:
            shape = TableShape(schema=table_creation.parse_ddl_schema(DDL), comment="", statistics=("device",))
            table_creation.create_table(spark, self.path, shape)

    def put(self, *rows: tuple[object, ...], ddl: str = DDL) -> None:
        if ddl == DDL:
            append_rows(self.path, ddl, rows)
            return
        frame = table_creation.make_inline_frame(self.workspace.session, rows, ddl).coalesce(1)
        frame.write.format("delta").mode("append").option("mergeSchema", "true").save(self.path)

    def run(self, *refreshed: str) -> dict[str, FlowReport]:
        mode = "refresh" if refreshed else "increment"
        inside = Workspace(self.workspace.settings, self.workspace.graph, self.workspace.session, "run", mode)
        try:
            return {
                report.flow: report
                for report in stages.run_pipeline_stage(inside, __name__.rsplit(".", 1)[-1], StageOptions(refreshed))
            }
        except FlowsFailed as failed:
            raise next(iter(failed.errors.values())) from None

    def table(self, name: str) -> DeltaTable:
        return DeltaTable.forPath(self.workspace.session, self.workspace.path(name))

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        inside = self.workspace
        return Lakehouse(inside.settings, inside.session, inside.graph).rows(name, *columns)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Settings:
    """A lake with `by_city` of two cities, to be copied."""
    lake = Lake(settings_at(tmp_path_factory.mktemp("first_run")), spark, by_city)
    lake.put((1, "a", "Rome", 1, True), (2, "b", "Bari", 1, True))
    lake.run()
    return lake.workspace.settings


@pytest.fixture
def two_cities(first_run: Settings, tmp_path: Path, spark: SparkSession) -> Lake:
    return Lake(copy_roots(first_run, tmp_path), spark, by_city, made=True)


def test_a_key_that_no_change_tells_of_is_given_once_or_the_run_fails(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, holders)
    lake.put((1, "ada", "Rome", 1, True))
    lake.run()
    lake.put((2, "ada", "Bari", 5, True))
    with pytest.raises(SluiceError, match=r"1 row has a key \(who\) that another row has too"):
        lake.run()
    assert lake.rows("holders", "device") == [(1,)]
    DeltaTable.forPath(spark, lake.path).update("device = 1", {"active": F.lit(False)})
    lake.run()
    assert lake.rows("holders", "device", "city") == [(2, "Bari")]


def test_a_stored_row_that_no_change_leads_to_makes_way(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, holders)
    lake.put((1, "ada", "Rome", 1, True), (2, "bob", "Rome", 1, True))
    lake.run()
    # As after a restore: the table has Ada elsewhere than her input says.
    lake.table("holders").update("device = 1", {"device": F.lit(7), "city": F.lit("Bari")})
    DeltaTable.forPath(spark, lake.path).update("device = 1", {"city": F.lit("Pisa")})
    report = lake.run()["holders"]
    assert lake.rows("holders", "device", "city") == [(1, "Pisa"), (2, "Rome")]
    assert report.recomputed == "full: a recomputed key also has a row outside the recomputed part"


@pytest.mark.thorough
def test_an_empty_text_in_a_partition_is_no_text(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, by_city)
    lake.put((1, "a", "Rome", 1, True), (2, "b", "", 1, True))
    lake.run()
    for device in (3, 4):
        lake.put((device, "c", "", 1, True))
        report = lake.run()["by_city"]
        assert (report.inserted, report.updated) == (0, 1)
    assert lake.rows("by_city", "city", "devices") == [("Rome", 1), (None, 3)]


@pytest.mark.thorough
@pytest.mark.parametrize("differs", [False, True])
def test_a_table_that_has_a_key_twice_is_written_anew_by_a_refresh(two_cities: Lake, differs: bool) -> None:
    lake = two_cities
    # The key is there twice, and once where the view has no row any more: two rows to delete have one key.
    twice = lake.table("by_city").toDF().where("city = 'Rome'")
    twice = twice.withColumn("city", F.lit("Pisa")).unionAll(twice.withColumn("city", F.lit("Pisa"))) if differs else twice
    twice.write.format("delta").mode("append").save(lake.workspace.path("by_city"))
    report = lake.run("by_city")["by_city"]
    assert lake.rows("by_city", "city", "devices") == [("Bari", 1), ("Rome", 1)]
    assert "its table had a key twice, and was rewritten" in report.notes


@pytest.mark.thorough
def test_a_key_that_is_there_twice_is_seen_where_the_number_of_rows_is_right(two_cities: Lake) -> None:
    lake = two_cities
    twice = lake.table("by_city").toDF().where("city = 'Rome'").withColumn("city", F.lit("Pisa"))
    twice.unionAll(twice).write.format("delta").mode("append").save(lake.workspace.path("by_city"))
    lake.put((3, "c", "Turin", 1, True), (4, "d", "Milan", 1, True))
    lake.run("by_city")
    assert lake.rows("by_city", "city", "devices") == [("Bari", 1), ("Milan", 1), ("Rome", 1), ("Turin", 1)]


def test_a_column_that_an_input_gets_is_in_all_rows_and_one_that_is_not_used_changes_nothing(
    settings: Settings, spark: SparkSession
) -> None:
    lake = Lake(settings, spark, filled, by_city)
    lake.put((1, "a", "Rome", 1, True), (2, "b", "Bari", 1, True))
    lake.run()
    lake.put((1000, "c", "Rome", 9, True, 80), ddl=f"{DDL}, battery INT")
    reports = lake.run()
    assert lake.rows("filled", "device", "battery") == [(1, 0), (1000, 80), (2, 0)]
    assert reports["filled"].recomputed == "full: what it uses of its inputs changed"
    assert (reports["by_city"].recomputed or "").startswith("keys")
