"""Rules that cannot work on their table are found from its columns, each with what to do, before any data."""

from __future__ import annotations

from datetime import date

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.declare import expect, expect_all_or_drop, materialized_view, table
from sluice.errors import DeclarationError
from sluice.lake import table_creation
from sluice.quality import verdicts

pytestmark = pytest.mark.spark

COLUMNS = "device_id BIGINT, heartrate DOUBLE, model STRING, tags ARRAY<STRING>, `a b` INT"
WRONG = {
    "hartrate > 0": "its condition names 'hartrate', no column of it. Did you mean 'heartrate'?",
    "heartrate": "its condition is of type DOUBLE; it must be BOOLEAN",
    "NULL": "its condition is of type VOID; it must be BOOLEAN",
    "heartrate > 0, true": "its condition is no SQL over one row",
    "heartrate >": "its condition is no SQL over one row",
    "upper(model, 1) = 'x'": "its condition is no SQL over one row",
    "model LIKE tags": "its condition is no SQL over one row",
    "sum(heartrate) > 0": "its condition uses an aggregate, which looks at more than one row",
    "max(heartrate) OVER (PARTITION BY device_id) > 0": "its condition uses a window function, which",
    "device_id IN (SELECT 1)": "its condition uses a subquery, which",
    "explode(array(true))": "its condition uses a generator, which",
    "rand() < 0.5": "its condition uses something random",
    "CAST(model AS INT) > 0": "its condition reads text as INT, and any other text fails the run. Write try_cast(",
    "abs(heartrate) > 1 AND (model IS NULL OR device_id = model)": "its condition reads text as BIGINT, and any other text",
    "heartrate < hour(current_timestamp())": "its condition uses current_timestamp(): a replay would judge differently",
    "timestamp_seconds(heartrate) < DATE'Today'": "its condition uses DATE'Today', which moves from day to day",
    "timestamp_seconds(heartrate) < 'now'": "its condition uses the date 'now', which moves from day to day",
}
RIGHT = {
    "one": "heartrate BETWEEN 1 AND 230",
    "two": "model IN ('a', 'b') AND `a b` IS NOT NULL",
    "three": "exists(tags, tag -> tag = 'x')",
    "four": "try_cast(model AS INT) IS NOT NULL AND CAST(heartrate AS STRING) != model",
    "five": "timestamp_seconds(device_id) > '2020-01-01'",
    "six": f"timestamp_seconds(device_id) > DATE'{date.today()}' OR model = 'now'",
}


def test_each_wrong_condition_is_named_with_its_rule_and_the_right_ones_are_not(spark: SparkSession) -> None:
    names = {f"rule_{number}": text for number, text in enumerate(WRONG)}

    @table(reads="readings", keys="device_id")
    @expect_all_or_drop({**RIGHT, **names})
    def heart_rate(readings: DataFrame) -> DataFrame:
        return readings

    found = verdicts.find_condition_mistakes(spark, heart_rate, table_creation.parse_ddl_schema(COLUMNS))
    assert len(found) == len(WRONG), found
    for mistake, (name, text) in zip(found, names.items(), strict=True):
        assert mistake.startswith(f"Table 'heart_rate', expectation '{name}': {WRONG[text]}"), mistake
        assert "\n" not in mistake
    with pytest.raises(DeclarationError, match=r"expectation 'rule_0': .*hartrate"):
        verdicts.check_conditions(spark, heart_rate, table_creation.parse_ddl_schema(COLUMNS))


def test_right_conditions_pass_and_a_view_may_ask_the_clock_because_its_rows_stay(spark: SparkSession) -> None:
    @materialized_view(reads="heart_rate", keys="device_id")
    @expect("past", "timestamp_seconds(heartrate) < current_timestamp()")
    def devices(heart_rate: DataFrame) -> DataFrame:
        return heart_rate

    @table(reads="readings", keys="device_id")
    @expect_all_or_drop(RIGHT)
    def heart_rate(readings: DataFrame) -> DataFrame:
        return readings

    @table(reads="readings", keys="device_id")
    def without(readings: DataFrame) -> DataFrame:
        return readings

    for dataset in (devices, heart_rate, without):
        assert verdicts.find_condition_mistakes(spark, dataset, table_creation.parse_ddl_schema(COLUMNS)) == []
        verdicts.check_conditions(spark, dataset, table_creation.parse_ddl_schema(COLUMNS))
