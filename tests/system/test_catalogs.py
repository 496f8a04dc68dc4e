"""Tables of a lake by name in a real Hive metastore on PostgreSQL: a plain Spark with Hive support reads `gym.device_day`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pymetastore.hive_metastore import ttypes
from tests.commands import use_roots_of
from tests.conftest import settings_at
from tests.fetched_jars import STATE
from tests.system import metastore as metastores
from tests.system.deployment import end_process
from tests.system.metastore import Metastore

from sluice.catalog_address import parse_catalog_address
from sluice.catalogs.catalog import PIPELINE
from sluice.catalogs.hive import HiveMetastore, build_hive_table, open_hive_metastore
from sluice.catalogs.registration import plan_catalog_names, register_pipeline
from sluice.cli import main
from sluice.declare import Pipeline, Source, materialized_view, view
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.system, pytest.mark.spark, pytest.mark.filterwarnings("default")]

ANSWER = "the answer: "
QUERIES = f"""
import json, sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.sql.catalogImplementation", "hive")
    .config("spark.hadoop.hive.metastore.uris", sys.argv[1])
    .config("spark.sql.warehouse.dir", sys.argv[2])
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
for line in sys.stdin:
    told = [[row.asDict(recursive=True) for row in spark.sql(query).collect()] for query in json.loads(line)]
    print({ANSWER!r} + json.dumps(told, default=str), flush=True)
"""
"""A program that knows nothing of Sluice: a Spark of somebody else, with Delta and the address of the metastore. A line asks queries."""

Ask = Callable[..., list[list[dict[str, Any]]]]
"""What the other Spark answers to each query."""


@pytest.fixture(scope="module")
def away() -> Iterator[Metastore]:
    """A metastore that is not started."""
    yield from metastores.prepared()


@pytest.fixture(scope="module")
def metastore(away: Metastore) -> Metastore:
    away.start()
    return away


@contextmanager
def connected(metastore: Metastore) -> Iterator[HiveMetastore]:
    address = parse_catalog_address(metastore.url)
    assert address is not None
    with open_hive_metastore(address) as opened:
        yield opened


@pytest.fixture
def catalog(metastore: Metastore) -> Iterator[HiveMetastore]:
    with connected(metastore) as opened:
        yield opened


@pytest.fixture(scope="module")
def ask_other_spark(away: Metastore) -> Iterator[Ask]:
    command = [sys.executable, "-c", QUERIES, away.url, str(away.warehouse)]
    told = {name: value for name, value in os.environ.items() if not name.startswith(("SLUICE_", "SPARK_", "PYSPARK_"))}
    told |= {"SPARK_DIST_CLASSPATH": f"{STATE}/jars/*", "SPARK_LOCAL_IP": "127.0.0.1"}
    log = away.folder / "other-spark.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, env=told, cwd=away.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as other,
    ):
        assert other.stdin and other.stdout
        asked, answered = other.stdin, other.stdout

        def ask(*queries: str) -> list[list[dict[str, Any]]]:
            print(json.dumps(queries), file=asked, flush=True)
            answer = next((line for line in answered if line.startswith(ANSWER)), None)
            assert answer is not None, log.read_text()[-3000:]
            rows: list[list[dict[str, Any]]] = json.loads(answer.removeprefix(ANSWER))
            return rows

        yield ask
        asked.close()
        end_process(other, 120)


def sluice(settings: Settings, metastore: Metastore, *command: str) -> int:
    """The exit code of a command over a lake, whose tables are to have names in the metastore."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        use_roots_of(patch, settings)
        patch.setenv("SLUICE_CATALOG", metastore.url)
        main(command)
    return int(ended.value.code or 0)


