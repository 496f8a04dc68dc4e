"""Checkpoints: each flow has one. Only this module makes them, and gives one up when the flow cannot resume from it.

A flow's folder holds flow.json (`flow_memory`), which describes the current checkpoint, and the checkpoint itself under a random identity. A
checkpoint that was deleted and made again counts its batches from 0 and must not be mistaken for the old one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.flows.progress import batches
from sluice.flows.progress.flow_memory import FlowMemory, ReadTypes, read_flow_memory, write_flow_memory
from sluice.locations import is_on_disk, locate, remove_folder

TRANSFORM = "its transform changed"
TABLE_MISSING = "its table was not there"
"""Why a flow starts anew if its table was removed, or was moved by a change of its declaration."""
FIRST = "first run"
LOST_CHECKPOINT = "its checkpoint was lost"


@dataclass(frozen=True)
class Checkpoint:
    """A flow's checkpoint.

    rebased: why it starts anew with a full first batch, or None if it resumes. starts: by input, the version that its stream began at; an
    input without one began with the whole table. Spark asks for it again until the stream's second batch.
    """

    flow: str
    path: str
    identity: str
    rebased: str | None
    starts: Mapping[str, int] = field(default_factory=dict)


def open_checkpoint(
    folder: str,
    flow: str,
    inputs: Mapping[str, str],
    fingerprint: str = "",
    anew: str | None = None,
    find_starts: Callable[[], Mapping[str, int]] = dict,
    find_starts_past: Callable[[Mapping[str, int]], Mapping[str, int]] = dict,
) -> Checkpoint:
    """Returns a flow's checkpoint: a fresh one if the flow cannot resume.

    inputs: the table ids of what the flow streams, by name. fingerprint: the transform's, or "" if a change of it does not matter. anew: a
    reason to start anew in any case. find_starts: returns the `starts` of a fresh checkpoint. find_starts_past: returns them if the flow came
    further without its stream (`record_followed_versions`), given the versions that it took.

    Raises UsageError if the folder belongs to another flow.
    """
    location = locate(folder)
    memory = read_flow_memory(folder, flow)
    followed = memory.followed if memory is not None else {}
    reason = anew or _reason_if_broken(memory, inputs, fingerprint)
    reason = reason or (None if followed else _reason_if_not_begun(memory))
    passed = followed if reason is None and memory is not None and _is_past_stream(memory) else {}
    if reason is None and memory is not None and not passed:
        return Checkpoint(flow, str(memory.checkpoint), memory.identity, _reason_if_unfinished(memory), memory.starts)
    fresh = FlowMemory(
        location=location,
        flow=flow,
        identity=uuid.uuid4().hex[:12],
        inputs=inputs,
        fingerprint=fingerprint,
        reason=reason,
        starts=find_starts_past(passed) if passed else find_starts(),
        followed=passed,
        passed=passed,
    )
    fresh.checkpoint.mkdir(parents=True)
    write_flow_memory(fresh)
    if memory is not None:
        remove_folder(memory.checkpoint)
    return Checkpoint(flow, str(fresh.checkpoint), fresh.identity, reason, fresh.starts)


def reason_to_rebase(folder: str, flow: str, inputs: Mapping[str, str], fingerprint: str = "") -> str | None:
    """Returns why a flow's next run would start anew, or None if it resumes. Changes nothing. Arguments and errors are those of `open_checkpoint`."""
    memory = read_flow_memory(folder, flow)
    return _reason_if_broken(memory, inputs, fingerprint) or (None if memory is None else _reason_if_unfinished(memory))


def reset_checkpoint(folder: str, flow: str, why: str = "its checkpoint was reset") -> None:
    """Gives up a flow's checkpoint, so that its next run starts anew. Call it under the lease. Errors are those of `open_checkpoint`."""
    memory = read_flow_memory(folder, flow)
    if memory is not None:
        write_flow_memory(replace(memory, reset=why))
        remove_folder(memory.checkpoint)


def record_followed_versions(folder: str, flow: str, versions: Mapping[str, int]) -> None:
    """Records that a flow has taken its inputs up to these versions without its stream. Call it under the lease, after the commit.

    The stream begins after them when it is needed again. Errors are those of `open_checkpoint`.
    """
    memory = read_flow_memory(folder, flow)
    if memory is not None:
        write_flow_memory(replace(memory, followed=versions))


def record_probe(folder: str, flow: str, unbounded: Sequence[str], rules: int) -> None:
    """Records what a view's probe found, for those who cannot ask Spark. Errors as of `open_checkpoint`.

    unbounded: the inputs whose changes can touch each row of the view. rules: the number of the probe's rules.
    """
    memory = read_flow_memory(folder, flow)
    if memory is not None and (memory.unbounded, memory.probe_rules) != (tuple(unbounded), rules):
        write_flow_memory(replace(memory, unbounded=tuple(unbounded), probe_rules=rules))


def record_read_types(folder: str, flow: str, types: ReadTypes) -> None:
    """Records the columns that a flow reads of a table, with their types. Errors as of `open_checkpoint`."""
    memory = read_flow_memory(folder, flow)
    if memory is not None and memory.read_types != types:
        write_flow_memory(replace(memory, read_types=types))


def _is_past_stream(memory: FlowMemory) -> bool:
    """Whether the flow has come further without its stream than with it."""
    last = max(batches.list_batch_numbers(memory.checkpoint / "commits"), default=-1)
    ends = batches.read_batch_end_versions(str(memory.checkpoint), last, memory.inputs)
    # An input without a row has no position in the stream's offsets: once a batch is done, the stream is where it began in it.
    starts = memory.passed if last >= 0 else {}
    return any(max(ends.get(name, -1), starts.get(name, -1)) < version for name, version in memory.followed.items())


def _reason_if_not_begun(memory: FlowMemory | None) -> str | None:
    """Returns why the checkpoint was made if it has no batch: a killed run came no further, or all files are lost.

    A new identity is right in both cases. With the old one, batches would get the numbers of batches that the tables already have.
    """
    if memory is None or batches.has_begun_batch(memory.checkpoint):
        return None
    return memory.reason or LOST_CHECKPOINT


def _reason_if_unfinished(memory: FlowMemory) -> str | None:
    """Returns why the checkpoint was made, as long as its first, full batch is not done, be it without the stream."""
    return None if memory.followed or batches.list_batch_numbers(memory.checkpoint / "commits") else memory.reason


def _reason_if_broken(memory: FlowMemory | None, inputs: Mapping[str, str], fingerprint: str) -> str | None:
    if memory is None:
        return FIRST
    if memory.reset:
        return memory.reset
    # A store has no folder before the stream's first file. A flow that never needed its stream has lost nothing.
    unused = bool(memory.followed) and not is_on_disk(memory.location)
    if not unused and not memory.checkpoint.is_dir():
        return LOST_CHECKPOINT
    damage = batches.find_checkpoint_damage(memory.checkpoint)
    if damage:
        return f"its checkpoint is damaged: {damage}"
    if sorted(memory.inputs) != sorted(inputs):
        return "its list of inputs changed"
    made_again = [name for name in inputs if memory.inputs[name] != inputs[name]]
    if made_again:
        return f"its input '{made_again[0]}' was made anew"
    if memory.fingerprint != fingerprint:
        return TRANSFORM
    return None
