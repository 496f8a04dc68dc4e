"""How Spark evaluates a batch: a small one is interpreted, since compiling code for it takes longer than its work.

A triggered job is a process of a minute, in which every query is new. Of gym's silver, eleven small tables, a third of the time went into
generating Java and compiling it. Compiled code is several times faster a row, so large batches get it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sluice.lake import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = 200_000
"""How many rows a batch may bear on, with those of the tables that it reads and writes, to be interpreted."""


def suit(session: SparkSession, tables: Iterable[str], rows: int | None = 0) -> None:
    """Choose for the session's further queries. tables: paths of what is read and written; rows: what is read beside, None: unknown."""
    known = [rows, *(state.rows if (state := log.state(path)) else 0 for path in tables)]
    small = None not in known and sum(count for count in known if count) <= SMALL
    session.conf.set("spark.sql.codegen.wholeStage", str(not small).lower())
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN" if small else "FALLBACK")
