"""A view equals its full recompute, whatever changes in its inputs, several of them at once, NULLs in keys and values (I5).

Tables as small as these would be recomputed in full: here every view follows the keys and times that changes touch, as large ones do.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from random import Random

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from tests.conftest import Lakehouse
from tests.few_rows import append_rows, merge_rows

from sluice.declare import Pipeline, Source, TimeReach, materialized_view
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.lake import table_creation
from sluice.lake.flow_report import FlowsFailed
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import Workspace
from sluice.runs.execution import stages
from sluice.settings import Settings, build_root_settings

Cell = int | date | datetime | None
Row = tuple[Cell, ...]

INPUTS = {
    "readings": "device INT, t INT, d INT, bpm INT",
    "trackers": "device INT, who INT",
    "members": "who INT, age INT",
    "segments": "device INT, t INT, who INT",
    "left_out": "who INT, d INT",
    "regions": "region INT, d INT, n INT",
    "steps": "device INT, t TIMESTAMP, n INT",
    "days": "region INT, d DATE, n INT",
}
IDENTITY = {
    "readings": ("device", "t"),
    "trackers": ("device", "who"),
    "members": ("who",),
    "segments": ("device", "t"),
    "left_out": ("who", "d"),
    "regions": ("region", "d"),
    "steps": ("device", "t"),
    "days": ("region", "d"),
}
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PIPELINE = Pipeline(name="made_up", description="Views.", owner="tests", layers=("made_up.bronze", __name__))
LAYER = __name__.rsplit(".", 1)[-1]


@materialized_view(reads="readings", keys=("device", "d"))
def grouped_sum(readings):
    return readings.groupBy("device", "d").agg(F.sum("bpm").alias("bpm"), F.count("*").alias("c"))


@materialized_view(reads="regions", keys=("region", "d"))
def moving_sum(regions):
    three = Window.partitionBy("region").orderBy("d").rowsBetween(-2, 0)
    return regions.select("region", "d", F.sum("n").over(three).alias("s"))


@materialized_view(reads="regions", keys=("d", "region"))
def top_two(regions):
    rank = F.row_number().over(Window.partitionBy("d").orderBy(F.desc("n"), "region"))
    return regions.withColumn("rank", rank).where("rank <= 2")


@materialized_view(reads="regions", keys=("d", "region"))
def share_of_day(regions):
    return regions.join(regions.groupBy("d").agg(F.sum("n").alias("total")), "d").select("d", "region", "n", "total")


@materialized_view(reads="regions", keys=("region", "d"))
def share_of_all(regions):
    return regions.sparkSession.sql("SELECT region, d, n, (SELECT sum(n) FROM {r}) AS total FROM {r}", r=regions)


@materialized_view(reads=("readings", "trackers"), keys=("who", "d"))
def per_member_and_day(readings, trackers):
    return readings.join(trackers, "device", "left").groupBy("who", "d").agg(F.sum("bpm").alias("bpm"))


@materialized_view(reads=("members", "left_out"), keys="who")
def not_left_out(members, left_out):
    return members.join(left_out, "who", "left_anti")


@materialized_view(reads=("left_out", "members"), keys=("who", "d"))
def left_out_and_grown(left_out, members):
    return left_out.join(members.where("age > 1"), "who", "left_semi")


@materialized_view(reads=("readings", "segments"), keys=("device", "t"))
def worn_by(readings, segments):
    since = segments.select(F.col("device").alias("tracker"), F.col("t").alias("since"), "who")
    met = (F.col("device") == F.col("tracker")) & (F.col("t") >= F.col("since"))
    rank = F.row_number().over(Window.partitionBy("device", "t").orderBy(F.desc("since"), F.desc("who")))
    joined = readings.select("device", "t").join(since, met, "left").withColumn("rank", rank)
    return joined.where("rank = 1").select("device", "t", "since", "who")


@materialized_view(reads=("members", "left_out"), keys=("kind", "who", "d"))
def either(members, left_out):
    first = members.select(F.lit("member").alias("kind"), "who", F.col("age").alias("d"))
    return first.union(left_out.select(F.lit("left out").alias("kind"), "who", "d")).groupBy("kind", "who", "d").count()


@materialized_view(reads=("trackers", "members"), keys="age")
def worn_by_age(trackers, members):
    """A value in place of the NULL of a tracker without a member: no member has it."""
    age = F.coalesce("age", F.lit(-1)).alias("age")
    return trackers.join(members, "who", "left").groupBy(age).agg(F.count("*").alias("c"), F.sum("device").alias("devices"))


@materialized_view(reads=("trackers", "members"), keys=("device", "who", "is_one", "age"))
def tracker_with_age(trackers, members):
    """The same by row, in more than one way, from the right."""
    is_one, age = F.col("age").eqNullSafe(1).alias("is_one"), F.ifnull("age", F.lit(-1)).alias("age")
    return members.join(trackers, "who", "right").groupBy("device", "who", is_one, age).count()


@materialized_view(reads=("trackers", "members"), keys=("device", "who"))
def tracker_with_member(trackers, members):
    """The same where the key is of the other side alone."""
    age = F.max(F.coalesce(members["age"], F.lit(-1))).alias("age")
    return trackers.join(members, trackers["who"] == members["who"], "left").groupBy("device", trackers["who"]).agg(age)


@materialized_view(reads=("trackers", "members"), keys="missing")
def trackers_without_member(trackers, members):
    worn = trackers.join(members.withColumnRenamed("who", "member"), F.col("who") == F.col("member"), "left")
    return worn.groupBy(F.col("member").isNull().alias("missing")).agg(F.count("*").alias("c"), F.sum("age").alias("age"))


@materialized_view(reads=("members", "left_out"), keys=("said", "d"))
def members_or_left_out(members, left_out):
    """A full join of which each side may be missing."""
    joined = members.join(left_out.withColumnRenamed("who", "gone"), F.col("who") == F.col("gone"), "full")
    said = F.when(F.col("gone").isNull(), "member").when(F.col("who").isNull(), "left out").otherwise("both").alias("said")
    return joined.groupBy(said, F.coalesce("d", F.lit(-1)).alias("d")).agg(F.count("*").alias("c"), F.sum("age").alias("age"))


@materialized_view(reads="regions", keys=("region", "d"))
def change(regions):
    before = F.lag("n").over(Window.partitionBy("region").orderBy("d"))
    return regions.select("region", "d", (F.col("n") - before).alias("change"))


@materialized_view(reads=("readings", "trackers", "members"), keys=("device", "t", "who"))
def with_age(readings, trackers, members):
    joined = readings.join(trackers, "device").join(members, "who", "left")
    return joined.select("device", "t", "who", "bpm", "age", "d")


@materialized_view(reads=("readings", "members", "regions"), keys=("device", "t"))
def of_two_dimensions(readings, members, regions):
    """Neither a member nor a region knows a reading but by a join."""
    per_day = regions.groupBy(F.col("d").alias("day")).agg(F.sum("n").alias("total"))
    joined = readings.join(members, F.col("bpm") == F.col("who"), "left").join(per_day, F.col("d") == F.col("day"), "left")
    return joined.select("device", "t", "age", "total")


@materialized_view(reads=("trackers", "readings", "left_out"), keys="device")
def worn_by_the_left_out(trackers, readings, left_out):
    """The left-out people are matched to devices by who wore them, and only decide which rows there are."""
    return readings.join(left_out.join(trackers, "who"), "device", "left_anti").groupBy("device").agg(F.max("bpm").alias("bpm"))


@materialized_view(reads="regions", keys=("name", "half"))
def derived_keys(regions):
    name = F.concat(F.lit("region "), F.coalesce(F.col("region").cast("string"), F.lit("unknown")))
    return regions.groupBy(name.alias("name"), F.floor(F.col("d") / 2).alias("half")).agg(F.sum("n").alias("n"))


@materialized_view(reads=("members", "left_out"), keys=("is_member", "member", "is_gone", "gone", "d"))
def either_side(members, left_out):
    m = members.select(F.lit(True).alias("is_member"), F.col("who").alias("member"), "age")
    o = left_out.select(F.lit(True).alias("is_gone"), F.col("who").alias("gone"), "d")
    return m.join(o, F.col("member") == F.col("gone"), "full")


@materialized_view(reads=("per_member_and_day", "members"), keys=("who", "d"))
def view_of_a_view(per_member_and_day, members):
    return per_member_and_day.join(members, per_member_and_day["who"].eqNullSafe(members["who"]), "left").select(
        per_member_and_day["who"], "d", "bpm", "age"
    )


@materialized_view(reads="steps", keys=("device", "since"))
def tumbling(steps):
    counted = steps.groupBy("device", F.window("t", "20 minutes")).agg(
        F.sum("n").alias("n"), F.count_distinct("n").alias("different")
    )
    return counted.select("device", F.col("window.start").alias("since"), "n", "different")


SLID = {"steps": TimeReach("since", before="20 minutes", input="t")}


@materialized_view(reads="steps", keys="since", reach=SLID)
def sliding(steps):
    counted = steps.groupBy(F.window("t", "20 minutes", "5 minutes")).agg(F.sum("n").alias("n"))
    return counted.select(F.col("window.start").alias("since"), "n")


def of_sessions(steps):
    counted = steps.groupBy("device", F.session_window("t", "10 minutes").alias("session")).agg(F.sum("n").alias("n"))
    return counted.select("device", F.col("session.start").alias("since"), F.col("session.end").alias("until"), "n")


@materialized_view(reads="steps", keys=("device", "since"))
def sessions(steps):
    return of_sessions(steps)


@materialized_view(reads="steps", keys=("device", "since"), reach={"steps": TimeReach("since", "1 hour", "10 minutes", "t")})
def sessions_of_an_hour(steps):
    """None is longer; a step may join two, or tear one apart."""
    return of_sessions(steps)


@materialized_view(reads="days", keys=("region", "d"), reach={"days": TimeReach("d", after="6 days")})
def week_of_region(days):
    week = Window.partitionBy("region").orderBy(F.unix_date("d")).rangeBetween(-6, 0)
    return days.select("region", "d", F.sum("n").over(week).alias("s"))


@materialized_view(reads="days", keys="d", reach={"days": TimeReach("d", after="2 days")})
def three_days_of_all(days):
    three = Window.orderBy(F.unix_date("d")).rangeBetween(-2, 0)
    return days.groupBy("d").agg(F.sum("n").alias("n")).select("d", F.sum("n").over(three).alias("s"))


@materialized_view(
    reads=("days", "steps"),
    keys=("region", "d"),
    reach={"days": TimeReach("d", after="7 days"), "steps": TimeReach("d", after="1 day", input="t")},
)
def against_the_week_before(days, steps):
    """Two inputs with reaches of their own; of instants the days count."""
    earlier = days.select("region", F.date_add("d", 7).alias("d"), F.col("n").alias("before"))
    walked = steps.groupBy(F.date_add(F.to_date("t"), 1).alias("d")).agg(F.sum("n").alias("walked_the_day_before"))
    return days.join(earlier, ["region", "d"], "left").join(walked, "d", "left")


@materialized_view(reads=("steps", "days"), keys=("device", "t"), reach={"days": TimeReach("t", after="1 day", input="d")})
def step_of_a_day(steps, days):
    """A day that is looked up on the same day and the day after, and a column that comes from the other input alone."""
    of_all = days.groupBy("d").agg(F.sum("n").alias("of_all"))
    today, yesterday = of_all.alias("today"), of_all.alias("yesterday")
    day = F.to_date("t")
    return (
        steps
        .join(today, F.col("today.d") == day, "left")
        .join(yesterday, F.date_add(F.col("yesterday.d"), 1) == day, "left")
        .select("device", "t", "n", F.col("today.of_all").alias("today"), F.col("yesterday.of_all").alias("yesterday"))
    )


@materialized_view(reads="regions", keys=("region", "d"))
def parts_and_total(regions):
    """A constant in one branch: a change of any region changes the total's row, whatever the region is."""
    total = regions.groupBy("d").agg(F.sum("n").alias("n")).select(F.lit(-1).alias("region"), "d", "n")
    return regions.select("region", "d", "n").unionByName(total)


