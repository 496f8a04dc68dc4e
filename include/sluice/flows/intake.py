"""Taking deliveries into bronze: their records once, what does not fit aside, and what became of each.

Quarantine is written first, then bronze, then the outcomes. Each step is safe to repeat; once bronze has a delivery, no attempt writes it
again, and what is reported is counted from the committed tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.source import Source
from sluice.flows import accounting
from sluice.ingest import ledger, records
from sluice.ingest.examination import Delivery, Examined
from sluice.lake import commits, log, tables
from sluice.lake.commits import Transaction
from sluice.lake.report import FlowReport
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression
from sluice.quality import quarantine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Store = Callable[["DataFrame"], None]


def take(
    workspace: Workspace, source: Source, examined: list[Examined], report: FlowReport, transaction: Transaction | None = None
) -> None:
    """Write the records of deliveries that were looked at, then their outcomes.

    What bronze has of them already an earlier attempt has written, which then died: it is not written again, by whichever flow.
    """
    written = _written(workspace, source, examined)
    before = [item for item in examined if item.delivery.number in written]
    suppressed = _suppressed(workspace, source, before) if before else {}
    rest = [item for item in examined if item.delivery.number not in written]
    # The transaction's number is used up where an attempt of the batch has written.
    once = None if before else transaction
    bronze = workspace.path(source.name)
    if rest:
        suppressed |= write(
            workspace, source, rest, columns_of(workspace, source), lambda rows: commits.append(rows, bronze, once)
        )
    outcomes = accounting.outcomes(workspace, source, examined, suppressed, transaction.batch if transaction else None)
    ledger.append(workspace.outcomes, outcomes, ledger.OUTCOMES, workspace.run)
    accounting.count(report, outcomes)


def folder_of(workspace: Workspace, source: Source) -> Path:
    """The source's landing folder."""
    return Path(workspace.settings.landing) / workspace.pipeline / source.path


def delivery_of(row: Any, folder: Path) -> Delivery:
    """A row of the deliveries table, read by Spark or without it."""
    # PySpark gives instants without a zone, in the zone of the process, which is UTC.
    at = row["modified_at"].astimezone(UTC) if row["modified_at"] else None
    return Delivery(
        row["delivery"], row["source"], row["file"], row["event"], folder / row["file"], row["size"], at, row["sha256"]
    )


def _written(workspace: Workspace, source: Source, examined: list[Examined]) -> set[int]:
    """Which of the deliveries bronze has rows of. New ones have higher numbers than any file's statistics, and nothing is read."""
    path = workspace.path(source.name)
    possible = sorted(log.covered(path, "_delivery", [item.delivery.number for item in examined]))
    if not possible:
        return set()
    present = tables.read(workspace.session, path).where(F.col("_delivery").isin(possible)).select("_delivery").distinct()
    return {row._delivery for row in present.collect()}


def columns_of(workspace: Workspace, source: Source) -> list[str]:
    """The columns that the bronze table has so far."""
    return list(tables.read(workspace.session, workspace.path(source.name)).columns)


def write(workspace: Workspace, source: Source, examined: list[Examined], known: Sequence[str], store: Store) -> dict[int, int]:
    """Set aside what does not fit of deliveries and give the rest, if there is any, to `store`.

    known: bronze's columns so far. Returns, by delivery, how many records are of erased people and were left out.
    """
    parsed = records.read(workspace.session, source, examined, known)
    # What an earlier attempt set aside of a file that has changed since is all there is of it: it stays.
    numbers = [item.delivery.number for item in examined if item.state != ledger.MISSED]
    whole = _whole_files(workspace, examined)
    if parsed is None:
        _set_aside(workspace, source, whole, numbers)
        return {}
    parsed = parsed.persist()
    try:
        kept, suppressed = _without_erased(workspace, source, parsed)
        sizes = kept.groupBy((F.col("_problem").isNull()).alias("good")).count().collect()
        good, bad = (sum(row["count"] for row in sizes if row.good is wanted) for wanted in (True, False))
        aside = _rows_aside(source, kept) if bad else None
        _set_aside(
            workspace,
            source,
            aside.unionByName(whole) if aside is not None and whole is not None else aside or whole,
            numbers,
        )
        if good:
            store(kept.where(F.col("_problem").isNull()).drop("_problem", "_record"))
        return suppressed
    finally:
        parsed.unpersist()


def _rows_aside(source: Source, kept: DataFrame) -> DataFrame:
    bad = kept.where(F.col("_problem").isNotNull())
    return quarantine.entries(bad, F.array("_problem"), F.col("_record"), records.subject_of(source))


def _whole_files(workspace: Workspace, examined: list[Examined]) -> DataFrame | None:
    refused = [item for item in examined if item.state == ledger.QUARANTINED]
    if not refused:
        return None
    why = [(item.delivery.number, item.reason) for item in refused]
    reasons = tables.inline(workspace.session, why, "_delivery BIGINT, _reason STRING")
    files = records.contents(workspace.session, [item.delivery for item in refused]).join(F.broadcast(reasons), "_delivery")
    return quarantine.entries(files, F.array("_reason"), F.lit(None).cast("string"), F.lit(None))


def _set_aside(workspace: Workspace, source: Source, rows: DataFrame | None, numbers: list[int]) -> None:
    path = workspace.quarantine(source.name)
    empty = tables.inline(workspace.session, [], quarantine.SCHEMA)
    quarantine.replace(rows if rows is not None else empty, path, numbers, some=rows is not None)


def _suppressed(workspace: Workspace, source: Source, examined: list[Examined]) -> dict[int, int]:
    """What an earlier attempt, which wrote bronze and no outcomes, must have left out: counted again from the files."""
    if source.subject is None or suppression.is_empty(workspace):
        return {}
    parsed = records.read(workspace.session, source, examined, columns_of(workspace, source))
    return {} if parsed is None else _without_erased(workspace, source, parsed)[1]


def _without_erased(workspace: Workspace, source: Source, parsed: DataFrame) -> tuple[DataFrame, dict[int, int]]:
    if source.subject is None or suppression.is_empty(workspace):
        return parsed, {}
    subject = F.coalesce(F.col(source.subject).cast("string"), records.subject_of(source))
    gone = suppression.only_suppressed(workspace, parsed, subject, source.subject).groupBy("_delivery").count().collect()
    if not gone:
        return parsed, {}
    kept = suppression.without_suppressed(workspace, parsed, subject, source.subject)
    return kept, {row._delivery: row["count"] for row in gone}
