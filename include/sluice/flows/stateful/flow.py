"""The stateful flow: its inputs as streams, the transform once, a batch a run, and what it leaves out kept beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sluice.declare.datasets.windowed import Windowed
from sluice.flows.progress import continuity, streams
from sluice.flows.progress.checkpoints import Checkpoint, current
from sluice.flows.progress.pins import Pins
from sluice.flows.stateful import idle, inputs, late, operators, output, refusals, state
from sluice.flows.stateful.late import Lateness
from sluice.flows.writing import targets
from sluice.flows.writing.difference import kept
from sluice.lake import evaluation, log, tables
from sluice.lake.report import FlowReport
from sluice.lake.tables import Shape
from sluice.lake.workspace import Workspace
from sluice.privacy import treatments

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AnyStream = Windowed[Any]


@dataclass(frozen=True)
class Run:
    """One run of a stream. shape: what its table is replaced with, where a refresh gives it other columns."""

    stream: AnyStream
    checkpoint: Checkpoint
    lateness: Lateness
    shape: Shape | None
    report: FlowReport


def run(workspace: Workspace, stream: AnyStream, report: FlowReport, anew: str | None = None) -> None:
    """Take what is new. anew: a reason to start over, with the state.

    Raises SluiceError where the stream cannot go on, and DeclarationError where Spark does not run it or it would lose rows unseen.
    """
    if workspace.mode == "replay":
        report.notes.append("a stream with state takes a row once: a replay does not reach it")
        return
    missing = [name for name in stream.reads if not log.exists(workspace.path(name))]
    if missing:
        report.notes.append(f"its input '{missing[0]}' has no row yet")
        return
    if stream.closes_when_idle:
        idle.create(workspace, stream)
    anew = anew or _start(workspace, stream)
    state.configure(workspace.session)
    lateness, schema = _examined(workspace, stream)
    shape = targets.prepare(workspace, stream, schema, anew=continuity.REFRESH if anew else None)
    checkpoint = current(*_place(workspace, stream), inputs.identities(workspace, stream), continuity.mark(stream), anew)
    if stream.may_be_late:
        late.create(workspace, stream, lateness, anew is not None)
    if checkpoint.rebased and log.version(workspace.path(stream.name)):
        report.notes.append(f"started over: {checkpoint.rebased}")
    this = Run(stream, checkpoint, lateness, shape, report)
    _stream(workspace, this)
    closed = idle.close(workspace, stream, checkpoint)
    if closed:
        report.notes.append(closed)
        _stream(workspace, this)


def _place(workspace: Workspace, stream: AnyStream) -> tuple[str, str]:
    """The folder of the flow's checkpoints, and the flow's name."""
    flow = f"{workspace.graph.layer(stream)}_{stream.name}"
    return workspace.checkpoints(flow), flow


def _start(workspace: Workspace, stream: AnyStream) -> str | None:
    """Why the stream starts over though nobody asked, None: it goes on. Raises SluiceError where it can do neither."""
    folder, flow = _place(workspace, stream)
    ids, mark = inputs.identities(workspace, stream), continuity.mark(stream)
    why = continuity.broken(folder, flow, ids, mark, workspace.path(stream.name), workspace.path)
    if why is not None:
        raise continuity.refusal(workspace.pipeline, stream.name, why)
    started = continuity.start_of(folder, flow, ids, mark)
    return None if started == continuity.FIRST else started


def _examined(workspace: Workspace, stream: AnyStream) -> tuple[Lateness, Any]:
    """What the plan of the transform tells, and the columns that are stored."""
    given = inputs.streamed(workspace, stream, "")
    result = stream(*given)
    refusals.check(stream, result)
    schemas = {name: frame.schema for name, frame in zip(stream.reads, given, strict=True)}
    stored = treatments.applied(None, result, stream.treatments, f"Stream '{stream.name}'").schema
    return Lateness(operators.rules(stream, result, given), schemas), stored


def _stream(workspace: Workspace, this: Run) -> None:
    stream, checkpoint, report = this.stream, this.checkpoint, this.report
    paths = {name: workspace.path(name) for name in stream.reads}
    pins = Pins(checkpoint.path, paths, {name: log.table_id(path) for name, path in paths.items()})

    def on_batch(inside: Workspace, rows: DataFrame, number: int) -> None:
        inside.note(checkpoint.flow, inputs=pins.ends_of(number))
        evaluation.suit(inside.session, map(inside.path, (stream.name, *stream.reads)))
        stored = treatments.applied(inside.settings, rows, stream.treatments, f"Stream '{stream.name}'")
        # All of it is computed before anything else is looked at: a batch that is not taken to its end loses its state.
        with kept(stored) as final:
            final.count()
            _take(inside, this, final, number)
        report.batches += 1

    evaluation.suit(workspace.session, map(workspace.path, (stream.name, *stream.reads)), keeps_state=True)
    result = stream(*inputs.streamed(workspace, stream, checkpoint.identity))
    try:
        progress = streams.run(workspace, result, checkpoint, on_batch, stream.output)
    except streams.ContinuityLost as lost:
        raise continuity.refusal(workspace.pipeline, stream.name, f"its stream broke ({lost})") from None
    state.measure(checkpoint, progress, report)


def _take(workspace: Workspace, this: Run, rows: DataFrame, number: int) -> None:
    """One batch: late rows first, the table last; a repeated attempt writes nothing twice."""
    over = this.checkpoint.rebased is not None and number == 0
    if over and this.stream.may_be_late:
        late.empty(workspace, this.stream, this.checkpoint, number)
    late.keep(workspace, this.stream, this.lateness, this.checkpoint, number, this.report)
    if over and this.shape:
        tables.replace(rows, workspace.path(this.stream.name), this.shape)
        this.report.replaced(rows.count())
    else:
        output.write(workspace, this.stream, this.checkpoint, rows, number, this.report)
    if over:
        targets.remember(workspace, this.stream)
