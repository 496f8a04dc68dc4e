"""Compares and converts types by the names of their nested fields. Spark's own casts go by the fields' positions and number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sluice.declare.quoting import quote_column, quote_identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def has_other_type(there: DataType, wanted: DataType) -> bool:
    """Whether two types differ in more than nested fields that only one of them has, and in where NULL may stand."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        return any(has_other_type(one.dataType, other.dataType) for one, other in _pair_fields(there, wanted))
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        return has_other_type(there.elementType, wanted.elementType)
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        return there.keyType != wanted.keyType or has_other_type(there.valueType, wanted.valueType)
    return there != wanted


def union_nested_fields(there: DataType, wanted: DataType) -> DataType:
    """Returns the wanted type with the nested fields that only `there` has; fields that both have stay in their position."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        return union_columns(there, wanted)
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        return ArrayType(union_nested_fields(there.elementType, wanted.elementType))
    if isinstance(there, MapType) and isinstance(wanted, MapType):
        return MapType(wanted.keyType, union_nested_fields(there.valueType, wanted.valueType))
    return wanted


def union_columns(there: StructType, wanted: StructType) -> StructType:
    """Returns the columns of both, also nested ones. A column of both has the wanted type. Upper and lower case are one."""
    fresh = {field.name.lower(): field for field in wanted}
    names = {field.name.lower() for field in there}
    both = [
        StructField(field.name, union_nested_fields(field.dataType, fresh[field.name.lower()].dataType), True, field.metadata)
        if field.name.lower() in fresh
        else field
        for field in there
    ]
    return StructType([*both, *(field for field in wanted if field.name.lower() not in names)])


def find_added_fields(there: DataType, wanted: DataType, name: str) -> Iterator[tuple[str, StructField]]:
    """Yields the nested fields that only the wanted type has, each with its path in SQL. name: the column's. Upper and lower case are one."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower() for field in there}
        for field in wanted:
            if field.name.lower() not in known:
                yield f"{name}.{quote_identifier(field.name)}", field
        for one, other in _pair_fields(there, wanted):
            yield from find_added_fields(one.dataType, other.dataType, f"{name}.{quote_identifier(one.name)}")
    elif isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        yield from find_added_fields(there.elementType, wanted.elementType, f"{name}.element")
    elif isinstance(there, MapType) and isinstance(wanted, MapType):
        yield from find_added_fields(there.valueType, wanted.valueType, f"{name}.value")


def type_ddl(kind: DataType) -> str:
    """Returns a type as SQL has it. Nested fields may have names that must be quoted, which Spark's own text does not do."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quote_identifier(field.name)}: {type_ddl(field.dataType)}' for field in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_ddl(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_ddl(kind.keyType)}, {type_ddl(kind.valueType)}>"
    return str(kind.simpleString())


def arrange_nested_fields(rows: DataFrame, table: StructType) -> DataFrame:
    """Returns rows that were made for a table with their nested fields in its order; a field that a row lacks is NULL.

    Spark compares and joins structs by the positions of their fields, and a table has a field that came later last.
    """
    given = {field.name: quote_column(field.name) for field in rows.schema}
    arranged = arrange_nested_columns(given, rows.schema, table)
    moved = {name: column for name, column in arranged.items() if column is not given[name]}
    return rows.withColumns(moved) if moved else rows


def arrange_nested_columns(columns: Mapping[str, Column], schema: StructType, wanted: StructType) -> dict[str, Column]:
    """Returns columns by name, those with their nested fields in another order than wanted in that order. schema: has their types."""
    there, orders = ({field.name: field.dataType for field in one} for one in (schema, wanted))
    return {
        name: cast_by_field_names(column, there[name], orders[name])
        if name in orders
        and there[name].simpleString() != orders[name].simpleString()
        and not has_other_type(there[name], orders[name])
        else column
        for name, column in columns.items()
    }


def cast_by_field_names(value: Column, there: DataType, wanted: DataType) -> Column:
    """Returns the value in another type: a nested field that it lacks is NULL, and so is what cannot be cast."""
    if isinstance(there, StructType) and isinstance(wanted, StructType):
        known = {field.name.lower(): field for field in there}
        fields = [
            cast_by_field_names(
                value.getField(known[field.name.lower()].name), known[field.name.lower()].dataType, field.dataType
            )
            if field.name.lower() in known
            else F.lit(None).cast(field.dataType)
            for field in wanted
        ]
        named = F.struct(*(one.alias(field.name) for one, field in zip(fields, wanted, strict=True)))
        return F.when(value.isNotNull(), named)
    if isinstance(there, ArrayType) and isinstance(wanted, ArrayType):
        return F.transform(value, lambda item: cast_by_field_names(item, there.elementType, wanted.elementType))
    if isinstance(there, MapType) and isinstance(wanted, MapType) and there.keyType == wanted.keyType:
        return F.transform_values(value, lambda _, item: cast_by_field_names(item, there.valueType, wanted.valueType))
    return value if there == wanted else value.try_cast(wanted)


def _pair_fields(there: StructType, wanted: StructType) -> Iterator[tuple[StructField, StructField]]:
    """Returns the fields that both structs have."""
    known = {field.name.lower(): field for field in there}
    return ((known[field.name.lower()], field) for field in wanted if field.name.lower() in known)
