"""What one flow did in one run, and turns of many tables, in which the failure of one does not keep the others from theirs.

Some facts are kept as sentences in the run ledger. Each is written by a method of `FlowReport`, and read by a function here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sluice.errors import StageEnded
from sluice.flow_counts import FlowFindings
from sluice.lake import commit_history, log
from sluice.printable import count_noun

_FOLDED_ANEW, _REPLACED, _RECOMPUTED_IN_FULL = "folded anew", "replaced, with other columns", "recomputed in full"
_IN_FULL, _YES = "full: ", "yes: "
"""What sentences in the run ledger begin with. Rows of earlier runs have them, too, so they must not change."""
AS_DECLARED, ANY_ROW = "as declared", "can touch any row"
"""Why a view is recomputed in full: the whole reason, and the end of any reason that is a change without a bound."""
_NUMBERS = re.compile(r"\d[\d.,:-]*( [KMGT]?B\b| \w+)?|\b(is|are)\b|\ball (?=\d)")
"""What is different in a decision each time, without another reason: numbers, with the nouns and verbs that go with them."""


@dataclass(frozen=True)
class MergeCounts:
    """How many rows a merge inserted, updated and deleted.

    not_inserted: how many it should have inserted but did not, because the table has their key in a row that was not compared.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    not_inserted: int = 0

    def __bool__(self) -> bool:
        return bool(self.inserted or self.updated or self.deleted)


@dataclass
class FlowReport(FlowFindings):
    """What one flow did in one run: what the run ledger keeps of it, and what is only known meanwhile.

    job_tags: how Spark knows its jobs (`sluice.step_times`). notes: the parts of the row's note. recomputed_rows: how many rows of a view were
    made again, batch by batch. holds_files: whether VACUUM left files there that a reader still needs.
    """

    layer: str
    job_tags: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    recomputed_rows: int = 0
    holds_files: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def committed(self) -> bool:
        """Whether the table has a new version."""
        return self.version_before != self.version_after

    @contextmanager
    def note_change(self, path: str) -> Iterator[None]:
        """Notes the table's versions before and after the block, and its seconds, if it does not fail."""
        self.started, self.version_before = time.monotonic(), log.latest_table_version(path)
        yield
        self.note_new_versions(path)
        self.note_seconds()

    def note_seconds(self) -> None:
        """Notes how long the flow has taken."""
        self.seconds = round(time.monotonic() - self.started, 2)

    def note_new_versions(self, path: str) -> None:
        """Notes which version the flow's table has now, and what the versions since the flow began did."""
        self.version_after = log.latest_table_version(path)
        new = commit_history.summarize_new_versions(path, self.version_before)
        self.written_by = new.writers
        state = log.read_table_state(path) if new.writers else None
        if state is not None:
            self.table_files = {
                "added": new.files_added,
                "removed": new.files_removed,
                "rows_copied": new.rows_copied,
                "bytes_added": new.bytes_added,
                "files": state.files,
                "bytes": state.bytes,
            }

    def count_merge(self, changes: MergeCounts) -> None:
        """Counts what a merge did."""
        self.count_changes(changes.inserted, changes.updated, changes.deleted)

    def count_changes(self, inserted: int, updated: int, deleted: int) -> None:
        """Counts rows that were written or removed."""
        self.inserted += inserted
        self.updated += updated
        self.deleted += deleted
        self.rows_out += inserted + updated + deleted

    def count_replacement(self, rows: int) -> None:
        """Counts a table that was replaced as a whole."""
        self.inserted += rows
        self.rows_out += rows
        self.notes.append(_REPLACED)

    def note_fold_anew(self, why: str) -> None:
        """Notes that the flow begins anew and makes all rows of its table."""
        self.notes.append(f"{_FOLDED_ANEW}: {why}")

    def note_view_anew(self, why: str) -> None:
        """Notes that the flow begins anew and recomputes all of its view."""
        self.notes.append(f"{_RECOMPUTED_IN_FULL}: {why}")

    def note_full_recompute(self, why: str) -> None:
        """Notes that all of the view was recomputed, whether or not the flow began anew."""
        self.recomputed = _IN_FULL + why

    def note_recomputed_rows(self, rows: int, of: int | None) -> None:
        """Notes how many rows of the view a batch recomputed, unless all were recomputed before. of: how many it has; None if unknown."""
        self.recomputed_rows += rows
        if read_reason_in_full(self.recomputed) is None:
            self.recomputed = f"keys: {self.recomputed_rows} of {'? rows' if of is None else count_noun(of, 'row')}"

    def note_decision(self, needed: object, why: str) -> None:
        """Notes whether a table's files are laid out or removed, and why or why not."""
        self.decision = f"{_YES if needed else 'no: '}{why}"


