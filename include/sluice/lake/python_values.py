"""Takes values of Arrow to Python, which knows only the years 1 to 9999. Spark writes dates and instants of other years, too."""

from __future__ import annotations

from typing import Any

import pyarrow as pa


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
