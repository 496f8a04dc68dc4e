"""Reading the records of deliveries: every field kept as delivered, what does not fit set aside, nothing lost.

A frame of records has the source's columns and those of `RESERVED` but `_corrupt`, and two more: `_problem`, why a record cannot
stand in bronze (NULL where it can), and `_record`, its text as delivered.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from sluice.declare.source import Source
from sluice.ingest.columns import RESERVED, as_in_table, column_names
from sluice.ingest.examination import Delivery, Examined
from sluice.lake import tables

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

RAGGED = "the row has another number of fields than the header"
NO_OBJECT = "the line is no JSON object"


def read(session: SparkSession, source: Source, examined: list[Examined], known: Sequence[str]) -> DataFrame | None:
    """The records of the deliveries that can be read; None where there are none. known: the bronze table's columns so far."""
    readable = [item for item in examined if item.state == "ingested" and not item.empty]
    if not readable:
        return None
    parsed = _csv(session, source, readable, known) if source.format == "csv" else _json(session, source, readable, known)
    located = parsed.join(F.broadcast(_places(session, [item.delivery for item in readable])), "_path").drop("_path")
    return located.withColumn("_row", F.monotonically_increasing_id()).withColumn("_ingested_at", F.current_timestamp())


def contents(session: SparkSession, deliveries: list[Delivery]) -> DataFrame:
    """The bytes of whole files: _delivery, _file, content."""
    frame = session.read.format("binaryFile").load([_literal(delivery.path) for delivery in deliveries])
    plain = frame.select(_decoded_path(F.col("path")).alias("_path"), "content")
    return plain.join(F.broadcast(_places(session, deliveries)), "_path").drop("_path")


def subject_of(source: Source) -> Column:
    """The subject's key of a record that could not be read, as text, where it can be made out; NULL otherwise."""
    if source.subject is None:
        return F.lit(None).cast("string")
    if source.format == "json":
        pattern = f'"{source.subject}"\\s*:\\s*"?([^",}}\\s]+)'
        return F.nullif(F.regexp_extract("_record", pattern, 1), F.lit(""))
    return F.col(source.subject).cast("string")


def _literal(path: Path) -> str:
    """A path whose brackets and stars Spark does not take for a pattern."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", str(path))


def _decoded_path(path: Column) -> Column:
    return F.regexp_replace(F.url_decode(F.regexp_replace(path, r"\+", "%2B")), "^file:/+", "/")


def _places(session: SparkSession, deliveries: list[Delivery]) -> DataFrame:
    rows = [(str(delivery.path), delivery.number, delivery.file) for delivery in deliveries]
    return tables.inline(session, rows, "_path STRING, _delivery BIGINT, _file STRING")


def _csv(session: SparkSession, source: Source, readable: list[Examined], known: Sequence[str]) -> DataFrame:
    by_header: dict[tuple[str, ...], list[Examined]] = defaultdict(list)
    for item in readable:
        by_header[item.header].append(item)
    frames = [_of_header(session, source, header, items, known) for header, items in by_header.items()]
    return functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)


def _of_header(
    session: SparkSession,
    source: Source,
    header: tuple[str, ...],
    items: list[Examined],
    known: Sequence[str],
) -> DataFrame:
    declared = tables.columns(source.ddl) if source.ddl else None
    names = as_in_table(column_names(header), declared.names if declared else known)
    fields = [name or f"_field_{position}" for position, name in enumerate(names, start=1)]
    schema = ", ".join(f"`{name}` STRING" for name in [*fields, "_corrupt"])
    frame = (
        session.read
        .schema(schema)
        .options(header=True, enforceSchema=True, sep=source.delimiter, encoding=source.encoding, multiLine=True)
        .options(
            quote='"',
            escape='"',
            mode="PERMISSIVE",
            columnNameOfCorruptRecord="_corrupt",
            maxCharsPerColumn=-1,
        )
        .csv([_literal(item.delivery.path) for item in items])
    )
    kept = [F.col(f"`{name}`") for name in names if name]
    typed, unfit = _typed(declared, [name for name in names if name]) if declared else (kept, {})
    nameless = {field: F.col(f"`{field}`") for field, name in zip(fields, names, strict=True) if not name}
    return frame.select(
        *typed,
        _rescued({**nameless, **unfit}).alias("_rescued_data"),
        F.when(F.col("_corrupt").isNotNull(), F.lit(RAGGED)).alias("_problem"),
        F.col("_corrupt").alias("_record"),
        _decoded_path(F.col("_metadata.file_path")).alias("_path"),
    )


def _typed(declared: StructType, names: list[str]) -> tuple[list[Column], dict[str, Column]]:
    """The declared columns, and per delivered field what of it does not fit: unknown fields, and values of another type."""
    columns, unfit = [], {}
    for field in declared:
        if field.name in names:
            text = F.col(f"`{field.name}`")
            columns.append(text.try_cast(field.dataType).alias(field.name))
            unfit[field.name] = F.when(text.try_cast(field.dataType).isNull(), text)
        else:
            columns.append(F.lit(None).cast(field.dataType).alias(field.name))
    unfit |= {name: F.col(f"`{name}`") for name in names if name not in declared.names}
    return columns, unfit


def _rescued(fields: dict[str, Column]) -> Column:
    if not fields:
        return F.lit(None).cast("string")
    text = F.to_json(F.struct(*(value.alias(name) for name, value in fields.items())), {"ignoreNullFields": "true"})
    return F.when(text != "{}", text)


def _json(session: SparkSession, source: Source, readable: list[Examined], known: Sequence[str]) -> DataFrame:
    lines = (
        session.read
        .option("encoding", source.encoding)
        .text([_literal(item.delivery.path) for item in readable])
        .select(F.col("value").alias("_record"), _decoded_path(F.col("_metadata.file_path")).alias("_path"))
        .where(F.trim(F.translate("_record", "\ufeff\t\r", "")) != "")
    )
    schema = tables.columns(source.ddl) if source.ddl else _all_strings(lines, known)
    fields = F.try_variant_get(F.try_parse_json("_record"), "$", "map<string,variant>")
    parsed = lines.withColumn("_fields", fields).withColumn("_typed", F.from_json("_record", schema))
    missing = F.array_compact(F.array(*(F.when(F.col(f"_typed.`{n}`").isNull(), F.lit(n)) for n in schema.names)))
    names = F.array(*(F.lit(name) for name in schema.names)).cast("array<string>")
    unfit = F.map_filter(
        "_fields",
        lambda name, value: ~F.array_contains(names, name) | (F.array_contains(missing, name) & ~F.is_variant_null(value)),
    )
    return parsed.select(
        *(F.col(f"_typed.`{name}`") for name in schema.names),
        F.when(F.size(F.map_keys(unfit)) > 0, F.to_json(unfit)).alias("_rescued_data"),
        F.when(F.col("_fields").isNull(), F.lit(NO_OBJECT)).alias("_problem"),
        "_record",
        "_path",
    )


def _all_strings(lines: DataFrame, known: Sequence[str]) -> StructType:
    keys = lines.select(F.explode(F.json_object_keys("_record")).alias("key")).distinct()
    columns = [name for name in known if name not in RESERVED]
    delivered = sorted(row.key for row in keys.collect())
    taken = {name.lower() for name in columns}
    for key, name in zip(delivered, column_names(delivered), strict=True):
        if name == key and name.lower() not in taken:
            columns.append(name)
            taken.add(name.lower())
    schema = StructType()
    for name in columns:
        schema.add(name, StringType())
    return schema
