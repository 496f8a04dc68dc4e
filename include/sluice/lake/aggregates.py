"""Computes aggregates of a frame in one pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def compute_aggregates(rows: DataFrame, *asked: Column) -> dict[str, Any]:
    """Returns the aggregates of all rows, by name.

    The one row is collected as it is: `first` would put a LIMIT above it, with which Spark analyses and plans the query once more.
    """
    (row,) = rows.agg(*asked).collect()
    found: dict[str, Any] = row.asDict()
    return found
