"""The stage `verify` compares tables with a full recompute from bronze, one in turn or as many as asked for. It fails if one differs."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sluice import delta_log
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.errors import SluiceError
from sluice.flows.progress import streams
from sluice.flows.writing import targets
from sluice.lake import log
from sluice.lake.flow_report import FlowReport, TableTurns
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import VERIFY, VerifyChoice
from sluice.printable import count_noun, match_number
from sluice.record_states import DONE, FAILED
from sluice.runs import run_ledger
from sluice.runs.execution.stages import StageOptions
from sluice.runs.status import lag, stale
from sluice.runs.status.books import PipelineBooks
from sluice.verification import verify
from sluice.verification.comparison import WHOLE, TablePart, do_parts_cover, list_table_parts, parse_table_part
from sluice.verification.verify import VerificationFinding
from sluice.work_progress import count_work

_NAMED = 5
"""How many tables a message names at most."""


class TablesDiffer(SluiceError):
    """Tables differ from a full recompute from bronze. Exit code 1. Trying again does not help: nothing was written."""

    retry_helps = False


def run_verify_stage(workspace: Workspace, stage: str, options: StageOptions) -> list[FlowReport]:
    """Compares the tables that are asked for, or the next one in turn. Raises FlowsFailed if one differs."""
    return compare_with_recompute(workspace, options.verify)


def compare_with_recompute(
    workspace: Workspace, wanted: VerifyChoice | tuple[str, ...], heard: Callable[[VerificationFinding], None] | None = None
) -> list[FlowReport]:
    """Compares tables. heard: is called with each finding.

    wanted: the tables of these names, all, or the next: the one that was compared longest ago, or a part of it if it is large.

    Raises FlowsFailed if tables differ, with an error for each, which names them all, or if some could not be compared.
    """
    books = PipelineBooks(workspace.settings, workspace.graph)
    turn = choose_turn(workspace) if wanted == "next" else None
    if wanted == "next":
        chosen = [turn.table] if turn else []
    else:
        chosen = verify.list_verifiable_tables(workspace.graph) if wanted == "all" else list(dict.fromkeys(wanted))
    found: list[VerificationFinding] = []
    failed: dict[str, BaseException] = {}
    findings = verify.verify_tables(
        workspace.settings,
        workspace.session,
        workspace.graph,
        chosen,
        stale=lambda table: stale.find_stale_intervals(workspace.lake, table),
        part=turn.part if turn and len(turn.parts) > 1 else None,
        failed=failed,
    )
    with closing(findings), count_work("tables compared", chosen) as work:
        for _ in chosen:
            streams.stop_if_requested(workspace)
            found.append(_note_pending_inputs(workspace, books, next(findings)))
            work.advance()
            if heard is not None:
                heard(found[-1])
    wrong = [one for one in found if one.equal is False]
    reports = [_build_verification_report(one, turn) for one in found]
    differing = TablesDiffer(_describe_differing_tables(workspace.pipeline, wrong)) if wrong else None
    errors = {**({one.table: differing for one in wrong} if differing else {}), **failed}
    return TableTurns(reports, errors).end_turns()


@dataclass(frozen=True)
class _Turn:
    """What the stage compares now: the table whose turn it is, and one of its parts. parts: how many it has."""

    table: str
    part: TablePart
    parts: Sequence[TablePart]
    earlier: Sequence[run_ledger.Row]
    """What the run ledger says about this table's verifications, oldest first."""

    def describe_proof(self) -> str:
        """Says how much of the table was compared since when, including this part. Empty for a table that is compared as a whole."""
        if len(self.parts) == 1:
            return ""
        times = [max(found, default=None) for found in (self._equal_at(part) for part in self.parts if part != self.part)]
        proven = [at for at in times if at is not None]
        since = f" since {min(proven):%Y-%m-%d}" if proven else ""
        return f"part {self.part.number} of {self.part.of}; {len(proven) + 1} of {count_noun(len(self.parts), 'part')} compared{since}"

    def _equal_at(self, part: TablePart) -> list[datetime]:
        return [row["ended_at"] for row in self.earlier if row["state"] == DONE and _has_compared(row, part)]


def _has_compared(row: run_ledger.Row, part: TablePart) -> bool:
    """Whether a verification compared all rows of a part and reached a verdict."""
    compared = parse_table_part(row["verified_part"])
    return compared is not None and compared.holds(part)


def list_differing_tables(rows: Sequence[run_ledger.Row], declared: Container[str]) -> list[str]:
    """Lists the declared tables with a part that differed and was not found equal since, be it in smaller parts. rows: of the run ledger."""
    compared = [row for row in rows if row["stage"] == VERIFY.name and row["flow"] in declared]
    found = (
        row["flow"]
        for position, row in enumerate(compared)
        if row["state"] == FAILED
        and not _is_found_equal(row, [one for one in compared[position + 1 :] if one["flow"] == row["flow"]])
    )
    return list(dict.fromkeys(found))


