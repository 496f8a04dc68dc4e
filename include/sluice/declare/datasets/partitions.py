"""Text that files are laid out by: Delta keeps an empty one as NULL (PROTOCOL.md, "Partition Value Serialization").

So it is NULL from where the transform is called on. A row that was made would otherwise never be the one that is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sluice.declare.lazy import F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TEXTS = ("string", "char", "varchar")


def null_empty_partition_texts(rows: DataFrame, partition_by: Sequence[str]) -> DataFrame:
    """The rows, empty texts in partition columns being NULL."""
    texts = [name for name in partition_by if name in rows.columns and rows.schema[name].dataType.typeName() in _TEXTS]
    for name in texts:
        rows = rows.withColumn(name, F.nullif(F.col(f"`{name}`"), F.lit("")))
    return rows
