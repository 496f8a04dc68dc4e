"""Takes values of Arrow to Python, which knows only the years 1 to 9999. Spark writes dates and instants of other years, too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType


def list_known_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns a column's values. None, as for a value that nobody knows, stands for one that Python cannot hold."""
    try:
        known: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [None if _is_beyond_python(value) else value.as_py() for value in column]
    return known


def list_values_or_texts(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Returns a column's values. A text, as Delta's log and Spark's casts have it, stands for one that Python cannot hold."""
    try:
        known: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return [_take_value_or_text(value) for value in column]
    return known


def list_rows_with_texts(rows: pa.Table) -> list[dict[str, Any]]:
    """Returns the rows by column. A text stands for a value that Python cannot hold."""
    columns = [list_values_or_texts(column) for column in rows.columns]
    return [dict(zip(rows.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def collect_rows_with_texts(frame: DataFrame) -> list[dict[str, Any]]:
    """Collects a frame's rows, by column. A text stands for a date or an instant that Python cannot hold, and for what holds any.

    Only a frame with such a value is computed a second time. Call it for few rows.
    """
    try:
        rows: list[Any] = frame.collect()
    except (OverflowError, ValueError):
        rows = _collect_values_or_texts(frame)
    return [dict(zip(frame.columns, row, strict=True)) for row in rows]


def _collect_values_or_texts(frame: DataFrame) -> list[list[Any]]:
    from pyspark.sql import functions as F

    kinds = [field.dataType for field in frame.schema]
    numbered = frame.toDF(*(f"_{position}" for position in range(len(kinds))))  # a query may give two columns one name
    known = [_keep_if_python_holds(F.col(name), kind) for name, kind in zip(numbered.columns, kinds, strict=True)]
    texts = [F.when(one.isNull(), F.col(name).cast("string")) for name, one in zip(numbered.columns, known, strict=True)]
    found = numbered.select(*known, *texts).collect()
    of_texts = len(kinds)
    return [
        [row[of_texts + position] if row[position] is None else row[position] for position in range(of_texts)] for row in found
    ]


def _keep_if_python_holds(column: Column, kind: DataType) -> Column:
    """Returns the column with NULL for what Python may not hold: instants of the first and the last day depend on the zone."""
    from pyspark.sql import functions as F

    first_and_last = {
        "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
        "timestamp": ("TIMESTAMP'0001-01-03 00:00:00Z'", "TIMESTAMP'9999-12-29 00:00:00Z'"),
        "timestamp_ntz": ("TIMESTAMP_NTZ'0001-01-03 00:00:00'", "TIMESTAMP_NTZ'9999-12-29 00:00:00'"),
    }
    if kind.typeName() in first_and_last:
        return F.when(column.between(*map(F.expr, first_and_last[kind.typeName()])), column)
    holds_any = '"date"' in kind.json() or '"timestamp' in kind.json()
    return F.lit(None).cast(kind) if holds_any else column


def _is_beyond_python(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (OverflowError, ValueError):
        return True
    return False


def _take_value_or_text(value: pa.Scalar) -> Any:
    if not _is_beyond_python(value):
        return value.as_py()
    if isinstance(value, pa.StructScalar):
        return {name: _take_value_or_text(value[name]) for name in value}
    if isinstance(value, pa.ListScalar):
        return [_take_value_or_text(item) for item in value.values]
    text = str(value.cast(pa.string()).as_py())
    return text if text.startswith("-") or text.index("-") == 4 else f"+{text}"
