"""Declared layout on real tables: made with it, brought to what is there in one commit, never twice, and readable by who is not Spark."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as RustTable
from deltalake import QueryBuilder, write_deltalake
from tests.conftest import Lakehouse, copied_lakehouse, settings_at

from sluice.declare import F, Layout, Pipeline, Source, Watermark, auto_cdc, materialized_view, table, windowed
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import SluiceError
from sluice.lake import commit_history, deletion_vectors, file_statistics, log, log_files, small_writes
from sluice.lake.file_statistics import PartitionFiles
from sluice.lake.layout import JoinedSizes, LayoutDecision, decide_layout
from sluice.lake.written_alike import is_written_alike
from sluice.locations import locate, remove_folder
from sluice.optimize import lay_out_as_decided
from sluice.runs.copies import cloning
from sluice.runs.execution import clones, upkeep
from sluice.runs.planning import plan
from sluice.table_properties import (
    CHANGE_FEED,
    DELETION_VECTORS,
    LOG_RETENTION,
    RETENTION,
    STATISTICS,
    TARGET_FILE_SIZE,
    parse_statistics_columns,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

SCHEMA = "id BIGINT, city STRING, amount BIGINT, at TIMESTAMP"
KEPT = Layout(keep_log="60 days", target_file_size="2m")
sales = Source(name="sales", format="csv", path="sales", comment="Sales.", schema=SCHEMA)
KEPT_AS_DECLARED = {LOG_RETENTION: "interval 60 days", TARGET_FILE_SIZE: "2000000"}


@table(reads="sales", keys="id", sequence_by="at")
def sale(sales: DataFrame) -> DataFrame:
    """A sale."""
    return sales.select("id", "city", "amount", "at")


@materialized_view(reads="sale", keys="city", recompute="keys")
def by_city(sale: DataFrame) -> DataFrame:
    """Sales of a city."""
    return sale.groupBy("city").agg(F.sum("amount").alias("amount"))


@windowed(reads="sales", keys=("city", "begin"), watermark=Watermark("at", "1 hour"), layout=KEPT, cluster_by="begin")
def hourly(sales: DataFrame) -> DataFrame:
    """Sales of an hour."""
    per_hour = sales.groupBy("city", F.window("at", "1 hour").alias("hour")).agg(F.count("*").alias("sales"))
    return per_hour.select("city", F.col("hour.start").alias("begin"), "sales")


members = auto_cdc("members", reads="sales", keys="id", sequence_by="at", layout=KEPT, cluster_by="amount")
PIPELINE = Pipeline(name="shop", description="s", owner="t", layers=("shop.bronze", "shop.silver", "shop.gold"))
ORDERS: list[tuple[str, ...]] = [(), ("id",)]


@pytest.fixture
def bare(settings: Settings, spark: SparkSession) -> Lakehouse:
    """A lake without a table."""
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [sales]))


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """A lake whose tables were made with no declared layout, to be copied."""
    settings = settings_at(tmp_path_factory.mktemp("first_run"))
    made = declaring(Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [sales])))
    land(made, 0)
    made.run()
    return made


@pytest.fixture
def lake(first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    return copied_lakehouse(first_run, tmp_path)


@pytest.fixture(scope="module")
def parted_run(first_run: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """The same with a partitioned table and no view, to be copied."""
    copy = copied_lakehouse(first_run, tmp_path_factory.mktemp("parted_run"))
    remove_folder(locate(copy.workspace().path("sale")))
    parted = declaring_table(copy, partition_by="city")
    parted.run("silver")
    return parted


@pytest.fixture
def parted(parted_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    return copied_lakehouse(parted_run, tmp_path)


def declaring(
    lake: Lakehouse, *others: Any, of_source: Layout | None = None, of_view: Layout | None = None, **options: Any
) -> Lakehouse:
    """The same lake with other declarations. options: of the table."""
    return _declaring(
        lake,
        replace(sales, layout=of_source),
        replace(sale, declared_in="shop.silver", **options),
        replace(by_city, declared_in="shop.gold", layout=of_view),
        *(replace(one, declared_in="shop.silver") for one in others),
    )


def declaring_table(lake: Lakehouse, one: Any = sale, **options: Any) -> Lakehouse:
    """The same lake with one table and no view. options: of the table."""
    return _declaring(lake, sales, replace(one, declared_in="shop.silver", **options))


def _declaring(lake: Lakehouse, *declared: Any) -> Lakehouse:
    return Lakehouse(lake.settings, lake.spark, build_declaration_graph(PIPELINE, declared), lake.landed)


def land(lake: Lakehouse, first: int, number: int = 20, cities: str = "abc") -> None:
    rows = "".join(f"{n},{cities[n % len(cities)]},{n % 7},2026-11-0{1 + n % 9} 10:00:00\n" for n in range(first, first + number))
    lake.land(f"sales/{first}.csv", f"id,city,amount,at\n{rows}")


def append_other_keys(path: str) -> None:
    """Appends all rows of a table once more, under other keys."""
    found = QueryBuilder().register("t", RustTable(path)).execute("SELECT * REPLACE (id + 1000 AS id) FROM t").read_all()
    write_deltalake(path, pa.table(found).cast(pa.schema(RustTable(path).schema().to_arrow())), mode="append")


def properties(lake: Lakehouse, name: str) -> dict[str, str]:
    return log.read_table_properties(lake.workspace().path(name))


def count_by_delta_rs(path: str) -> int:
    """Through delta-rs' own engine, which knows deletion vectors; its Arrow data sets do not."""
    found = QueryBuilder().register("t", RustTable(path)).execute("SELECT count(*) AS n FROM t")
    return int(pa.table(found.read_all())["n"][0].as_py())


