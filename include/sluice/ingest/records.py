"""The records of deliveries as a frame: read by Arrow, here where they are few, by Spark's workers where they are many.

A frame of records has the source's columns and those of `RESERVED` but `_corrupt`, and two more: `_problem`, why a record cannot
stand in bronze (NULL where it can), and `_record`, its text as delivered, where it cannot.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sluice.declare.source import Source
from sluice.errors import SluiceError
from sluice.ingest import types
from sluice.ingest.blocks import Place, heard, of_delivery, told
from sluice.ingest.discovery import modified
from sluice.ingest.examination import Examined
from sluice.ingest.opening import Unreadable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HERE = 32_000_000
"""Up to so many bytes of text are read in this process: their rows stand in the plan, and no Python worker has to start."""
A_TASK = 64_000_000
"""About so many bytes of text a task reads."""

_PLACE = pa.schema([
    pa.field("_problem", pa.string()),
    pa.field("_record", pa.string()),
    pa.field("_delivery", pa.int64()),
    pa.field("_file", pa.string()),
    pa.field("_row", pa.int64()),
    pa.field("_rescued_data", pa.string()),
])
_NEWS = pa.field("_news", pa.string())
_REFUSED = -1
"""The row number of what is no record: the word that a file cannot be read."""


class Changed(SluiceError):
    """A file was changed while it was read. Looked at again, it is missed, and the change is a delivery of its own."""


class Refused(SluiceError):
    """Files that looked well cannot be read. reasons: by delivery."""

    def __init__(self, reasons: dict[int, str]) -> None:
        super().__init__("; ".join(f"delivery {number}: {reason}" for number, reason in reasons.items()))
        self.reasons = reasons


@dataclass(frozen=True)
class Records:
    """frame: None where there are no records. read: how many records by delivery. problems: how many cannot stand in bronze.

    news: what the records have that the columns have not, as `types.grown` takes it.
    """

    frame: DataFrame | None = None
    read: Counter[int] = field(default_factory=Counter)
    problems: int = 0
    news: pa.StructType = field(default_factory=lambda: pa.struct([]))
    release: Callable[[], object] = lambda: None


def read(session: SparkSession, source: Source, examined: list[Examined], columns: pa.Schema) -> Records:
    """Read the records of the deliveries that can be read. columns: the source's, without Sluice's own.

    Raises Changed, Refused. The caller releases what it got.
    """
    readable = [item for item in examined if item.state == "ingested" and not item.empty]
    if not readable:
        return Records()
    few = sum(item.text_bytes for item in readable) <= HERE
    try:
        found = (_here if few else _by_workers)(session, source, readable, columns)
    except Refused:
        _refuse_changed(readable)
        raise
    try:
        _refuse_changed(readable)
    except Changed:
        found.release()
        raise
    return found


def sample(source: Source, examined: list[Examined], columns: pa.Schema, most_bytes: int) -> pa.StructType:
    """What the first records of the first deliveries have that the columns have not. Reads at most about so many bytes of text."""
    news: pa.StructType = pa.struct([])
    for item in examined:
        if item.state != "ingested" or item.empty or most_bytes <= 0:
            continue
        # What cannot be read to its end is refused when all of it is read.
        with contextlib.suppress(Unreadable, OSError):
            for block in of_delivery(source, _place(item), columns):
                news = types.merged(news, block.news)
                most_bytes -= block.rows.nbytes
                if most_bytes <= 0:
                    break
    return news


def subject_of(source: Source, columns: Sequence[str]) -> Column:
    """The subject's key of a record, as text: from its column, from what did not fit, from a text that could not be read; else NULL."""
    if source.subject is None:
        return F.lit(None).cast("string")
    pattern = f'"{source.subject}"\\s*:\\s*"?([^",}}\\s]+)'
    in_column = [F.col(f"`{source.subject}`").cast("string")] if source.subject in columns else []
    return F.coalesce(
        *in_column,
        F.get_json_object("_rescued_data", f"$.{source.subject}"),
        F.nullif(F.regexp_extract("_record", pattern, 1), F.lit("")),
    )


def _here(session: SparkSession, source: Source, readable: list[Examined], columns: pa.Schema) -> Records:
    read: Counter[int] = Counter()
    blocks, news, problems = [], [], 0
    for item in readable:
        try:
            for block in of_delivery(source, _place(item), columns):
                blocks.append(block.rows)
                news.append(block.news)
                read[item.delivery.number] += block.rows.num_rows
                problems += block.rows.num_rows - block.rows["_problem"].null_count
        except (Unreadable, OSError) as error:
            raise Refused({item.delivery.number: _why(error)}) from None
    everything = pa.concat_tables([_schema(columns).empty_table(), *(block.select(_schema(columns).names) for block in blocks)])
    if not everything.num_rows:
        return Records(read=read)
    frame = session.createDataFrame(everything, _spark_schema(columns))
    return Records(_stamped(frame), read, problems, reduce(types.merged, news, pa.struct([])))


