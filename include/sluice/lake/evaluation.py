"""How Spark evaluates a batch. A small one is planned once, interpreted, and run in one task: anything else takes longer than its work.

A triggered job is a process of a minute, in which every query is new. Of gym's silver, eleven small tables, a third of the time went into
generating Java and compiling it. Compiled code is several times faster per row, so large batches get it. Adaptive execution plans a query
again after every shuffle, each of which is then a Spark job: without it a small run has half the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.lake import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 15_000
"""How many rows a batch may bear on, with those of the tables that it reads and writes, to be interpreted."""

_PARTITIONS = "spark.sql.shuffle.partitions"
_OF_FEW = {"spark.sql.adaptive.enabled": "false", _PARTITIONS: "1"}


def choose_evaluation_settings(
    session: SparkSession, tables: Iterable[str], rows: int | None = 0, *, keeps_state: bool = False
) -> None:
    """Choose the settings for the session's next queries. tables: paths read and written. rows: rows read besides; None: unknown.

    keeps_state: the query has state, which stays in as many partitions as its first run has.
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
    """What the session had before anything was chosen for it; sessions made from it know it too."""
    kept = f"sluice.configured.{name}"
    value = session.conf.get(kept, None)
    if value is None:
        value = str(session.conf.get(name))
        session.conf.set(kept, value)
    return value
