"""Reads the records of deliveries as a frame: by Arrow, few in this process and many by Spark's workers.

The frame has the source's columns, those of `RESERVED` except `_corrupt`, and two more: `_problem` says why a record does not fit into bronze
(NULL if it does), and `_record` is the text of such a record as delivered.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.field_names import rescued_text_expression
from sluice.declare.ingest.source import Source
from sluice.declare.quoting import quote_column, quote_identifier
from sluice.errors import SluiceError
from sluice.ingest.deliveries.landed_file import is_file_in_state
from sluice.ingest.files.delivered_bytes import UnreadableFile
from sluice.ingest.reading.examination import ExaminedDelivery
from sluice.ingest.reading.staging import StagedRowsWriter, make_staging_folder, read_staged_rows, remove_staging_folder
from sluice.ingest.reading.workers import (
    COUNTS,
    PART,
    balance_worker_bins,
    deserialize_new_fields,
    locate_delivery,
    read_delivery_blocks,
    read_worker_share,
    record_rows_schema,
    unreadable_reason,
)
from sluice.ingest.values import types
from sluice.lake import table_creation
from sluice.locations import Location
from sluice.record_states import INGESTED, MISSED, QUARANTINED
from sluice.work_progress import CountedWork, count_work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_BYTES_IN_PROCESS = 32_000_000
"""Up to this many bytes are read in this process, so that no Python worker has to start."""
MOST_BYTES_IN_PLAN = 1_000_000
"""Up to this many bytes of rows are part of the plan; more wait on the disk."""
_TEXT = r'"([^"\\]{0,1000}(?:\\.[^"\\]{0,1000}){0,200})"\s*(?:[,}\]]|$)'
"""Bounded, because Java's matching recurses and a record may be anything."""
_WORD = r'"?([^",}\s]+)'


class ChangedWhileRead(SluiceError):
    """A file changed while it was read. When it is examined again, it is missed, and the change is a new delivery."""


class RefusedDeliveries(SluiceError):
    """Files that passed their examination cannot be read. reasons: by delivery. missed: those that the disk does not return, at least now."""

    def __init__(self, reasons: dict[int, str], missed: Collection[int] = ()) -> None:
        super().__init__("; ".join(f"delivery {number}: {reason}" for number, reason in reasons.items()))
        self.reasons, self.missed = reasons, missed

    def judged(self, item: ExaminedDelivery) -> ExaminedDelivery:
        """Returns an examined delivery with what reading has shown: reading it again may return what the disk did not."""
        number = item.delivery.number
        if number not in self.reasons:
            return item
        return replace(item, state=MISSED if number in self.missed else QUARANTINED, reason=self.reasons[number])


def is_read_in_process(size: int) -> bool:
    """Whether files, or their text, of this many bytes together are read in this process and not by Spark's workers."""
    return size <= MOST_BYTES_IN_PROCESS


def is_part_of_plan(size: int) -> bool:
    """Whether rows of this many bytes are part of the plan."""
    return size <= MOST_BYTES_IN_PLAN


def release_nothing() -> None:
    """Releases nothing: the rows are part of the plan."""


@dataclass(frozen=True)
class DeliveredRecords:
    """frame: None if there are no records. read: the number of records by delivery. problems: how many do not fit into bronze.

    found: by delivery, the fields of its records that the columns lack, as in `ParsedBlock.news`. bytes: those of the records in memory; None if
    workers read them.
    """

    frame: DataFrame | None = None
    read: Counter[int] = field(default_factory=Counter)
    problems: int = 0
    found: dict[int, pa.StructType] = field(default_factory=dict)
    bytes: int | None = 0
    release: Callable[[], object] = release_nothing

    @property
    def news(self) -> pa.StructType:
        """The fields of all records that the columns lack, as `types.grow_schema` takes them."""
        return reduce(types.merge_types, self.found.values(), pa.struct([]))


