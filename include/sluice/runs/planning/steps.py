"""Plans what an increment, a refresh or a replay of an interval would do to one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sluice import delta_log
from sluice.declare.datasets.dataset import Dataset
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.source import Source
from sluice.declare.interval import Interval
from sluice.errors import SluiceError
from sluice.flows.progress.missing_inputs import SOURCE_IS_EMPTY
from sluice.flows.progress.stream_starts import REFRESH_REQUESTED
from sluice.ingest.deliveries import discovery
from sluice.ingest.deliveries.arrivals import SourceChanges
from sluice.lake import log
from sluice.record_states import DELIVERED, LACKED_BY_REPLAY, REREAD_BY_REFRESH, WAITING
from sluice.runs.status import lag
from sluice.runs.status.books import PipelineBooks
from sluice.runs.status.lag import FlowLag

NOTHING = "nothing"
INGEST, READ_AGAIN = "ingest", "read again"
FOLD, FOLD_AGAIN, FOLD_ANEW = "fold", "fold again", "fold anew"
FOLLOW, RECOMPUTE, START_OVER, FAIL = "follow", "recompute in full", "start over", "fail"
"""What a run would do to a table. fold again: the keys of an interval. follow: recompute what changes of the inputs touch; a stream takes
the added rows. start over: a stream, with fresh state. fail: a strict view that cannot follow a change."""


@dataclass(frozen=True)
class PlannedStep:
    """What a run would do to one table, and why. deliveries, bytes, rows, versions: what it would read, as far as known.

    files: for bronze, the deliveries that it would take: file, state and, if there is one, number.
    """

    table: str
    layer: str
    does: str
    why: str = ""
    deliveries: int = 0
    bytes: int = 0
    rows: int | None = 0
    versions: int = 0
    files: list[dict[str, Any]] = field(default_factory=list)

    @property
    def moves(self) -> bool:
        """Whether the table or its records may change."""
        return self.does not in (NOTHING, FAIL)


def plan_flow_step(books: PipelineBooks, flow: FlowLag, before: Sequence[PlannedStep], refreshed: bool) -> PlannedStep:
    """Plans the step of a flow. before: at least the steps of its inputs. refreshed: whether it must be made from scratch."""
    declared = books.graph[flow.table]
    return declared.kind.plan_step(books, declared, flow, before, refreshed)


def list_moving_inputs(books: PipelineBooks, dataset: Dataset[Any], before: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Lists the earlier steps that may change an input."""
    return [step for step in before if books.graph.table_of(step.table) in dataset.reads and step.moves]


def _name_changed_inputs(books: PipelineBooks, dataset: Dataset[Any], before: Sequence[PlannedStep]) -> set[str]:
    return {books.graph.table_of(step.table) for step in list_moving_inputs(books, dataset, before)}


def plan_bronze_step(
    books: PipelineBooks, source: Source, flow: FlowLag, before: Sequence[PlannedStep], refreshed: bool
) -> PlannedStep:
    """Plans what a run would take of a source."""
    if refreshed:
        return _plan_bronze_refresh(books, source, flow)
    if flow.stuck:
        return PlannedStep(flow.table, flow.layer, FAIL, flow.stuck)
    again = flow.anew and log.latest_table_version(books.path(flow.table))
    anew = f"from the first delivery on, without those that it has: {flow.anew}" if again else ""
    does = INGEST if flow.waits else NOTHING
    found = discovery.preview_discovery(source, books.records.landing, books.known)
    why = "; ".join(one for one in (anew, found.left_out) if one)
    files = _list_waiting_files(books, source, found)
    return PlannedStep(flow.table, flow.layer, does, why, flow.deliveries, flow.bytes, flow.rows, files=files)


def _list_waiting_files(books: PipelineBooks, source: Source, found: SourceChanges) -> list[dict[str, Any]]:
    return [
        *({"file": row["file"], "state": WAITING, "delivery": row["delivery"]} for row in books.of_source(source.name, WAITING)),
        *({"file": file.file, "state": "new", "delivery": None} for file in found.came),
        *({"file": name, "state": "gone", "delivery": None} for name in found.gone),
    ]


def _plan_bronze_refresh(books: PipelineBooks, source: Source, flow: FlowLag) -> PlannedStep:
    """Plans a refresh of bronze: every delivery whose file is unchanged, then what waits."""
    if flow.stuck:
        return PlannedStep(flow.table, flow.layer, FAIL, flow.stuck)
    known = books.of_source(source.name, *REREAD_BY_REFRESH)
    readable = books.select_unchanged(source, [row for row in known if row["event"] == DELIVERED])
    size = flow.bytes + sum(row["size"] or 0 for row in readable)
    return PlannedStep(flow.table, flow.layer, READ_AGAIN, REFRESH_REQUESTED, flow.deliveries + len(readable), size, None)


def plan_silver_step(
    books: PipelineBooks, table: Table[Any], flow: FlowLag, before: Sequence[PlannedStep], refreshed: bool
) -> PlannedStep:
    """Plans what a run would fold."""
    if refreshed:
        flow = replace(lag.measure_lag_from_start(books, flow), anew=REFRESH_REQUESTED)
    coming = list_moving_inputs(books, table, before)
    if flow.stuck:
        return PlannedStep(flow.table, flow.layer, FAIL, flow.stuck)
    if not coming and not delta_log.is_delta_table(books.path(table.reads[0])):
        return PlannedStep(flow.table, flow.layer, NOTHING, SOURCE_IS_EMPTY)
    if any(step.does == READ_AGAIN for step in coming):
        flow = replace(flow, deliveries=0, bytes=0)  # they are among the deliveries that are read again
    return PlannedStep(
        flow.table,
        flow.layer,
        FOLD_ANEW if flow.anew else FOLD if coming or flow.waits else NOTHING,
        flow.anew or "",
        flow.deliveries + sum(step.deliveries for step in coming),
        flow.bytes + sum(step.bytes for step in coming),
        None if coming else flow.rows,
    )


