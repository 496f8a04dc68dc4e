"""Which rows of a table's quarantine were judged again: those with exactly the keys that were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.flows.silver.table_quarantine import _flag_rows_judged_again
from sluice.lake import table_creation
from sluice.quality import quarantine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_keys_that_differ_by_microseconds_are_two_and_rows_of_earlier_versions_are_still_found(spark: SparkSession) -> None:
    at = "2026-11-20T10:00:00"
    texts = [f"{at}.123456Z", f"{at}.123789Z", f"{at}.123Z", f"{at}.124Z", f"{at}.500000Z"]
    made = [(1, number, f'{{"id":1,"at":"{text}","other":"{at}.123Z"}}') for number, text in enumerate(texts)]
    present = table_creation.make_inline_frame(spark, made, "_delivery BIGINT, _row BIGINT, made STRING")
    positions = table_creation.make_inline_frame(spark, [row[:2] for row in made], "_delivery BIGINT, _row BIGINT")
    keys = spark.sql(f"SELECT 1L AS id, explode(array(TIMESTAMP '{at}.123456Z', TIMESTAMP '{at}.500Z')) AS at")
    flagged = _flag_rows_judged_again(present, positions, positions.limit(0), keys)
    found = {row._row: row[quarantine.JUDGED_AGAIN] for row in flagged.collect()}
    assert found == {0: True, 1: False, 2: True, 3: False, 4: True}, "the third was written to the millisecond, before"