def operations(lake: Lakehouse, name: str) -> list[str]:
    return [str(one["operation"]) for one in commit_history.read_commit_history(lake.workspace().path(name))]


@pytest.mark.parametrize(
    ("kind", "clustered"),
    [pytest.param(clones.SHALLOW, ("amount",), id="shallow"), pytest.param(clones.COPY, (), id="copy", marks=pytest.mark.slow)],
)
def test_tables_are_made_with_what_is_declared_and_a_second_run_commits_nothing(
    bare: Lakehouse, tmp_path: Path, kind: str, clustered: tuple[str, ...]
) -> None:
    all_of_it = Layout(retain="14 days", keep_log="60 days", statistics=("id", "amount"), target_file_size="2m")
    made = declaring(
        bare,
        hourly,
        members,
        of_source=replace(KEPT, statistics="id"),
        of_view=Layout(change_feed=False, deletion_vectors=True),
        layout=all_of_it,
        cluster_by="amount",
    )
    land(made, 0)
    made.run()
    assert properties(made, "sale") | KEPT_AS_DECLARED == properties(made, "sale")
    assert (properties(made, "sale")[RETENTION], properties(made, "sale")[STATISTICS]) == ("interval 14 days", "id,amount")
    assert properties(made, "sales") | KEPT_AS_DECLARED == properties(made, "sales")
    assert properties(made, "sales")[STATISTICS] == "_delivery,_ingested_at,id"
    assert (properties(made, "by_city")[CHANGE_FEED], properties(made, "by_city")[DELETION_VECTORS]) == ("false", "true")
    for name, column in (("sale", "amount"), ("hourly", "begin"), ("members", "amount")):
        path = made.workspace().path(name)
        assert log_files.read_cluster_columns(path) == (column,) and KEPT_AS_DECLARED.items() <= properties(made, name).items()
        assert not is_written_alike(RustTable(path)), "delta-rs must not even try"
    made.run("optimize")
    laid_out = made.versions()
    made.run()
    made.run("optimize")
    assert made.versions() == laid_out
    assert count_by_delta_rs(made.workspace().path("sale")) == len(made.rows("sale")) == 20
    assert count_by_delta_rs(made.workspace().path("by_city")) == len(made.rows("by_city")) == 3

    cloning.clone_tables(made.lake, str(tmp_path / kind), kind, ("sale", "by_city"))
    clone = Lakehouse(replace(made.settings, lake=str(tmp_path / kind)), made.spark, made.graph)
    assert clone.rows("sale") == made.rows("sale") and clone.rows("by_city") == made.rows("by_city")
    assert properties(clone, "sale")[TARGET_FILE_SIZE] == "2000000"
    assert log_files.read_cluster_columns(clone.workspace().path("sale")) == clustered


