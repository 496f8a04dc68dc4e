"""Spark's types without Spark, as declarations name them: files are loaded where there is none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark's types by the names that `DataType.typeName()` gives, without what is in brackets.

TEXT_TYPES = ("string", "char", "varchar")
WHOLE_NUMBER_TYPES = ("byte", "short", "integer", "long")


_PLAIN_NAME = re.compile(r"(?!\d+\Z)\w+\Z", re.ASCII)


def write_schema_text(schema: StructType | str | None) -> Any:
    """Returns the DDL of a StructType, as Spark writes it; anything else unchanged."""
    return ",".join(_write_field(one, " ") for one in schema.fields) if _is_struct(schema) else schema  # type: ignore[union-attr]


def _is_struct(given: Any) -> bool:
    return hasattr(given, "typeName") and given.typeName() == "struct"


def _write_field(field: Any, between: str) -> str:
    name = field.name if _PLAIN_NAME.match(field.name) else f"`{field.name.replace('`', '``')}`"
    comment = (field.metadata or {}).get("comment", "").replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}{between}{_write_type(field.dataType)}{'' if field.nullable else ' NOT NULL'}" + (
        f" COMMENT '{comment}'" if comment else ""
    )


def _write_type(kind: Any) -> str:
    if _is_struct(kind):
        return f"STRUCT<{', '.join(_write_field(one, ': ') for one in kind.fields)}>"
    if kind.typeName() == "array":
        return f"ARRAY<{_write_type(kind.elementType)}>"
    if kind.typeName() == "map":
        return f"MAP<{_write_type(kind.keyType)}, {_write_type(kind.valueType)}>"
    return str(kind.simpleString()).upper()
