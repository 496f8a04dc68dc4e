"""`sluice.testing`: a declared table over rows that stand in the test, expectations included, in three lines."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.declare import (
    Source,
    auto_cdc,
    expect,
    expect_or_drop,
    expect_or_fail,
    expect_or_quarantine,
    materialized_view,
    table,
    temporary_view,
    treat,
)
from sluice.errors import DeclarationError, SluiceError, UsageError
from sluice.testing import run, session

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

READINGS = Source(name="readings", schema="device_id BIGINT, at TIMESTAMP, rate DOUBLE, mail STRING")
CHANGES = Source(name="changes", schema="id BIGINT, seq BIGINT, city STRING, op STRING")


@table(reads="readings", keys=("device_id", "at"), sequence_by="rate", personal={"mail": treat.hmac("mail", canonical="lower")})
@expect_or_quarantine("positive", "rate > 0")
@expect_or_drop("known", "device_id IS NOT NULL")
@expect("plausible", "rate < 230")
@expect_or_fail("no_666", "rate != 666", null_ok=True)
def heart_rate(readings: DataFrame) -> DataFrame:
    """Heart rates."""
    return readings.select("device_id", "at", "rate", "mail")


@temporary_view(reads="readings")
def good_readings(readings: DataFrame) -> DataFrame:
    """Readings with a device."""
    return readings.where("device_id IS NOT NULL")


@table(
    reads="good_readings",
    keys="device_id",
    sequence_by="at",
    schema="device_id BIGINT NOT NULL, at TIMESTAMP, rate DOUBLE CHECK (rate > 0)",
)
def latest(rows: DataFrame) -> DataFrame:
    """The latest of each device."""
    return rows.select("device_id", "at", "rate")


@materialized_view(reads="latest", keys="high")
def by_height(latest: DataFrame) -> DataFrame:
    """How many devices are high, and how many low."""
    return latest.groupBy((F.col("rate") > 100).alias("high")).count()


members = auto_cdc(
    "members", reads="changes", keys="id", sequence_by="seq", apply_as_deletes="op = 'delete'", except_column_list="op"
)


def at(second: int) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)


def reading(device: int | None, second: int, rate: float | None, **more: Any) -> dict[str, Any]:
    return {"device_id": device, "at": at(second), "rate": rate, **more}


def test_rows_are_stored_set_aside_dropped_and_counted_as_the_flow_would() -> None:
    result = run(
        heart_rate,
        readings=[
            reading(1, 1, 80.0, mail=" A@x "),
            reading(1, 1, 300.0, mail="a@X"),
            reading(1, 2, -1.0),
            reading(None, 3, 70.0),
            reading(2, 4, None),
            reading(None, 5, 0.0),
        ],
    )
    assert [(row["device_id"], row["rate"]) for row in result.rows] == [(1, 300.0)]
    assert sorted(result.rows[0]) == ["at", "device_id", "mail", "rate"]
    assert len(result.rows[0]["mail"]) == 64
    assert [(row["rate"], row["_failed_rules"]) for row in result.quarantined] == [
        (-1.0, ["positive"]),
        (None, ["positive", "plausible"]),
        (0.0, ["positive", "known"]),
    ]
    assert [(row["rate"], row["_failed_rules"]) for row in result.dropped] == [(70.0, ["known"])]
    assert result.failed["positive"] == 3 and result.failed["known"] == 2
    with pytest.raises(SluiceError, match="'no_666', which must not happen"):
        run(heart_rate, readings=[reading(1, 1, 666.0)])


def test_pseudonyms_are_the_same_in_every_test() -> None:
    one, two = (run(heart_rate, readings=[(1, at(1), 80.0, mail)]).rows for mail in ("a@x", " A@X"))
    assert one == two


def test_a_temporary_view_runs_with_its_reader_or_is_given_itself() -> None:
    rows = [reading(None, 1, 5.0), reading(1, 1, 5.0), reading(1, 2, 9.0), reading(2, 1, -3.0)]
    through = run(latest, readings=rows)
    assert through.rows == [{"device_id": 1, "at": datetime(2026, 1, 1, 0, 0, 2), "rate": 9.0}]
    assert through.failed == {"check_rate": 1}
    itself = run(latest, good_readings=rows)
    assert itself.failed == {"not_null_device_id": 1, "check_rate": 1}
    assert [row["device_id"] for row in run(good_readings, readings=rows).rows] == [1, 1, 2]


def test_a_view_runs_over_its_input_or_over_what_that_is_made_of(spark: SparkSession) -> None:
    given = run(by_height, latest=[{"device_id": 1, "at": at(1), "rate": 50.0}, {"device_id": 2, "at": at(1), "rate": 150.0}])
    assert given.rows == [{"high": False, "count": 1}, {"high": True, "count": 1}]
    assert run(by_height, readings=[reading(1, 1, 50.0), reading(1, 2, 150.0)]).rows == [{"high": True, "count": 1}]
    frame = spark.createDataFrame([(1, 7.0)], "device_id BIGINT, rate DOUBLE")
    assert run(by_height, latest=frame).rows == [{"high": False, "count": 1}]


def test_an_auto_cdc_runs_over_its_changes() -> None:
    changes = [(1, 2, "Rome", "u"), (1, 1, "Oslo", "i"), (2, 5, None, "delete"), (2, 4, "Bern", "i"), (None, 1, "x", "i")]
    result = run(members, changes=changes)
    assert result.rows == [{"id": 1, "seq": 2, "city": "Rome"}]
    assert len(result.quarantined) == 1


def test_columns_are_said_or_taken_from_the_values() -> None:
    wide = table(reads="things", keys="id", name="wide")(lambda things: things.select("id", "n"))
    assert run(wide, things=[{"id": 1}, {"id": 2, "n": 2.5}]).rows == [{"id": 1, "n": None}, {"id": 2, "n": 2.5}]
    assert run(wide, columns={"things": "id INT, n STRING"}, things=[(1, "x")]).rows == [{"id": 1, "n": "x"}]
    assert run(wide, using=[Source(name="things", schema="id INT, n DATE")], things=[]).rows == []


@pytest.mark.parametrize(
    ("inputs", "error", "said"),
    [
        ({"reading": []}, UsageError, "'reading' is given, but nothing reads it. Did you mean 'readings'?"),
        ({"readings": [(1,)]}, UsageError, "has 1 value, it has 4 columns: device_id, at, rate, mail"),
        (
            {"readings": [{"devise_id": 1}]},
            UsageError,
            "the column 'devise_id', which it does not have. Did you mean 'device_id'?",
        ),
        ({"readings": [{"device_id": "one"}]}, UsageError, "Column 'device_id' of 'readings' is int64; the rows have str"),
        ({"readings": [], "changes": []}, UsageError, "'changes' is given, but nothing reads it"),
    ],
)
def test_rows_that_do_not_fit_are_named(inputs: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error) as caught:
        run(heart_rate, **inputs)
    assert said in str(caught.value)


def test_what_a_flow_refuses_is_refused_here() -> None:
    sorting = table(reads="readings", keys="rate", name="sorting")(lambda readings: readings.orderBy("rate"))
    with pytest.raises(DeclarationError, match="'sorting' uses ORDER BY"):
        run(sorting, readings=[reading(1, 1, 5.0)])
    typed = table(reads="readings", keys="rate", name="typed", schema="rate BIGINT")(lambda readings: readings.select("rate"))
    with pytest.raises(DeclarationError, match="'rate' is bigint, its transform gives double"):
        run(typed, readings=[reading(1, 1, 5.0)])
    twice = materialized_view(reads="latest", keys="rate", name="twice")(lambda latest: latest.select("rate"))
    mapped = table(reads="readings", keys="rate", name="mapped")(
        lambda readings: readings.selectExpr("rate", "map('a', rate) AS m")
    )
    with pytest.raises(DeclarationError, match="'mapped': its column 'm' is a MAP, which Spark cannot compare"):
        run(mapped, readings=[reading(1, 1, 5.0)])
    seen = materialized_view(reads="latest", keys="rate", name="seen")(
        lambda latest: latest.selectExpr("rate", "array(map(1, 2)) AS m")
    )
    with pytest.raises(DeclarationError, match="'seen': its column 'm' holds a MAP"):
        run(seen, latest=[{"rate": 5.0}])
    with pytest.raises(SluiceError, match=r"'twice': 1 key \(rate\) comes more than once"):
        run(twice, latest=[{"rate": 5.0}, {"rate": 5.0}])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda latest: latest.where("at > current_date()"), "current_date"),
        (lambda latest: latest.withColumn("rate", F.rand()), "something random"),
        (lambda latest: latest.where(F.lit(latest.count() > 0)), "asks for rows while its transform is called"),
    ],
)
def test_a_view_that_every_run_refuses_is_refused_in_a_test(function: Any, message: str) -> None:
    seen = materialized_view(reads="latest", keys="device_id", name="seen")(function)
    with pytest.raises(DeclarationError, match=message):
        run(seen, latest=[(1, at(1), 80.0)])


def test_the_session_of_tests_stays_the_active_one(spark: SparkSession) -> None:
    below = materialized_view(reads="latest", keys="device_id", name="below", sql="SELECT device_id, rate FROM latest")
    both = materialized_view(
        reads=("below", "devices"),
        keys="device_id",
        name="both",
        sql="SELECT b.device_id, b.rate, d.name FROM below AS b JOIN devices AS d ON b.device_id = d.device_id",
    )
    before = session()
    devices = Source(name="devices", schema="device_id BIGINT, name STRING")
    result = run(both, using=[below, devices], latest=[(1, at(1), 80.0)], devices=[(1, "left")])
    assert [row["name"] for row in result.rows] == ["left"]
    assert session() is before


def test_a_view_that_reads_files_or_leaves_out_an_input_is_refused_in_a_test(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(1).write.parquet(str(tmp_path / "rates"))
    of_files = materialized_view(reads="latest", keys="device_id", name="of_files")(
        lambda latest: latest.crossJoin(spark.read.parquet(str(tmp_path / "rates")))
    )
    with pytest.raises(DeclarationError, match="reads a table or files that it does not name"):
        run(of_files, latest=[(1, at(1), 80.0)])
    of_one = materialized_view(reads=("latest", "heart_rate"), keys="device_id", name="of_one")(lambda latest, other: latest)
    with pytest.raises(DeclarationError, match="reads 'heart_rate' but does not use it"):
        run(of_one, latest=[(1, at(1), 80.0)], heart_rate=[(1, at(1), 80.0, "a@x")], columns={"heart_rate": READINGS.ddl or ""})


def test_changes_whose_treated_key_is_empty_are_quarantined_and_not_the_changes_of_one_key() -> None:
    members = auto_cdc("members", reads="people", keys="mail", sequence_by="seq", personal={"mail": treat.hmac("mail")})
    result = run(
        members,
        people=[(" ", 1, "Rome"), ("", 2, "Bari"), ("a@b", 3, "Pisa"), (None, 4, "Asti")],
        columns={"people": "mail STRING, seq BIGINT, city STRING"},
    )
    assert [row["city"] for row in result.rows] == ["Pisa"]
    assert sorted(row["city"] for row in result.quarantined) == ["Asti", "Bari", "Rome"]
    assert result.failed["known_key_and_sequence"] == 3