@materialized_view(reads="regions", keys=("part", "d"))
def behind_a_filter(regions):
    """A key that cannot be computed from rows that the filter leaves out."""
    return regions.where("region > 0").groupBy(F.expr("100 DIV region").alias("part"), "d").agg(F.sum("n").alias("n"))


@materialized_view(reads=("tumbling", "members"), keys=("since", "who"))
def chain_over_windows(tumbling, members):
    return tumbling.join(members, tumbling["device"].eqNullSafe(members["who"])).select("since", "who", "n", "age")


@materialized_view(reads="members", keys="id")
def under_a_hash(members):
    """No change says which hash it affects: the age is the bound, and a row is found by the values that it was made from."""
    return members.select(F.sha2(F.col("who").cast("string"), 256).alias("id"), "age")


@materialized_view(reads="regions", keys=("name", "d"), partition_by="name")
def without_a_name(regions):
    """An empty text, which a partition keeps as NULL."""
    name = F.when(F.col("region") > 2, F.lit("")).otherwise(F.concat_ws("", F.lit("r"), "region"))
    return regions.groupBy(name.alias("name"), "d").agg(F.sum("n").alias("n"))


VIEWS = [value for value in globals().values() if isinstance(value, MaterializedView)]
TELLING = [
    per_member_and_day,
    of_two_dimensions,
    worn_by_the_left_out,
    worn_by,
    sessions_of_an_hour,
    against_the_week_before,
    parts_and_total,
    behind_a_filter,
    under_a_hash,
    without_a_name,
]
"""Those that are bounded in ways of their own. What bounds the others, `unit/flows/gold/test_probe.py` asks of each; slow tests run all."""

