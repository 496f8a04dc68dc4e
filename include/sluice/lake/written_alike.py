"""Which tables delta-rs writes as Spark would, as every reader sees them: only what is known to come out the same is allowed.

The protocol, the properties and the schema decide before a write, never the error of a failed write.
Also chooses the columns with statistics, since some statistics would let only Spark write the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError
from pyspark.sql.types import ArrayType, DataType, DecimalType, StructType

from sluice.declare.lazy_spark import WHOLE_NUMBER_TYPES
from sluice.lake.file_statistics import list_file_values
from sluice.lake.log import has_plain_reader_protocol
from sluice.lake.table_frames import read_spark_schema
from sluice.table_properties import (
    CHANGE_FEED,
    CHECKPOINT_INTERVAL,
    CONSTRAINT,
    DELETION_VECTORS,
    INSTANTS,
    LOG_RETENTION,
    MICROSECONDS,
    RETENTION,
    STATISTICS,
    TARGET_FILE_SIZE,
    parse_statistics_columns,
)

_MOST_STATISTICS_COLUMNS = 32
_SAFE_DIGITS = 15
"""How many digits of a decimal a floating-point number holds."""
_WITH_STATISTICS = (
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamp_ntz",
    "string",
)


def choose_statistics_columns(schema: StructType, private: Iterable[str], first: Iterable[str] = ()) -> tuple[str, ...]:
    """Returns the columns that get statistics: those named first, then the others in order; never personal ones, and at most 32.

    Fractions get them only if they are named first: with such statistics only Spark can write the table.
    """
    hidden = {name.lower() for name in private}  # Spark ignores case
    fit = [f for f in schema if f.dataType.typeName().split("(")[0] in _WITH_STATISTICS and f.name.lower() not in hidden]
    names = [field.name for field in fit]
    others = [field.name for field in fit if not has_misread_statistics(field.dataType)]
    ordered = dict.fromkeys([*(name for name in first if name in names), *others])
    return tuple(list(ordered)[:_MOST_STATISTICS_COLUMNS])


def has_misread_statistics(kind: DataType) -> bool:
    """Whether delta-rs writes least and greatest values of a type that would make Spark miss rows.

    It leaves NaN out of them and writes decimals as floating-point numbers. Source: deltalake 1.6.6, tried.
    """
    return kind.typeName() in ("float", "double") or (isinstance(kind, DecimalType) and kind.precision > _SAFE_DIGITS)


_WRITER_VERSIONS = frozenset({2, 3, 4, 7})
_NAMES_FEATURES = 7
_JUDGING_VERSIONS = frozenset({3, 4})
_WRITER_FEATURES = frozenset({"appendOnly", "changeDataFeed", "checkConstraints", "invariants", "timestampNtz"})
_PROPERTIES = frozenset({
    *(STATISTICS, RETENTION, LOG_RETENTION, CHECKPOINT_INTERVAL, TARGET_FILE_SIZE, CHANGE_FEED, DELETION_VECTORS),
    *("delta.appendOnly", "delta.enableExpiredLogCleanup"),
})
"""The Delta properties that a table may have. With any other, delta-rs may not do what Delta on Spark does."""
_FIELD_NOTES = frozenset({"comment"})
"""The metadata that a column may have: generated, identity and default columns have more."""
_PARTITIONED_BY = frozenset({"date", "integer", "long"})
"""The types of partition columns. Not texts: only Spark's writer makes an empty one NULL."""
_WHOLE = ("boolean", "byte", "short", "integer", "long", "string", "binary", "date", "timestamp", "timestamp_ntz")
_FRACTIONS = ("float", "double", "decimal")
_NAME = re.compile(r"\w+")
_COMPARED = (*WHOLE_NUMBER_TYPES, "string", "date", "timestamp")
"""The types that a CHECK may compare. Not fractions: the two engines treat NaN and -0.0 differently."""
_AND = re.compile(r"\s+AND\s+", re.IGNORECASE)
_COMPARISON = re.compile(r"(?P<left>[a-z][a-z0-9_]*)\s*(?:<=|>=|<>|!=|<|>|=)\s*(?P<right>[a-z][a-z0-9_]*|-?\d{1,9})")
_NUMBER = re.compile(r"-?\d+")
_ELSEWHERE = re.compile(r"/|[A-Za-z][\w+.-]*:")
"""How the path of a file in another table begins, as in a shallow clone."""


