"""The engines that read Sluice's tables beside Spark, each by its own reader of Delta's log, and their rows made comparable."""

from __future__ import annotations

import decimal
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import SparkSession

Rows = Counter[str]
Reader = Callable[[str, int | None], Iterable[Mapping[str, Any]]]
"""Reads a table, by its path, as it is or was at a version: a mapping a row, by column."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def spark_reader(spark: SparkSession) -> Reader:
    """Delta on Spark, which the others are compared with."""

    def read(path: str, version: int | None) -> Iterable[Mapping[str, Any]]:
        rows = spark.read.format("delta")
        frame = (rows if version is None else rows.option("versionAsOf", version)).load(path)
        return frame.toArrow().to_pylist()

    return read


def duckdb_reader(folder: Path) -> Reader:
    """DuckDB with its extension `delta`, which stands on the Rust kernel. folder: where the extension is put."""
    import duckdb
    from duckdb_extensions import import_extension

    session: DuckDBPyConnection = duckdb.connect(config={"extension_directory": str(folder)})
    import_extension("delta", con=session)
    session.execute("LOAD delta")
    session.execute("SET TimeZone = 'UTC'")

    def read(path: str, version: int | None) -> Iterable[Mapping[str, Any]]:
        at = "" if version is None else f", version => {version}"
        found = session.execute(f"SELECT * FROM delta_scan('{path}'{at})")
        names = [column[0] for column in found.description or ()]
        return (dict(zip(names, row, strict=True)) for row in found.fetchall())

    return read


def read_by_polars(path: str, version: int | None) -> Iterable[Mapping[str, Any]]:
    """Polars, which scans the files that delta-rs names with its own reader of Parquet."""
    return polars.read_delta(path, version=version).to_dicts()


def read_by_delta_rs(path: str, version: int | None) -> Iterable[Mapping[str, Any]]:
    """delta-rs with DataFusion."""
    found = QueryBuilder().register("t", DeltaTable(path, version=version)).execute("SELECT * FROM t").read_all()
    return pa.table(found).to_pylist()


def kernel_reader(spark: SparkSession) -> Reader:
    """Delta Kernel for Java with its default engine: what Flink, Trino and other connectors on a JVM are made with."""
    jvm: Any = spark._jvm
    kernel = jvm.io.delta.kernel
    engine = kernel.defaults.engine.DefaultEngine.create(spark._jsparkSession.sessionState().newHadoopConf())

    def read(path: str, version: int | None) -> Iterator[Mapping[str, Any]]:
        table = kernel.Table.forPath(engine, path)
        snapshot = table.getLatestSnapshot(engine) if version is None else table.getSnapshotAsOfVersion(engine, version)
        scan = snapshot.getScanBuilder().build()
        state = scan.getScanState(engine)
        wanted = kernel.internal.data.ScanStateRow.getPhysicalDataReadSchema(state)
        schema = snapshot.getSchema()
        for files in _walk(scan.getScanFiles(engine)):
            for file in _walk(files.getRows()):
                status = kernel.internal.InternalScanFileUtils.getAddFileStatus(file)
                one = kernel.internal.util.Utils.singletonCloseableIterator(status)
                results = engine.getParquetHandler().readParquetFiles(one, wanted, jvm.java.util.Optional.empty())
                batches = jvm.java.util.ArrayList()
                for result in _walk(results):
                    batches.add(result.getData())
                physical = kernel.internal.util.Utils.toCloseableIterator(batches.iterator())
                for batch in _walk(kernel.Scan.transformPhysicalData(engine, state, file, physical)):
                    for row in _walk(batch.getRows()):
                        yield _kernel_struct(row, schema)

    return read


def _walk(iterator: Any) -> Iterator[Any]:
    while iterator.hasNext():
        yield iterator.next()


def _kernel_struct(row: Any, schema: Any) -> dict[str, Any]:
    return {
        field.getName(): None if row.isNullAt(position) else _kernel_value(row, position, field.getDataType())
        for position, field in enumerate(schema.fields())
    }


def _kernel_value(holder: Any, position: int, kind: Any, vector: bool = False) -> Any:
    """The value at a position of a row, or of a column's vector, as Python has it."""
    name = kind.getClass().getSimpleName()
    if name == "DateType":
        return date(1970, 1, 1) + timedelta(days=holder.getInt(position))
    if name in ("TimestampType", "TimestampNTZType"):
        found = EPOCH + timedelta(microseconds=holder.getLong(position))
        return found if name == "TimestampType" else found.replace(tzinfo=None)
    if name == "DecimalType":
        return holder.getDecimal(position)
    if name == "StructType" and vector:
        children = [(field, holder.getChild(number)) for number, field in enumerate(kind.fields())]
        return {
            field.getName(): None
            if child.isNullAt(position)
            else _kernel_value(child, position, field.getDataType(), vector=True)
            for field, child in children
        }
    if name == "StructType":
        return _kernel_struct(holder.getStruct(position), kind)
    if name == "ArrayType":
        held = holder.getArray(position)
        return [
            None
            if held.getElements().isNullAt(number)
            else _kernel_value(held.getElements(), number, kind.getElementType(), vector=True)
            for number in range(held.getSize())
        ]
    return getattr(holder, KERNEL_GETTERS[str(kind.toString()).split(" ")[0]])(position)


KERNEL_GETTERS = {
    "boolean": "getBoolean",
    "byte": "getByte",
    "short": "getShort",
    "integer": "getInt",
    "long": "getLong",
    "float": "getFloat",
    "double": "getDouble",
    "string": "getString",
    "binary": "getBinary",
}
"""By the kernel's name of a type, what gets a value of it. There are no maps in Sluice's tables."""


def comparable_rows(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """Rows as texts that are equal where their columns and values are, with how often each is there."""
    return Counter(json.dumps({name: _comparable_value(value) for name, value in sorted(row.items())}) for row in rows)


def _comparable_value(value: Any) -> Any:
    if isinstance(value, datetime):
        return str(value.astimezone(UTC) if value.tzinfo else value)
    if isinstance(value, date | time | timedelta | decimal.Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _comparable_value(part) for key, part in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [_comparable_value(part) for part in value]
    return value
