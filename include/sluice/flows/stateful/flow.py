"""The stateful flow: its inputs as streams, the transform over them, one batch per run, and the left-out rows kept beside its table.

A batch is appended to the table once, or merged as the difference to what is there. Only this module says how Spark keeps the state.
Spark tidies state up in the background of a query that keeps running, but a triggered run of a minute ends before that. So it is done at
each commit: old versions go, and deleted entries are gone from the files, which may hold keys of people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sluice.declare.datasets.windowed import AnyStream, Windowed
from sluice.declare.quoting import quote_column, quote_columns
from sluice.durable_files import write_json_durably
from sluice.flows.progress import checkpoints, stream_starts, streams
from sluice.flows.progress.batches import PinnedVersions
from sluice.flows.progress.checkpoints import Checkpoint, open_checkpoint
from sluice.flows.progress.missing_inputs import describe_missing_inputs, list_missing_inputs
from sluice.flows.stateful import idle, inputs, late, operators
from sluice.flows.stateful.late import Lateness
from sluice.flows.writing import targets
from sluice.flows.writing.difference import apply_merge_operations, null_safe_equality, persist_frame, plan_merge_operations
from sluice.lake import batch_sizes, commits, log, table_creation, table_frames
from sluice.lake.batch_sizes import RowsSize, measure_rows
from sluice.lake.commits import Transaction
from sluice.lake.flow_report import FlowReport
from sluice.lake.table_creation import TableShape
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.locations import locate
from sluice.privacy import treatments
from sluice.run_modes import REPLAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STORE = "spark.sql.streaming.stateStore"
_SETTINGS = {
    # The checkpoint records this at its first batch; a query that resumes from it must not ask for another value.
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # Maintenance at the end of a task instead of once a minute.
    f"{_STORE}.unloadOnCommit": "true",
    f"{_STORE}.rocksdb.compactOnCommit": "true",
    # The last two versions: the one that a retried batch starts from, and its own.
    "spark.sql.streaming.minBatchesToRetain": "2",
}
_FILE = "state.json"


@dataclass(frozen=True)
class StreamRun:
    """One run of a stream. shape: what replaces its table if a refresh gives it other columns."""

    stream: AnyStream
    checkpoint: Checkpoint
    lateness: Lateness
    shape: TableShape | None
    report: FlowReport


@dataclass(frozen=True)
class StreamBatch:
    """A batch of a stream: its persisted rows, their size, and its number. over: whether the stream starts over with it."""

    rows: DataFrame
    size: RowsSize
    number: int
    over: bool


def write_stream_batch(workspace: Workspace, this: StreamRun, batch: StreamBatch) -> None:
    """Writes a batch's rows. The first batch of a stream that starts over replaces all rows of the table."""
    if this.stream.output == "append":
        _append_stream_rows(workspace, this, batch)
    else:
        _merge_stream_rows(workspace, this.stream, batch.rows, this.report, whole=batch.over or this.stream.output == "complete")


def _append_stream_rows(workspace: Workspace, this: StreamRun, batch: StreamBatch) -> None:
    path = workspace.path(this.stream.name)
    state = log.read_table_state(path)
    if batch.over and state is not None and state.rows != 0:
        commits.overwrite_rows(batch.rows, path)
    elif batch.size.rows:
        once = Transaction(this.checkpoint.flow, this.checkpoint.identity, this.stream.name, batch.number)
        commits.append_rows(batch.rows, path, once, batch.size)
    this.report.count_changes(batch.size.rows, 0, 0)


def _merge_stream_rows(workspace: Workspace, stream: AnyStream, rows: DataFrame, report: FlowReport, whole: bool) -> None:
    """Merges a batch's rows. whole: the rows are all that the table should have; otherwise rows of other keys stay."""
    path = workspace.path(stream.name)
    target = table_frames.read_table(workspace.session, path)
    old = target if whole else _select_rows_of_keys(target, rows, stream.keys)
    differing = plan_merge_operations(rows, old, stream.keys)
    changes = apply_merge_operations(
        workspace.session, path, differing, stream.keys, targets.choose_bounding_columns(stream, target.schema)
    )
    report.count_merge(changes)


