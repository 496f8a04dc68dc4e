"""The mark that every commit of Sluice carries. Loads no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sluice.lake.delivery_origins import merge_into_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


def mark_session_commits(
    session: SparkSession, run: str, mode: str, flow: str, deliveries: Sequence[int] = (), inputs: Mapping[str, int] | None = None
) -> None:
    """Mark all further commits of this session: run id, mode, flow, the deliveries as ranges. Ids and counts only.

    inputs: by name, the versions of the tables that a view is made of. `find_version_origins` reads both.
    """
    marked: dict[str, object] = {"sluice": 1, "run": run, "mode": mode, "flow": flow}
    if deliveries:
        marked["deliveries"] = {"count": len(set(deliveries)), "ranges": merge_into_ranges(deliveries)}
    if inputs:
        marked["inputs"] = dict(inputs)
    session.conf.set(_NOTE, json.dumps(marked))


def read_session_mark(session: SparkSession) -> str | None:
    """The mark of this session's commits, for a commit that Spark does not make. Fails where the session's JVM is gone."""
    return session.conf.get(_NOTE, None)