OF_MISSING_PARTNERS = [worn_by_age, tracker_with_age, tracker_with_member, trackers_without_member, members_or_left_out]
"""Those that have a value in place of the NULL of an outer join."""
BESIDE_MISSING_PARTNERS = ("members", "left_out", "trackers")
"""What they read."""


def graph_of(views: list[MaterializedView[...]]) -> Graph:
    views = [replace(view, recompute="keys") for view in views]
    tables_of_others = [
        Source(name=name, format="json", path=name, schema=ddl, comment="Stands for a table.") for name, ddl in INPUTS.items()
    ]
    return build_declaration_graph(PIPELINE, [*tables_of_others, *views])


class Inputs:
    """Delta tables that stand for the views' inputs, and random changes of them."""

    def __init__(self, workspace: Workspace, random: Random) -> None:
        self.workspace, self.random = workspace, random
        self.rows: dict[str, dict[Row, Row]] = {}
        for name, ddl in INPUTS.items():
            shape = TableShape(schema=table_creation.parse_ddl_schema(ddl), comment="", statistics=IDENTITY[name])
            table_creation.create_table(workspace.session, workspace.path(name), shape)
            self.rows[name] = {self._key(name, row): row for row in (self._row(name) for _ in range(14))}
            append_rows(workspace.path(name), ddl, self.rows[name].values())

    def change(self, names: Iterable[str] = INPUTS) -> list[str]:
        """Insert, update and delete a few rows in a few of these inputs. Returns what was done."""
        done, known = [], sorted(names)
        for name in self.random.sample(known, min(len(known), self.random.randint(2, 4))):
            rows = self.rows[name]
            gone = self.random.sample(sorted(rows, key=repr), min(len(rows), self.random.choice((0, 1, 1, 2))))
            put = {self._key(name, row): row for row in (self._row(name) for _ in range(self.random.choice((0, 1, 2))))}
            self._write(name, [key for key in gone if key not in put], put)
            done.append(f"{name}: {[rows[key] for key in gone]} went, {list(put.values())} came")
            self.rows[name] = {key: row for key, row in rows.items() if key not in gone} | put
        return done

    def _write(self, name: str, gone: list[Row], put: dict[Row, Row]) -> None:
        path, keys = self.workspace.path(name), IDENTITY[name]
        names = table_creation.parse_ddl_schema(INPUTS[name]).names
        dead = [tuple(dict(zip(keys, key, strict=True)).get(column) for column in names) for key in gone]
        if dead or put:
            merge_rows(path, INPUTS[name], keys, put.values(), dead)

    def _frame(self, name: str, rows: list[Row]) -> DataFrame:
        return table_creation.make_inline_frame(self.workspace.session, rows, INPUTS[name])

    def _key(self, name: str, row: Row) -> Row:
        names = table_creation.parse_ddl_schema(INPUTS[name]).names
        return tuple(row[names.index(key)] for key in IDENTITY[name])

    def _row(self, name: str) -> Row:
        return tuple(None if self.random.random() < 0.15 else self._cell(kind.split()[1]) for kind in INPUTS[name].split(", "))

    def _cell(self, kind: str) -> Cell:
        number = self.random.randint(0, 4)
        if kind == "TIMESTAMP":
            # Close enough to share windows and sessions, on days that follow each other and on some that do not.
            return START + timedelta(days=(0, 0, 1, 40, 41)[number], minutes=7 * self.random.randint(0, 6))
        if kind == "DATE":
            return START.date() + timedelta(days=number + self.random.choice((0, 5, 40)))
        return number


