"""What autoload_to_table returns: the ingestion that is under way, to wait for, to stop, and to ask how far it came."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any

from pyspark import InheritableThread

from sluice.autoload import sessions
from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError, StopRequested
from sluice.flows.bronze import append, regaining
from sluice.ingest import ledger
from sluice.ingest.deliveries import discovery
from sluice.ingest.landing import cleaning
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.pipeline_stages import BRONZE
from sluice.runs.job import describe_error_without_values

_COUNTS = ("rows", "rescued", "quarantined", "suppressed")


class Autoload:
    """One run over a folder: everything that is there now, then it ends. Like a StreamingQuery with trigger availableNow.

    id: of the source in its checkpoint directory. runId: of this run; it is in the table's history. name: the table's.
    """

    def __init__(self, workspace: Workspace, source: Source, name: str, first_delivery: int, lease: ExitStack) -> None:
        self.name, self.id, self.runId = name, source.name, workspace.run
        self._workspace, self._source, self._first, self._lease = workspace, source, first_delivery, lease
        self._error: SluiceError | None = None
        self._report = FlowReport(flow=source.name, layer=BRONZE.name)
        self._thread = InheritableThread(target=self._work, name=f"autoload_to_table {name}")
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether it is still under way."""
        return bool(self._thread.is_alive())

    def awaitTermination(self, timeout: float | None = None) -> bool:
        """Wait until it ends, so many seconds at most. Returns whether it has ended. Raises what it failed with."""
        self._thread.join(timeout)
        if self.isActive:
            return False
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        """End it at the next batch's boundary, and wait for that. What is committed stays; the next call goes on from there."""
        request = self._workspace.places.stop_request(self.runId)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.touch()
        self._thread.join()
        request.unlink(missing_ok=True)

    def exception(self) -> SluiceError | None:
        """What it failed with; None where it has not."""
        return self._error

    @property
    def notes(self) -> list[str]:
        """What else there is to tell of this run: why it started anew, how many files were archived or deleted."""
        return list(self._report.notes)

    @property
    def recentProgress(self) -> list[dict[str, Any]]:
        """The batches of this run, oldest first, counted from what is committed: of each what `lastProgress` has of the last."""
        batches: dict[int | None, list[dict[str, Any]]] = {}
        for row in ledger.read_delivery_ledger_rows(self._workspace.outcomes):
            if row["run"] == self.runId:
                batches.setdefault(None if row["batch"] is None else int(str(row["batch"])), []).append(row)
        # Deliveries that were taken in parts of a batch, or one by one, have no number of a batch.
        return [
            self._progress(batch, rows) for batch, rows in sorted(batches.items(), key=lambda one: (one[0] is None, one[0] or 0))
        ]

    @property
    def lastProgress(self) -> dict[str, Any]:
        """The last batch: its number (None before the first), deliveries and what became of them, numInputRows: the records read.

        Of these: rows are in the table, rescued of them with something in _rescued_data, quarantined are set aside.
        """
        return (self.recentProgress or [self._progress(None, [])])[-1]

    def _progress(self, batch: int | None, rows: list[dict[str, Any]]) -> dict[str, Any]:
        counts = {name: sum(int(row[name] or 0) for row in rows) for name in _COUNTS}
        at = ledger.sort_outcomes_by_recording(rows)[-1][ledger.RECORDED] if rows else None
        return {
            "name": self.name,
            "id": self.id,
            "runId": self.runId,
            "timestamp": at.isoformat() if at else None,
            "batch": batch,
            "batchId": batch,
            "deliveries": len(rows),
            "states": dict(Counter(str(row["state"]) for row in rows)),
            "numInputRows": counts["rows"] + counts["quarantined"] + counts["suppressed"],
            **counts,
        }

    def _work(self) -> None:
        workspace, source = self._workspace, self._source
        try:
            with self._lease, sessions.given_back:
                regaining.regain_deliveries(workspace, [source], own_bronze=False)
                discovery.discover_deliveries([source], workspace.landing, workspace.deliveries, workspace.run, first=self._first)
                ledger.create_delivery_ledger_table(workspace.outcomes, ledger.OUTCOMES)
                append.run_bronze_flow(workspace, source, self._report)
                cleaned = cleaning.clean_landing_folder(
                    source, workspace.landing, workspace.deliveries, workspace.outcomes, workspace.run
                )
                self._report.notes += cleaned.notes(source)
        except StopRequested:
            pass
        except SluiceError as error:
            self._error = error
        except Exception as error:
            self._error = SluiceError(f"autoload_to_table into '{self.name}': {describe_error_without_values(error)}")
