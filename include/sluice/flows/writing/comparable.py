"""Which columns Spark can compare: what differs is what is written, so a column that has no `<=>` can be in no table that is merged into."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sluice.declare.datasets.tables import Dataset, MaterializedView, Table
from sluice.errors import DeclarationError

_INSTEAD = {
    "map": "an array (map_entries) or a text (to_json)",
    "variant": "a text (to_json) or the fields that are used (variant_get)",
}


def check(dataset: Dataset[Any], schema: StructType) -> None:
    """Raises DeclarationError for a column of a table or view that cannot be compared, whole or in a part of it."""
    if not isinstance(dataset, Table | MaterializedView):
        return  # a stream appends, and merges by keys what its state gives
    for field in schema:
        kind = _incomparable(field.dataType)
        if kind:
            what = "is" if field.dataType.typeName() == kind else "holds"
            raise DeclarationError(
                f"Table '{dataset.name}': its column '{field.name}' {what} a {kind.upper()}, which Spark cannot compare, and rows that did "
                f"not change are told by comparing them. Store it as {_INSTEAD[kind]}."
            )


def _incomparable(kind: DataType) -> str | None:
    if isinstance(kind, MapType) or kind.typeName() == "variant":
        return str(kind.typeName())
    if isinstance(kind, ArrayType):
        return _incomparable(kind.elementType)
    if isinstance(kind, StructType):
        return next((found for field in kind if (found := _incomparable(field.dataType))), None)
    return None