def follow(
    settings: Settings,
    spark: SparkSession,
    random: Random,
    views: list[MaterializedView[...]],
    steps: int,
    changing: Iterable[str] = INPUTS,
) -> None:
    workspace = Workspace(settings, graph_of(views), spark, "run")
    inputs = Inputs(workspace, random)
    run(workspace)
    history: list[list[str]] = []
    for _ in range(steps):
        history.append(inputs.change(changing))
        run(workspace)
        check(workspace, inputs, history)


def run(workspace: Workspace) -> None:
    try:
        stages.run_pipeline_stage(workspace, LAYER)
    except FlowsFailed as failed:
        raise next(iter(failed.errors.values())) from None


def check(workspace: Workspace, inputs: Inputs, history: list[list[str]]) -> None:
    """Every view's table, as a multiset of rows, against its transform over plain frames of what the inputs must hold."""
    frames = {name: inputs._frame(name, list(rows.values())) for name, rows in inputs.rows.items()}
    lake = Lakehouse(workspace.settings, workspace.session, workspace.graph)
    for view in workspace.graph.views.values():
        full = view(*(frames[name] for name in view.reads))
        frames[view.name] = full
        kept, expected = Counter(lake.rows(view.name, *full.columns)), Counter(map(tuple, full.collect()))
        steps = "\n".join(itertools.chain.from_iterable(history))
        assert kept == expected, f"{view.name}: has {kept - expected} and lacks {expected - kept} after\n{steps}"