def make_gym(folder: Path) -> Settings:
    """A lake that has the tables which the gym publishes, and no others."""
    settings = settings_at(folder)
    graph = load_declaration_graph(settings, "gym")
    rows = {"device_id": [1, 2], "date": [date(2026, 1, 1), None], "average": [71.5, None], "at": [datetime.now(UTC), None]}
    for name in graph.pipeline.publishes:
        write_deltalake(PipelineLake(settings, graph).path(name), pa.table(rows), description=graph[name].comment)
    return settings


def test_a_run_gives_published_tables_their_names_and_makes_up_for_a_catalog_that_was_away(
    away: Metastore, ask_other_spark: Ask, tmp_path: Path, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    metastore, settings = away, make_gym(tmp_path)
    metastore.stop()
    assert sluice(settings, metastore, "run", "gym", "--stage", "propagate_deletions") == 0, "a catalog fails no run"
    assert f"catalog {metastore.url}: it cannot be used now; the next run registers what is missing" in capfd.readouterr().out
    metastore.start()
    assert sluice(settings, metastore, "run", "gym", "--stage", "propagate_deletions") == 0
    assert f"catalog {metastore.url}: registered device_day, gym_stats, workout_summary" in capfd.readouterr().out
    assert sluice(settings, metastore, "run", "gym", "--stage", "propagate_deletions") == 0
    assert "catalog" not in capfd.readouterr().out, "nothing is said, since nothing changed"

    tables, counted, described = ask_other_spark(
        "SHOW TABLES IN gym", "SELECT count(*) AS n FROM gym.device_day", "DESCRIBE EXTENDED gym.device_day"
    )
    assert [row["tableName"] for row in tables] == ["device_day", "gym_stats", "workout_summary"]
    table = spark.read.format("delta").load(str(Path(settings.lake) / "gym" / "gold" / "device_day"))
    assert counted == [{"n": 2}]
    said = {row["col_name"]: row["data_type"] for row in described}
    assert said["Provider"] == "delta" and "How many readings a device took on a day" in said["Comment"]
    with connected(metastore) as catalog:
        columns = [(one.name, one.type) for one in catalog.list_names("gym")["device_day"].entry.sd.cols]
    assert columns == [(name, kind) for name, kind in table.dtypes], "who does not read the log sees the columns"


def test_the_command_says_what_has_a_name_and_refuses_what_belongs_to_another_lake(
    metastore: Metastore, catalog: HiveMetastore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings, other = make_gym(tmp_path / "one"), make_gym(tmp_path / "other")
    for one in catalog.list_names("gym").values():
        catalog.remove_name("gym", one)
    assert sluice(settings, metastore, "catalog", "gym", "--json") == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    states = {row["name"]: row["state"] for row in told["names"]}
    assert (states["gym.device_day"], states["gym.member_keys"]) == ("registered", "no name")

    assert sluice(other, metastore, "catalog", "gym") == 1
    assert "gym.device_day" in (said := capfd.readouterr().out) and "--take-over" in said
    assert settings.lake in catalog.list_names("gym")["device_day"].location, "the first lake's name is as it was"
    assert sluice(other, metastore, "catalog", "gym", "--take-over") == 0
    assert other.lake in catalog.list_names("gym")["device_day"].location


orders = Source(name="orders", format="json", path="orders", pattern="*.jsonl", comment="As delivered.")


@materialized_view(reads="orders", keys="day")
def day(orders: DataFrame) -> DataFrame:
    """Orders by day."""
    return orders


@materialized_view(reads="orders", keys="day")
def month(orders: DataFrame) -> DataFrame:
    """Orders by month."""
    return orders


many = view(name="many", reads="day", sql="SELECT id, name FROM day WHERE id > 1", comment="Days of many orders.")
most = view(name="most", reads="many", sql="WITH day AS (SELECT max(id) AS id FROM many) SELECT id, 'it''s' AS said FROM day")


def shop(*declared: Any) -> Graph:
    return build_declaration_graph(
        Pipeline(name="shop", description="A shop.", owner="t", layers=("shop.bronze", __name__)), [orders, *declared]
    )


def make_table(settings: Settings, graph: Graph, table: str, /, **columns: list[Any]) -> None:
    write_deltalake(PipelineLake(settings, graph).path(table), pa.table(columns), mode="overwrite", schema_mode="overwrite")


def test_views_and_awkward_columns_read_the_same_by_name(
    metastore: Metastore, ask_other_spark: Ask, settings: Settings, spark: SparkSession
) -> None:
    settings = replace(settings, catalog=parse_catalog_address(metastore.url))
    graph = shop(day, many, most)
    nested = [{"größe des Raums": 1, "b:c": [1.5]}, None, None]
    make_table(settings, graph, "day", id=[1, 2, 3], name=["a", "b", None], _row=[1, 2, 3], **{"a column, with: signs": nested})
    without_spark = register_pipeline(PipelineLake(settings, graph))
    assert {one.name: one.state for one in without_spark} == {"day": "registered", "many": "waiting", "most": "waiting"}
    states = {one.name: (one.state, one.why) for one in register_pipeline(PipelineLake(settings, graph), spark)}
    assert states == {"day": ("up to date", ""), "many": ("registered", ""), "most": ("registered", "")}
    assert {one.state for one in register_pipeline(PipelineLake(settings, graph), spark)} == {"up to date"}
    rows, seen, ends, said = ask_other_spark(
        "SELECT * FROM shop.day ORDER BY id",
        "SELECT * FROM shop.many ORDER BY id",
        "SELECT * FROM shop.most",
        "DESCRIBE EXTENDED shop.many",
    )
    assert [row["id"] for row in rows] == [1, 2, 3] and "größe des Raums" in json.dumps(rows, ensure_ascii=False)
    assert seen == [{"id": 2, "name": "b"}, {"id": 3, "name": None}]
    assert ends == [{"id": 3, "said": "it's"}]
    assert {"Type": "VIEW", "Comment": "Days of many orders."}.items() <= {
        row["col_name"]: row["data_type"] for row in said
    }.items()


def test_what_changes_is_renewed_and_what_goes_is_taken_away_but_never_what_others_have(
    metastore: Metastore, catalog: HiveMetastore, settings: Settings
) -> None:
    settings = replace(settings, catalog=parse_catalog_address(metastore.url))
    for one in catalog.list_names("shop").values():
        catalog.remove_name("shop", one)
    graph = shop(day, month)
    catalog.create_database("shop", "Already there.")
    make_table(settings, graph, "day", id=[1])
    make_table(settings, graph, "month", id=[1])
    theirs = build_hive_table(plan_catalog_names(PipelineLake(settings, graph)).tables["month"])
    theirs.parameters.pop(PIPELINE)
    catalog._client.create_table(theirs)
    theirs.tableName = "by_hand"
    catalog._client.create_table(theirs)

    first = {one.name: one for one in register_pipeline(PipelineLake(settings, graph))}
    assert {name: one.state for name, one in first.items()} == {"day": "registered", "month": "refused"}
    assert "'shop.month' from somebody else" in first["month"].why

    entry = catalog.list_names("shop")["day"].entry
    entry.parameters["team"] = "tills"
    catalog._client.alter_table_with_environment_context("shop", "day", entry, ttypes.EnvironmentContext({}))
    make_table(settings, graph, "day", id=[1], total=[2.5])
    assert {one.name: one.state for one in register_pipeline(PipelineLake(settings, graph))}["day"] == "renewed"
    renewed = catalog.list_names("shop")["day"].entry
    assert [one.name for one in renewed.sd.cols] == ["id", "total"] and renewed.parameters["team"] == "tills"

    gone = {one.name: one.state for one in register_pipeline(PipelineLake(settings, shop(month)))}
    assert gone == {"day": "removed", "month": "refused"}
    assert set(catalog.list_names("shop")) == {"month", "by_hand"}
    assert (Path(PipelineLake(settings, graph).path("day")) / "_delta_log").is_dir(), "a name goes, the table stays"
