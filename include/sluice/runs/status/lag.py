"""Measures what waits for each flow: undiscovered files, deliveries without an outcome, and outcomes and versions that it has not read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sluice import delta_log
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.dataset import AnyDataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError
from sluice.flows.progress import checkpoints, positions, stream_starts
from sluice.flows.progress.flow_memory import read_flow_memory, reason_if_retyped
from sluice.flows.progress.missing_inputs import describe_missing_inputs, list_missing_inputs
from sluice.flows.progress.positions import FlowProgress, StreamPosition
from sluice.ingest.deliveries import discovery
from sluice.lake import log
from sluice.record_states import INGESTED, WAITING
from sluice.runs.run_ledger import Row
from sluice.runs.status.books import PipelineBooks


@dataclass(frozen=True, kw_only=True)
class FlowLag:
    """The standing of a flow, and what waits for it: deliveries, their records (if known) and bytes, and versions of its inputs.

    anew: why its next run reads everything again, or None if it resumes. stuck: why its next run cannot do anything. since: when the oldest
    waiting item came (UTC). moved: its inputs that have something for it. unbounded: its inputs whose every change means a full recompute,
    according to its checkpoint. warnings: what must be done before records are lost.
    """

    table: str
    layer: str
    name: str
    progress: FlowProgress | None = None
    anew: str | None = None
    stuck: str | None = None
    deliveries: int = 0
    rows: int | None = 0
    bytes: int = 0
    versions: int = 0
    since: datetime | None = None
    moved: tuple[str, ...] = ()
    unbounded: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether anything waits for it."""
        return bool(self.deliveries or self.versions)


def measure_pipeline_lag(books: PipelineBooks) -> list[FlowLag]:
    """Every flow of a pipeline, inputs before readers. Raises UsageError for a checkpoint that is shared or another flow's."""
    return [measure_flow_lag(books, declared) for declared in books.graph]


def measure_flow_lag(books: PipelineBooks, declared: Source | AnyDataset) -> FlowLag:
    """One flow. Errors as of `measure_pipeline_lag`."""
    return declared.kind.measure_lag(books, declared)


def measure_lag_from_start(books: PipelineBooks, flow: FlowLag) -> FlowLag:
    """Measures a flow as if it started anew: all deliveries that count, all of the inputs."""
    declared = books.graph[flow.table]
    return declared.kind.measure_lag_anew(books, declared, flow)


def measure_bronze_lag_anew(books: PipelineBooks, source: Source, flow: FlowLag) -> FlowLag:
    """The lag itself: a source reads no table with versions."""
    return replace(flow, rows=0, bytes=0, versions=0, since=None, moved=())


def measure_silver_lag_anew(books: PipelineBooks, table: Table[Any], flow: FlowLag) -> FlowLag:
    """All deliveries that count."""
    rows = books.feeding(table.reads[0], INGESTED)
    return replace(flow, **_sum_rows_and_bytes(rows), deliveries=len(rows), since=None, moved=table.reads if rows else ())


def measure_lag_of_all_inputs(books: PipelineBooks, dataset: AnyDataset, flow: FlowLag) -> FlowLag:
    """All of the inputs, each as one version."""
    states = {name: state for name in dataset.reads if (state := log.read_table_state(books.path(name)))}
    counts = [state.rows for state in states.values()]
    return replace(
        flow,
        rows=None if None in counts else sum(count or 0 for count in counts),
        bytes=sum(state.bytes for state in states.values()),
        versions=len(states),
        since=None,
        moved=tuple(states),
    )


def read_flow_standing(books: PipelineBooks, declared: Source | AnyDataset) -> FlowLag:
    """Reads a flow's standing from its checkpoint: how far it has read, and whether it starts anew. Errors are those of `measure_pipeline_lag`."""
    return declared.kind.read_standing(books, declared)


def read_bronze_standing(books: PipelineBooks, source: Source) -> FlowLag:
    """Reads a source's standing: how far it has read the list of deliveries."""
    return _read_checkpoint_standing(books, source)