def _is_found_equal(failed: run_ledger.Row, later: Sequence[run_ledger.Row]) -> bool:
    """Whether later verifications found all equal that a failed one compared. One that failed without a verdict compared nothing."""
    equal = {parse_table_part(row["verified_part"]) for row in later if row["state"] == DONE}
    wrong = parse_table_part(failed["verified_part"])
    return bool(equal) if wrong is None else do_parts_cover({one for one in equal if one is not None}, wrong)


def choose_turn(workspace: Workspace) -> _Turn | None:
    """Chooses the table that was verified longest ago or never, the first of several. None if there is no table yet.

    Of its parts it takes one that differed when it was last compared, otherwise the one that was compared longest ago or without a result.
    """
    rows = [row for row in run_ledger.read_run_ledger(workspace.records) if row["stage"] == VERIFY.name]
    last = {row["flow"]: position for position, row in enumerate(rows)}
    there = [
        name
        for name in verify.list_verifiable_tables(workspace.graph)
        if workspace.graph[name].kind.recompute_rows is not None and delta_log.is_delta_table(workspace.path(name))
    ]
    if not there:
        return None
    table = min(there, key=lambda name: last.get(name, -1))
    earlier = [row for row in rows if row["flow"] == table]
    parts = list_table_parts(*_count_rows_to_verify(workspace, table))

    def urgency(part: TablePart) -> tuple[bool, int]:
        of_part = [position for position, row in enumerate(earlier) if _has_compared(row, part)]
        return not (of_part and earlier[of_part[-1]]["state"] == FAILED), max(of_part, default=-1)

    return _Turn(table, min(parts, key=urgency), parts, earlier)


def _count_rows_to_verify(workspace: Workspace, table: str) -> tuple[int, int]:
    """Returns the number of rows of a table and of the largest table that it is made from. Unknown numbers count as zero."""
    graph = workspace.graph
    made_of = {graph.table_of(name) for name in (*graph.sources, *graph.datasets) if table in graph.below(name)}
    rows = {name: log.read_table_state(workspace.path(name)) for name in (table, *made_of)}
    counts = {name: (state.rows or 0) if state else 0 for name, state in rows.items()}
    return counts[table], max((counts[name] for name in made_of), default=0)


def _note_pending_inputs(workspace: Workspace, books: PipelineBooks, one: VerificationFinding) -> VerificationFinding:
    """Adds to the finding of a differing table what its next run will take, since that may be the only difference.

    For a view this is not an error yet, since only that run shows which rows it concerns.
    """
    if one.equal is not False:
        return one
    view = books.graph.views.get(one.table)
    waiting = _list_missing_deliveries(books, one.table) if view is None else _list_pending_view_changes(workspace, books, view)
    notes = [*([one.note] if one.note else []), *(f"{text}: run the pipeline first" for text in waiting)]
    return replace(one, equal=None if waiting and view is not None else False, note="; ".join(notes))


def _list_pending_view_changes(workspace: Workspace, books: PipelineBooks, view: MaterializedView[Any]) -> list[str]:
    """Lists what has not reached a view or its inputs yet, so that the next run changes the view."""
    flow = lag.measure_view_lag(books, view)
    if targets.has_transform_changed(workspace, view):
        own = [f"stale: the transform of '{view.name}' changed"]
    elif flow.anew is not None:
        own = [f"'{view.name}' starts anew ({flow.anew})"]
    else:
        own = (
            [
                f"{count_noun(flow.versions, 'version')} of its inputs {match_number(flow.versions, 'is', 'are')} not in '{view.name}' yet"
            ]
            if flow.versions
            else []
        )
    for name in view.reads:
        below = books.graph.views.get(name)
        own += _list_missing_deliveries(books, name) if below is None else _list_pending_view_changes(workspace, books, below)
    return list(dict.fromkeys(own))


def _list_missing_deliveries(books: PipelineBooks, name: str) -> list[str]:
    """Lists what a silver table has not taken yet."""
    table = books.graph.tables.get(name)
    waiting = len(lag.find_pending_deliveries(books, table)) if table is not None else 0
    return [f"{count_noun(waiting, 'delivery', 'is', 'are')} not in '{name}' yet"] if waiting else []


def _build_verification_report(one: VerificationFinding, turn: _Turn | None) -> FlowReport:
    report = FlowReport(
        flow=one.table, layer=VERIFY.name, version_before=one.version, version_after=one.version, rows_in=one.rows or 0
    )
    report.notes.append(str(one))
    if one.equal is not None:
        report.verified_part = str(one.part or WHOLE)
    if turn is not None and one.part is not None:
        report.notes += [turn.describe_proof()] if one.equal else [f"part {one.part.number} of {one.part.of}"]
    report.seconds = one.seconds
    return report


def _describe_differing_tables(pipeline: str, wrong: Sequence[VerificationFinding]) -> str:
    """Says which tables differ, by how much, and what to do."""
    named = "; ".join(f"'{one.table}' ({one})" for one in wrong[:_NAMED])
    more = f"; and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    return (
        f"Not what a full recompute from bronze gives: {named}{more}. Make the lowest of them anew, with all that read it: sluice run "
        f"{pipeline} --mode refresh --table {wrong[0].table}; or replay the days concerned: sluice run {pipeline} --mode replay "
        "--from DATE --to DATE."
    )