def read_delivered_records(
    session: SparkSession, source: Source, examined: list[ExaminedDelivery], columns: pa.Schema, shared: Location
) -> DeliveredRecords:
    """Reads the records of the deliveries that can be read. columns: the source's, without Sluice's own. shared: as staging takes it.

    Raises ChangedWhileRead and RefusedDeliveries. The caller must release what it got.
    """
    readable = [item for item in examined if item.state == INGESTED and not item.empty]
    if not readable:
        return DeliveredRecords()
    size = sum(item.text_bytes for item in readable)
    few = is_read_in_process(size)
    try:
        with count_work("files read", len(readable), size, by_tasks=not few) as work:
            read = _read_in_process if few else _read_by_workers
            found = read(session, source, readable, columns, partial(make_staging_folder, session, shared), work)
    except RefusedDeliveries:
        _refuse_changed_files(readable)
        raise
    try:
        _refuse_changed_files(readable)
    except ChangedWhileRead:
        found.release()
        raise
    return found


def sample_new_fields(source: Source, examined: list[ExaminedDelivery], columns: pa.Schema, most_bytes: int) -> pa.StructType:
    """Returns the fields of the first records of the first deliveries that the columns lack. Reads a limited number of bytes of text."""
    news: pa.StructType = pa.struct([])
    for item in examined:
        if item.state != INGESTED or item.empty or most_bytes <= 0:
            continue
        # A file that cannot be read to its end is refused when all of it is read.
        with contextlib.suppress(UnreadableFile, OSError):
            for block in read_delivery_blocks(source, locate_delivery(item), columns):
                news = types.merge_types(news, block.news)
                most_bytes -= block.rows.nbytes
                if most_bytes <= 0:
                    break
    return news


def subject_key_column(source: Source, columns: Sequence[str]) -> Column:
    """Returns a record's subject as text: from its column, from what did not fit, or from a text that could not be read; otherwise NULL."""
    if source.subject is None:
        return F.lit(None).cast("string")
    column = find_column_spelling(source.subject, columns)
    in_column = [F.expr(source.subject_in or quote_identifier(column)).cast("string")] if column else []
    if source.subject_in:
        return F.coalesce(*in_column, F.lit(None).cast("string"))
    return F.coalesce(
        *in_column,
        F.expr(rescued_text_expression(source.subject)),
        _find_subject_in_text(source.subject),
    )


def _find_subject_in_text(field: str) -> Column:
    """Returns the value after a field's name, in any letter case, in a record that could not be read, without JSON escapes. NULL if there is none."""
    name = rf'(?iu)"{re.escape(field)}"\s*:\s*'
    # Whole texts first. If the quotes are wrong, everything up to a blank, a comma or a bracket.
    found = F.coalesce(*(F.nullif(F.regexp_extract("_record", name + value, 1), F.lit("")) for value in (_TEXT, _WORD)))
    return F.coalesce(F.get_json_object(F.concat(F.lit('["'), found, F.lit('"]')), "$[0]"), found)


def _read_in_process(
    session: SparkSession,
    source: Source,
    readable: list[ExaminedDelivery],
    columns: pa.Schema,
    make_folder: Callable[[], Location],
    work: CountedWork,
) -> DeliveredRecords:
    read: Counter[int] = Counter()
    blocks, problems = [], 0
    found: dict[int, pa.StructType] = {}
    for item in readable:
        try:
            for block in read_delivery_blocks(source, locate_delivery(item), columns):
                blocks.append(block.rows)
                found[item.delivery.number] = types.merge_types(found.get(item.delivery.number, pa.struct([])), block.news)
                read[item.delivery.number] += block.rows.num_rows
                problems += block.rows.num_rows - block.rows["_problem"].null_count
        except (UnreadableFile, OSError) as error:
            number = item.delivery.number
            raise RefusedDeliveries({number: unreadable_reason(error)}, {number} if isinstance(error, OSError) else ()) from None
        work.advance(size=item.text_bytes)
    everything = pa.concat_tables([
        record_rows_schema(columns).empty_table(),
        *(block.select(record_rows_schema(columns).names) for block in blocks),
    ])
    if not everything.num_rows:
        return DeliveredRecords(read=read)
    if is_part_of_plan(everything.nbytes):
        frame, release = session.createDataFrame(everything, _spark_schema(columns)), release_nothing
    else:
        folder = make_folder()
        release = partial(remove_staging_folder, folder)
        with StagedRowsWriter(folder / "rows.parquet", everything.schema) as writer:
            writer.add_rows(everything)
        frame = read_staged_rows(session, folder, _spark_schema(columns))
    return DeliveredRecords(_add_ingestion_time(frame), read, problems, found, everything.nbytes, release)


