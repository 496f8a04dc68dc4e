"""Finishes the work of a killed run, before anything else is done.

After that, the leaving entries of a readmission are out of quarantine, and the ledger says where they went; the files that an erasure
began to rewrite are where they belong, and the ledger knows them.

The journal of a readmission lists what leaves quarantine and is written before anything leaves. It holds only numbers of deliveries and
rows, and the reason for a discard; nothing of a record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.delivery_rows import RECORDED, OutcomeRow
from sluice.durable_files import load_kept_json, write_json_durably
from sluice.entries import ENTRY
from sluice.ingest import delivery_tables
from sluice.ingest.landing import rewriting
from sluice.lake import table_creation, table_frames
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.locations import Location, locate
from sluice.own_records import READMISSIONS, REWRITING
from sluice.quality import quarantine
from sluice.quality.quarantine import QuarantinedRow
from sluice.record_states import DISCARDED, INGESTED, is_settled

Row = dict[str, Any]


def finish_interrupted_journals(workspace: Workspace) -> None:
    """Finishes killed readmissions and rewritings. A readmission that died before it wrote bronze has done nothing, so it is forgotten."""
    rewriting.finish_rewriting_journals(rewriting_journal_folder(workspace), workspace.deliveries, workspace.run)
    for path, leaving in read_unfinished_readmissions(workspace):
        declared = workspace.graph.sources.get(leaving.source)
        if declared is not None and leaving.moved and not find_entries_in_bronze(workspace, declared, leaving.moved):
            path.unlink()
        elif declared is not None:
            settle_readmission(workspace, leaving)


def rewriting_journal_folder(workspace: Workspace) -> Location:
    """Returns the folder of the journals of files that are being rewritten."""
    return locate(workspace.paths.bookkeeping(REWRITING.name))


def settle_readmission(workspace: Workspace, leaving: LeavingEntries) -> None:
    """Removes the leaving entries from quarantine and gives their deliveries a new outcome. Safe to repeat.

    A delivery that lost rows with a damaged log gets none: it is read again whole.
    """
    path = write_readmission_journal(workspace, leaving)
    note_readmitted_deliveries(workspace, leaving)
    quarantine.remove_quarantine_entries(workspace.session, workspace.quarantine(leaving.source), leaving.entries)
    there = delivery_tables.read_delivery_ledger_columns(workspace.outcomes, ["delivery", "run", ENTRY])
    since = pc.and_(pc.equal(there["run"], leaving.run), pc.greater(pc.fill_null(there[ENTRY], 0), leaving.after))
    done = set(there["delivery"].filter(since).to_pylist())
    known = delivery_tables.read_last_outcomes(
        workspace.outcomes, delivery_tables.OUTCOMES.names, {delivery for delivery, _ in leaving.entries}
    )
    rows = [_next_outcome(row, leaving) for number, row in known.items() if number not in done and is_settled(row["state"])]
    delivery_tables.append_delivery_ledger_rows(workspace.outcomes, rows, delivery_tables.OUTCOMES, workspace.run)
    path.unlink()


def note_readmitted_deliveries(workspace: Workspace, leaving: LeavingEntries) -> None:
    """Marks the next commits, in bronze and in quarantine, with the deliveries whose records leave."""
    workspace.mark_next_commits(
        workspace.graph.flow_name(workspace.graph[leaving.source]), sorted({delivery for delivery, _ in leaving.entries})
    )


def find_entries_in_bronze(workspace: Workspace, source: Source, entries: list[QuarantinedRow]) -> set[QuarantinedRow]:
    """Returns which of these rows bronze has."""
    bronze = table_frames.read_table(workspace.session, workspace.path(source.name))
    numbers = sorted({delivery for delivery, _ in entries})
    wanted = table_creation.make_inline_frame(workspace.session, list(entries), "_delivery BIGINT, _row BIGINT")
    near = bronze.where(F.col("_delivery").isin(numbers)).select(*PROVENANCE)
    return {(row._delivery, row._row) for row in near.join(F.broadcast(wanted), list(PROVENANCE), "left_semi").collect()}


def find_last_outcome_entry(workspace: Workspace) -> int:
    """Returns the greatest entry of the outcomes, 0 if they have none."""
    return int(pc.max(delivery_tables.read_delivery_ledger_columns(workspace.outcomes, [ENTRY])[ENTRY]).as_py() or 0)


def count_by_delivery(deliveries: Iterable[int]) -> dict[int, int]:
    """Counts the rows of each delivery."""
    return dict(Counter(deliveries))


def _next_outcome(before: Row, leaving: LeavingEntries) -> Row:
    """Returns the delivery's next outcome: the same records, some of which lie elsewhere now."""
    number = before["delivery"]
    moved, suppressed, discarded = (
        sum(delivery == number for delivery, _ in entries) for entries in (leaving.moved, leaving.suppressed, leaving.discarded)
    )
    whole = (number, None) in leaving.discarded
    changed: OutcomeRow = {
        "state": DISCARDED if whole else before["state"] if discarded else INGESTED,
        "rows": (before["rows"] or 0) + moved,
        "rescued": (before["rescued"] or 0) + leaving.rescued.get(number, 0),
        "quarantined": max((before["quarantined"] or 0) - moved - suppressed - discarded, 0),
        "suppressed": (before["suppressed"] or 0) + suppressed,
        "discarded": (before.get("discarded") or 0) + discarded,
        "reason": leaving.reason if discarded else None,
        "batch": None,
        "run": leaving.run,
        RECORDED: datetime.now(UTC),
    }
    return {**before, **changed}


