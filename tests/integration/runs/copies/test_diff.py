"""`sluice diff`: rows and columns that differ, by key, NULLs and kinds of columns included; nobody's values are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from delta.tables import DeltaTable
from tests.commands import use_roots_of

from sluice.cli import main
from sluice.errors import UsageError
from sluice.lake import table_creation
from sluice.lake.table_creation import TableShape
from sluice.pipeline_records import PipelineRecords
from sluice.runs.copies.table_comparison import DIFFERENT, ONLY_HERE, ONLY_THERE, compare_table_states
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.on_store

FIRST_DEVICE = 4_711_471_147_110
"""Its digits are in no path and no time by chance."""
COLUMNS = "k INT, p STRING, v DOUBLE, m MAP<STRING, INT>, l ARRAY<STRUCT<m: MAP<STRING, INT>>>, _delivery BIGINT"


def frame(spark: SparkSession, *rows: tuple[Any, ...], columns: str = COLUMNS) -> DataFrame:
    return spark.createDataFrame(list(rows), columns)


def row(
    k: int | None, v: float | None = 1.0, m: dict[str, int] | None = None, delivery: int = 1, inner: int = 1
) -> tuple[Any, ...]:
    return (k, f"person {k}", v, {"a": 1, "b": 2} if m is None else m, [({"x": inner},)], delivery)


def test_a_personal_key_is_not_shown_in_whichever_case_it_is_declared(spark: SparkSession) -> None:
    here, there = frame(spark, row(1)), frame(spark, row(2))
    found = compare_table_states(here, there, ("k", "p"), frozenset({"P"}))
    assert [set(one["key"]) for one in found.examples] == [{"k"}, {"k"}]


def test_rows_are_matched_by_key_and_compared_null_safely(spark: SparkSession) -> None:
    here = [row(None), row(1), row(2, None), row(3, float("nan")), row(4), row(5, m={"b": 2, "a": 1}), row(6), row(7)]
    there = [
        row(None),
        row(1, 2.0),
        row(2, None),
        row(3, float("nan")),
        row(4, delivery=2),
        row(5),
        row(6, inner=2),
        row(8),
        row(9, None),
    ]
    found = compare_table_states(frame(spark, *here), frame(spark, *there), ("k",), frozenset({"p"}))
    assert found.rows == {ONLY_HERE: 1, ONLY_THERE: 2, DIFFERENT: 2} and found.equal == 5
    assert (found.columns, found.arrival) == ({"v": 1, "l": 1}, {"_delivery": 1})
    assert not found.same and {one["key"]["k"] for one in found.examples} == {1, 6, 7, 8, 9}
    assert compare_table_states(frame(spark, *here), frame(spark, *here), ("k",), frozenset()).same
    moved = [row(1, delivery=2)]
    assert compare_table_states(frame(spark, row(1)), frame(spark, *moved), ("k",), frozenset()).same, (
        "where a row came from is no difference"
    )


def test_personal_keys_are_not_shown_and_a_repeated_key_is_told(spark: SparkSession) -> None:
    two = "k INT, p STRING"
    here, there = frame(spark, (1, "a"), (1, "a"), (2, "b"), columns=two), frame(spark, (1, "a"), (3, "c"), columns=two)
    found = compare_table_states(here, there, ("k", "p"), frozenset({"p"}))
    assert (found.repeated, found.rows[ONLY_HERE], found.rows[ONLY_THERE]) == (1, 1, 1)
    assert all(set(one["key"]) == {"k"} for one in found.examples) and len(found.examples) == 3
    assert compare_table_states(here, there, ("p",), frozenset({"p"})).examples == ()


@pytest.mark.thorough
def test_columns_that_one_side_has_and_other_types_are_told(spark: SparkSession) -> None:
    here, there = (
        frame(spark, (1, 2, 3), columns="k INT, a INT, b INT"),
        frame(spark, (1, 2, 4), columns="k INT, a BIGINT, c INT"),
    )
    found = compare_table_states(here, there, ("k",), frozenset())
    assert (found.only_here, found.only_there, dict(found.types)) == (("b",), ("c",), {"a": ("int", "bigint")})
    assert found.equal == 1 and not found.same
    with pytest.raises(UsageError, match="The key 'a' is not a column of one type on both sides"):
        compare_table_states(here, there, ("a",), frozenset())


@pytest.fixture
def heart_rates(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table of gym with two versions that differ in a device and a reading."""
    use_roots_of(monkeypatch, settings)
    path = PipelineRecords(settings, "gym").table_path("silver", "heart_rate")
    shape = TableShape(
        schema=table_creation.parse_ddl_schema("device_id BIGINT, time TIMESTAMP, heartrate DOUBLE"), comment="", statistics=()
    )
    table_creation.create_table(spark, path, shape)
    rows = spark.range(FIRST_DEVICE, FIRST_DEVICE + 3).selectExpr("id", "timestamp'2026-01-01 10:00:00'", "60D")
    rows.toDF("device_id", "time", "heartrate").write.format("delta").mode("append").save(path)
    DeltaTable.forPath(spark, path).update(f"device_id = {FIRST_DEVICE + 1}", {"heartrate": "61D"})
    DeltaTable.forPath(spark, path).delete(f"device_id = {FIRST_DEVICE + 2}")
    return path


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(("diff", "gym.heart_rate", *words))
    printed = capsys.readouterr()
    return ended.value.code, printed.out + printed.err


@pytest.mark.spark
def test_the_command_compares_versions_and_lakes(
    heart_rates: str, spark: SparkSession, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = asked(capsys, "--against", "1", "--json")
    found = json.loads(out.splitlines()[-1])
    assert code == 1 and found["rows"] == {ONLY_HERE: 0, ONLY_THERE: 1, DIFFERENT: 1} and found["columns"] == {"heartrate": 1}
    assert {one["row"] for one in found["examples"]} == {ONLY_THERE, DIFFERENT} and str(FIRST_DEVICE)[:-1] not in out
    code, out = asked(capsys, "--against", "1")
    assert code == 1 and "Columns that differ" in out and "2026-01-01 10:00:00" in out and str(FIRST_DEVICE)[:-1] not in out
    assert asked(capsys, "--against", "3")[0] == 0
    assert asked(capsys, "--against", settings.lake)[0] == 0
    code, out = asked(capsys, "--against", str(settings.landing))
    assert code == 2 and "is no version, date or instant" in out and "Nor is there a folder" in out
    settings.landing.mkdir()
    code, out = asked(capsys, "--against", str(settings.landing))
    assert code == 1 and "has no table 'gym.heart_rate'" in out