def _by_workers(session: SparkSession, source: Source, readable: list[Examined], columns: pa.Schema) -> Records:
    bins = _bins(readable)
    work = partial(_work, source, bins, columns)
    schema = _spark_schema(columns).add(_NEWS.name, "string")
    frame = session.range(0, len(bins), 1, len(bins)).mapInArrow(work, schema).persist(StorageLevel.MEMORY_AND_DISK)
    by_delivery = frame.groupBy("_delivery").agg(
        F.count("*").alias("read"),
        F.count("_problem").alias("problems"),
        # In the order of the records: of names that differ in letter case the first becomes the column.
        F.array_sort(F.collect_list(F.when(F.col(_NEWS.name).isNotNull(), F.struct("_row", _NEWS.name)))).alias("news"),
        F.max(F.when(F.col("_row") == _REFUSED, F.col("_problem"))).alias("refused"),
    )
    counted = sorted(by_delivery.collect(), key=lambda row: row._delivery)
    refused = {row._delivery: row.refused for row in counted if row.refused}
    if refused:
        frame.unpersist()
        raise Refused(refused)
    news = [heard(first._news) for row in counted for first in row.news]
    return Records(
        _stamped(frame.drop(_NEWS.name)),
        Counter({row._delivery: row["read"] for row in counted}),
        sum(row.problems for row in counted),
        reduce(types.merged, news, pa.struct([])),
        frame.unpersist,
    )


def _work(
    source: Source, bins: list[list[Place]], columns: pa.Schema, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: the records of the deliveries of these bins."""
    names = _schema(columns).names
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for place in bins[number]:
                try:
                    for block in of_delivery(source, place, columns):
                        yield from _with_news(block.rows.select(names), block.news)
                except (Unreadable, OSError) as error:
                    yield _refusal(place, _why(error), columns)


def _why(error: Exception) -> str:
    return f"the file could not be read: {error.strerror}" if isinstance(error, OSError) else str(error)


def _with_news(rows: pa.Table, news: pa.StructType) -> list[pa.RecordBatch]:
    """The rows, the first of which says what is new in them."""
    if not rows.num_rows:
        return []
    text = told(news) if news.num_fields else None
    first = pa.array([text, *[None] * (rows.num_rows - 1)], pa.string())
    batches: list[pa.RecordBatch] = rows.append_column(_NEWS, first).to_batches()
    return batches


def _refusal(place: Place, reason: str, columns: pa.Schema) -> pa.RecordBatch:
    """A row that says that the rest of the file cannot be read."""
    said = {"_delivery": place.number, "_row": _REFUSED, "_problem": reason}
    schema = _schema(columns).append(_NEWS)
    return pa.RecordBatch.from_pylist([said], schema=schema)


def _bins(readable: list[Examined]) -> list[list[Place]]:
    """The deliveries in groups of about the same size, each in order."""
    total = sum(item.text_bytes for item in readable)
    bins: list[list[Place]] = [[] for _ in range(max(2, min(len(readable), total // A_TASK + 1)))]
    sizes = [0] * len(bins)
    for item in readable:
        smallest = sizes.index(min(sizes))
        bins[smallest].append(_place(item))
        sizes[smallest] += item.text_bytes
    return [bin_ for bin_ in bins if bin_]


def _place(item: Examined) -> Place:
    return Place(item.delivery.number, item.delivery.file, str(item.delivery.path), item.header)


def _schema(columns: pa.Schema) -> pa.Schema:
    return pa.schema([*columns, *_PLACE])


def _spark_schema(columns: pa.Schema) -> StructType:
    return from_arrow_schema(_schema(columns))


def _stamped(frame: DataFrame) -> DataFrame:
    return frame.withColumn("_ingested_at", F.current_timestamp())


def _refuse_changed(readable: list[Examined]) -> None:
    """A file that is another now may have been read half: nothing of the batch is written."""
    for item in readable:
        delivery = item.delivery
        try:
            same = delivery.size is None or modified(delivery.path) == (delivery.size, delivery.modified_at)
        except FileNotFoundError:
            same = False
        if not same:
            raise Changed(f"Delivery {delivery.number} of '{delivery.source}' was changed while it was read.")
