"""Which columns of a view bound a recompute for which input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.errors import DeclarationError
from sluice.flows.gold import probe
from sluice.flows.gold.probe import find_input_reaches
from sluice.flows.writing.ranges import parse_truncation
from sluice.lake import table_creation
from sluice.lake.table_creation import parse_ddl_schema

pytestmark = pytest.mark.spark

INPUTS = {
    "regions": "d DATE, region STRING, n BIGINT",
    "steps": "device INT, at TIMESTAMP, n INT",
    "readings": "device INT, t INT, d DATE, bpm INT",
    "trackers": "device INT, who INT",
    "members": "who INT, age INT",
    "segments": "device INT, t INT, who INT",
    "left_out": "who INT, d DATE",
}


def asked(spark: SparkSession, keys: tuple[str, ...], reads: tuple[str, ...], function: object) -> dict[str, dict[str, str]]:
    """By input, the columns that bound it, with their expressions over it."""
    view = MaterializedView(name="view", function=function, reads=reads, keys=keys)
    found = find_input_reaches(spark, view, {name: parse_ddl_schema(INPUTS[name]) for name in reads})
    return {name: dict(reach.columns) for name, reach in found.items()}


def test_a_grouped_sum_is_bounded_by_its_groups(spark: SparkSession) -> None:
    found = asked(spark, ("region", "d"), ("regions",), lambda r: r.groupBy("region", "d").agg(F.sum("n").alias("n")))
    assert found == {"regions": {"region": "region", "d": "d"}}


def test_a_moving_sum_is_bounded_by_its_partition_only(spark: SparkSession) -> None:
    week = Window.partitionBy("region").orderBy("d").rowsBetween(-6, 0)
    found = asked(spark, ("region", "d"), ("regions",), lambda r: r.withColumn("s", F.sum("n").over(week)))
    assert found == {"regions": {"region": "region"}}


def test_a_lag_is_bounded_by_its_partition_only(spark: SparkSession) -> None:
    before = Window.partitionBy("region").orderBy("d")
    found = asked(spark, ("region", "d"), ("regions",), lambda r: r.withColumn("p", F.lag("n").over(before)))
    assert found == {"regions": {"region": "region"}}


def test_the_top_of_a_day_is_bounded_by_the_day_though_the_region_is_a_key_too(spark: SparkSession) -> None:
    order = Window.partitionBy("d").orderBy(F.desc("n"), "region")
    found = asked(
        spark, ("d", "region"), ("regions",), lambda r: r.withColumn("rank", F.row_number().over(order)).where("rank <= 2")
    )
    assert found == {"regions": {"d": "d"}}


def test_a_share_of_the_days_total_by_a_self_join_is_bounded_by_the_day(spark: SparkSession) -> None:
    def share(regions: DataFrame) -> DataFrame:
        total = regions.groupBy("d").agg(F.sum("n").alias("total"))
        return regions.groupBy("d", "region").agg(F.sum("n").alias("n")).join(total, "d")

    assert asked(spark, ("d", "region"), ("regions",), share) == {"regions": {"d": "d"}}


def test_a_share_of_everything_is_bounded_by_nothing(spark: SparkSession) -> None:
    def cross_joined(regions: DataFrame) -> DataFrame:
        return regions.groupBy("d").agg(F.sum("n").alias("n")).crossJoin(regions.agg(F.sum("n").alias("total")))

    def subquery(regions: DataFrame) -> DataFrame:
        return regions.sparkSession.sql(
            "SELECT d, sum(n) AS n, sum(n) / (SELECT sum(n) FROM {r}) AS share FROM {r} GROUP BY d", r=regions
        )

    assert asked(spark, ("d",), ("regions",), cross_joined) == {"regions": {}}
    assert asked(spark, ("d",), ("regions",), subquery) == {"regions": {}}


def test_the_nullable_side_of_an_outer_join_bounds_nothing_by_its_own_column(spark: SparkSession) -> None:
    def per_member(readings: DataFrame, trackers: DataFrame) -> DataFrame:
        return readings.join(trackers, "device", "left").groupBy("who", "d").agg(F.sum("bpm").alias("b"))

    assert asked(spark, ("who", "d"), ("readings", "trackers"), per_member) == {"readings": {"d": "d"}, "trackers": {}}


INSTEAD_OF_NULL = [
    "coalesce(m.age, -1)",
    "ifnull(m.age, -1)",
    "nvl(m.age, -1)",
    "m.age IS NULL",
    "m.who IS NOT NULL",
    "m.age <=> 1",
    "CASE WHEN m.who IS NULL THEN 'nobody' ELSE 'somebody' END",
    "if(m.age IS NULL, -1, m.age)",
]
"""Values that a row without a partner has too, though no member has them, or though other members have them."""


@pytest.mark.parametrize("value", INSTEAD_OF_NULL)
@pytest.mark.parametrize("how", ["LEFT", "FULL"])
def test_a_value_in_place_of_a_missing_partners_null_bounds_nothing(spark: SparkSession, how: str, value: str) -> None:
    sql = f"SELECT {value} AS value, count(*) AS c FROM {{t}} AS t {how} JOIN {{m}} AS m ON t.who = m.who GROUP BY 1"
    found = asked(spark, ("value",), ("trackers", "members"), lambda t, m: t.sparkSession.sql(sql, t=t, m=m))
    assert found == {"trackers": {}, "members": {}}


@pytest.mark.parametrize("value", INSTEAD_OF_NULL)
def test_a_key_of_the_other_side_bounds_beside_such_a_value(spark: SparkSession, value: str) -> None:
    sql = f"SELECT t.device, t.who, {value} AS value FROM {{m}} AS m RIGHT JOIN {{t}} AS t ON t.who = m.who"
    found = asked(spark, ("device", "who", "value"), ("trackers", "members"), lambda t, m: t.sparkSession.sql(sql, t=t, m=m))
    assert found == {"trackers": {"device": "device", "who": "who"}, "members": {"who": "who"}}


def test_a_constant_of_the_side_without_a_partner_bounds_nothing(spark: SparkSession) -> None:
    def told(trackers: DataFrame, members: DataFrame) -> DataFrame:
        joined = trackers.join(members.select("who", F.lit("somebody").alias("said")), "who", "left")
        return joined.groupBy(F.coalesce("said", F.lit("nobody")).alias("said")).agg(F.count("*").alias("c"))

    assert asked(spark, ("said",), ("trackers", "members"), told) == {"trackers": {}, "members": {}}


def test_a_join_that_the_views_own_filter_makes_an_inner_one_is_bounded_on_both_sides(spark: SparkSession) -> None:
    def of_grown(trackers: DataFrame, members: DataFrame) -> DataFrame:
        joined = trackers.join(members, "who", "left").where("age > 1")
        return joined.select("device", F.coalesce("age", F.lit(-1)).alias("age"))

    found = asked(spark, ("device", "age"), ("trackers", "members"), of_grown)
    assert found == {"trackers": {"device": "device"}, "members": {"age": "coalesce(age, -1)"}}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT coalesce((SELECT max(age) FROM {m} m WHERE m.who = t.who), 0) AS value, count(*) AS c FROM {t} t GROUP BY 1",
        "SELECT (SELECT count(*) FROM {m} m WHERE m.who = t.who) AS value, count(*) AS c FROM {t} t GROUP BY 1",
        "SELECT EXISTS (SELECT 1 FROM {m} m WHERE m.who = t.who) AS value, count(*) AS c FROM {t} t GROUP BY 1",
        "SELECT who IN (SELECT who FROM {m}) AS value, count(*) AS c FROM {t} t GROUP BY 1",
        "SELECT coalesce(o.age, 0) AS value FROM {t} t LEFT JOIN LATERAL (SELECT max(age) age FROM {m} m WHERE m.who = t.who) o",
        "SELECT 'all' AS value, count(*) AS c FROM {t} t CROSS JOIN {m} m",
    ],
)
def test_a_value_that_a_subquery_without_rows_gives_bounds_nothing(spark: SparkSession, sql: str) -> None:
    found = asked(spark, ("value",), ("trackers", "members"), lambda t, m: t.sparkSession.sql(sql, t=t, m=m))
    assert found == {"trackers": {}, "members": {}}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT d, coalesce(x, 0) AS value FROM {r} LATERAL VIEW OUTER explode(filter(array(n), v -> v > 1)) AS x",
        "SELECT d, lag(n, 1, 0) OVER (PARTITION BY d ORDER BY region) AS value FROM {r}",
        "SELECT d, coalesce(first(n) IGNORE NULLS, 0) AS value FROM {r} GROUP BY d",
        "SELECT d, coalesce(a, 0) AS value FROM {r} PIVOT (sum(n) FOR region IN ('a' AS a, 'b' AS b))",
        "SELECT d, coalesce(region, 'all') AS value, sum(n) AS n FROM {r} GROUP BY GROUPING SETS ((d, region), (d))",
    ],
)
def test_a_value_that_no_row_has_bounds_nothing(spark: SparkSession, sql: str) -> None:
    found = asked(spark, ("d", "value"), ("regions",), lambda r: r.sparkSession.sql(sql, r=r))
    assert found["regions"].keys() <= {"d"}


def test_an_outer_joins_key_bounds_both_sides(spark: SparkSession) -> None:
    def joined(readings: DataFrame, trackers: DataFrame) -> DataFrame:
        return readings.groupBy("device").agg(F.sum("bpm").alias("b")).join(trackers, "device", "left")

    device = {"device": "device"}
    assert asked(spark, ("device",), ("readings", "trackers"), joined) == {"readings": device, "trackers": device}


def test_a_full_outer_join_bounds_nothing_by_a_coalesced_key(spark: SparkSession) -> None:
    found = asked(spark, ("who",), ("members", "left_out"), lambda m, o: m.join(o, "who", "full"))
    assert found["left_out"] == {} or "who" not in found["left_out"]
    assert "who" not in found["members"]


@pytest.mark.parametrize("how", ["left_anti", "left_semi"])
def test_a_semi_or_anti_join_is_bounded_by_its_key_on_both_sides(spark: SparkSession, how: str) -> None:
    found = asked(spark, ("who",), ("members", "left_out"), lambda m, o: m.join(o, "who", how))
    assert found == {"members": {"who": "who"}, "left_out": {"who": "who"}}


def test_not_in_is_bounded_on_the_left_only(spark: SparkSession) -> None:
    def not_in(members: DataFrame, left_out: DataFrame) -> DataFrame:
        return members.sparkSession.sql("SELECT * FROM {m} WHERE who NOT IN (SELECT who FROM {o})", m=members, o=left_out)

    assert asked(spark, ("who",), ("members", "left_out"), not_in) == {"members": {"who": "who"}, "left_out": {}}


def test_an_as_of_join_is_bounded_by_instant_on_the_left_and_device_on_the_right(spark: SparkSession) -> None:
    def worn_by(readings: DataFrame, segments: DataFrame) -> DataFrame:
        since = segments.select(F.col("device").alias("tracker"), F.col("t").alias("since"), "who")
        met = (F.col("device") == F.col("tracker")) & (F.col("t") >= F.col("since"))
        order = Window.partitionBy("device", "t").orderBy(F.desc("since"), F.desc("who"))
        joined = readings.select("device", "t").distinct().join(since, met, "left")
        return joined.withColumn("rank", F.row_number().over(order)).where("rank = 1").select("device", "t", "who")

    found = asked(spark, ("device", "t"), ("readings", "segments"), worn_by)
    assert found == {"readings": {"device": "device", "t": "t"}, "segments": {"device": "device"}}


def test_a_row_level_join_of_three_is_bounded_by_the_columns_it_joins_on(spark: SparkSession) -> None:
    def joined(readings: DataFrame, trackers: DataFrame, members: DataFrame) -> DataFrame:
        return readings.join(trackers, "device").join(members, "who", "left").select("device", "t", "who", "bpm", "age")

    found = asked(spark, ("device", "t", "who"), ("readings", "trackers", "members"), joined)
    assert found == {
        "readings": {"device": "device", "t": "t"},
        "trackers": {"device": "device", "who": "who"},
        "members": {"who": "who"},
    }


def test_a_union_is_bounded_by_what_each_branch_calls_its_own(spark: SparkSession) -> None:
    def both(members: DataFrame, left_out: DataFrame) -> DataFrame:
        renamed = left_out.select(F.col("who"), F.dayofmonth("d").alias("age"))
        return members.unionByName(renamed).groupBy("who", "age").agg(F.count("*").alias("c"))

    found = asked(spark, ("who", "age"), ("members", "left_out"), both)
    assert found == {"members": {"who": "who", "age": "age"}, "left_out": {"who": "who", "age": "dayofmonth(d)"}}


def test_a_derived_key_is_an_expression_over_the_input(spark: SparkSession) -> None:
    def weekly(regions: DataFrame) -> DataFrame:
        return regions.groupBy(F.weekofyear("d").alias("week"), "region").agg(F.sum("n").alias("n"))

    assert asked(spark, ("week", "region"), ("regions",), weekly) == {"regions": {"week": "weekofyear(d)", "region": "region"}}


def test_a_function_whose_name_holds_a_columns_name_is_an_expression_too(spark: SparkSession) -> None:
    def daily(regions: DataFrame) -> DataFrame:
        return regions.groupBy(F.dayofyear("d").alias("day"), "region").agg(F.sum("n").alias("n"))

    assert asked(spark, ("day", "region"), ("regions",), daily) == {"regions": {"day": "dayofyear(d)", "region": "region"}}


def test_a_text_in_a_derived_key_that_holds_a_columns_name_stays_as_it_is(spark: SparkSession) -> None:
    def named(regions: DataFrame) -> DataFrame:
        return regions.groupBy(F.concat(F.lit("region "), "region").alias("name")).agg(F.sum("n").alias("n"))

    assert asked(spark, ("name",), ("regions",), named) == {"regions": {"name": "concat('region ', region)"}}


def test_columns_qualified_by_an_alias_are_columns_of_the_input(spark: SparkSession) -> None:
    def aliased(readings: DataFrame, trackers: DataFrame) -> DataFrame:
        r, w = readings.alias("r"), trackers.alias("w")
        joined = r.join(w, F.col("r.device") == F.col("w.device"))
        return joined.groupBy(F.col("r.device").alias("device"), F.year("r.d").alias("year")).agg(F.max("w.who").alias("who"))

    found = asked(spark, ("device", "year"), ("readings", "trackers"), aliased)
    assert found == {"readings": {"device": "device", "year": "year(d)"}, "trackers": {"device": "device"}}


def test_a_renamed_column_is_the_one_it_came_from_and_a_column_of_that_name_proves_nothing(spark: SparkSession) -> None:
    def swapped(members: DataFrame) -> DataFrame:
        return members.select(F.col("age").alias("who"), F.col("who").alias("age"))

    assert asked(spark, ("who", "age"), ("members",), swapped) == {"members": {"who": "age", "age": "who"}}


def test_a_self_join_that_shifts_rows_is_not_bounded_by_what_it_shifts(spark: SparkSession) -> None:
    def with_the_day_before(regions: DataFrame) -> DataFrame:
        before = regions.select(F.date_add("d", 1).alias("d"), "region", F.col("n").alias("before"))
        return regions.join(before, ["region", "d"], "left")

    assert asked(spark, ("region", "d"), ("regions",), with_the_day_before) == {"regions": {"region": "region"}}


def windowed(*size: str) -> Callable[[DataFrame], DataFrame]:
    def counted(steps: DataFrame) -> DataFrame:
        per = steps.groupBy("device", F.window("at", *size)).agg(F.sum("n").alias("n"))
        return per.select("device", F.col("window.start").alias("since"), F.col("window.end").alias("until"), "n")

    return counted


@pytest.mark.parametrize("end", ["since", "until"])
def test_a_tumbling_window_is_bounded_by_its_start_and_its_end(spark: SparkSession, end: str) -> None:
    expression = asked(spark, (end,), ("steps",), windowed("10 minutes"))["steps"][end]
    assert parse_truncation(expression) == ("at", 600)
    rows = table_creation.make_inline_frame(spark, [(1, datetime(2026, 3, 1, 12, 34, tzinfo=UTC), 1)], INPUTS["steps"])
    given = rows.select(F.expr(expression).alias("given")).union(windowed("10 minutes")(rows).select(end))
    assert given.distinct().count() == 1, "what SQL gives is what the window gives"


def test_a_sliding_window_and_a_session_are_bounded_by_their_other_keys(spark: SparkSession) -> None:
    device = {"steps": {"device": "device"}}
    assert asked(spark, ("device", "since"), ("steps",), windowed("10 minutes", "5 minutes")) == device

    def sessions(steps: DataFrame) -> DataFrame:
        per = steps.groupBy("device", F.session_window("at", "5 minutes").alias("s")).agg(F.sum("n").alias("n"))
        return per.select("device", F.col("s.start").alias("since"), "n")

    assert asked(spark, ("device", "since"), ("steps",), sessions) == device


def test_a_whole_window_bounds_nothing_and_is_no_mistake(spark: SparkSession) -> None:
    found = asked(spark, ("device", "w"), ("steps",), lambda s: s.groupBy("device", F.window("at", "1 hour").alias("w")).count())
    assert found == {"steps": {"device": "device"}}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("date_trunc('hour', at)", ("at", 3600)),
        ("date_trunc('MONTH', `at`)", ("`at`", 31 * 86400)),
        ("date_trunc('century', at)", None),
        ("date_trunc('hour', (at + INTERVAL '9' DAY))", None),
        ("timestamp_micros((unix_micros(at) % 600000000L))", None),
        ("at", None),
    ],
)
def test_what_cuts_an_instant_is_known_by_its_text(expression: str, expected: tuple[str, int] | None) -> None:
    assert parse_truncation(expression) == expected


def test_a_limit_is_bounded_by_nothing(spark: SparkSession) -> None:
    assert asked(spark, ("who",), ("members",), lambda m: m.orderBy("age", "who").limit(3)) == {"members": {}}


def test_columns_other_than_keys_bound_where_no_key_does(spark: SparkSession) -> None:
    order = Window.partitionBy("region").orderBy("d")
    found = asked(
        spark, ("number",), ("regions",), lambda r: r.withColumn("number", F.row_number().over(order)).select("number", "region")
    )
    assert found == {"regions": {"region": "region"}}


def test_a_constant_column_bounds_nothing_and_is_no_mistake(spark: SparkSession) -> None:
    found = asked(spark, ("who",), ("members",), lambda m: m.select("who", F.lit("member").alias("kind")))
    assert found == {"members": {"who": "who"}}


def test_constants_that_tell_the_branches_of_a_union_apart_are_no_mistake(spark: SparkSession) -> None:
    def both(members: DataFrame, left_out: DataFrame) -> DataFrame:
        return members.select("who", F.lit("member").alias("kind")).union(left_out.select("who", F.lit("gone").alias("kind")))

    found = asked(spark, ("who", "kind"), ("members", "left_out"), both)
    assert found == {"members": {"who": "who"}, "left_out": {"who": "who"}}


def test_a_total_that_is_beside_its_parts_is_bounded_by_the_day_only(spark: SparkSession) -> None:
    def with_total(regions: DataFrame) -> DataFrame:
        days = regions.groupBy("d").agg(F.sum("n").alias("n"))
        return regions.select("d", "region", "n").unionByName(days.select("d", F.lit("all").alias("region"), "n"))

    assert asked(spark, ("d", "region"), ("regions",), with_total) == {"regions": {"d": "d"}}


@pytest.mark.parametrize("key", ["CAST(region AS INT)", "to_date(region)", "100 / n", "n + 1"])
def test_what_can_fail_on_a_row_that_is_left_out_bounds_nothing(spark: SparkSession, key: str) -> None:
    def counted(regions: DataFrame) -> DataFrame:
        return regions.where("region LIKE '2%' AND n > 0").groupBy(F.expr(key).alias("key"), "d").agg(F.sum("n").alias("n"))

    assert asked(spark, ("key", "d"), ("regions",), counted) == {"regions": {"d": "d"}}


@pytest.mark.parametrize("value", ["CAST(region AS STRING COLLATE UTF8_LCASE)", "CAST(n AS DOUBLE)"])
def test_a_text_of_values_of_which_different_ones_are_equal_bounds_nothing(spark: SparkSession, value: str) -> None:
    """'a' and 'A' are one group, as are 0.0 and -0.0, but their texts are two."""

    def counted(regions: DataFrame) -> DataFrame:
        grouped = regions.groupBy(F.expr(value).alias("value"), "d").agg(F.sum("n").alias("n"))
        return grouped.select(F.col("value").cast("string").alias("text"), "d", "n")

    assert asked(spark, ("text", "d"), ("regions",), counted) == {"regions": {"d": "d"}}


def test_what_only_compares_such_values_bounds(spark: SparkSession) -> None:
    flag = "CAST(n AS DOUBLE) > 0"
    found = asked(spark, ("flag",), ("regions",), lambda r: r.groupBy(F.expr(flag).alias("flag")).agg(F.count("*").alias("n")))
    assert found["regions"].keys() == {"flag"}


@pytest.mark.parametrize("key", ["TRY_CAST(region AS INT)", "CAST(n AS STRING)", "concat(upper(region), 'x')"])
def test_what_cannot_fail_bounds(spark: SparkSession, key: str) -> None:
    found = asked(spark, ("key",), ("regions",), lambda r: r.groupBy(F.expr(key).alias("key")).agg(F.sum("n").alias("n")))
    assert found == {"regions": {"key": key}}


def test_an_input_that_is_not_used_is_a_mistake(spark: SparkSession) -> None:
    with pytest.raises(DeclarationError, match="'view' reads 'left_out' but does not use it"):
        asked(spark, ("who",), ("members", "left_out"), lambda m, o: m.select("who"))


@pytest.mark.parametrize(
    "function",
    [
        lambda r: r.withColumn("share", F.col("n") / r.count()),
        lambda r: r.groupBy("d").pivot("region").agg(F.sum("n")),
        lambda r: r.where(F.col("n") > (r.agg(F.max("n")).first() or [0])[0]),
    ],
)
def test_a_transform_that_asks_for_rows_is_refused_but_where_all_is_made_anew(spark: SparkSession, function: object) -> None:
    view = MaterializedView(name="view", function=function, reads="regions", keys="d")
    given = {"regions": parse_ddl_schema(INPUTS["regions"])}
    with pytest.raises(DeclarationError, match=r"asks for rows while its transform is called.*recompute=\"full\""):
        find_input_reaches(spark, view, given)
    assert find_input_reaches(spark, replace(view, recompute="full"), given)["regions"].columns.keys() <= {"d", "region", "n"}


@pytest.mark.parametrize(
    "function, what",
    [
        (lambda r: r.where("d >= current_date() - 30"), r"current_date\(\)"),
        (lambda r: r.where("d >= DATE'today' - 30"), "DATE'today'"),
        (lambda r: r.where(F.col("d") >= F.lit("yesterday")), "the date 'yesterday'"),
        (
            lambda r: r.sparkSession.sql("SELECT * FROM {r} WHERE d = (SELECT max(d) FROM {r} WHERE d < 'now')", r=r),
            "the date 'now'",
        ),
        (lambda r: r.withColumn("n", F.rand()), "something random"),
        (lambda r: r.sample(0.5, seed=1), "a sample"),
        (lambda r: r.sparkSession.sql("SELECT * FROM {r} TABLESAMPLE (50 PERCENT)", r=r), "a sample"),
        (lambda r: r.withColumn("u", F.expr("current_user()")), r"(current_)?user\(\)"),
        (lambda r: r.withColumn("u", F.expr("session_user()")), r"(session_|current_)?user\(\)"),
        (lambda r: r.withColumn("id", F.expr("uuid()")), "something random"),
        (lambda r: r.join(r.sparkSession.range(2).select(F.rand().alias("x")), F.lit(True)), "something random"),
    ],
)
def test_what_no_change_tells_of_is_refused(spark: SparkSession, function: object, what: str) -> None:
    with pytest.raises(DeclarationError, match=f"View 'view' uses {what}: rows that no change touches would stay"):
        asked(spark, ("d",), ("regions",), function)


def test_lists_and_firsts_of_a_group_are_taken_as_they_are(spark: SparkSession) -> None:
    found = asked(
        spark, ("d",), ("regions",), lambda r: r.groupBy("d").agg(F.sort_array(F.collect_list("n")).alias("l"), F.first("region"))
    )
    assert found == {"regions": {"d": "d"}}


def test_a_table_that_is_not_declared_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "rates"))
    with pytest.raises(DeclarationError, match="reads a table or files that it does not name in reads"):
        asked(spark, ("d",), ("regions",), lambda r: r.crossJoin(spark.read.parquet(str(tmp_path / "rates"))))


def test_columns_that_a_view_needs_are_told_from_those_it_does_not(spark: SparkSession) -> None:
    def used(reads: tuple[str, ...], function: object) -> dict[str, list[str]]:
        view = MaterializedView(name="view", function=function, reads=reads, keys="device")
        found = find_input_reaches(spark, view, {name: parse_ddl_schema(INPUTS[name]) for name in reads})
        return {name: [column.split()[0] for column in reach.used] for name, reach in found.items()}

    assert used(("readings",), lambda r: r.groupBy("device").agg(F.max("bpm"))) == {"readings": ["bpm", "device"]}
    assert used(("readings",), lambda r: r.where("d > '2026-01-01'").select("device")) == {"readings": ["d", "device"]}
    everything = ["bpm", "d", "device", "t"]
    assert used(("readings",), lambda r: r.na.fill(0)) == {"readings": everything}
    assert used(("readings",), lambda r: r.unionByName(r)) == {"readings": everything}
    nulls = "+".join(f"int({name} IS NULL)" for name in everything)
    assert used(("readings",), lambda r: r.select("device", F.expr(nulls).alias("nulls"))) == {"readings": everything}
    joined = used(("readings", "trackers"), lambda r, t: r.join(t, "device").select("device", "bpm"))
    assert joined == {"readings": ["bpm", "device"], "trackers": ["device"]}


def joined_columns(spark: SparkSession, keys: tuple[str, ...], reads: tuple[str, ...], function: object) -> dict[str, object]:
    """By input that a join follows, the columns of the view, and those of the input that the join takes."""
    view = MaterializedView(name="view", function=function, reads=reads, keys=keys)
    found = find_input_reaches(spark, view, {name: parse_ddl_schema(INPUTS[name]) for name in reads})
    return {name: (reach.joined.columns, reach.joined.asked) for name, reach in found.items() if reach.joined}


def test_a_member_is_followed_to_the_readings_of_the_members_trackers(spark: SparkSession) -> None:
    def with_age(readings: DataFrame, trackers: DataFrame, members: DataFrame) -> DataFrame:
        return readings.join(trackers, "device").join(members, "who", "left").select("device", "t", "bpm", "age")

    found = joined_columns(spark, ("device", "t"), ("readings", "trackers", "members"), with_age)
    assert found == {"members": (("device",), ("who",))}


def test_a_tracker_whose_reading_may_have_no_partner_is_followed_to_its_days(spark: SparkSession) -> None:
    def per_member(readings: DataFrame, trackers: DataFrame) -> DataFrame:
        return readings.join(trackers, "device", "left").groupBy("who", "d").agg(F.sum("bpm").alias("b"))

    found = joined_columns(spark, ("who", "d"), ("readings", "trackers"), per_member)
    assert found == {"trackers": (("d",), ("device",))}


def test_what_has_null_where_no_partner_is_there_is_not_followed(spark: SparkSession) -> None:
    """A newcomer removes the row that stood for nobody, which no join with the newcomer finds."""

    def either(readings: DataFrame, trackers: DataFrame, members: DataFrame) -> DataFrame:
        worn = readings.join(trackers, "device", "left").select("who", F.col("bpm").alias("n"))
        return worn.union(members.select("who", F.col("age").alias("n"))).groupBy("who").agg(F.max("n").alias("n"))

    reads = ("readings", "trackers", "members")
    assert "who" in asked(spark, ("who",), reads, either)["members"]
    assert set(joined_columns(spark, ("who",), reads, either)) == {"readings"}


@pytest.mark.parametrize("how", ["left_semi", "left_anti"])
def test_a_row_that_only_decides_is_followed_to_the_rows_that_it_decides(spark: SparkSession, how: str) -> None:
    def of_the_left_out(trackers: DataFrame, readings: DataFrame, left_out: DataFrame) -> DataFrame:
        gone = readings.join(left_out.join(trackers, "who"), "device", how)
        return gone.groupBy("device").agg(F.max("bpm").alias("b"))

    found = joined_columns(spark, ("device",), ("trackers", "readings", "left_out"), of_the_left_out)
    assert found == {"left_out": (("device",), ("who",))}


def test_what_is_compared_by_an_order_is_not_followed(spark: SparkSession) -> None:
    def older(members: DataFrame, readings: DataFrame) -> DataFrame:
        return readings.join(members, F.col("bpm") < F.col("age")).groupBy("device").agg(F.count("*").alias("n"))

    assert joined_columns(spark, ("device",), ("members", "readings"), older) == {}


def test_what_is_read_twice_or_counted_is_not_followed(spark: SparkSession) -> None:
    def twice(members: DataFrame, trackers: DataFrame, readings: DataFrame) -> DataFrame:
        ages = members.select("who", F.col("age").alias("of_wearer"))
        heirs = (
            members.select(F.col("age").alias("of_wearer"), F.col("who").alias("heir")).groupBy("of_wearer").agg(F.max("heir"))
        )
        return readings.join(trackers, "device").join(ages, "who").join(heirs, "of_wearer").select("device", "t", "bpm")

    def ranked(members: DataFrame, trackers: DataFrame, readings: DataFrame) -> DataFrame:
        by_age = members.withColumn("rank", F.row_number().over(Window.partitionBy("age").orderBy("who")))
        return readings.join(trackers, "device").join(by_age, "who").select("device", "t", "rank")

    reads = ("members", "trackers", "readings")
    assert joined_columns(spark, ("device", "t"), reads, twice) == {}
    assert joined_columns(spark, ("device", "t"), reads, ranked) == {}


def test_a_condition_that_could_fail_on_a_row_that_is_left_out_is_not_asked(spark: SparkSession) -> None:
    def quotient(members: DataFrame, trackers: DataFrame, readings: DataFrame) -> DataFrame:
        old = members.where("100 / age < 2").select("who")
        return readings.join(trackers, "device").join(old, "who").select("device", "t", "bpm")

    reads = ("members", "trackers", "readings")
    assert joined_columns(spark, ("device", "t"), reads, quotient) == {"members": (("device",), ("who",))}


def test_other_columns_than_keys_are_tried_only_if_no_key_bounds_some_input(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []
    find_arrivals = probe._find_filter_arrivals

    def note(result: DataFrame, column: str, *rest: Any) -> dict[str, str | None]:
        tried.append(column)
        return find_arrivals(result, column, *rest)

    monkeypatch.setattr(probe, "_find_filter_arrivals", note)
    counted = F.count("*").alias("n"), F.max("n").alias("most")
    asked(spark, ("region", "d"), ("regions",), lambda r: r.groupBy("region", "d").agg(*counted))
    assert sorted(tried) == ["d", "region"]
    tried.clear()
    ranked = Window.partitionBy("region").orderBy("d")
    found = asked(spark, ("number",), ("regions",), lambda r: r.withColumn("number", F.row_number().over(ranked)))
    assert tried[0] == "number" and sorted(tried) == ["d", "n", "number", "region"]
    assert found == {"regions": {"region": "region"}}


def test_a_view_is_probed_once_in_a_process_until_its_inputs_have_other_columns(spark: SparkSession) -> None:
    called: list[int] = []

    def latest(rows: DataFrame) -> DataFrame:
        called.append(1)
        return rows.groupBy("device").agg(F.max("bpm").alias("bpm"))

    view = MaterializedView(name="view", function=latest, reads="readings", keys="device")
    of_now = {"readings": parse_ddl_schema(INPUTS["readings"])}
    found = [find_input_reaches(spark, view, of_now) for _ in range(2)]
    assert len(called) == 1 and found[0] == found[1] and found[0]["readings"].used == ("bpm int", "device int")
    wider = {"readings": parse_ddl_schema(INPUTS["readings"].replace("bpm INT", "bpm BIGINT"))}
    assert find_input_reaches(spark, view, wider)["readings"].used == ("bpm bigint", "device int")
    assert find_input_reaches(spark, replace(view, keys=("bpm",)), wider)["readings"].columns == {"device": "device"}
    assert len(called) == 3
