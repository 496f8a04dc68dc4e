"""How much of a view is recomputed, and why; which versions of its inputs it is made from; which files are read (issue 7, 1 and 2)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from deltalake import DeltaTable as RustTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from tests.conftest import Lakehouse
from tests.few_rows import append_rows

from sluice.cli.running.plan import _describe_bound
from sluice.declare import Pipeline, Source, TimeReach, materialized_view
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.errors import DeclarationError, SluiceError
from sluice.flows.gold import choice, touched
from sluice.flows.gold.in_time import InTime, merge_time_spans
from sluice.flows.progress.batches import PinnedVersions
from sluice.lake import commit_history, log, table_creation, table_frames
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.locations import locate, remove_folder
from sluice.runs.execution import layers, stages
from sluice.runs.execution.stages import StageOptions
from sluice.runs.planning import transforms
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

pytestmark = [pytest.mark.spark, pytest.mark.on_store]

LAYER = __name__.rsplit(".", 1)[-1]
PIPELINE = Pipeline(name="chosen", description="Views.", owner="tests", layers=("chosen.bronze", __name__))
FIRST = date(2026, 3, 1)
DDL = "region INT, d DATE, n INT"
HOUR, DAY = 3_600_000_000, 86_400_000_000


@materialized_view(reads="days", keys=("region", "d"))
def by_region(days):
    return days.groupBy("region", "d").agg(F.sum("n").alias("n"))


@materialized_view(reads="days", keys="d", reach={"days": TimeReach("d", after="2 days")})
def three_days(days):
    three = Window.orderBy(F.unix_date("d")).rangeBetween(-2, 0)
    return days.groupBy("d").agg(F.sum("n").alias("n")).select("d", F.sum("n").over(three).alias("s"))


@materialized_view(reads="days", keys="d")
def share(days):
    return days.groupBy("d").agg(F.sum("n").alias("n")).crossJoin(days.agg(F.sum("n").alias("all")))


class Lake:
    """A table of days, a file each ten days, and views of it."""

    def __init__(self, settings: Settings, spark: SparkSession, *views: MaterializedView[...]) -> None:
        source = Source(name="days", format="json", path="days", schema=DDL, comment="Stands for a table.")
        self.workspace = Workspace(settings, build_declaration_graph(PIPELINE, [source, *views]), spark, "run")
        self.path = self.workspace.path("days")
        table_creation.create_table(
            spark, self.path, TableShape(schema=table_creation.parse_ddl_schema(DDL), comment="", statistics=("d", "region"))
        )
        for start in range(0, 40, 10):
            self.put([(region, FIRST + timedelta(days=day), 1) for region in (1, 2) for day in range(start, start + 10)])

    def put(self, rows: list[tuple[object, ...]]) -> None:
        append_rows(self.path, DDL, rows)

    def run(self) -> dict[str, FlowReport]:
        try:
            return {report.flow: report for report in stages.run_pipeline_stage(self.workspace, LAYER)}
        except FlowsFailed as failed:
            raise next(iter(failed.errors.values())) from None

    def right(self) -> bool:
        """Whether every view equals its transform."""
        held = Lakehouse(self.workspace.settings, self.workspace.session, self.workspace.graph)
        days = table_creation.make_inline_frame(self.workspace.session, held.rows("days", "region", "d", "n"), DDL)
        return all(
            held.rows(one.name, *(full := one(days)).columns) == sorted(map(tuple, full.collect()), key=repr)
            for one in self.workspace.graph.views.values()
        )

    def files(self, name: str) -> set[str]:
        return set(RustTable(self.workspace.path(name)).file_uris())


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """No table is small."""
    monkeypatch.setattr(choice, "SMALL_ROWS", -1)


def test_a_small_view_is_recomputed_in_full_and_only_its_differences_are_written(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, by_region, share)
    assert lake.run()["by_region"].recomputed == "full: first run"
    lake.put([(1, FIRST, 5)])
    reports = lake.run()
    assert reports["by_region"].recomputed == reports["share"].recomputed == "full: small table"
    assert (reports["by_region"].rows_in, reports["by_region"].updated, reports["by_region"].rows_out) == (80, 1, 1)
    before = lake.files("by_region")
    DeltaTable.forPath(spark, lake.path).optimize().executeCompaction()
    reports = lake.run()
    assert (reports["by_region"].recomputed, reports["by_region"].committed, reports["by_region"].rows_in) == (None, False, 0)
    assert lake.files("by_region") == before and lake.right()


@pytest.mark.thorough
def test_a_strict_view_follows_what_is_bounded_however_small_and_refuses_the_rest(
    settings: Settings, spark: SparkSession
) -> None:
    lake = Lake(settings, spark, replace(by_region, recompute="strict"), replace(share, recompute="strict"))
    assert {name: report.recomputed for name, report in lake.run().items()} == dict.fromkeys(
        ("by_region", "share"), "full: first run"
    )
    found = transforms.examine_transforms(spark.newSession(), PipelineLake(settings, lake.workspace.graph))
    assert {bound["view"]: bound["refused"] for bound in found.bounds} == {"by_region": False, "share": True}
    before = lake.files("share")
    books = PipelineBooks(settings, lake.workspace.graph)
    unbounded = {name: lag.read_view_standing(books, view).unbounded for name, view in lake.workspace.graph.views.items()}
    assert unbounded == {"by_region": (), "share": ("days",)}, "as `sluice plan` says without Spark"
    lake.put([(1, FIRST, 5)])
    for attempt in range(2):  # it is not forgotten, and not taken by trying again
        with pytest.raises(FlowsFailed) as failed:
            stages.run_pipeline_stage(lake.workspace, LAYER)
        assert list(failed.value.errors) == ["share"], attempt
        assert 'recompute="strict"' in str(failed.value.errors["share"]) and "'days'" in str(failed.value.errors["share"])
        followed = {one.flow: one.recomputed for one in failed.value.reports}["by_region"]
        assert followed == (None if attempt else "keys: 1 of 80 rows")
    assert lake.files("share") == before and not lake.right()
    # Whoever is erased leaves every table, whatever a declaration would rather have.
    (found_again,) = [one for one in layers.run_layers_above_bronze(lake.workspace) if one.flow == "share"]
    assert found_again.recomputed == "full: a change of 'days' can touch any row" and lake.right()
    lake.put([(1, FIRST, 7)])
    with pytest.raises(FlowsFailed):
        stages.run_pipeline_stage(lake.workspace, LAYER)
    refreshing = replace(lake.workspace, mode="refresh")
    stages.run_pipeline_stage(refreshing, LAYER, StageOptions(["share"]))
    assert lake.right() and lake.run()["share"].recomputed is None


@pytest.mark.slow
def test_of_a_large_view_what_changes_touch_is_recomputed_until_that_is_most(
    settings: Settings, spark: SparkSession, large: None
) -> None:
    lake = Lake(settings, spark, by_region, share, three_days)
    lake.run()
    lake.put([(1, FIRST, 5), (2, FIRST + timedelta(days=20), 5), (2, FIRST + timedelta(days=39), 1)])
    reports = lake.run()
    assert reports["by_region"].recomputed == "keys: 3 of 80 rows"
    assert reports["three_days"].recomputed == "keys: 7 of 40 rows"
    assert reports["share"].recomputed == "full: a change of 'days' can touch any row"
    assert lake.right()
    lake.put([(1, FIRST + timedelta(days=day), 2) for day in range(40)])
    reports = lake.run()
    assert reports["by_region"].recomputed == reports["three_days"].recomputed == "full: most rows touched"
    assert (reports["by_region"].updated, reports["by_region"].inserted) == (40, 0)
    assert lake.right()


def test_a_view_whose_table_is_gone_is_made_whole_and_one_that_gives_a_key_twice_fails(
    settings: Settings, spark: SparkSession, large: None
) -> None:
    row_by_row = materialized_view(reads="days", keys=("region", "d"), name="row_by_row")(lambda days: days.where("n < 9"))
    object.__setattr__(row_by_row, "declared_in", __name__)
    lake = Lake(settings, spark, row_by_row)
    lake.run()
    remove_folder(locate(lake.workspace.path("row_by_row")))
    assert lake.run()["row_by_row"].recomputed == "full: its table was not there"
    assert lake.right()
    before = lake.files("row_by_row")
    lake.put([(1, FIRST, 5)])
    with pytest.raises(SluiceError, match=r"^1 row has a key \(region, d\) that another row has too"):
        lake.run()
    assert lake.files("row_by_row") == before


@pytest.mark.thorough
def test_rows_in_scope_are_chosen_after_sessions_are_made(spark: SparkSession) -> None:
    rows = [(1, datetime(2026, 3, 1, 9, minute, tzinfo=UTC)) for minute in (0, 3, 6)]
    per = table_creation.make_inline_frame(spark, rows, "device INT, at TIMESTAMP").groupBy(
        "device", F.session_window("at", "5 minutes").alias("s")
    )
    sessions = per.count().select("device", F.col("s.start").alias("since"), "count")
    for start, limits in ((rows[0][1], {}), (rows[0][1], {"since": (("TIMESTAMP'2026-03-01 09:00:00'",) * 2,)})):
        scope = touched.ViewScope({}, table_creation.make_inline_frame(spark, [(start,)], "since TIMESTAMP"), limits, None)
        assert [row["count"] for row in scope.of_view(sessions, made=True).collect()] == [3]


@pytest.mark.slow
def test_the_choice_can_be_pinned(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, replace(by_region, recompute="keys"), replace(three_days, recompute="full"))
    lake.run()
    lake.put([(1, FIRST + timedelta(days=day), 2) for day in range(40)])
    reports = lake.run()
    assert reports["by_region"].recomputed == "keys: 40 of 80 rows"
    assert reports["three_days"].recomputed == "full: as declared"
    assert lake.right()


@pytest.mark.slow
def test_a_day_that_is_not_known_bounds_nothing_and_its_rows_are_read_always(
    settings: Settings, spark: SparkSession, large: None
) -> None:
    lake = Lake(settings, spark, three_days)
    lake.run()
    lake.put([(1, None, 7)])
    assert lake.run()["three_days"].recomputed == "full: a change of 'days' can touch any row"
    lake.put([(1, FIRST + timedelta(days=39), 7)])
    assert lake.run()["three_days"].recomputed == "keys: 1 of 41 rows"
    assert lake.right()


def test_reach_in_time_leaves_files_out(
    settings: Settings, spark: SparkSession, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(settings, spark, three_days)
    lake.run()
    # The view in files of ten days each, as large ones are, which Delta's reader takes in part.
    monkeypatch.setattr(table_frames, "MOST_BYTES", 0)
    path = lake.workspace.path("three_days")
    table_frames.read_table(spark, path).repartitionByRange(4, "d").write.format("delta").mode("overwrite").save(path)
    read: dict[str, list[int]] = {"of_input": [], "of_view": []}

    def watched(name: str) -> Callable[..., DataFrame]:
        narrow = getattr(touched.ViewScope, name)

        def narrowed(*given: Any, **more: Any) -> DataFrame:
            frame: DataFrame = narrow(*given, **more)
            read[name].append(len(frame.inputFiles()))
            return frame

        return narrowed

    for name in read:
        monkeypatch.setattr(touched.ViewScope, name, watched(name))
    lake.put([(1, FIRST + timedelta(days=35), 5)])
    assert lake.run()["three_days"].recomputed == "keys: 3 of 40 rows"
    assert read["of_input"] == [2], "of five files, the last ten days and the new one"
    assert read["of_view"][-1] == 1, "of four"
    assert lake.right()


def test_inputs_are_read_at_versions_that_the_commit_names(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(settings, spark, replace(by_region, recompute="keys"))
    lake.run()
    lake.put([(1, FIRST, 5)])
    pinned = log.latest_table_version(lake.path)
    of = PinnedVersions.pin_for_batch

    def meanwhile(pins: PinnedVersions, batch: int) -> Any:
        """Somebody writes after the pin."""
        versions = dict(of(pins, batch))
        lake.put([(2, FIRST, 5)])
        return versions

    with monkeypatch.context() as patch:
        patch.setattr(PinnedVersions, "pin_for_batch", meanwhile)
        lake.run()
    path = lake.workspace.path("by_region")
    commit = commit_history.read_commit_history(path, 1)[0]
    assert commit["note"]["inputs"] == {"days": pinned}
    assert table_frames.read_table(spark, path).where("region = 2").agg(F.max("n")).first()[0] == 1, (
        "what came after the pin waits"
    )
    lake.run()
    assert (
        commit_history.read_commit_history(path, 1)[0]["note"]["inputs"] == {"days": log.latest_table_version(lake.path)}
        and lake.right()
    )


@pytest.mark.thorough
def test_a_pin_is_not_used_by_a_batch_that_tells_of_later_versions(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(settings, spark, by_region)
    identity = log.read_table_id(lake.path)
    pins = PinnedVersions(str(tmp_path), {"days": lake.path}, {"days": identity})
    (tmp_path / "offsets").mkdir()

    def ends(batch: int, version: int, index: int) -> int:
        offset = {"reservoirId": identity, "reservoirVersion": version, "index": index}
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        return pins.pin_for_batch(batch)["days"]

    assert ends(0, 2, -1) == 4
    lake.put([(1, FIRST, 5)])
    assert ends(1, 4, 0) == ends(2, 5, -1) == 4, "one state for the whole run"
    assert ends(3, 5, 0) == 5
    assert [pins.followed(batch) for batch in range(3)] == [{"days": (-1, 1)}, {"days": (1, 4)}, {"days": (3, 4)}]
    ends(4, 5, 0)
    assert pins.followed(4) == {}, "nothing has changed"


def test_commits_say_how_many_changes_there_are_at_most(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, by_region)

    def changed() -> int | None:
        version = log.latest_table_version(lake.path) or 0
        return choice.count_changed_rows(lake.workspace, {"days": (version - 1, version)})

    assert changed() == 40
    DeltaTable.forPath(spark, lake.path).update("n = 1 AND region = 1 AND d < '2026-03-03'", {"n": "2"})
    assert changed() == 4, "both images"
    DeltaTable.forPath(spark, lake.path).optimize().executeCompaction()
    assert changed() == 0
    table_frames.read_table(spark, lake.path).where("region = 1").write.format("delta").mode("overwrite").save(lake.path)
    assert changed() is None, "how many went is not said"


@pytest.mark.thorough
def test_a_value_of_all_keys_is_one_row_at_most_and_of_all_but_the_day_one_a_day(spark: SparkSession) -> None:
    values = table_creation.make_inline_frame(spark, [(1,), (2,)], "region INT")
    reach = {"days": touched.InputReach({"region": "region"}, InTime("d", "d", "date", "date"))}
    scope = touched.ViewScope(reach, values, {}, ((10, 12), (20, 20)), distinct=2)
    assert [scope.at_most(keys) for keys in (("region",), ("region", "d"), ("region", "n"))] == [2, 8, None]
    assert replace(scope, spans=None).at_most(("region", "d")) is None


@pytest.mark.parametrize(
    ("kind", "of", "ticks", "spans"),
    [
        ("date", "date", [10], [(8, 13)]),
        ("date", "timestamp", [10], [(8, 13)]),
        ("timestamp", "timestamp", [10], [(10 * HOUR - 2, 11 * HOUR + 2)]),
        ("timestamp", "date", [10], [(10 * DAY - 2, 11 * DAY + 2)]),
    ],
)
def test_days_and_instants_are_widened_so_that_a_day_counts_whole(
    kind: str, of: str, ticks: list[int], spans: list[tuple[int, int]]
) -> None:
    assert list(InTime("c", "d", kind, of, before=2, after=3).touched(ticks)) == spans


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "of", "spans", "days"),
    [
        ("date", "date", ((11, 11),), [None, 8, 9, 10, 11, 12, 13]),
        ("date", "timestamp", ((11, 11),), [None, 8, 9, 10, 11, 12, 13]),
        ("timestamp", "date", ((11 * DAY, 11 * DAY),), [None, 10, 11]),
        ("timestamp", "timestamp", ((11 * DAY - 3, 11 * DAY + 23 * HOUR - 2),), [None, 11]),
        ("timestamp", "timestamp", ((11 * DAY, 11 * DAY + 23 * HOUR - 4),), [None]),
    ],
)
def test_what_a_span_of_the_view_is_made_of_lies_the_other_way(
    spark: SparkSession, kind: str, of: str, spans: tuple[tuple[int, int], ...], days: list[int | None]
) -> None:
    """Days, or instants at 23:00. A reach of three after a row needs rows from three before; rows without a time always count."""
    at = (
        F.timestamp_micros(F.col("day") * DAY + 23 * HOUR)
        if of == "timestamp"
        else F.date_from_unix_date(F.col("day").cast("int"))
    )
    rows = table_creation.make_inline_frame(spark, [(None,), *((day,) for day in range(20))], "day BIGINT").withColumn("d", at)
    found = rows.where(InTime("c", "d", kind, of, before=2, after=3).needed(spans)).collect()
    assert sorted((row.day for row in found), key=lambda day: (day is not None, day)) == days


@pytest.mark.thorough
@pytest.mark.parametrize("expression", ["t", "to_date(t)", "cast(t as date)"])
def test_files_are_left_out_by_the_day_of_an_instant_though_rows_without_one_are_needed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    monkeypatch.setattr(table_frames, "MOST_BYTES", 0)  # as of a large table
    for day in range(4):
        rows = table_creation.make_inline_frame(spark, [(day,)], "day BIGINT").select(
            F.timestamp_micros(F.col("day") * DAY).alias("t")
        )
        rows.write.format("delta").mode("append").save(str(tmp_path / "t"))
    of = "timestamp" if expression == "t" else "date"
    needed = InTime("c", expression, "date", of).needed(((2, 3),))
    assert len(table_frames.read_table(spark, str(tmp_path / "t")).where(needed).inputFiles()) == 2


def test_spans_that_meet_are_one_and_few_remain() -> None:
    assert merge_time_spans([(5, 6), (1, 2), (3, 4), (9, 9), (6, 6)]) == ((1, 6), (9, 9))
    assert merge_time_spans([(at * at, at * at) for at in range(2, 10)], most=3) == ((4, 49), (64, 64), (81, 81))
    assert merge_time_spans([]) == ()


WRONG = {
    "no column of it": TimeReach("day", input="d"),
    "which is LONG": TimeReach("s", input="d"),
    "cannot be written over it": TimeReach("d", input="date_of(d)"),
    "It must give a DATE or a TIMESTAMP": TimeReach("d", input="n"),
}


@pytest.mark.parametrize("said", WRONG)
def test_a_reach_that_does_not_fit_is_a_mistake_before_and_in_the_run(settings: Settings, spark: SparkSession, said: str) -> None:
    lake = Lake(settings, spark, replace(three_days, reach={"days": WRONG[said]}))
    found = transforms.examine_transforms(spark, PipelineLake(settings, lake.workspace.graph))
    assert len(found.mistakes) == 1 and said in found.mistakes[0]
    with pytest.raises(DeclarationError, match=said):
        lake.run()


def test_check_tells_the_reach(settings: Settings, spark: SparkSession) -> None:
    lake = Lake(settings, spark, three_days, share)
    found = transforms.examine_transforms(spark, PipelineLake(settings, lake.workspace.graph))
    told = {bound["view"]: _describe_bound(bound["columns"], bound["joined"], bound["reach"]) for bound in found.bounds}
    assert told == {"three_days": ["d from d to d + 2 days"], "share": ["full recompute"]}
    assert found.mistakes == []
