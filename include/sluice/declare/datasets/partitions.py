"""Empty texts in partition columns become NULL, as Delta stores them (PROTOCOL.md, "Partition Value Serialization").

They become NULL as soon as the transform is called. Otherwise a row that was made would never equal the one that is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.declare.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXTS = ("string", "char", "varchar")


def null_empty_partition_texts(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """The rows, with NULL for empty texts in partition columns."""
    texts = [name for name in partition_by if name in rows.columns and rows.schema[name].dataType.typeName() in _TEXTS]
    for name in texts:
        rows = rows.withColumn(name, F.nullif(F.col(f"`{name}`"), F.lit("")))
    return rows