def read_silver_standing(books: PipelineBooks, table: Table[Any]) -> FlowLag:
    """Reads a silver table's standing: how far it has read the list of outcomes."""
    flow = _start_anew_without_table(books, _read_checkpoint_standing(books, table))
    (name, folder), (source, *_) = books.flow_checkpoints(table), table.reads
    return flow if flow.anew else replace(flow, anew=reason_if_retyped(folder, name, source, books.path(source)))


def read_view_standing(books: PipelineBooks, view: MaterializedView[Any]) -> FlowLag:
    """Reads a view's standing: how far it has read the changes of its inputs; only of existing ones, if it does not wait for all.

    What bounds a change of each input only Spark can find, so it is taken as the last run found and recorded it.
    """
    there = view.over(name for name in view.reads if delta_log.is_delta_table(books.path(name)))
    name, folder = books.flow_checkpoints(view)
    memory = read_flow_memory(folder, name)
    code, digits = memory.fingerprint if memory is not None else "", compute_declaration_fingerprint(view)
    rest = code.removeprefix(digits) if code.startswith(digits) else ""
    flow = _read_checkpoint_standing(books, there or view, digits + rest)
    return _start_anew_without_table(books, replace(flow, unbounded=memory.unbounded if memory is not None else ()))


def _start_anew_without_table(books: PipelineBooks, flow: FlowLag) -> FlowLag:
    gone = flow.anew is None and not delta_log.is_delta_table(books.path(flow.table))
    return replace(flow, anew=checkpoints.TABLE_MISSING) if gone else flow


def find_pending_deliveries(books: PipelineBooks, table: Table[Any]) -> set[int]:
    """Returns the deliveries whose outcomes a silver flow has not read. Empty if it has no checkpoint to resume from."""
    outcomes = books.records.outcome_ledger
    flow = read_silver_standing(books, table)
    try:
        return set() if flow.anew is not None else {row["delivery"] for row in _read_outcomes_after(outcomes, flow.progress)}
    except positions.StreamChangesLost:
        return set()


def measure_bronze_lag(books: PipelineBooks, source: Source) -> FlowLag:
    """Measures undiscovered files or offsets, and deliveries without an outcome."""
    flow = read_bronze_standing(books, source)
    try:
        found = discovery.preview_discovery(source, books.records.landing, books.known)
        warnings = (*books.warnings(source), *found.warnings)
    except SluiceError as error:
        return replace(flow, stuck=str(error))
    waiting = books.of_source(source.name, WAITING)
    # A file that the last discovery did not see came after it, whatever its modification time.
    looks = [row["started_at"] for row in books.runs if row["flow"] == source.name and row["stage"] == flow.layer]
    looked = looks[-1] if looks else None
    came = [row["discovered_at"] for row in waiting]
    came += [max(file.modified_at, looked) if looked and file.modified_at else file.modified_at for file in found.came]
    return replace(
        flow,
        deliveries=len(found.came) + len(found.gone) + len(waiting),
        rows=source.kind.count_waiting([*(file.file for file in found.came), *(row["file"] for row in waiting)]),
        bytes=sum(file.size or 0 for file in found.came) + sum(row["size"] or 0 for row in waiting),
        since=min((at for at in came if at), default=None),
        warnings=warnings,
    )


def measure_silver_lag(books: PipelineBooks, table: Table[Any]) -> FlowLag:
    """Measures the outcomes that a silver flow has not read."""
    outcomes = books.records.outcome_ledger
    flow = read_silver_standing(books, table)
    if flow.anew is not None:
        return measure_lag_from_start(books, flow)
    feeding = {source.name for source in books.graph.feeding(table.reads[0])}
    try:
        mine = [row for row in _read_outcomes_after(outcomes, flow.progress) if row["source"] in feeding]
    except positions.StreamChangesLost as lost:
        remedy = f"Run: sluice checkpoint reset {books.records.pipeline}.{table.name}"
        return replace(flow, stuck=f"its stream cannot go on: {lost} of the outcomes is gone. {remedy}")
    taken = {row["delivery"] for row in mine}
    return replace(
        flow,
        **_sum_rows_and_bytes([row for row in books.deliveries if row["delivery"] in taken]),
        deliveries=len(taken),
        since=min((row["recorded_at"] for row in mine), default=None),
        moved=table.reads if taken else (),
    )


