"""Work on many tables, one after another, in which the failure of one table does not keep the others from theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sluice.errors import StageEnded
from sluice.lake import log
from sluice.lake.report import FlowReport, FlowsFailed


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
    if turns.errors:
        raise FlowsFailed(turns.reports, turns.errors)