def plan_stream_step(
    books: PipelineBooks, stream: Windowed[Any], flow: FlowLag, before: Sequence[PlannedStep], refreshed: bool
) -> PlannedStep:
    """Plans what a run would do to a stream with state. One that cannot resume fails, whatever comes."""
    if refreshed:
        # A refresh removes what keeps it from resuming, but not what it waits for to begin.
        stuck = None if flow.anew is None else flow.stuck
        flow = replace(lag.measure_lag_from_start(books, flow), anew=REFRESH_REQUESTED, stuck=stuck)
    coming = _name_changed_inputs(books, stream, before)
    if flow.stuck and not coming:
        return PlannedStep(flow.table, flow.layer, NOTHING if flow.anew else FAIL, flow.stuck)
    if flow.stuck and not flow.anew:
        return PlannedStep(flow.table, flow.layer, FAIL, flow.stuck)
    moved = [name for name in stream.reads if name in flow.moved or name in coming]
    does, why = (
        (START_OVER, flow.anew) if flow.anew else (FOLLOW, f"rows added to {', '.join(moved)}") if moved else (NOTHING, "")
    )
    return PlannedStep(flow.table, flow.layer, does, why, 0, flow.bytes, None if coming else flow.rows, flow.versions)


def plan_view_step(
    books: PipelineBooks, view: MaterializedView[Any], flow: FlowLag, before: Sequence[PlannedStep], refreshed: bool
) -> PlannedStep:
    """Plans how much of a view a run would recompute."""
    if refreshed:
        flow = replace(lag.measure_lag_from_start(books, flow), anew=REFRESH_REQUESTED)
    coming = _name_changed_inputs(books, view, before)
    if flow.stuck and not coming:
        return PlannedStep(flow.table, flow.layer, NOTHING, flow.stuck)
    moved = [name for name in view.reads if name in flow.moved or name in coming]
    open_ones = [name for name in flow.unbounded if name in moved]
    if flow.anew:
        does, why = RECOMPUTE, flow.anew
    elif open_ones:
        does = FAIL if view.recompute_rule.bounded_only else RECOMPUTE
        why = f"a change of '{open_ones[0]}' can touch any row"
    elif moved:
        does, why = FOLLOW, f"what changes of {', '.join(moved)} touch"
    else:
        does, why = NOTHING, ""
    return PlannedStep(flow.table, flow.layer, does, why, 0, flow.bytes, None if coming else flow.rows, flow.versions)


def plan_bronze_replay(
    books: PipelineBooks, source: Source, flow: FlowLag, interval: Interval, before: Sequence[PlannedStep]
) -> PlannedStep:
    """Plans what a replay would take of a source, or says why it cannot."""
    try:
        return _plan_lacking_deliveries(books, source, flow, interval)
    except SluiceError as error:
        return PlannedStep(flow.table, flow.layer, FAIL, str(error))


def _plan_lacking_deliveries(books: PipelineBooks, source: Source, flow: FlowLag, interval: Interval) -> PlannedStep:
    """Plans files of the interval that nobody has discovered, and its deliveries that bronze lacks."""
    fresh = discovery.preview_discovery(source, books.records.landing, books.known, interval).came
    lacking = [row for row in books.of_interval(source, interval) if row["state"] in LACKED_BY_REPLAY]
    readable = books.select_unchanged(source, lacking)
    files = [
        *({"file": file.file, "state": "new", "delivery": None} for file in fresh),
        *({"file": row["file"], "state": row["state"], "delivery": row["delivery"]} for row in readable),
    ]
    lost = len(lacking) - len(readable)
    why = f"of what it lacks, {lost} cannot be read: the file is gone or changed" if lost else ""
    size = sum(file.size or 0 for file in fresh) + sum(row["size"] or 0 for row in readable)
    return PlannedStep(
        flow.table, flow.layer, INGEST if files else NOTHING, why, len(files), size, None if files else 0, files=files
    )


def plan_silver_replay(
    books: PipelineBooks, table: Table[Any], flow: FlowLag, interval: Interval, before: Sequence[PlannedStep]
) -> PlannedStep:
    """Plans to fold the keys that the interval's rows had or will have."""
    source = books.graph.sources[table.reads[0]]
    feeding = {one.name: one for one in books.graph.feeding(source.name)}
    mine = [row for one in feeding.values() for row in books.of_interval(one, interval) if row["rows"]]
    coming = [step for step in before if step.table in feeding and step.does == INGEST]
    deliveries = len(mine) + sum(step.deliveries for step in coming)
    size = sum(row["size"] or 0 for row in mine) + sum(step.bytes for step in coming)
    rows = None if coming or source.dated_by else sum(row["rows"] for row in mine)
    if not deliveries and not source.dated_by:
        return PlannedStep(flow.table, flow.layer, NOTHING)
    return PlannedStep(flow.table, flow.layer, FOLD_AGAIN, f"the keys of {interval}", deliveries, size, rows)
