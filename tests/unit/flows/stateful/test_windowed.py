"""Streams as they are declared: what is refused before any row, and by which rule Spark leaves late rows out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from sluice.declare import F, Watermark, windowed
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"a": "device BIGINT, at TIMESTAMP, pulse BIGINT", "b": "worn BIGINT, began TIMESTAMP, patient STRING"}
MARKS = {"a": Watermark("at", "10 minutes"), "b": Watermark("began", "10 minutes")}
WITHIN = "device = worn AND at BETWEEN began AND began + INTERVAL 1 HOUR"


def stream(transform: Callable[..., DataFrame], **options: Any) -> Any:
    reads = tuple(transform.__code__.co_varnames[: transform.__code__.co_argcount])
    given = {"keys": "device", "watermark": {name: MARKS[name] for name in reads}} | options
    return windowed(reads=reads, name="made", **given)(transform)


def examined(spark: SparkSession, declared: Any) -> list[str]:
    from sluice.flows.stateful import preview_stream_schema
    from sluice.lake import table_creation

    return preview_stream_schema(
        spark, declared, {name: table_creation.parse_ddl_schema(ddl) for name, ddl in COLUMNS.items()}
    ).names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "often"}, "unknown output 'often'. There are: append, complete, update."),
        ({"watermark": None}, "input 'a' has no watermark"),
        ({"watermark": {"x": MARKS["a"]}}, "names 'x', which it does not read"),
        ({"closes_when_idle": "soon"}, "closes_when_idle is an interval"),
    ],
)
def test_a_declaration_that_cannot_be_meant(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        stream(lambda a: a, **options)


def test_a_delay_is_an_interval() -> None:
    with pytest.raises(DeclarationError, match="delay is an interval"):
        Watermark("at", "late")


def joined(how: str, condition: str = WITHIN) -> Any:
    return stream(lambda a, b: a.join(b, F.expr(condition), how))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (joined("left"), "outer join of streams .* is refused.* watermarks of several inputs are not kept.* @materialized_view"),
        (joined("full"), "outer join of streams"),
        (joined("inner", "device = worn"), "no bounds in time"),
        (joined("inner", "device = worn AND at >= began"), "no bounds in time"),
        (stream(lambda a: a.dropDuplicates(["device"])), "dropDuplicatesWithinWatermark"),
        (
            stream(lambda a: a.sparkSession.sql("SELECT DISTINCT device, at FROM {a}", a=a)),
            "DISTINCT, or UNION without ALL, is refused",
        ),
        (stream(lambda a: a.orderBy("at")), "Spark does not run this as a stream: .*[sS]ort"),
        (stream(lambda a: a.groupBy("device").count()), "Spark does not run this as a stream"),
        (stream(lambda a: a.limit(3), output="update"), "Spark does not run this as a stream"),
        (stream(lambda a: a, watermark=Watermark("pulse", "1 hour")), "by 'pulse', which is BIGINT; it must be a TIMESTAMP"),
        (stream(lambda a: a, watermark=Watermark("att", "1 hour")), "'att', no column of it. Did you mean 'at'"),
        (stream(lambda a: a.select("pulse")), "keys names 'device', no column"),
        (
            stream(lambda a: a.groupBy(F.to_date("at")).count(), output="update"),
            "nothing in it that the watermark ends.*F.window",
        ),
        (stream(lambda a: a.groupBy(F.date_trunc("hour", "at")).count(), output="update"), "every key is kept for ever"),
        (
            stream(
                lambda a: a.groupBy("device", "at").agg(F.max("pulse").alias("m")).where("m < 100 AND device > 3"),
                output="update",
            ),
            "a condition on what it aggregates is refused with output 'update': a row that no longer meets it would stay",
        ),
        (
            stream(
                lambda a: a.groupBy("device").applyInPandasWithState(
                    lambda key, rows, state: rows, "device BIGINT", "seen BIGINT", "append", "NoTimeout"
                )
            ),
            "a state of one's own .* is refused: which rows it leaves out",
        ),
    ],
)
def test_what_check_plans_says_of_a_stream(spark: SparkSession, declared: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        examined(spark, declared)


def test_what_spark_runs(spark: SparkSession) -> None:
    assert examined(spark, joined("inner")) == ["device", "at", "pulse", "worn", "began", "patient"]
    ten_minutes = stream(lambda a: a.groupBy("device", F.window("at", "10 minutes")).count())
    assert examined(spark, ten_minutes) == ["device", "window", "count"]
    assert examined(spark, stream(lambda a: a.dropDuplicates(["device", "at"]))) == ["device", "at", "pulse"]
    highest = stream(lambda a: a.groupBy("device", "at").agg(F.max("pulse").alias("m")).where("device > 3"), output="update")
    assert examined(spark, highest) == ["device", "at", "m"], "which rows there are depends on what it groups by alone"
    lows = stream(lambda a: a.groupBy("device", F.window("at", "1 hour")).agg(F.max("pulse").alias("m")).where("m < 100"))
    assert examined(spark, lows) == ["device", "window", "m"], "a window is given out once, when it has ended"


def test_the_rule_of_late_rows_is_that_of_the_first_operator_with_state(spark: SparkSession) -> None:
    from sluice.flows.stateful import inputs, operators
    from sluice.lake import table_creation

    def rules(declared: Any) -> Any:
        given = [
            inputs.with_input_watermark(
                declared, name, inputs.make_empty_stream(spark, table_creation.parse_ddl_schema(COLUMNS[name]))
            )
            for name in declared.reads
        ]
        return operators.find_lateness_rules(declared, declared(*given), given)

    by_window = F.window("at", "10 minutes")
    assert rules(stream(lambda a: a.where("pulse > 1").groupBy(by_window.alias("w")).count(), keys="w")) == {"a": "window"}
    assert rules(stream(lambda a: a.groupBy(F.session_window("at", "1 minute")).count(), keys="session_window")) == {
        "a": "window"
    }
    assert rules(stream(lambda a: a.dropDuplicatesWithinWatermark(["device"]).groupBy(by_window).count())) == {"a": "time"}
    assert rules(stream(lambda a: a.groupBy("device", "at").count())) == {"a": "time"}
    assert rules(stream(lambda a: a.groupBy("device").count(), output="update")) == {}
    assert rules(stream(lambda a: a.groupBy(by_window).count(), output="complete")) == {"a": "timeless"}
    assert rules(stream(lambda a: a.groupBy("device").count(), output="complete")) == {}
    first_of_each = stream(lambda a: a.dropDuplicatesWithinWatermark(["device"]).groupBy("device").count(), output="complete")
    assert rules(first_of_each) == {"a": "time"}, "what is before the aggregation leaves rows out in any output"
    of_struct = stream(lambda a: a.withColumn("of", F.struct("pulse")).groupBy("of", "of.pulse", by_window).count())
    assert rules(of_struct) == {"a": "window"}
    assert rules(stream(lambda a: a.groupBy(F.to_date("at")).count(), output="update")) == {}
    assert rules(joined("inner")) == {"a": "time", "b": "time"}
