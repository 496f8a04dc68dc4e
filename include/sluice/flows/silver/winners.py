"""Which row of a key wins: the highest sequence, then the content. Never arrival, so any order of deliveries gives the same table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from sluice.declare.cdc import change_log
from sluice.declare.datasets.tables import Table
from sluice.lake.workspace import PROVENANCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


def select_winning_rows(table: Table[Any], rows: DataFrame) -> DataFrame:
    """One row a key. Of equal rows, the one with the provenance that came first."""
    content = [name for name in rows.columns if name not in PROVENANCE]
    packed = rows.select(F.struct(*(F.col(f"`{name}`") for name in rows.columns)).alias("new"))
    keys = [F.col(f"new.`{key}`") for key in table.keys]
    order = [row_precedence(table, "new", content).desc(), F.col("new._delivery"), F.col("new._row")]
    ranked = packed.withColumn("_rank", F.row_number().over(Window.partitionBy(*keys).orderBy(*order)))
    return ranked.where(F.col("_rank") == 1).select("new.*")


def row_precedence(table: Table[Any], side: str, content: Sequence[str]) -> Column:
    """The order of the rows of one key, in the struct column `side`: the sequence, then the hash of the content.

    NULL fields are left out of the content: a column that comes later must not change the order of older rows.
    """
    hashed = change_log.hash_row_content({name: F.col(f"{side}.`{name}`") for name in content})
    sequence = [F.col(f"{side}.`{table.sequence_by}`").alias("sequence")] if table.sequence_by else []
    return F.struct(*sequence, hashed.alias("content"))


def replace_negative_zeros(frame: DataFrame) -> DataFrame:
    """The frame with 0.0 for -0.0: Spark holds them equal, but their texts differ, and ties are decided by text."""
    floating = [field.name for field in frame.schema if isinstance(field.dataType, DoubleType | FloatType)]
    return frame.withColumns({name: F.col(f"`{name}`") + F.lit(0.0).cast(frame.schema[name].dataType) for name in floating})
