"""Counts rows that came too late, and keeps them beside the table that lacks them, with the watermark that excluded them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sluice.declare.datasets.windowed import HEARTBEATS, AnyStream
from sluice.declare.quoting import quote_column
from sluice.flows.progress import batches
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.flows.stateful import arriving, inputs
from sluice.flows.stateful.arriving import END
from sluice.flows.stateful.inputs import ROW
from sluice.flows.stateful.operators import Rule
from sluice.flows.writing.difference import persist_frame
from sluice.lake import commits, log, table_creation, table_frames
from sluice.lake.batch_sizes import measure_rows
from sluice.lake.commits import Transaction
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_creation import TableShape
from sluice.lake.table_frames import compute_aggregates
from sluice.lake.workspace import Workspace
from sluice.lake.written_alike import choose_statistics_columns
from sluice.printable import count_noun
from sluice.privacy import treatments

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

COLUMNS = "_input STRING, _watermark TIMESTAMP, _missed STRING, _run STRING"
"""_watermark: what shut the row out, or NULL if no window has it: its instant is NULL, or its session has no length. _missed: "all" or "some"
of its windows; "unknown" for a row that is not after the watermark if the transform's plan does not tell what becomes of it."""

_END, _FIRST_END = "_last_end", "_first_end"
_CLOSED = "_closed"
"""Whether the watermark shut a row out. If not, no window has it."""


@dataclass(frozen=True)
class Lateness:
    """What is known from a stream's plan: by input, the rule by which rows are late; and the columns that its transform gets."""

    rules: Mapping[str, Rule]
    schemas: Mapping[str, StructType]


def create_late_table(workspace: Workspace, stream: AnyStream, lateness: Lateness, anew: bool) -> None:
    """Creates the table of late rows if it does not exist, or adds the columns that it lacks. anew: replaces one that does not fit."""
    path, schema = workspace.late(stream.name), _late_table_schema(workspace, stream, lateness)
    shape = TableShape(
        schema=schema,
        comment=f"What came too late for {stream.name}.",
        statistics=choose_statistics_columns(schema, stream.private),
        retain=workspace.graph.pipeline.retain,
        change_feed=False,
    )
    if table_creation.create_table(workspace.session, path, shape) or not anew:
        return
    present = {one.name: one.dataType for one in table_frames.read_table(workspace.session, path).schema}
    if any(one.name in present and present[one.name] != one.dataType for one in schema):
        table_creation.replace_table(workspace.session.createDataFrame([], schema), path, shape)


def keep_late_rows(
    workspace: Workspace, stream: AnyStream, lateness: Lateness, checkpoint: Checkpoint, number: int, report: FlowReport
) -> None:
    """Keeps the late rows of a batch, and counts what it took of its inputs."""
    watermark = batches.read_lateness_watermark(checkpoint, number)
    found = []
    for name, of in batches.read_batch_version_ranges(checkpoint, number, inputs.input_table_ids(workspace, stream)).items():
        if name == HEARTBEATS:
            continue
        taken = inputs.read_batch_input(workspace, name, of)
        with persist_frame(taken.added) as added:
            report.rows_in += added.count() + taken.suppressed
            report.suppressed += taken.suppressed
            report.unfollowed += taken.unfollowed
            late = _find_late_rows(workspace, stream, lateness.rules.get(name), name, added, watermark)
            if late is not None:
                found.append(_prepare_late_rows(workspace, stream, lateness, name, late, report, watermark))
    rows = [frame for frame in found if frame is not None]
    if rows:
        every = rows[0]
        for frame in rows[1:]:
            every = every.unionByName(frame, allowMissingColumns=True)
        with persist_frame(every) as late:
            once = _late_transaction(stream, checkpoint, number)
            commits.append_rows(late, workspace.late(stream.name), once, measure_rows(late))


def empty_late_table(workspace: Workspace, stream: AnyStream, checkpoint: Checkpoint, number: int) -> None:
    """Removes the late rows of a stream that starts over with this batch, which reads them again.

    The batch's own late rows stay. An earlier attempt may have kept them, and Delta would not take them again.
    """
    path = workspace.late(stream.name)
    if log.last_committed_transaction(path, _late_transaction(stream, checkpoint, number).application) >= number:
        return
    state = log.read_table_state(path)
    if state is not None and state.rows != 0:
        commits.overwrite_rows(table_frames.read_table(workspace.session, path).limit(0), path)


def _late_transaction(stream: AnyStream, checkpoint: Checkpoint, number: int) -> Transaction:
    return Transaction(checkpoint.flow, checkpoint.identity, stream.late, number)


def _find_late_rows(
    workspace: Workspace, stream: AnyStream, rule: Rule | None, name: str, added: DataFrame, watermark: int
) -> DataFrame | None:
    """Computes the rows that an operator left out, with `_missed`. None if there can be none."""
    if rule is None or (rule == "time" and not watermark):
        return None
    time = quote_column(stream.watermarks[name].time)
    arrived = arriving.find_arriving_rows(workspace, stream, name, added)
    try:
        return _select_missed_rows(rule, time, added, arrived, watermark).localCheckpoint()
    except Exception:
        # A function of the transform may get a row here that the stream filters out before it, and may raise.
        return _select_missed_rows(rule, time, added, None, watermark).localCheckpoint()


