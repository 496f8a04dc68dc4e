"""Frames that stand for tables in a plan that is only looked at: they have a table's columns, and no row of theirs is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from sluice.flows import plans

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_ASKED = "a row of a placeholder was asked for"


def make_empty_placeholder(session: SparkSession, schema: StructType | str) -> DataFrame:
    """Returns a frame without rows. It is not an empty local relation, which the optimiser would fold away with everything that reads it."""
    return session.createDataFrame(session.sparkContext.emptyRDD().map(lambda row: row), schema)


def make_untouchable_placeholder(session: SparkSession, schema: StructType) -> DataFrame:
    """Returns a frame that raises an error when its rows are asked for, which `is_from_placeholder` knows."""

    def refuse(_: object, said: str = _ASKED) -> NoReturn:
        raise RuntimeError(said)  # runs in a worker, which may not find this module

    return session.createDataFrame(session.sparkContext.parallelize([0], 1).map(refuse), schema)


def is_from_placeholder(error: Exception) -> bool:
    """Whether Spark's error says that a row of an untouchable placeholder was asked for."""
    return _ASKED in str(error)


def identify_placeholder(frame: DataFrame) -> int:
    """The id by which `plans.count_input_reads` and its like know the placeholder in a plan."""
    return int(plans.analyzed_plan(frame).rdd().id())
