"""Names of columns, as SQL and Spark take them whatever is in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.declare.lazy_spark import F

if TYPE_CHECKING:
    from pyspark.sql import Column


def quote_identifier(name: str) -> str:
    """A column's name in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def quote_column(name: str, alias: str = "") -> Column:
    """The column of this name, though it may have a dot in it. alias: of the frame that it is in, if that has one."""
    return F.col(f"{alias}.{quote_identifier(name)}" if alias else quote_identifier(name))


def quote_columns(names: Iterable[str], alias: str = "") -> list[Column]:
    """The columns of these names."""
    return [quote_column(name, alias) for name in names]
