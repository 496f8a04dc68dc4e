"""Makes the first commit of an empty table through delta-rs: Spark takes half a second for it, delta-rs hundredths.

Only a table that any reader and writer would find the same is made so: a plain protocol, and nothing that Delta on Spark would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError
from pyspark.sql.types import ArrayType, DataType, DecimalType, StructType

from sluice import delta_log
from sluice.delta_rs_commits import complete_commit
from sluice.errors import SluiceError
from sluice.lake.commit_marks import read_session_mark
from sluice.lake.layout_properties import LAYOUT_PROPERTIES
from sluice.locations import is_on_disk, locate
from sluice.open_tables import keep_written_table
from sluice.stores.settling import store_commit_properties
from sluice.table_properties import DELETION_VECTORS, INSTANTS, STATISTICS, parse_statistics_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KNOWN_PROPERTIES = frozenset({*(one.name for one in LAYOUT_PROPERTIES), INSTANTS})
"""Not CHECKs, whose conditions Spark examines, nor what else asks for more of readers and writers."""
_TYPES = frozenset({
    *("boolean", "byte", "short", "integer", "long", "float", "double", "decimal"),
    *("string", "binary", "date", "timestamp"),
})
"""Not timestamp_ntz: with the features that this type needs, delta-rs leaves out the one by which NOT NULL holds (1.6.6, tried)."""
_WITH_STATISTICS = _TYPES - {"boolean", "binary"}
_NAME = re.compile(r"\w+")
_INTERVAL = re.compile(r"interval \d{1,9} (second|minute|hour|day|week)s?")
_DEFAULTS = "spark.databricks.delta.properties.defaults."
"""How a session names properties that Delta on Spark gives to each new table."""


def is_created_by_delta_rs(
    session: SparkSession, path: str, schema: StructType, properties: Mapping[str, str], partition_by: Sequence[str]
) -> bool:
    """Whether an empty table with this schema and these properties is made through delta-rs. On an object store Spark makes it.

    If the folder holds anything, Spark says why there can be no table.
    """
    columns = {field.name: field.dataType for field in schema}
    return (
        is_on_disk(locate(path))
        and _is_free(path)
        and properties.keys() <= _KNOWN_PROPERTIES
        and properties.get(DELETION_VECTORS, "false") == "false"
        and all(_INTERVAL.fullmatch(value) for value in properties.values() if value.startswith("interval"))
        and _has_plain_fields(schema)
        and set(partition_by) < columns.keys()
        and _are_of_types(columns, partition_by, _TYPES)
        and _are_of_types(columns, parse_statistics_columns(properties.get(STATISTICS, "")), _WITH_STATISTICS)
        and not any(name.startswith(_DEFAULTS) for name in session.conf.getAll)
    )


def create_empty_table(
    session: SparkSession, path: str, schema: StructType, comment: str, properties: Mapping[str, str], partition_by: Sequence[str]
) -> None:
    """Makes the table, unless somebody else does so meanwhile. `is_created_by_delta_rs` must have said yes.

    Raises SluiceError if the folder cannot be written.
    """
    mark = read_session_mark(session)
    try:
        table = DeltaTable.create(
            path,
            Schema.from_json(schema.json()),
            partition_by=list(partition_by) or None,
            description=comment,
            configuration=dict(properties),
            commit_properties=store_commit_properties(path, {"userMetadata": mark} if mark else None),
            raise_if_key_not_exists=False,  # Sluice's own properties
        )
    except (DeltaError, OSError) as error:
        if delta_log.is_delta_table(path):
            return
        raise SluiceError(
            f"The table {path} cannot be made ({type(error).__name__}). Is its folder writable, and the disk not full?"
        ) from error
    complete_commit(path, table)
    keep_written_table(path, table)


def _is_free(path: str) -> bool:
    folder = locate(path)
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _are_of_types(columns: Mapping[str, DataType], names: Iterable[str], types: Iterable[str]) -> bool:
    return all(name in columns and _type_name(columns[name]) in types for name in names)


def _has_plain_fields(kind: DataType) -> bool:
    """Whether Delta needs no feature for the type, and no names that only column mapping allows."""
    if isinstance(kind, StructType):
        names = [field.name for field in kind]
        return len({name.lower() for name in names}) == len(names) > 0 and all(
            _NAME.fullmatch(field.name) and set(field.metadata) <= {"comment"} and _has_plain_fields(field.dataType)
            for field in kind
        )
    if isinstance(kind, ArrayType):
        return _has_plain_fields(kind.elementType)
    return _type_name(kind) in _TYPES


def _type_name(kind: DataType) -> str:
    return "decimal" if isinstance(kind, DecimalType) else kind.typeName()
