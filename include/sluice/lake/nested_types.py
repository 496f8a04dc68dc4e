"""Compares and converts types by the names of their nested fields. Spark's own casts go by the fields' positions and number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column


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
