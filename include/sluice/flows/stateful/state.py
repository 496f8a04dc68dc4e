"""The state of a stream: how it is kept, how large it is. The only place that says how Spark keeps it.

Spark tidies state up in the background of a query that runs on; a triggered run of a minute ends before. So it is done at each commit:
old versions go, and what was deleted of a version is gone from its files, which hold keys of people maybe.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.durable_files import write_json_durably
from sluice.flows.progress.checkpoints import Checkpoint
from sluice.lake.report import FlowReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STORE = "spark.sql.streaming.stateStore"
_SETTINGS = {
    # Recorded in the checkpoint at its first batch; a query that goes on from it must not ask for another.
    f"{_STORE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # Maintenance with the task's end instead of once a minute.
    f"{_STORE}.unloadOnCommit": "true",
    f"{_STORE}.rocksdb.compactOnCommit": "true",
    # The last two versions: that of a batch which is retried, and its own.
    "spark.sql.streaming.minBatchesToRetain": "2",
}
_FILE = "state.json"


def configure_state_store(session: SparkSession) -> None:
    """Let the queries that this session starts keep their state so."""
    for name, value in _SETTINGS.items():
        session.conf.set(name, value)


def report_state_size(checkpoint: Checkpoint, progress: dict[str, Any] | None, report: FlowReport) -> None:
    """Tell how much state there is: rows by the query's last progress, bytes on disk. A run without any batch finds what it was."""
    file = Path(checkpoint.path).parent / _FILE
    if progress is not None:
        rows = sum(int(one["numRowsTotal"]) for one in progress["stateOperators"])
        write_json_durably(file, {"identity": checkpoint.identity, "rows": rows})
    try:
        known = json.loads(file.read_text())
    except (FileNotFoundError, ValueError):
        return
    if known.get("identity") == checkpoint.identity:
        report.state_rows = int(known["rows"])
    report.state_bytes = sum(path.stat().st_size for path in (Path(checkpoint.path) / "state").rglob("*") if path.is_file())
