"""Which columns of its inputs each column of a table comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from sluice.column_origins import TableOrigins, table_origins_from_json, table_origins_to_json
from sluice.declare import Watermark, auto_cdc, mask, role_view, treat
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.cdc.expanded_tables import expand_auto_cdc
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.flows.column_lineage import trace_table_columns
from sluice.lake.table_creation import parse_ddl_schema

pytestmark = pytest.mark.spark

INPUTS = {
    "steps": "device INT, at TIMESTAMP, n INT, _delivery BIGINT, _row BIGINT",
    "trackers": "device INT, who STRING, since DATE",
    "members": "who STRING, age INT",
}


def view(reads: tuple[str, ...], function: Callable[..., Any], **options: Any) -> MaterializedView[Any]:
    return MaterializedView(name="made", function=function, reads=reads, keys=("device",), **options)


def traced(spark: SparkSession, declared: Any) -> TableOrigins:
    return trace_table_columns(spark, declared, {name: parse_ddl_schema(INPUTS[name]) for name in declared.reads}, "mark")


def origins(found: TableOrigins) -> dict[str, list[str]]:
    return {one.name: [f"{o.table}.{o.column} {o.way}" for o in one.origins] for one in found.columns}


def rows_by(found: TableOrigins) -> list[str]:
    return [f"{one.table}.{one.column} {one.way}" for one in found.rows_by]


def test_a_join_with_a_filter_and_an_aggregate(spark: SparkSession) -> None:
    def made(steps: Any, trackers: Any) -> Any:
        known = steps.join(trackers, "device").where("since > DATE'2020-01-01'")
        return known.groupBy("device", F.to_date("at").alias("day")).agg(
            F.sum("n").alias("n"), F.first(F.upper("who")).alias("who")
        )

    found = traced(spark, view(("steps", "trackers"), made))
    assert origins(found) == {
        "device": ["steps.device identity"],
        "day": ["steps.at transformation"],
        "n": ["steps.n aggregation"],
        "who": ["trackers.who aggregation"],
    }
    assert rows_by(found) == [
        "steps.at group by",
        "steps.device group by",
        "steps.device join",
        "trackers.device join",
        "trackers.since filter",
    ]
    assert "2020" not in json.dumps(table_origins_to_json(found))
    assert table_origins_from_json("made", table_origins_to_json(found)) == found


def test_a_self_join_and_a_with_clause_are_followed_to_their_input(spark: SparkSession) -> None:
    def made(members: Any) -> Any:
        other = members.select("who", (F.col("age") + 1).alias("next"))
        return members.join(other, "who").select(F.col("who").alias("device"), "next", "age")

    found = traced(spark, view(("members",), made))
    assert origins(found) == {
        "device": ["members.who identity"],
        "next": ["members.age transformation"],
        "age": ["members.age identity"],
    }

    def in_sql(members: Any) -> Any:
        text = "WITH a AS (SELECT who, age + 1 AS b FROM {m}) SELECT x.who AS device, x.b + y.b AS b FROM a x JOIN a y ON x.who = y.who"
        return members.sparkSession.sql(text, m=members)

    found = traced(spark, view(("members",), in_sql))
    assert origins(found) == {"device": ["members.who identity"], "b": ["members.age transformation"]}


def test_a_union_an_explosion_and_a_window(spark: SparkSession) -> None:
    def made(steps: Any, trackers: Any) -> Any:
        both = steps.select("device", F.col("n").alias("v")).union(trackers.select("device", F.year("since")))
        split = both.withColumn("part", F.explode(F.array("v")))
        return split.withColumn("before", F.lag("part").over(Window.partitionBy("device").orderBy("v")))

    found = traced(spark, view(("steps", "trackers"), made))
    assert origins(found)["device"] == ["steps.device identity", "trackers.device identity"]
    for name in ("v", "part", "before"):
        assert {text.split()[0] for text in origins(found)[name]} == {"steps.n", "trackers.since"}, name
    assert "steps.device window" in rows_by(found) and "steps.n window" in rows_by(found)


def test_subqueries_count(spark: SparkSession) -> None:
    def made(steps: Any, members: Any) -> Any:
        steps.createOrReplaceTempView("s"), members.createOrReplaceTempView("m")
        return steps.sparkSession.sql(
            "SELECT device, (SELECT max(age) FROM m) AS oldest FROM s WHERE EXISTS (SELECT 1 FROM m WHERE m.age = s.n)"
        )

    found = traced(spark, view(("steps", "members"), made))
    assert origins(found)["oldest"] == ["members.age aggregation"]
    assert {"members.age filter", "steps.n filter"} <= set(rows_by(found))


def test_a_python_function_over_groups_may_use_all_that_it_is_given(spark: SparkSession) -> None:
    def made(steps: Any) -> Any:
        return steps.select("device", "n").groupBy("device").applyInPandas(lambda rows: rows, "device INT, total INT")

    found = traced(spark, view(("steps",), made))
    assert origins(found)["total"] == ["steps.device transformation", "steps.n transformation"]


def test_treated_columns_say_so(spark: SparkSession) -> None:
    treated = view(("trackers",), lambda t: t.select("device", "who"), personal=("who",), treatments={"who": treat.hmac("user")})
    who = traced(spark, treated).columns[1]
    assert (who.treated, [one.column for one in who.origins]) == ("hmac", ["who"])


def test_a_silver_table_has_its_provenance_and_a_stream_its_window(spark: SparkSession) -> None:
    table: Table[Any] = Table(
        name="step", function=lambda s: s.select("device", (F.col("n") * 1.5).alias("n")), reads=("steps",), keys=("device",)
    )
    assert origins(traced(spark, table)) == {
        "device": ["steps.device identity"],
        "n": ["steps.n transformation"],
        "_delivery": ["steps._delivery identity"],
        "_row": ["steps._row identity"],
    }
    stream: Windowed[Any] = Windowed(
        name="hour",
        function=lambda s: s.groupBy(F.window("at", "1 hour").alias("hour"), "device").agg(F.count("n").alias("n")),
        reads=("steps",),
        keys=("hour", "device"),
        watermarks={"steps": Watermark("at", "10 minutes")},
    )
    found = traced(spark, stream)
    assert origins(found) == {
        "hour": ["steps.at transformation"],
        "device": ["steps.device identity"],
        "n": ["steps.n aggregation"],
    }


def test_a_change_log_and_its_target(spark: SparkSession) -> None:
    feed = "who STRING, age INT, at TIMESTAMP, _delivery BIGINT, _row BIGINT"
    cdc = auto_cdc(name="person", reads="feed", keys="who", sequence_by="at", apply_as_deletes="age IS NULL")
    assert isinstance(cdc, AutoCdc)
    log, target = expand_auto_cdc(cdc, {"feed": frozenset()})
    kept = trace_table_columns(spark, log, {"feed": parse_ddl_schema(feed)}, "")
    assert origins(kept)["age"][0].startswith("feed.age ")
    columns = ", ".join(f"`{one.name}` {one.type}" for one in kept.columns)
    found = trace_table_columns(spark, replace(target), {log.name: parse_ddl_schema(columns)}, "")
    assert any(one.startswith(f"{log.name}.age ") for one in origins(found)["age"])


def test_what_a_role_s_view_masks_counts_as_treated(spark: SparkSession) -> None:
    masked = role_view(
        "for_coaches", reads="members", role="coach", columns=("who", "age"), masks={"who": mask.redact(), "age": None}
    )
    assert {one.name: one.treated for one in traced(spark, masked).columns} == {"who": "mask: redact", "age": None}