@pytest.mark.thorough
def test_a_layout_comes_to_a_table_that_is_there_in_one_commit_and_goes_again(lake: Lakehouse) -> None:
    rows, before = lake.rows("sale"), lake.versions()
    said = declaring(
        lake,
        of_source=Layout(change_feed=False, statistics="id"),
        of_view=Layout(deletion_vectors=True),
        layout=Layout(retain="14 days", keep_log="60 days", statistics="id", target_file_size="2m"),
    )
    said.run()
    after = said.versions()
    assert {name: (after[name] or 0) - (before[name] or 0) for name in ("sales", "sale", "by_city")} == {
        "sales": 1,
        "sale": 1,
        "by_city": 1,
    }
    assert [operations(said, name)[0] for name in ("sales", "sale", "by_city")] == ["SET TBLPROPERTIES"] * 3
    writers = {
        name: commit_history.read_commit_history(said.workspace().path(name), 1)[0]["writer"] for name in ("sale", "by_city")
    }
    assert writers == {"sale": commit_history.DELTA_RS, "by_city": commit_history.SPARK}, "the second one needs another protocol"
    assert (properties(said, "sales")[CHANGE_FEED], properties(said, "sales")[STATISTICS]) == (
        "false",
        "_delivery,_ingested_at,id",
    )
    assert properties(said, "sale") | KEPT_AS_DECLARED == properties(said, "sale")
    assert (properties(said, "sale")[RETENTION], properties(said, "sale")[STATISTICS]) == ("interval 14 days", "id")
    assert said.rows("sale") == rows

    # A row of the view is updated: its file stays, and says which of its rows is gone.
    land(said, 100, cities="a")
    said.run()
    for name in ("sales", "sale", "by_city"):
        new = (said.versions()[name] or 0) - (after[name] or 0)
        assert new > 0 and "SET TBLPROPERTIES" not in operations(said, name)[:new], f"{name}: once"
    view = said.workspace().path("by_city")
    assert deletion_vectors.count_files_with_deleted_rows(view) > 0
    state = log.read_table_state(view)
    assert state is not None and state.rows is None, "by the log alone there would be more"
    assert said.rows("by_city") == [tuple(row) for row in expected_by_city(said)]
    assert count_by_delta_rs(said.workspace().path("by_city")) == 3
    assert not any("only marked" in note for note in plan.plan_run(said.lake).notes)

    back = declaring(said)
    back.run()
    assert TARGET_FILE_SIZE not in properties(back, "sale") and properties(back, "sale")[RETENTION] == "interval 7 days"
    assert (properties(back, "sales")[CHANGE_FEED], properties(back, "by_city")[DELETION_VECTORS]) == ("true", "false")
    notes = plan.plan_run(back.lake).notes
    assert any("1 file of 'by_city' holds rows that are only marked as deleted" in note for note in notes), notes
    versions = back.versions()
    back.run()
    assert back.versions() == versions and deletion_vectors.count_files_with_deleted_rows(view) > 0, "only when asked"
    shown = back.rows("by_city")
    (asked,) = upkeep.optimize_tables_now(back.workspace(), ["by_city"])
    assert "1 file rewritten, whose deleted rows were only marked" in asked.notes
    assert deletion_vectors.count_files_with_deleted_rows(view) == 0 and back.rows("by_city") == shown
    assert not any("only marked" in note for note in plan.plan_run(back.lake).notes)


def expected_by_city(lake: Lakehouse) -> list[Any]:
    frame = lake.spark.read.format("delta").load(lake.workspace().path("sale"))
    return sorted(frame.groupBy("city").agg(F.sum("amount")).collect(), key=repr)


def test_a_table_becomes_clustered_without_a_rewrite_and_its_files_when_asked(lake: Lakehouse) -> None:
    rows, path = lake.rows("sale"), lake.workspace().path("sale")
    append_other_keys(path)
    assert is_written_alike(RustTable(path))
    clustered = declaring_table(lake, cluster_by=("amount",), layout=KEPT)
    notes = plan.plan_run(clustered.lake).notes
    assert any("clustered by amount, before by nothing" in note for note in notes), notes
    files = set(RustTable(path).file_uris())
    clustered.run("silver")
    assert log_files.read_cluster_columns(path) == ("amount",) and set(RustTable(path).file_uris()) == files
    assert not is_written_alike(RustTable(path)) and not small_writes.is_appended_by_delta_rs(
        path, clustered.spark.read.format("delta").load(path).schema, small_writes.RowsSize(1, 10)
    )
    land(clustered, 100)
    clustered.run("bronze", "silver")
    assert {one["writer"] for one in commit_history.read_commit_history(path, 1)} == {commit_history.SPARK}
    planned = plan.plan_run(clustered.lake)
    assert (
        "clustered by amount: OPTIMIZE is by Spark and writes all 3 files, " in planned.layouts["sale"].why
        and planned.layouts["sale"].needed
    )
    report = clustered.run("optimize")["sale"]
    assert report.committed and any(note.endswith("by amount") for note in report.notes), report.notes
    assert clustered.run("optimize")["sale"].committed is False

    other = declaring_table(clustered, cluster_by="id", layout=KEPT)
    other.run("silver")
    assert log_files.read_cluster_columns(path) == ("id",)
    assert any("is declared to be clustered by id" in note for note in plan.plan_run(other.lake).notes)
    assert other.run("optimize")["sale"].committed is False, "not by itself"
    (asked,) = upkeep.optimize_tables_now(other.workspace(), ["sale"])
    assert asked.committed and any(note.endswith("by id") for note in asked.notes)
    assert not any("clustered" in note for note in plan.plan_run(other.lake).notes)
    assert len(other.rows("sale")) == 60 and set(rows) <= set(other.rows("sale"))

    # A refresh writes it anew, and it stays clustered; Delta's inventory of files knows such a table as any other.
    other.run("silver", mode="refresh", tables=["sale"])
    assert log_files.read_cluster_columns(path) == ("id",) and len(other.rows("sale")) == 40
    upkeep.vacuum_named_table(other.workspace(), "sale")

    none = declaring_table(other, zorder_by="id")
    none.run("silver")
    assert log_files.read_cluster_columns(path) == ()
    assert any("Spark alone writes it" in note for note in plan.plan_run(none.lake).notes)
    upkeep.optimize_tables_now(none.workspace(), ["sale"])
    assert len(none.rows("sale")) == 40
    parted = declaring_table(none, partition_by="city")
    with pytest.raises(SluiceError, match="Remove its folder and run again"):
        parted.run("silver", mode="refresh", tables=["sale"])
    remove_folder(locate(path))
    parted.run("silver")
    assert log.read_partition_columns(path) == ["city"] and len(parted.rows("sale")) == 40


