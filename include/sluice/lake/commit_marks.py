"""The mark that every commit of Sluice carries, and, by these marks, the deliveries that a table's versions come from. Loads no Spark.

A view's mark names the versions of its inputs, which are followed to their deliveries.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from sluice import delta_log
from sluice.lake import commit_history
from sluice.run_modes import REFRESH

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_RANGES = 200
"""How many ranges a commit's mark holds at most."""
Ranges = tuple[tuple[int, int], ...]
_NOTE = "spark.databricks.delta.commitInfo.userMetadata"


@dataclass(frozen=True)
class DeliveryOrigin:
    """ranges: first and last number of deliveries. exact: whether every number in them is meant. earlier: there are more, whose commits are gone."""

    ranges: Ranges = ()
    exact: bool = True
    earlier: bool = False

    def __str__(self) -> str:
        """Returns a text such as "1 to 3, 7"."""
        listed = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in self.ranges)
        parts = ["" if self.exact else "within ", listed, " and earlier ones" if self.earlier and listed else ""]
        return "".join(parts) or ("earlier ones" if self.earlier else "")


def merge_into_ranges(deliveries: Iterable[int]) -> Ranges:
    """Returns the numbers as ranges. If there are too many, those with the smallest gaps between them are joined."""
    return _join_ranges(((number, number) for number in deliveries), MOST_RANGES)


def find_version_origins(path: str, path_of: Callable[[str], str | None]) -> dict[int, DeliveryOrigin]:
    """Returns, by version of a table, the deliveries that its commit brought, for the commits that are still in the log.

    path_of: returns the path of a table by its name, or None if it does not exist.
    """
    return _find_cached_origins(path, path_of, {})


def _find_cached_origins(
    path: str, path_of: Callable[[str], str | None], known: dict[str, dict[int, DeliveryOrigin]]
) -> dict[int, DeliveryOrigin]:
    if path not in known:
        known[path] = {}  # a table that reads itself would bring nothing
        found: dict[int, DeliveryOrigin] = {}
        before: Mapping[str, int] = {}
        for commit in sorted(commit_history.read_commit_history(path), key=lambda one: int(one["version"])):
            note = commit["note"]
            inputs = {name: int(version) for name, version in note.get("inputs", {}).items()}
            if inputs:
                since = {} if note.get("mode") == REFRESH.name else before
                spans = {name: (since.get(name, -1), version) for name, version in inputs.items()}
                found[int(commit["version"])] = _origin_of_view_inputs(spans, path_of, known)
                before = {**before, **inputs}
            else:
                found[int(commit["version"])] = _origin_of_commit_note(note)
        known[path] = found
    return known[path]


def _origin_of_commit_note(note: Mapping[str, Any]) -> DeliveryOrigin:
    told = note.get("deliveries")
    if not told:
        return DeliveryOrigin()
    # Older commits know only the first and the last.
    spans = told["ranges"] if "ranges" in told else [(told["first"], told["last"])]
    ranges = _join_ranges((int(first), int(last)) for first, last in spans)
    return DeliveryOrigin(ranges, sum(last - first + 1 for first, last in ranges) == told["count"])


def _origin_of_view_inputs(
    spans: Mapping[str, tuple[int, int]], path_of: Callable[[str], str | None], known: dict[str, dict[int, DeliveryOrigin]]
) -> DeliveryOrigin:
    """Returns the deliveries behind a change of the inputs. spans: by input, the version before (-1 for none) and the one now."""
    parts: list[DeliveryOrigin] = []
    for name, (before, now) in spans.items():
        path = path_of(name)
        versions = _find_cached_origins(path, path_of, known) if path is not None and delta_log.is_delta_table(path) else {}
        parts += [origin for version, origin in versions.items() if before < version <= now]
        if min(versions, default=now + 1) > before + 1 and now > before:
            parts.append(DeliveryOrigin(earlier=True))
    ranges = _join_ranges(span for part in parts for span in part.ranges)
    return DeliveryOrigin(ranges, all(part.exact for part in parts), any(part.earlier for part in parts))


def _join_ranges(spans: Iterable[tuple[int, int]], most: int | None = None) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    if most is None or len(joined) <= most:
        return tuple(joined)
    gaps = sorted(
        ((after[0] - before[1], position) for position, (before, after) in enumerate(itertools.pairwise(joined), 1)), reverse=True
    )
    borders = [0, *sorted(position for _, position in gaps[: most - 1]), len(joined)]
    return tuple((joined[start][0], joined[end - 1][1]) for start, end in itertools.pairwise(borders))


class CommitMark(TypedDict, total=False):
    """What a commit says about itself: ids and counts only.

    deliveries: their count and ranges. inputs: by name, the versions that a view is made from. lifted: the erasure request that was withdrawn.
    """

    run: str
    mode: str
    flow: str
    deliveries: dict[str, Any]
    inputs: dict[str, int]
    lifted: str


MARK_FIELDS = frozenset({"sluice", *CommitMark.__annotations__})
"""Everything that a commit's mark may contain."""


def format_commit_mark(**said: Unpack[CommitMark]) -> str:
    """Returns a commit's mark as it stands in the log, in `userMetadata`."""
    return json.dumps({"sluice": 1, **said})


def mark_session_commits(
    session: SparkSession, run: str, mode: str, flow: str, deliveries: Sequence[int] = (), inputs: Mapping[str, int] | None = None
) -> None:
    """Marks all further commits of this session. `find_version_origins` reads deliveries and inputs."""
    marked: CommitMark = {"run": run, "mode": mode, "flow": flow}
    if deliveries:
        marked["deliveries"] = {"count": len(set(deliveries)), "ranges": merge_into_ranges(deliveries)}
    if inputs:
        marked["inputs"] = dict(inputs)
    session.conf.set(_NOTE, format_commit_mark(**marked))


def read_session_mark(session: SparkSession) -> str | None:
    """Returns the mark of this session's commits, for a commit that Spark does not make. Fails if the session's JVM is gone."""
    return session.conf.get(_NOTE, None)
