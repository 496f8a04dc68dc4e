"""The mark that every commit of Sluice carries. Loads no Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from sluice.lake.delivery_origins import merge_into_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


class CommitMark(TypedDict, total=False):
    """What a commit says of itself: ids and counts only. deliveries: how many, as ranges. inputs: by name, the versions a view is made of.

    lifted: the request of erasure that was withdrawn.
    """

    run: str
    mode: str
    flow: str
    deliveries: dict[str, Any]
    inputs: dict[str, int]
    lifted: str


MARK_FIELDS = frozenset({"sluice", *CommitMark.__annotations__})
"""All that the mark of a commit may say."""


def format_commit_mark(**said: Unpack[CommitMark]) -> str:
    """A commit's mark as it stands in the log, in `userMetadata`."""
    return json.dumps({"sluice": 1, **said})


def mark_session_commits(
    session: SparkSession, run: str, mode: str, flow: str, deliveries: Sequence[int] = (), inputs: Mapping[str, int] | None = None
) -> None:
    """Mark all further commits of this session. `find_version_origins` reads deliveries and inputs."""
    marked: CommitMark = {"run": run, "mode": mode, "flow": flow}
    if deliveries:
        marked["deliveries"] = {"count": len(set(deliveries)), "ranges": merge_into_ranges(deliveries)}
    if inputs:
        marked["inputs"] = dict(inputs)
    session.conf.set(_NOTE, format_commit_mark(**marked))


def read_session_mark(session: SparkSession) -> str | None:
    """The mark of this session's commits, for a commit that Spark does not make. Fails where the session's JVM is gone."""
    return session.conf.get(_NOTE, None)