def measure_stream_lag(books: PipelineBooks, stream: Windowed[Any]) -> FlowLag:
    """Measures the lag of a stream with state. Errors are those of `measure_pipeline_lag`."""
    missing = list_missing_inputs(stream.reads, books.path)
    if missing:
        flow = _read_stream_standing(books, stream)
        return replace(flow, anew=flow.anew or checkpoints.FIRST, stuck=describe_missing_inputs(missing))
    (name, folder), inputs = books.flow_checkpoints(stream), books.streamed_tables(stream)
    ids = {read: log.read_table_id(path) for read, path in inputs.items() if delta_log.is_delta_table(path)}
    why = stream_starts.find_stream_break(
        folder, name, ids, stream_starts.stream_fingerprint(stream), books.path(stream.name), books.path
    )
    if why is not None:
        return replace(
            _read_stream_standing(books, stream),
            anew=None,
            stuck=str(stream_starts.broken_stream_error(books.records.pipeline, stream.name, why)),
        )
    return _add_waiting_changes(books, stream, _read_stream_standing(books, stream))


def _read_stream_standing(books: PipelineBooks, stream: Windowed[Any]) -> FlowLag:
    mark = stream_starts.stream_fingerprint(stream)
    return _read_checkpoint_standing(books, stream, mark)


def measure_view_lag(books: PipelineBooks, view: MaterializedView[Any]) -> FlowLag:
    """Measures the lag of a view. Errors are those of `measure_pipeline_lag`."""
    flow = read_view_standing(books, view)
    missing = list_missing_inputs(view.reads, books.path)
    present = view.over(set(view.reads) - set(missing))
    if present is not None:
        view = present
    else:
        return replace(flow, anew=flow.anew or checkpoints.FIRST, stuck=describe_missing_inputs(missing))
    return _add_waiting_changes(books, view, flow)


def _add_waiting_changes(books: PipelineBooks, reader: AnyDataset, flow: FlowLag) -> FlowLag:
    """Adds the changes of its inputs since its positions to the flow's lag, or all of them if it starts anew."""
    if flow.anew is not None:
        return measure_lag_from_start(books, flow)
    since = flow.progress.positions if flow.progress else {}
    try:
        waiting = {name: _list_changes_after(books.path(name), since.get(name), feed=True) for name in reader.reads}
    except positions.StreamChangesLost as lost:
        return measure_lag_from_start(books, replace(flow, anew=f"its stream cannot go on ({lost} of an input is gone)"))
    every = [change for found in waiting.values() for change in found]
    return replace(
        flow,
        rows=None if every else 0,
        bytes=sum(change.bytes for change in every),
        versions=len(every),
        since=min((change.at for change in every if change.at), default=None),
        moved=tuple(name for name, found in waiting.items() if found),
    )


def _read_checkpoint_standing(books: PipelineBooks, declared: Source | AnyDataset, code: str = "") -> FlowLag:
    """The standing of a flow by its checkpoint alone. code: the fingerprint that it should have."""
    (name, folder), inputs = books.flow_checkpoints(declared), books.streamed_tables(declared)
    ids = {name: log.read_table_id(path) for name, path in inputs.items() if delta_log.is_delta_table(path)}
    anew = checkpoints.reason_to_rebase(folder, name, ids, code) if len(ids) == len(inputs) else checkpoints.FIRST
    return FlowLag(
        table=declared.name,
        layer=books.graph.layer(declared),
        name=name,
        progress=positions.read_flow_progress(folder, name),
        anew=anew,
    )


def _sum_rows_and_bytes(rows: Sequence[Row]) -> dict[str, Any]:
    return {"rows": sum(row["rows"] or 0 for row in rows), "bytes": sum(row["size"] or 0 for row in rows)}


def _read_outcomes_after(path: str, progress: FlowProgress | None) -> list[Row]:
    found = _list_changes_after(path, progress.positions.get("outcomes") if progress else None, feed=False)
    return positions.read_appended_rows(path, found, ["delivery", "source", "recorded_at"])


def _list_changes_after(path: str, position: StreamPosition | None, feed: bool) -> list[positions.TableChange]:
    """Lists what came after a position. For a stream that still reads the whole table that is everything."""
    return positions.list_changes_since(path, StreamPosition(0) if position is None or position.snapshot else position, feed)