def is_written_alike(table: DeltaTable, keys: Sequence[str] = ()) -> bool:
    """Whether rows that delta-rs writes look to every reader as if Spark had written them.

    keys: the columns by which the rows are merged or sorted.
    """
    protocol, properties = table.protocol(), table.metadata().configuration
    if not _has_protocol_written_alike(table):
        return False
    # If the columns with statistics are not named, personal ones have statistics.
    if STATISTICS not in properties or any(
        name.startswith("delta.") and name not in _PROPERTIES and not name.startswith(CONSTRAINT) for name in properties
    ):
        return False
    if any(properties.get(name, "false") != "false" for name in ("delta.appendOnly", DELETION_VECTORS)):
        return False
    if any(_ELSEWHERE.match(file) for file in list_file_values(table, "path")):
        return False
    schema = read_spark_schema(table)
    if "timestamp" in _type_names(schema) and properties.get(INSTANTS) != MICROSECONDS:
        return False
    conditions = [text or "" for name, text in properties.items() if name.startswith(CONSTRAINT)]
    # Spark judges by every condition, delta-rs only if the protocol says that there are conditions.
    if conditions and not (
        protocol.min_writer_version in _JUDGING_VERSIONS or "checkConstraints" in (protocol.writer_features or ())
    ):
        return False
    if not all(_is_judged_alike(table, schema, condition) for condition in conditions):
        return False
    # Fractions are not keys: for Spark, NaN equals itself and -0.0 equals 0.0.
    if any(key not in schema.names or schema[key].dataType.typeName() not in _WHOLE for key in keys):
        return False
    by, with_statistics = set(table.metadata().partition_columns), set(list_statistics_columns(properties))
    return all(
        _NAME.fullmatch(field.name)
        and set(field.metadata) <= _FIELD_NOTES
        and (field.dataType.typeName() in _PARTITIONED_BY if field.name in by else _is_kept_equally(field.dataType))
        and not (field.name in with_statistics and has_misread_statistics(field.dataType))
        for field in schema
    )


def _has_protocol_written_alike(table: DeltaTable) -> bool:
    """Whether delta-rs knows everything that a table's protocol asks of its writers. It does not for clustering and deletion vectors."""
    protocol = table.protocol()
    return (
        has_plain_reader_protocol(table)
        and protocol.min_writer_version in _WRITER_VERSIONS
        and set(protocol.writer_features or ()) <= _WRITER_FEATURES
    )


def are_properties_set_alike(table: DeltaTable) -> bool:
    """Whether delta-rs sets properties of a table and nothing else.

    To a protocol that names its features (writer version 7) it adds what it takes to be needed: reader version 2, or VARIANT, which Sluice
    and older readers do not know (deltalake 1.6.6, tried).
    """
    return _has_protocol_written_alike(table) and table.protocol().min_writer_version < _NAMES_FEATURES


def _is_judged_alike(table: DeltaTable, schema: StructType, condition: str) -> bool:
    """Whether Spark and delta-rs accept the same rows for a table with this CHECK.

    Known to be so for comparisons of columns of one type, or of a column of whole numbers with a number, joined by AND. In both engines a
    comparison that is NULL is not met.
    """
    types = {field.name: field.dataType.typeName() for field in schema}
    compared: set[str] = set()
    for term in _AND.split(condition.strip()):
        found = _COMPARISON.fullmatch(term)
        if found is None:
            return False
        left, right = (types.get(name) for name in found.group("left", "right"))
        if left not in _COMPARED or (right != left and not (left in WHOLE_NUMBER_TYPES and _NUMBER.fullmatch(found["right"]))):
            return False
        compared |= {name for name in found.group("left", "right") if name in types}
    # A column may have the name of an SQL word: delta-rs does not understand `interval`, and reads `current_date` as today.
    names = sorted(compared)
    try:
        read = QueryBuilder().register("t", table).execute(f"SELECT {', '.join(names)} FROM t WHERE {condition} LIMIT 0")
        return list(read.schema.names) == names
    except DeltaError:
        return False


def _is_kept_equally(kind: DataType, inside_struct: bool = False) -> bool:
    """Whether both write values of a type alike. Statistics of fractions inside structs cannot be left out of a file."""
    if isinstance(kind, StructType):
        return all(
            _NAME.fullmatch(one.name) and one.nullable and not one.metadata and _is_kept_equally(one.dataType, True)
            for one in kind
        )
    if isinstance(kind, ArrayType):
        return kind.containsNull and _is_kept_equally(kind.elementType, inside_struct)
    name = "decimal" if isinstance(kind, DecimalType) else kind.typeName()
    return name in _WHOLE or (name in _FRACTIONS and not inside_struct)


def _type_names(kind: DataType) -> set[str]:
    if isinstance(kind, StructType):
        return {name for field in kind for name in _type_names(field.dataType)}
    return _type_names(kind.elementType) if isinstance(kind, ArrayType) else {kind.typeName()}


def list_statistics_columns(properties: Mapping[str, str | None]) -> list[str]:
    """Returns the columns for which a table's log holds least and greatest values."""
    return parse_statistics_columns(properties.get(STATISTICS) or "")