@dataclass(frozen=True)
class LeavingEntries:
    """What leaves a source's quarantine at once. A run may take one part after the other.

    moved: records that go to bronze. suppressed: records of erased people. discarded: records that somebody discarded. rescued: by delivery,
    how many moved records have something in _rescued_data. reason: why records were discarded. after: the last entry of the outcomes before.
    """

    run: str
    source: str
    moved: list[QuarantinedRow] = field(default_factory=list)
    suppressed: list[QuarantinedRow] = field(default_factory=list)
    discarded: list[QuarantinedRow] = field(default_factory=list)
    rescued: dict[int, int] = field(default_factory=dict)
    reason: str | None = None
    after: int = -1

    @property
    def entries(self) -> list[QuarantinedRow]:
        """All leaving entries."""
        return [*self.moved, *self.suppressed, *self.discarded]


def write_readmission_journal(workspace: Workspace, leaving: LeavingEntries) -> Location:
    """Writes the journal, which is kept until the readmission is done. Returns its file."""
    folder = _readmission_journal_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{leaving.run}-{leaving.source}.json"
    return write_json_durably(path, asdict(leaving))


def read_unfinished_readmissions(workspace: Workspace) -> Iterator[tuple[Location, LeavingEntries]]:
    """Returns the journals that killed runs left, oldest first."""
    for path in sorted(_readmission_journal_folder(workspace).glob("*.json"), key=lambda path: path.stat().st_mtime_ns):
        yield (
            path,
            load_kept_json(path, "which rows a replay was about to take out of quarantine", _REMEDY, _parse_leaving_entries),
        )


_REMEDY = (
    "Put a copy of it back. Without one, move it away, replay the quarantined rows again and compare the tables: sluice verify"
)


def _parse_leaving_entries(loaded: dict[str, Any]) -> LeavingEntries:
    for name in ("moved", "suppressed", "discarded"):
        loaded[name] = [(delivery, row) for delivery, row in loaded[name]]
    loaded["rescued"] = {int(delivery): count for delivery, count in loaded["rescued"].items()}
    return LeavingEntries(**loaded)


def _readmission_journal_folder(workspace: Workspace) -> Location:
    return locate(workspace.paths.bookkeeping(READMISSIONS.name))