def has_made_all_rows(note: str | None) -> bool:
    """Whether a flow's note says that it made all rows of its table anew."""
    return any(sign in (note or "") for sign in (_FOLDED_ANEW, _REPLACED))


def has_begun_view_anew(note: str) -> bool:
    """Whether a flow's note says that it recomputed all of its view, and why."""
    return _RECOMPUTED_IN_FULL in note


def read_reason_in_full(recomputed: str | None) -> str | None:
    """Why all of a view was recomputed; None if it was not."""
    return recomputed.removeprefix(_IN_FULL) if recomputed and recomputed.startswith(_IN_FULL) else None


def is_decided(decision: str | None) -> bool:
    """Whether a decision was to do it."""
    return (decision or "").startswith(_YES)


def read_bare_reason(decision: str | None) -> str:
    """A decision without its numbers, which are others each time."""
    return _NUMBERS.sub("#", decision or "")


@contextmanager
def report_table_change(flow: str, layer: str, path: str) -> Iterator[FlowReport]:
    """Yields a report of what the block does to one table. The block counts."""
    report = FlowReport(flow=flow, layer=layer)
    with report.note_change(path):
        yield report


@dataclass(eq=False)  # not frozen: Python sets the traceback of an error that leaves a `with`
class FlowsFailed(Exception):
    """Some flows of a stage failed. Holds the reports of all. errors: by flow. report: of the stage, once it is recorded."""

    reports: list[FlowReport]
    errors: dict[str, BaseException]
    report: dict[str, Any] | None = None


@dataclass
class TableTurns:
    """What was done so far. reports: of all tables, also of those that failed. errors: by table, or by another part of the stage."""

    reports: list[FlowReport] = field(default_factory=list)
    errors: dict[str, BaseException] = field(default_factory=dict)

    def take_turn(self, name: str, layer: str, path: str, work: Callable[[], FlowReport | None]) -> None:
        """Does the work on one table, and keeps its report, if there is one. If it fails, a report says which versions it left.

        layer: as in the report. Raises what ends the whole stage: StageEnded.
        """
        failed = FlowReport(flow=name, layer=layer)
        try:
            failed.version_before = failed.version_after = log.latest_table_version(path)
            report = work()
        except StageEnded:
            raise
        except Exception as error:
            self.errors[name] = error
            self.note_new_versions(failed, path)
            report = failed
        self.reports += [] if report is None else [report]

    def note_new_versions(self, report: FlowReport, path: str) -> None:
        """Notes in a table's report which versions it has now. If that fails, the table has failed, by its first error.

        For a table that failed already, that first error may be its log.
        """
        try:
            report.note_new_versions(path)
        except Exception as error:
            self.errors.setdefault(report.flow, error)

    def take_flows(self, work: Callable[[], list[FlowReport]]) -> None:
        """Does work on several tables that takes turns itself, and keeps its reports and its errors. Raises what else ends it."""
        try:
            self.reports += work()
        except FlowsFailed as failed:
            self.reports += failed.reports
            self.errors |= failed.errors

    def take_part(self, name: str, layer: str, work: Callable[[], list[FlowReport]]) -> list[FlowReport]:
        """Does another part of the stage, and returns its reports, or those that it left if it fails. Raises as `take_turn` does.

        What ends the whole stage is raised also if it ended the part's own turns; the part's reports and errors are then kept here.
        """
        try:
            return work()
        except StageEnded:
            raise
        except FlowsFailed as several:
            self.errors |= several.errors
            if ended := [error for error in several.errors.values() if isinstance(error, StageEnded)]:
                self.reports += several.reports
                raise ended[0] from None
            return several.reports
        except Exception as error:
            self.errors[name] = error
            return [FlowReport(flow=name, layer=layer)]

    def end_turns(self) -> list[FlowReport]:
        """Returns the reports. Raises FlowsFailed with all of them if anything failed."""
        if self.errors:
            raise FlowsFailed(self.reports, self.errors)
        return self.reports


@contextmanager
def take_table_turns(stage: str) -> Iterator[TableTurns]:
    """Yields the turns of a stage. At the end of the block it raises FlowsFailed if a turn or a part failed.

    If a request to stop or the loss of the lease ends the block, what failed before is raised with it; otherwise it is raised as it is.
    """
    turns = TableTurns()
    try:
        yield turns
    except StageEnded as ended:
        if not turns.errors:
            raise
        if ended not in turns.errors.values():
            turns.errors[stage] = ended
    turns.end_turns()


@contextmanager
def end_at_failure(reports: list[FlowReport], report: FlowReport) -> Iterator[None]:
    """Keeps a table's report beside those of the tables before it. If the block fails, FlowsFailed is raised at once: no other has its turn."""
    reports.append(report)
    try:
        yield
    except Exception as error:
        raise FlowsFailed(reports, {report.flow: error}) from None
