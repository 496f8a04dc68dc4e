"""Bringing what was killed to its end, before anything else is done.

Of a readmission: what left quarantine is out of it, and the ledger says where it went. Of an erasure: files that it had begun to rewrite
are in their places, and the ledger knows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

from sluice.declare.ingest.source import Source
from sluice.flows.quarantine import journal
from sluice.flows.quarantine.journal import Leaving
from sluice.ingest import ledger
from sluice.ingest.landing import rewriting
from sluice.lake import tables
from sluice.lake.workspace import PROVENANCE, Workspace
from sluice.quality import quarantine
from sluice.quality.quarantine import Entry

Row = dict[str, Any]


def finish(workspace: Workspace) -> None:
    """Bring killed readmissions and rewritings to their end. A readmission that did not come to write bronze did nothing: it is forgotten."""
    rewriting.finish(journals(workspace), workspace.deliveries, workspace.run)
    for path, leaving in journal.unfinished(workspace):
        declared = workspace.graph.sources.get(leaving.source)
        if declared is not None and leaving.moved and not in_bronze(workspace, declared, leaving.moved):
            path.unlink()
        elif declared is not None:
            workspace.note(f"bronze_{leaving.source}")
            settle(workspace, leaving)


def journals(workspace: Workspace) -> Path:
    """The folder of the journals of files that are rewritten."""
    return Path(workspace.places.bookkeeping("rewriting"))


def settle(workspace: Workspace, leaving: Leaving) -> None:
    """Take what leaves out of quarantine and give its deliveries a new outcome. Safe to repeat."""
    path = journal.write(workspace, leaving)
    quarantine.remove(workspace.session, workspace.quarantine(leaving.source), leaving.entries)
    done = {row["delivery"] for row in ledger.rows(workspace.outcomes, ["delivery", "run"]) if row["run"] == leaving.run}
    known = last_outcomes(workspace, {delivery for delivery, _ in leaving.entries})
    rows = [_outcome(row, leaving) for number, row in known.items() if number not in done]
    ledger.append(workspace.outcomes, rows, ledger.OUTCOMES, workspace.run)
    path.unlink()


def in_bronze(workspace: Workspace, source: Source, entries: list[Entry]) -> set[Entry]:
    """Which of these rows bronze has."""
    bronze = tables.read(workspace.session, workspace.path(source.name))
    numbers = sorted({delivery for delivery, _ in entries})
    wanted = tables.inline(workspace.session, list(entries), "_delivery BIGINT, _row BIGINT")
    near = bronze.where(F.col("_delivery").isin(numbers)).select(*PROVENANCE)
    return {(row._delivery, row._row) for row in near.join(F.broadcast(wanted), list(PROVENANCE), "left_semi").collect()}


def last_outcomes(workspace: Workspace, deliveries: set[int]) -> dict[int, Row]:
    """By delivery, its last outcome."""
    rows: list[Row] = [row for row in ledger.rows(workspace.outcomes) if row["delivery"] in deliveries]
    return {row["delivery"]: row for row in ledger.in_order(rows)}


def counted(deliveries: Iterable[int]) -> dict[int, int]:
    """How often each delivery comes."""
    return dict(Counter(deliveries))


def _outcome(before: Row, leaving: Leaving) -> Row:
    """The delivery's next outcome: the same records, elsewhere."""
    number = before["delivery"]
    moved, suppressed, discarded = (
        sum(delivery == number for delivery, _ in entries) for entries in (leaving.moved, leaving.suppressed, leaving.discarded)
    )
    whole = (number, None) in leaving.discarded
    return {
        **before,
        "state": ledger.DISCARDED if whole else before["state"] if discarded else ledger.INGESTED,
        "rows": (before["rows"] or 0) + moved,
        "rescued": (before["rescued"] or 0) + leaving.rescued.get(number, 0),
        "quarantined": max((before["quarantined"] or 0) - moved - suppressed - discarded, 0),
        "suppressed": (before["suppressed"] or 0) + suppressed,
        "discarded": (before.get("discarded") or 0) + discarded,
        "reason": leaving.reason if discarded else None,
        "batch": None,
        "run": leaving.run,
        "recorded_at": datetime.now(UTC),
    }