def sale_with_fee(sales: DataFrame) -> DataFrame:
    """A sale, with one more column."""
    return sales.select("id", "city", "amount", "at", (F.col("amount") * 2).alias("fee"))


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changed",
    [{"cluster_by": "city"}, {"layout": Layout(statistics=("id", "city"), deletion_vectors=True)}],
    ids=["clusters", "statistics"],
)
def test_partitions_give_way_by_a_refresh_and_have_statistics_from_then_on(parted: Lakehouse, changed: dict[str, Any]) -> None:
    """Delta takes no statistics of a partition, and with them no later change of the table's properties or columns."""
    path, rows = parted.workspace().path("sale"), parted.rows("sale", "id")
    later = declaring_table(parted, function=sale_with_fee, **changed)
    later.run("silver")
    assert log.read_partition_columns(path) == ["city"] and "fee" in log.read_column_names(path)
    assert log_files.read_cluster_columns(path) == ()
    assert "city" not in parse_statistics_columns(properties(later, "sale")[STATISTICS])
    notes = plan.plan_run(later.lake).notes
    assert any("is partitioned by city, and declared by nothing" in note for note in notes), notes
    later.run("silver", mode="refresh", tables=["sale"])
    assert log.read_partition_columns(path) == [] and later.rows("sale", "id") == rows
    assert log_files.read_cluster_columns(path) == (("city",) if "cluster_by" in changed else ())
    assert "city" in parse_statistics_columns(properties(later, "sale")[STATISTICS])
    versions = later.versions()
    later.run("silver")
    assert later.versions() == versions


@table(reads="sales", keys="id", sequence_by="at")
def strange_names(sales: DataFrame) -> DataFrame:
    """Columns whose names are no plain ones."""
    return sales.select("id", F.col("city").alias("größe"), F.col("amount").alias("o'x-y"), "at")


@pytest.mark.thorough
def test_columns_with_any_name_have_statistics_and_can_lay_out_files(lake: Lakehouse) -> None:
    made = declaring_table(lake, strange_names)
    made.run("silver")
    path, wanted = made.workspace().path("strange_names"), {"id", "at", "größe", "o'x-y"}
    assert wanted <= set(parse_statistics_columns(properties(made, "strange_names")[STATISTICS]))
    land(made, 100)
    made.run("bronze", "silver")
    ends = pa.table(RustTable(path).get_add_actions(flatten=True)).column_names
    assert {f"min.{name}" for name in wanted} <= set(ends)
    assert len(made.rows("strange_names")) == 40

    # Spark alone sets these, and so writes the names into a statement.
    laid_out = Layout(deletion_vectors=True, statistics=("id", "größe", "o'x-y"))
    said = declaring_table(made, strange_names, layout=laid_out, cluster_by=("o'x-y",))
    said.run("silver")
    assert parse_statistics_columns(properties(said, "strange_names")[STATISTICS]) == ["id", "größe", "o'x-y"]
    assert log_files.read_cluster_columns(path) == ("o'x-y",)
    versions = said.versions()
    said.run("silver")
    assert said.versions() == versions and len(said.rows("strange_names")) == 40


def files_by_rows(path: str) -> dict[str, int | None]:
    return {one.path: one.rows for one in file_statistics.list_data_files(path)}