def _select_rows_of_keys(target: DataFrame, rows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    wanted = rows.select(*(quote_column(key).alias(f"_key_{key}") for key in keys)).distinct()
    ours = null_safe_equality(quote_columns(keys), [F.col(f"`_key_{key}`") for key in keys])
    return target.join(wanted, ours, "left_semi")


def run_stateful_flow(workspace: Workspace, stream: AnyStream, report: FlowReport, anew: str | None = None) -> None:
    """Takes what is new. anew: a reason to start over, with fresh state.

    Raises SluiceError if the stream cannot resume, and DeclarationError if Spark would not run it or it would lose rows unnoticed.
    """
    if workspace.mode == REPLAY.name:
        report.notes.append("a stream with state takes a row once: a replay does not reach it")
        return
    missing = list_missing_inputs(stream.reads, workspace.path)
    if missing:
        report.notes.append(describe_missing_inputs(missing))
        return
    if stream.closes_when_idle:
        idle.create_heartbeat_table(workspace, stream)
    anew = anew or _check_start_over(workspace, stream)
    configure_state_store(workspace.session)
    lateness, schema = _examine_transform(workspace, stream)
    shape = targets.prepare_target_table(workspace, stream, schema, anew=stream_starts.REFRESH_REQUESTED if anew else None)
    checkpoint = open_checkpoint(
        *_name_checkpoint_folder(workspace, stream),
        inputs.input_table_ids(workspace, stream),
        stream_starts.stream_fingerprint(stream),
        anew,
    )
    if stream.may_be_late:
        late.create_late_table(workspace, stream, lateness, anew is not None)
    if checkpoint.rebased and log.latest_table_version(workspace.path(stream.name)):
        report.notes.append(f"started over: {checkpoint.rebased}")
    this = StreamRun(stream, checkpoint, lateness, shape, report)
    _run_stream_query(workspace, this)
    closed = idle.close_idle_windows(workspace, stream, checkpoint)
    if closed:
        report.notes.append(closed)
        _run_stream_query(workspace, this)


def _name_checkpoint_folder(workspace: Workspace, stream: AnyStream) -> tuple[str, str]:
    """Returns the folder of the flow's checkpoints, and the flow's name."""
    flow = workspace.graph.flow_name(stream)
    return workspace.checkpoints(flow), flow


def _check_start_over(workspace: Workspace, stream: AnyStream) -> str | None:
    """Returns why the stream starts over though nobody asked, or None if it resumes. Raises SluiceError if it can do neither."""
    folder, flow = _name_checkpoint_folder(workspace, stream)
    ids, mark = inputs.input_table_ids(workspace, stream), stream_starts.stream_fingerprint(stream)
    why = stream_starts.find_stream_break(folder, flow, ids, mark, workspace.path(stream.name), workspace.path)
    if why is not None:
        raise stream_starts.broken_stream_error(workspace.pipeline, stream.name, why)
    started = stream_starts.reason_to_start_over(folder, flow, ids, mark)
    return None if started == checkpoints.FIRST else started


def _examine_transform(workspace: Workspace, stream: AnyStream) -> tuple[Lateness, Any]:
    """Returns what the transform's plan tells about late rows, and the stored columns."""
    given = inputs.stream_inputs(workspace, stream, "")
    result = stream(*given)
    operators.check_stream_transform(stream, result)
    schemas = {name: frame.schema for name, frame in zip(stream.reads, given, strict=True)}
    stored = treatments.apply_treatments(None, result, stream.treatments, f"Stream '{stream.name}'").schema
    return Lateness(operators.find_lateness_rules(stream, result, given), schemas), stored


def _run_stream_query(workspace: Workspace, this: StreamRun) -> None:
    stream, checkpoint, report = this.stream, this.checkpoint, this.report
    paths = {name: workspace.path(name) for name in stream.reads}
    pins = PinnedVersions(checkpoint.path, paths, {name: log.read_table_id(path) for name, path in paths.items()})

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        inside.mark_next_commits(checkpoint.flow, inputs=pins.ends_of(number))
        batch_sizes.choose_evaluation_settings(inside.session, map(inside.path, (stream.name, *stream.reads)))
        stored = treatments.apply_treatments(inside.settings, rows, stream.treatments, f"Stream '{stream.name}'")
        # The whole batch is computed before anything else: a batch that is not read to its end loses its state.
        with persist_frame(stored) as final:
            over = checkpoint.rebased is not None and number == 0
            _take_batch(inside, this, StreamBatch(final, measure_rows(final), number, over))
        report.batches += 1

    batch_sizes.choose_evaluation_settings(workspace.session, map(workspace.path, (stream.name, *stream.reads)), keeps_state=True)
    result = stream(*inputs.stream_inputs(workspace, stream, checkpoint.identity))
    try:
        progress = streams.run_stream(workspace, result, checkpoint, on_batch, stream.output)
    except streams.ContinuityLost as lost:
        raise stream_starts.broken_stream_error(workspace.pipeline, stream.name, f"its stream broke ({lost})") from None
    report_state_size(checkpoint, progress, report)


def _take_batch(workspace: Workspace, this: StreamRun, batch: StreamBatch) -> None:
    """Takes one batch: late rows first, the table last. A repeated attempt writes nothing twice."""
    if batch.over and this.stream.may_be_late:
        late.empty_late_table(workspace, this.stream, this.checkpoint, batch.number)
    late.keep_late_rows(workspace, this.stream, this.lateness, this.checkpoint, batch.number, this.report)
    if batch.over and this.shape:
        table_creation.replace_table(batch.rows, workspace.path(this.stream.name), this.shape)
        this.report.count_replacement(batch.size.rows)
    else:
        write_stream_batch(workspace, this, batch)
    if batch.over:
        targets.record_transform_fingerprint(workspace, this.stream)


def preview_stream_schema(session: SparkSession, stream: Windowed[Any], schemas: Mapping[str, StructType]) -> StructType:
    """Returns the columns of a stream's table. schemas: those of its inputs as they are stored.

    Raises DeclarationError if Spark would not run it, if rows would be lost unnoticed, or if the declaration names other columns.
    """
    seen = {name: StructType([one for one in schemas[name] if one.name not in PROVENANCE]) for name in stream.reads}
    result = stream(
        *(inputs.with_input_watermark(stream, name, inputs.make_empty_stream(session, seen[name])) for name in stream.reads)
    )
    operators.check_stream_transform(stream, result)
    stored = treatments.apply_treatments(None, result, stream.treatments, f"Stream '{stream.name}'").schema
    targets.check_declared_columns(stream, stored)
    return stored


def configure_state_store(session: SparkSession) -> None:
    """Makes the queries that this session starts keep their state in this way."""
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)


def report_state_size(checkpoint: Checkpoint, progress: dict[str, Any] | None, report: FlowReport) -> None:
    """Reports how much state there is: rows by the query's last progress, and bytes on disk. A run without a batch reports what there was."""
    file = locate(checkpoint.path).parent / _FILE
    if progress is not None:
        rows = sum(int(one["numRowsTotal"]) for one in progress["stateOperators"])
        write_json_durably(file, {"identity": checkpoint.identity, "rows": rows})
    try:
        known = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return
    if known.get("identity") == checkpoint.identity:
        report.state_rows = int(known["rows"])
    report.state_bytes = sum(path.stat().st_size for path in (locate(checkpoint.path) / "state").rglob("*") if path.is_file())
