"""Finds flows that have yet to read old versions of a table. Until they have, the files of those versions must stay. Needs no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from sluice import delta_log
from sluice.declare.assembly.graph import Graph
from sluice.declare.pipeline import parse_duration
from sluice.flows.progress import batches, checkpoints
from sluice.lake import commit_history
from sluice.lake.commit_history import WITHOUT_FILES, WITHOUT_ROWS
from sluice.lake.log import read_table_retention
from sluice.lake.places import Places, locate_streamed_tables
from sluice.lake.workspace import Workspace
from sluice.locations import locate


@dataclass(frozen=True)
class LaggingFlow:
    """A flow that has yet to read a version of its input.

    at: when that version was made (UTC). overdue: whether VACUUM has waited long enough. folder: the flow's checkpoints. waits: how long
    VACUUM waits, as declared.
    """

    flow: str
    version: int
    at: datetime | None
    folder: str = ""
    waits: str | None = None
    overdue: bool = False

    def __str__(self) -> str:
        """Returns a sentence for a report."""
        return f"the flow '{self.flow}' has not read version {self.version} yet; run it, and the files go with the next VACUUM"

    def let_go(self) -> str:
        """Makes the flow start over in its next run, and returns a sentence that says so. Call it under the lease, before the files are removed."""
        why = f"VACUUM waited {self.waits} for it to read version {self.version} of an input"
        checkpoints.reset_checkpoint(self.folder, self.flow, why)
        return f"the flow '{self.flow}' starts over with its next run: {why}"


def find_lagging_flows(workspace: Workspace, now: datetime) -> dict[str, list[LaggingFlow]]:
    """Returns, by table path, the flows that VACUUM would take files from: they have yet to read versions older than its retention."""
    return find_lagging_flows_at(workspace.places, workspace.graph, now)


def find_lagging_flows_at(places: Places, graph: Graph, now: datetime) -> dict[str, list[LaggingFlow]]:
    """Does the same without a Spark session."""
    found: dict[str, list[LaggingFlow]] = {}
    for declared in graph:
        flow, streamed = graph.flow_name(declared), locate_streamed_tables(places, declared)
        folder = places.checkpoints(flow)
        # The state of a stream cannot be made again from its inputs as they are now, so VACUUM waits for it.
        waits = None if declared.name in graph.streams else graph.pipeline.vacuum_waits
        for name, (version, whole) in _read_unread_versions(folder, flow).items():
            behind = _find_lag_past_retention(streamed[name], flow, version, whole, now) if name in streamed else None
            if behind is not None:
                overdue = waits is not None and behind.at is not None and behind.at + parse_duration(waits) <= now
                found.setdefault(streamed[name], []).append(replace(behind, folder=folder, waits=waits, overdue=overdue))
    return found


def _read_unread_versions(folder: str, flow: str) -> dict[str, tuple[int, bool]]:
    """Returns, by input, the first version that a flow has yet to take, and whether it was reading the whole table and did not finish."""
    memory = checkpoints.read_flow_memory(folder, flow)
    if memory is None or memory.get("reset"):
        return {}  # it starts anew, from its inputs as they are then
    place, inputs = locate(folder) / str(memory["identity"]), memory.get("inputs")
    if batches.find_checkpoint_damage(place):
        return {}  # likewise
    tables: Mapping[str, str] = {name: str(id_) for name, id_ in inputs.items()} if isinstance(inputs, dict) else {}
    done = bool(batches.list_batch_numbers(place / "commits"))
    unread = (
        batches.read_first_unread_versions(str(place), tables)
        if done
        else {name: end + 1 for name, end in batches.read_batch_end_versions(str(place), 0, tables).items()}
    )
    followed = checkpoints.read_followed_versions(memory)
    return {
        name: (max(version, followed.get(name, -1) + 1), not done and name not in followed) for name, version in unread.items()
    }


def _find_lag_past_retention(path: str, flow: str, version: int, whole: bool, now: datetime) -> LaggingFlow | None:
    if not delta_log.is_delta_table(path):
        return None
    keep = read_table_retention(path)
    passed_over = WITHOUT_FILES if whole else WITHOUT_ROWS
    waiting = [
        one
        for one in commit_history.read_commit_history(path)
        if one["version"] >= version and one["operation"] not in passed_over
    ]
    old = [one for one in waiting if one["at"] is not None and one["at"] + keep <= now]
    return LaggingFlow(flow, int(old[-1]["version"]), old[-1]["at"]) if old else None