def _read_by_workers(
    session: SparkSession,
    source: Source,
    readable: list[ExaminedDelivery],
    columns: pa.Schema,
    make_folder: Callable[[], Location],
    work: CountedWork,
) -> DeliveredRecords:
    bins = balance_worker_bins(source, readable)
    folder = make_folder()
    release = partial(remove_staging_folder, folder)
    try:
        share = partial(read_worker_share, source, bins, columns, folder)
        numbers = session.range(0, len(bins), 1, len(bins))
        blocks = numbers.mapInArrow(share, from_arrow_schema(COUNTS)).collect()
        work.advance(len(readable), sum(item.text_bytes for item in readable))
        refused = {row._delivery: row.refused for row in blocks if row.refused}
        if refused:
            raise RefusedDeliveries(refused, {row._delivery for row in blocks if row.unreached})
    except BaseException:
        release()
        raise
    found: dict[int, pa.StructType] = {}
    before: dict[tuple[int, int], int] = {}
    read: Counter[int] = Counter()
    # In the order of the records: of names that differ only in case, the first becomes the column.
    for row in sorted(blocks, key=lambda row: (row._delivery, row[PART.name])):
        before.setdefault((row._delivery, row[PART.name]), read[row._delivery])
        read[row._delivery] += row["read"]
        if row.news:
            new = deserialize_new_fields(row.news)
            found[row._delivery] = types.merge_types(found.get(row._delivery, pa.struct([])), new)
    if not read.total():
        release()
        return DeliveredRecords(read=read)
    frame = read_staged_rows(session, folder, _spark_schema(columns).add(PART.name, "integer"))
    numbered = _number_through_parts(frame, before).drop(PART.name)
    problems = sum(row.problems for row in blocks)
    return DeliveredRecords(_add_ingestion_time(numbered), read, problems, found, None, release)


def _number_through_parts(frame: DataFrame, before: Mapping[tuple[int, int], int]) -> DataFrame:
    """Numbers the records as they stand in their file. before: by delivery and part, how many records the earlier parts have."""
    later = [(delivery, part, rows) for (delivery, part), rows in before.items() if rows]
    if not later:
        return frame
    counts = F.broadcast(
        table_creation.make_inline_frame(frame.sparkSession, later, f"_delivery BIGINT, {PART.name} INT, _sluice_before BIGINT")
    )
    numbered = frame.join(counts, ["_delivery", PART.name], "left")
    row = F.col("_row") + F.coalesce("_sluice_before", F.lit(0))
    return numbered.select(*(row.alias(name) if name == "_row" else quote_column(name) for name in frame.columns))


def _spark_schema(columns: pa.Schema) -> StructType:
    return from_arrow_schema(record_rows_schema(columns))


def _add_ingestion_time(frame: DataFrame) -> DataFrame:
    return frame.withColumn("_ingested_at", F.current_timestamp())


def _refuse_changed_files(readable: list[ExaminedDelivery]) -> None:
    """Raises ChangedWhileRead if a file has changed: only half of it may have been read, so nothing of the batch is written."""
    for item in readable:
        delivery = item.delivery
        try:
            same = delivery.size is None or is_file_in_state(delivery.path, delivery.state)
        except FileNotFoundError:
            same = False
        if not same:
            raise ChangedWhileRead(f"Delivery {delivery.number} of '{delivery.source}' was changed while it was read.")
