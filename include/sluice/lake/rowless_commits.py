"""Commits that write no rows: the first one of an empty table, and those that set properties. Through delta-rs where it writes as Spark would.

Spark takes half a second for the first commit, delta-rs hundredths. It makes a table only if every reader and writer handles that as it
would the one that Spark makes. What Delta on Spark refuses, it is left to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError
from pyspark.sql.types import ArrayType, DataType, DecimalType, StringType, StructType

from sluice import delta_log
from sluice.declare.sql.schema import sql_literal
from sluice.delta_rs_commits import NO_COMMIT_HOOKS, complete_commit
from sluice.errors import SluiceError, table_collision
from sluice.lake.commit_marks import read_session_mark
from sluice.lake.layout_properties import LAYOUT_PROPERTIES, PropertyChanges, list_names_unknown_to_spark
from sluice.lake.small_writes import SmallWriteFailed
from sluice.lake.written_alike import are_properties_set_alike
from sluice.locations import is_on_disk, locate
from sluice.open_tables import keep_written_table, open_table_to_change
from sluice.stores.commit_settling import settle_store_commit, store_commit_properties
from sluice.stores.opening import is_store_url
from sluice.table_properties import (
    CHANGE_FEED,
    CHANGE_FEED_COLUMNS,
    DELETION_VECTORS,
    INSTANTS,
    STATISTICS,
    parse_statistics_columns,
)

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
_ANY_NAME = "spark.databricks.delta.allowArbitraryProperties.enabled"
_ATTEMPTS = 3
"""How often a commit is tried that somebody else's comes before."""


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
        and not (properties.get(CHANGE_FEED) == "true" and {*CHANGE_FEED_COLUMNS} & {name.lower() for name in columns})
        and set(partition_by) < columns.keys()
        and _are_of_types(columns, partition_by, _TYPES)
        and _are_of_types(columns, parse_statistics_columns(properties.get(STATISTICS, "")), _WITH_STATISTICS)
        and not _has_table_defaults(session)
    )


def create_empty_table(
    session: SparkSession, path: str, schema: StructType, comment: str, properties: Mapping[str, str], partition_by: Sequence[str]
) -> None:
    """Makes the table. `is_created_by_delta_rs` must have said yes.

    Raises SluiceError if somebody else makes it meanwhile, SmallWriteFailed or OSError if it cannot be written.
    """
    mark = read_session_mark(session)
    try:
        table = DeltaTable.create(
            path,
            Schema.from_json(schema.json()),
            partition_by=list(partition_by) or None,
            description=comment,
            configuration=dict(properties),
            # Tried once: delta-rs would otherwise commit a second CREATE TABLE after somebody else's.
            commit_properties=CommitProperties(custom_metadata={"userMetadata": mark} if mark else None, max_commit_retries=0),
            raise_if_key_not_exists=False,  # Sluice's own properties
        )
    except DeltaError as error:
        if delta_log.is_delta_table(path):
            raise table_collision(path) from None
        raise SmallWriteFailed(f"{path}: {type(error).__name__}") from error
    complete_commit(path, table)
    keep_written_table(path, table)


def _has_table_defaults(session: SparkSession) -> bool:
    configuration: Any = session.conf
    return _DEFAULTS in str(
        configuration._jconf.getAllAsJava().keySet().toString()
    )  # one text: getAll asks twice for each property


def _is_free(path: str) -> bool:
    folder = locate(path)
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def _are_of_types(columns: Mapping[str, DataType], names: Iterable[str], types: Iterable[str]) -> bool:
    return all(name in columns and _type_name(columns[name]) in types for name in names)


def _has_plain_fields(kind: DataType, required: bool = True) -> bool:
    """Whether Delta needs no feature for the type, no names that only column mapping allows, and no NOT NULL within an array.

    required: whether a field may be NOT NULL.
    """
    if isinstance(kind, StructType):
        names = [field.name for field in kind]
        return len({name.lower() for name in names}) == len(names) > 0 and all(
            _NAME.fullmatch(field.name)
            and set(field.metadata) <= {"comment"}
            and (required or field.nullable)
            and _has_plain_fields(field.dataType, required)
            for field in kind
        )
    if isinstance(kind, ArrayType):
        return kind.containsNull and _has_plain_fields(kind.elementType, required=False)
    return _type_name(kind) in _TYPES


def _type_name(kind: DataType) -> str:
    """A text with a collation has its collation in it."""
    return (
        "decimal" if isinstance(kind, DecimalType) else kind.simpleString() if isinstance(kind, StringType) else kind.typeName()
    )


def change_table_properties(session: SparkSession, path: str, changes: PropertyChanges) -> None:
    """Makes the changes; no file is rewritten. Call this under the lease, and only if there are some.

    On a disk they are tried again if somebody else writes meanwhile. On a store that may be whoever took the lease over.

    Raises SluiceError if somebody else keeps writing, SmallWriteFailed for all else.
    """
    if changes.fit_delta_rs and _set_by_delta_rs(path, changes, read_session_mark(session)):
        return
    with allow_layout_properties(session, changes.given):
        if changes.given:
            said = ", ".join(f"'{name}' = {sql_literal(value)}" for name, value in changes.given.items())
            session.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({said})")
        if changes.taken:
            gone = ", ".join(f"'{name}'" for name in changes.taken)
            session.sql(f"ALTER TABLE delta.`{path}` UNSET TBLPROPERTIES IF EXISTS ({gone})")


def _set_by_delta_rs(path: str, changes: PropertyChanges, mark: str | None) -> bool:
    """Returns whether it was done: delta-rs does not write every table. Errors are those of `change_table_properties`."""
    for _ in range(1 if is_store_url(path) else _ATTEMPTS):
        table = open_table_to_change(path)
        if not are_properties_set_alike(table):
            return False
        if _commit_properties(path, table, changes, mark):
            return True
    raise SluiceError(
        f"Somebody else wrote to the table {path} when its properties were set, and they were not. "
        "What was committed before stands. Run again."
    )


def _commit_properties(path: str, table: DeltaTable, changes: PropertyChanges, mark: str | None) -> bool:
    """Returns whether it was done; if not, another's commit came first. Raises SmallWriteFailed for all else."""
    properties = store_commit_properties(path, {"userMetadata": mark} if mark else None)
    try:
        with settle_store_commit(path, table, properties):
            table.alter.set_table_properties(
                dict(changes.given),
                raise_if_not_exists=False,  # Sluice's own properties
                commit_properties=properties,
                post_commithook_properties=NO_COMMIT_HOOKS,
            )
    except CommitFailedError:
        return False
    except DeltaError as error:
        raise SmallWriteFailed(f"{path}: {type(error).__name__}") from error
    complete_commit(path, table)
    keep_written_table(path, table)
    return True


@contextmanager
def allow_layout_properties(session: SparkSession, names: Iterable[str]) -> Iterator[None]:
    """Lets Delta on Spark set those of these properties that it does not know. Outside the block, Delta checks all names as usual."""
    if not list_names_unknown_to_spark(names):
        yield
        return
    before = session.conf.get(_ANY_NAME, None)
    session.conf.set(_ANY_NAME, "true")
    try:
        yield
    finally:
        if before is None:
            session.conf.unset(_ANY_NAME)
        else:
            session.conf.set(_ANY_NAME, before)
