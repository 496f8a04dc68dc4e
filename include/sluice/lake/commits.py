"""How every commit of Sluice is marked and made safe to repeat. Only this module sets the options of a commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.lake.origins import merge_into_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True)
class Transaction:
    """Names an append, so that a repeated attempt commits nothing: a flow on a checkpoint, its target and its batch.

    Only appends carry it. A MERGE must not: such ids survive RESTORE and a reset of the checkpoint, and would then skip work in silence.
    """

    flow: str
    checkpoint: str
    target: str
    batch: int

    @property
    def application(self) -> str:
        """The id under which Delta remembers the last batch."""
        return f"sluice/{self.flow}/{self.checkpoint}/{self.target}"


def mark_session_commits(
    session: SparkSession, run: str, mode: str, flow: str, deliveries: Sequence[int] = (), inputs: Mapping[str, int] | None = None
) -> None:
    """Mark all further commits of this session: run id, mode, flow, the deliveries as ranges. Ids and counts only.

    inputs: by name, the versions of the tables that a view is made of. `sluice.lake.origins` reads both.
    """
    marked: dict[str, object] = {"sluice": 1, "run": run, "mode": mode, "flow": flow}
    if deliveries:
        marked["deliveries"] = {"count": len(set(deliveries)), "ranges": merge_into_ranges(deliveries)}
    if inputs:
        marked["inputs"] = dict(inputs)
    session.conf.set(_NOTE, json.dumps(marked))


def append_rows(frame: DataFrame, path: str, transaction: Transaction | None) -> None:
    """Append rows; new columns are added to the table. With a transaction they are appended once, however often this is tried."""
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    if transaction:
        writer = writer.option("txnAppId", transaction.application).option("txnVersion", transaction.batch)
    writer.save(path)


def overwrite_rows(frame: DataFrame, path: str) -> None:
    """Make the table hold these rows and no others, in one commit. The table keeps its properties and its identity."""
    frame.write.format("delta").mode("overwrite").save(path)


def replace_rows_of_deliveries(frame: DataFrame, path: str, deliveries: Sequence[int]) -> None:
    """Replace what the table has of these deliveries by the frame's rows: the same for a retry, a replay and a rebase."""
    within = f"_delivery IN ({', '.join(str(delivery) for delivery in sorted(deliveries))})"
    frame.write.format("delta").mode("overwrite").option("replaceWhere", within).save(path)