def _select_missed_rows(rule: Rule, time: Column, added: DataFrame, arrived: DataFrame | None, watermark: int) -> DataFrame:
    """Selects the rows of a batch that the operator left out. arrived: see `arriving.find_arriving_rows`."""
    instant = F.timestamp_millis(F.lit(watermark))
    if arrived is None or (END in arrived.columns) != (rule != "time"):
        unknown = F.when(time <= instant, "unknown") if watermark and rule != "timeless" else F.lit(None)
        timeless = F.when(time.isNull(), "all") if rule != "time" else F.lit(None)
        missed = {"_missed": F.coalesce(unknown, timeless), _CLOSED: time.isNotNull()}
        return added.withColumns(missed).where("_missed IS NOT NULL")
    if rule == "time":
        found = added.where(time <= instant).join(arrived, ROW, "left_semi")
        return found.withColumns({"_missed": F.lit("all"), _CLOSED: F.lit(True)})
    ends = arrived.groupBy(ROW).agg(F.max(END).alias(_END), F.min(END).alias(_FIRST_END))
    because = F.when(F.col(_END).isNull(), "all")
    if watermark and rule == "window":
        because = because.when(F.col(_END) <= instant, "all").when(F.col(_FIRST_END) <= instant, "some")
    marked = added.join(ends, ROW).withColumns({"_missed": because, _CLOSED: F.col(_END).isNotNull()})
    return marked.where("_missed IS NOT NULL").drop(_END, _FIRST_END)


def _prepare_late_rows(
    workspace: Workspace,
    stream: AnyStream,
    lateness: Lateness,
    name: str,
    late: DataFrame,
    report: FlowReport,
    watermark: int,
) -> DataFrame | None:
    """Returns late rows as they are stored, personal columns treated as in the target. None if there are none."""
    time = quote_column(stream.watermarks[name].time)
    closed = F.when(F.col(_CLOSED), F.timestamp_millis(F.lit(watermark)))
    told = compute_aggregates(
        late,
        F.count("*").alias("rows"),
        F.min(F.when(F.col(_CLOSED), time)).alias("oldest"),
        *(F.count_if(F.col("_missed") == missed).alias(missed) for missed in ("some", "unknown")),
    )
    if not told["rows"]:
        return None
    report.late += told["rows"]
    report.notes.append(_describe_late_rows(stream, name, told, watermark))
    marked = late.withColumns({"_input": F.lit(name), "_watermark": closed, "_run": F.lit(workspace.run)}).drop(ROW, _CLOSED)
    wanted = {one.name: one.dataType for one in _late_table_schema(workspace, stream, lateness)}
    columns = [quote_column(column).cast(wanted[column]).alias(column) for column in marked.columns]
    ours = {column: how for column, how in stream.treatments.items() if column in marked.columns}
    return treatments.apply_treatments(workspace.settings, marked, ours, f"Stream '{stream.name}'").select(*columns)


def _describe_late_rows(stream: AnyStream, name: str, told: Mapping[str, Any], watermark: int) -> str:
    rows = f"{count_noun(told['rows'], 'row')} of '{name}' came too late"
    if told["oldest"] is not None and watermark:
        at = datetime.fromtimestamp(watermark / 1000, UTC).replace(tzinfo=None)
        rows += f", by up to {max((at - told['oldest']).total_seconds(), 0):,.0f} s"
    some = f" ({told['some']:,} of them only for some of their windows)" if told["some"] else ""
    unknown = (
        f" ({told['unknown']:,} of them by their time alone: its plan does not tell which it takes)" if told["unknown"] else ""
    )
    return f"{rows}{some}{unknown}: they are in {stream.late}"


def _late_table_schema(workspace: Workspace, stream: AnyStream, lateness: Lateness) -> StructType:
    """Returns the columns of all inputs, then those that say why a row is there. A column whose type differs between inputs is a text."""
    fields: dict[str, StructField] = {}
    for name in stream.watermarks:
        for one in lateness.schemas[name]:
            other = fields.get(one.name)
            kind = one.dataType if other is None or other.dataType == one.dataType else StringType()
            fields[one.name] = StructField(one.name, kind)
    for column, how in _treated_column_types(workspace, stream, fields).items():
        fields[column] = StructField(column, how)
    return StructType([*fields.values(), *table_creation.parse_ddl_schema(COLUMNS).fields])


def _treated_column_types(workspace: Workspace, stream: AnyStream, fields: Mapping[str, StructField]) -> dict[str, Any]:
    """Returns the types that the target's treatments give to personal columns."""
    ours = {column: how for column, how in stream.treatments.items() if column in fields}
    if not ours:
        return {}
    given = workspace.session.createDataFrame([], StructType(list(fields.values())))
    return {one.name: one.dataType for one in treatments.apply_treatments(None, given, ours).schema if one.name in ours}
