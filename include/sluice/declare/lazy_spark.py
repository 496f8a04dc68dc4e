"""What declarations name of Spark, which loads only where it is used: its functions, and its types without Spark.

A DAG file imports a pipeline's declarations, and parsing it must not cost a load of pyspark. Files are loaded where there is none, too.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Window as Window
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType
else:

    class _Lazy:
        """Stands for a module or a class of pyspark until an attribute of it is asked for."""

        def __init__(self, module: str, attribute: str | None = None) -> None:
            self._module = module
            self._attribute = attribute

        def __getattr__(self, name: str) -> Any:
            loaded = importlib.import_module(self._module)
            return getattr(getattr(loaded, self._attribute) if self._attribute else loaded, name)

    F = _Lazy("pyspark.sql.functions")
    Window = _Lazy("pyspark.sql", "Window")

__all__ = ["TEXT_TYPES", "WHOLE_NUMBER_TYPES", "F", "Window", "write_schema_text"]

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