@pytest.fixture(scope="module")
def half_marked(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A table of files of which Spark marked rows as deleted: of one partition half of them, of the other fewer."""
    path = tmp_path_factory.mktemp("marked") / "t"
    for first, end, part in ((0, 100_000, 1), (0, 1_000, 2), (1_000, 1_300, 2), (2_000, 2_030, 1), (3_000, 3_030, 1)):
        rows = pa.table({"id": pa.array(range(first, end), pa.int64()), "part": pa.array([part] * (end - first), pa.int32())})
        write_deltalake(path, rows, mode="append", partition_by=["part"])
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{DELETION_VECTORS}' = 'true')")
    for zorder in ORDERS:
        assert not decide_layout(str(path), zorder).needed, decide_layout(str(path), zorder).why
    mark_share_of_second(spark, str(path), 0.5)
    spark.sql(f"DELETE FROM delta.`{path}` WHERE part = 1 AND id < 12000 AND id % 10 < 9").collect()
    return path


def mark_share_of_second(spark: SparkSession, path: str, share: float) -> None:
    """Deletes that share of the rows of the second partition, of both of its files."""
    spark.sql(f"DELETE FROM delta.`{path}` WHERE part = 2 AND id % 1000 < {share} * if(id < 1000, 1000, 300)").collect()


@pytest.fixture
def marked(half_marked: Path, tmp_path: Path) -> str:
    return str(shutil.copytree(half_marked, tmp_path / "marked"))


@pytest.mark.thorough
@pytest.mark.parametrize("zorder", ORDERS, ids=["any order", "order"])
def test_files_go_of_which_most_rows_are_only_marked_and_what_is_good_stays(
    marked: str, spark: SparkSession, zorder: tuple[str, ...]
) -> None:
    decision = decide_layout(marked, zorder)
    assert not decision.needed and decision.why.endswith(
        "with rows only marked as deleted, 50.0% of their rows; worth it above 50%"
    ), decision.why
    mark_share_of_second(spark, marked, 0.6)
    there, decision, before = count_by_delta_rs(marked), decide_layout(marked, zorder), files_by_rows(marked)
    assert there == 100_000 - 10_800 + 3 + 3 + 520
    assert decision.needed and decision.marked and len(decision.partitions) == 1, decision.why
    counts = lay_out_as_decided(spark, marked, zorder, decision)
    left = [one.file.path for one in deletion_vectors.list_files_with_deleted_rows(marked)]
    assert counts == (2, 2 if zorder else 1) and {before[one] for one in left} == {100_000, 30}
    assert sorted(number or 0 for number in files_by_rows(marked).values()) == [
        30,
        30,
        *([120, 400] if zorder else [520]),
        100_000,
    ]
    assert count_by_delta_rs(marked) == there
    assert not decide_layout(marked, zorder).needed, "a second run has nothing to do"


@pytest.mark.thorough
def test_small_files_are_joined_beside_a_large_one_that_has_more_marked_rows_than_delta_leaves(
    marked: str, spark: SparkSession
) -> None:
    joined = LayoutDecision(list_first_partition(marked), 2, "", JoinedSizes(10_000, 1_000_000_000))
    lay_out_as_decided(spark, marked, (), joined)
    assert {100_000, 6} < set(files_by_rows(marked).values())


@pytest.mark.thorough
def test_of_a_clustered_table_a_demanded_rewrite_takes_out_the_rows_that_are_only_marked(lake: Lakehouse) -> None:
    path = lake.workspace().path("sale")
    remove_folder(locate(path))
    clustered = declaring_table(lake, cluster_by="amount", layout=Layout(deletion_vectors=True))
    clustered.run("silver")
    clustered.spark.sql(f"OPTIMIZE delta.`{path}` FULL").collect()  # what it has clustered, REORG passes over
    clustered.spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 3").collect()
    rows = clustered.rows("sale")
    assert deletion_vectors.count_files_with_deleted_rows(path) > 0 and len(rows) == 19
    assert not clustered.run("optimize")["sale"].committed, "a few are left until somebody asks"
    (asked,) = upkeep.optimize_tables_now(clustered.workspace(), ["sale"])
    assert asked.committed and deletion_vectors.count_files_with_deleted_rows(path) == 0
    assert log_files.read_cluster_columns(path) == ("amount",) and clustered.rows("sale") == rows
    assert not clustered.run("optimize")["sale"].committed, "a second run has nothing to do"


def list_first_partition(path: str) -> list[PartitionFiles]:
    return [one for one in file_statistics.list_partition_file_sizes(path) if one.values["part"] == 1]
