"""Rows that stand in a test, as a DataFrame of the columns that the real table has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sluice.errors import UsageError, nearest
from sluice.flows.bronze.append import TECHNICAL
from sluice.lake import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Given = Iterable[Mapping[str, Any] | Sequence[Any]]


def frame(session: SparkSession, name: str, rows: Given, columns: StructType | None, technical: bool) -> DataFrame:
    """The rows of an input. columns: None where those of the rows count, with the types of their values.

    technical: of a source, whose bronze table has Sluice's columns too. Raises UsageError where rows and columns do not fit.
    """
    own = tables.columns(TECHNICAL) if technical else StructType([])
    given = list(rows)
    known = columns or _inferred(session, name, given)
    plain = [StructField(one.name, one.dataType, True) for one in known if one.name not in own.names]
    schema = StructType([*plain, *own.fields])
    named = [_numbered(_named(name, row, schema, len(plain)), number, own) for number, row in enumerate(given)]
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = [_array(name, field, [row.get(field.name) for row in named]) for field in arrow]
    return session.createDataFrame(pa.Table.from_arrays(arrays, schema=arrow), schema)


def _inferred(session: SparkSession, name: str, given: list[Any]) -> StructType:
    if not given or not all(isinstance(row, Mapping) for row in given):
        raise UsageError(
            f"The columns of '{name}' are not known: write its rows as dicts, or say columns={{'{name}': 'id BIGINT, ...'}}."
        )
    names = dict.fromkeys(column for row in given for column in row)
    return session.createDataFrame(pa.table({one: pa.array([row.get(one) for row in given]) for one in names})).schema


def _named(name: str, row: Mapping[str, Any] | Sequence[Any], schema: StructType, own_from: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        unknown = [column for column in row if column not in schema.names]
        if unknown:
            raise UsageError(
                f"A row of '{name}' has the column '{unknown[0]}', which is none of it.{nearest(unknown[0], schema.names)}"
            )
        return dict(row)
    if len(row) != own_from:
        raise UsageError(
            f"A row of '{name}' has {len(row)} values, it has {own_from} columns: {', '.join(schema.names[:own_from])}."
        )
    return dict(zip(schema.names, row, strict=False))


def _numbered(row: dict[str, Any], number: int, own: StructType) -> dict[str, Any]:
    """The row with its provenance, unless the test says it: all rows are of one delivery."""
    return {"_delivery": 1, "_row": number, **row} if own.fields else row


def _array(name: str, field: pa.Field, values: list[Any]) -> pa.Array:
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise UsageError(f"Column '{field.name}' of '{name}' is {field.type}; the rows have {' and '.join(kinds)}.") from error
