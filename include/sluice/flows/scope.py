"""What a batch of the silver flow is about: which deliveries of the files it names count now, and which do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sluice.declare.source import Source
from sluice.ingest import ledger
from sluice.lake import tables
from sluice.lake.workspace import Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class Scope:
    """What a batch is about. fresh: deliveries whose rows are new and count; dead: deliveries of the same files that do not count.

    everything: fold all live deliveries, and take out every row that none of them gives.
    """

    fresh: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()
    everything: bool = False


def scope_of(workspace: Workspace, source: Source, rows: DataFrame) -> Scope:
    """What the outcomes of a batch touch: of their files, which deliveries count now and which do not."""
    touched = [(row.delivery, row.file, row.state) for row in rows.select("delivery", "file", "state").distinct().collect()]
    if not touched:
        return Scope()
    names = sorted({file for _, file, _ in touched})
    files = workspace.session.createDataFrame([(file,) for file in names], "file STRING")
    of_files = outcomes_of(workspace, source).join(F.broadcast(files), "file", "left_semi").persist()
    live = {row.delivery for row in ledger.live(of_files, source.redelivery == "replace").collect()}
    with_rows = {row.delivery for row in of_files.where(F.col("rows") > 0).select("delivery").collect()}
    of_files.unpersist()
    # A discarded delivery lets an earlier one of its file count again.
    discarded = any(state == ledger.DISCARDED for _, _, state in touched)
    fresh = sorted((live if discarded else {delivery for delivery, _, _ in touched} & live) & with_rows)
    return Scope(tuple(fresh), tuple(sorted(with_rows - live)))


def outcomes_of(workspace: Workspace, source: Source) -> DataFrame:
    """What became of a source's deliveries."""
    return tables.read(workspace.session, workspace.outcomes).where(F.col("source") == source.name)


def live_deliveries(workspace: Workspace, source: Source, of_files_in: Scope | None = None) -> DataFrame:
    """The deliveries that count now, as one column `_delivery`; of the files that a scope is about, or of all."""
    outcomes = outcomes_of(workspace, source)
    if of_files_in is not None:
        numbers = [*of_files_in.fresh, *of_files_in.dead]
        files = outcomes.where(F.col("delivery").isin(numbers)).select("file").distinct()
        outcomes = outcomes.join(F.broadcast(files), "file", "left_semi")
    return ledger.live(outcomes, source.redelivery == "replace").select(F.col("delivery").alias("_delivery"))


def numbered(workspace: Workspace, deliveries: tuple[int, ...]) -> DataFrame:
    """These deliveries, as one column `_delivery`."""
    return workspace.session.createDataFrame([(number,) for number in deliveries], "_delivery BIGINT")
