"""Chooses how Spark evaluates a batch. A small one is planned once, interpreted, and run in one task: anything else takes longer than its work.

A triggered job is a process of a minute, in which every query is new. In gym's silver, with eleven small tables, generating and compiling
Java took a third of the time. Compiled code is several times faster per row, so large batches get it. Adaptive execution plans a query
again after every shuffle, and each shuffle is then a Spark job: without it a small run has half the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.lake import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 15_000
"""A batch is interpreted if it involves at most this many rows, including those of the tables that it reads and writes."""

_PARTITIONS = "spark.sql.shuffle.partitions"
_OF_FEW = {"spark.sql.adaptive.enabled": "false", _PARTITIONS: "1"}


def choose_evaluation_settings(
    session: SparkSession, tables: Iterable[str], rows: int | None = 0, *, keeps_state: bool = False
) -> None:
    """Chooses the settings for the session's next queries. tables: the paths read and written. rows: further rows read; None: unknown.

    keeps_state: whether the query has state, which stays in as many partitions as its first run had.
    """
    known = [rows, *(state.rows if (state := log.read_table_state(path)) else 0 for path in tables)]
    small = None not in known and sum(count for count in known if count) <= SMALL
    session.conf.set("spark.sql.codegen.wholeStage", str(not small).lower())
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")
    for name, of_few in _OF_FEW.items():
        configured = _read_configured_value(session, name)
        few = small and not (keeps_state and name == _PARTITIONS)
        session.conf.set(name, of_few if few else configured)


def _read_configured_value(session: SparkSession, name: str) -> str:
    """Returns a setting as it was before anything was chosen for the session. Sessions made from it return the same."""
    kept = f"sluice.configured.{name}"
    value = session.conf.get(kept, None)
    if value is None:
        value = str(session.conf.get(name))
        session.conf.set(kept, value)
    return value
