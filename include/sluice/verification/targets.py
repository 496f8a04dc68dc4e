"""The target of an `auto_cdc` as a batch over its accepted changes gives it: every key's changes are handed to plain Python."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.cdc.histories import CHANGE, CONTENT, END, SEQUENCE, START
from sluice.verification.changes import Plain, ordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS = 10_000
"""How many rows of the target go back to Spark at once."""


def of_target(cdc: AutoCdc, changes: Mapping[str, DataFrame], ends: Iterable[DataFrame]) -> DataFrame:
    """The target's rows. changes: the accepted changes, by log; ends: the truncates."""
    accepted = functools.reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), changes.values())
    columns = _columns(cdc, accepted.columns)
    values = tuple(name for name in columns if name not in cdc.keys)
    plain = Plain(
        values=values,
        tracked=_tracked(cdc, values) if cdc.stored_as_scd_type == 2 else None,
        ends=tuple(dict.fromkeys(one for frame in ends for one in _sequences(frame))),
        snapshots=tuple(_sequences(accepted)) if cdc.from_snapshots else (),
        ignore_null_updates=cdc.ignore_null_updates,
    )
    schema = _schema(cdc, accepted.schema, columns)
    keys = [F.col(f"`{key}`") for key in cdc.keys]
    needed = [*(F.col(f"`{name}`") for name in columns), *(F.col(name) for name in (SEQUENCE, CHANGE, CONTENT))]
    by_key = accepted.select(*needed).repartition(*keys).sortWithinPartitions(*keys)
    return by_key.mapInArrow(_folding(plain, cdc.keys, to_arrow_schema(schema, timezone="UTC")), schema)


def _folding(
    plain: Plain, keys: tuple[str, ...], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What a Spark task does with its part of the changes, which come key by key."""

    def fold(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        made = _targets(plain, keys, rows, [field.name for field in schema])
        while some := list(itertools.islice(made, _ROWS)):
            yield from pa.Table.from_pylist(some, schema=schema).to_batches()

    return fold


def _targets(plain: Plain, keys: tuple[str, ...], rows: Iterable[dict[str, Any]], columns: list[str]) -> Iterator[dict[str, Any]]:
    for key, changes in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in keys)):
        own = list(changes)
        for state in plain.fold(own):
            row = {**dict(zip(keys, key, strict=True)), **state}
            for bound in (START, END):
                if isinstance(row.get(bound), tuple):  # of several columns: back to a struct, whose names every change has
                    row[bound] = dict(zip(own[0][SEQUENCE], row[bound], strict=True))
            yield {name: row[name] for name in columns}


def _sequences(frame: DataFrame) -> list[Any]:
    """The sequences in it, each once, as Python puts them in order."""
    batch = frame.select(SEQUENCE).distinct().toArrow()
    return sorted({ordered(row[SEQUENCE]) for row in batch.to_pylist()})


def _columns(cdc: AutoCdc, given: list[str]) -> list[str]:
    """The target's columns, those of keys that it does not name first."""
    wanted = [name for name in (cdc.column_list or given) if name in given]
    left = {*cdc.except_column_list, SEQUENCE, CHANGE, CONTENT}
    columns = [name for name in wanted if name not in left]
    return [*(key for key in cdc.keys if key not in columns), *columns]


def _tracked(cdc: AutoCdc, values: Iterable[str]) -> tuple[str, ...]:
    """Of which columns another value begins an interval."""
    if cdc.track_history_column_list:
        return tuple(name for name in values if name in cdc.track_history_column_list)
    left = cdc.track_history_except_column_list or cdc.sequence_by
    return tuple(name for name in values if name not in left)


def _schema(cdc: AutoCdc, given: StructType, columns: Iterable[str]) -> StructType:
    fields = [StructField(name, given[name].dataType) for name in columns]
    bounds = (START, END) if cdc.stored_as_scd_type == 2 else ()
    return StructType([*fields, *(StructField(name, given[SEQUENCE].dataType) for name in bounds)])