few = examples(max_examples=1, deadline=None, derandomize=True, phases=[Phase.generate], database=None)
many = examples(max_examples=1, deadline=None, phases=[Phase.generate], database=None, print_blob=True)


def at(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("views")
    return Settings(folder, **build_root_settings(folder))


@pytest.mark.spark
@few
@given(random=st.randoms(use_true_random=True))
def test_views_equal_their_full_recompute(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random) -> None:
    follow(at(tmp_path_factory), spark, random, TELLING, steps=2)


@pytest.mark.thorough
@pytest.mark.spark
@few
@given(random=st.randoms(use_true_random=True))
def test_views_of_missing_partners_equal_their_full_recompute(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    follow(at(tmp_path_factory), spark, random, OF_MISSING_PARTNERS, steps=2, changing=BESIDE_MISSING_PARTNERS)


@pytest.mark.slow
@pytest.mark.spark
@many
@given(random=st.randoms(use_true_random=True))
def test_views_of_missing_partners_equal_their_full_recompute_after_many_changes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    follow(at(tmp_path_factory), spark, random, OF_MISSING_PARTNERS, steps=8, changing=BESIDE_MISSING_PARTNERS)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("part", [0, 1])
@many
@given(random=st.randoms(use_true_random=True))
def test_views_equal_their_full_recompute_after_many_changes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, part: int, random: Random
) -> None:
    half = VIEWS[part::2]
    read = {name for view in half for name in view.reads}
    follow(at(tmp_path_factory), spark, random, [view for view in VIEWS if view in half or view.name in read], steps=4)
