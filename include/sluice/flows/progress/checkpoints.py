"""Checkpoints: each flow has one. Only this module makes them, and gives one up when the flow cannot resume from it.

A flow's folder holds flow.json, which describes the current checkpoint, and the checkpoint itself under a random identity. A
checkpoint that was deleted and made again counts its batches from 0 and must not be mistaken for the old one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.durable_files import write_json_durably
from sluice.errors import UsageError
from sluice.flows.progress import batches
from sluice.locations import Location, is_on_disk, locate, remove_folder

TRANSFORM = "its transform changed"
GONE = "its table was not there"
FIRST = "first run"
LOST_CHECKPOINT = "its checkpoint was lost"
"""Why a flow starts anew if its table was removed, or was moved by a change of its declaration."""

_UNBOUNDED = "unbounded"
_PROBE_RULES = "probe_rules"
_PASSED = "passed"
_READ_TYPES = "read_types"
"""The keys in flow.json of a view's unbounded inputs, of the number of its probe's rules, of the versions, by input, after which the stream of
a checkpoint begins, and of the types of the columns that a silver table reads."""


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
    followed = read_followed_versions(memory)
    reason = anew or _reason_if_broken(location, memory, inputs, fingerprint)
    reason = reason or (None if followed else _reason_if_not_begun(location, memory))
    passed = followed if reason is None and memory is not None and _is_past_stream(location, memory, followed) else {}
    if reason is None and memory is not None and not passed:
        identity = str(memory["identity"])
        return Checkpoint(flow, str(location / identity), identity, _reason_if_unfinished(location, memory), _read_starts(memory))
    identity, starts = uuid.uuid4().hex[:12], find_starts_past(passed) if passed else find_starts()
    (location / identity).mkdir(parents=True)
    _write_flow_memory(
        location,
        {
            "flow": flow,
            "identity": identity,
            "inputs": dict(inputs),
            "fingerprint": fingerprint,
            "reason": reason,
            "starts": dict(starts),
            **({"followed": passed, _PASSED: passed} if passed else {}),
        },
    )
    if memory is not None:
        remove_folder(location / str(memory["identity"]))
    return Checkpoint(flow, str(location / identity), identity, reason, starts)


def reason_to_rebase(folder: str, flow: str, inputs: Mapping[str, str], fingerprint: str = "") -> str | None:
    """Returns why a flow's next run would start anew, or None if it resumes. Changes nothing. Arguments and errors are those of `open_checkpoint`."""
    location, memory = locate(folder), read_flow_memory(folder, flow)
    return _reason_if_broken(location, memory, inputs, fingerprint) or (
        None if memory is None else _reason_if_unfinished(location, memory)
    )


def reset_checkpoint(folder: str, flow: str, why: str = "its checkpoint was reset") -> None:
    """Gives up a flow's checkpoint, so that its next run starts anew. Call it under the lease. Errors are those of `open_checkpoint`."""
    location, memory = locate(folder), read_flow_memory(folder, flow)
    if memory is not None:
        _write_flow_memory(location, {**memory, "reset": why})
        remove_folder(location / str(memory["identity"]))


def record_followed_versions(folder: str, flow: str, versions: Mapping[str, int]) -> None:
    """Records that a flow has taken its inputs up to these versions without its stream. Call it under the lease, after the commit.

    The stream begins after them when it is needed again. Errors are those of `open_checkpoint`.
    """
    memory = read_flow_memory(folder, flow)
    if memory is not None:
        _write_flow_memory(locate(folder), {**memory, "followed": dict(versions)})


def read_followed_versions(memory: Mapping[str, object] | None) -> dict[str, int]:
    """Returns, by input, the last version that a flow has taken without its stream, according to flow.json. Empty if it never did."""
    found = memory.get("followed") if memory is not None else None
    return {str(name): int(version) for name, version in found.items()} if isinstance(found, dict) else {}


def record_probe(folder: str, flow: str, unbounded: Sequence[str], rules: int) -> None:
    """Records what a view's probe found, for those who cannot ask Spark. Errors as of `open_checkpoint`.

    unbounded: the inputs whose changes can touch each row of the view. rules: the number of the probe's rules.
    """
    memory, found = read_flow_memory(folder, flow), {_UNBOUNDED: list(unbounded), _PROBE_RULES: rules}
    if memory is not None and any(memory.get(name) != value for name, value in found.items()):
        _write_flow_memory(locate(folder), {**memory, **found})


def has_probe_rules(memory: Mapping[str, object], rules: int) -> bool:
    """Whether a view's latest probe went by these rules."""
    return memory.get(_PROBE_RULES) == rules


def read_unbounded_inputs(memory: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the inputs that `record_probe` recorded as unbounded. Empty if it recorded nothing yet."""
    found = memory.get(_UNBOUNDED)
    return tuple(map(str, found)) if isinstance(found, list) else ()


def record_read_types(folder: str, flow: str, mark: str, types: Mapping[str, object]) -> None:
    """Records the columns that a flow reads of a table, with their types as in the table's log. Errors as of `open_checkpoint`.

    mark: of everything that decides which columns these are.
    """
    memory, found = read_flow_memory(folder, flow), {"mark": mark, "columns": dict(types)}
    if memory is not None and memory.get(_READ_TYPES) != found:
        _write_flow_memory(locate(folder), {**memory, _READ_TYPES: found})


def read_recorded_types(memory: Mapping[str, object] | None) -> tuple[str, dict[str, object]]:
    """Returns the mark and the types that `record_read_types` recorded. Both are empty if it recorded nothing yet."""
    found = memory.get(_READ_TYPES) if memory is not None else None
    columns = found.get("columns") if isinstance(found, dict) else None
    return (str(found["mark"]), columns) if isinstance(found, dict) and isinstance(columns, dict) else ("", {})


def _is_past_stream(location: Location, memory: Mapping[str, object], followed: Mapping[str, int]) -> bool:
    """Whether the flow has come further without its stream than with it."""
    checkpoint, inputs = location / str(memory["identity"]), memory.get("inputs")
    tables = {str(name): str(table) for name, table in inputs.items()} if isinstance(inputs, dict) else {}
    last = max(batches.list_batch_numbers(checkpoint / "commits"), default=-1)
    ends = batches.read_batch_end_versions(str(checkpoint), last, tables)
    # An input without a row has no position in the stream's offsets: once a batch is done, the stream is where it began in it.
    began = memory.get(_PASSED) if last >= 0 else None
    starts = {str(name): int(version) for name, version in began.items()} if isinstance(began, dict) else {}
    return any(max(ends.get(name, -1), starts.get(name, -1)) < version for name, version in followed.items())


def read_flow_memory(folder: str, flow: str) -> dict[str, object] | None:
    """Returns what flow.json says, or None if there is none. Raises UsageError if the checkpoint belongs to another flow or is shared with one."""
    location = locate(folder)
    try:
        memory: dict[str, object] = json.loads((location / "flow.json").read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        memory = {}
    if not isinstance(memory, dict) or not isinstance(memory.get("identity"), str):
        return {"flow": flow, "identity": "unreadable"}
    if memory.get("flow") != flow:
        raise UsageError(
            f"The checkpoint {location} belongs to the flow '{memory.get('flow')}', not to '{flow}'. "
            "Move it away; the flow then starts with a full recompute."
        )
    _refuse_shared_checkpoint(location, memory)
    _refuse_foreign_offsets(location, memory)
    return memory


_IDENTITIES: dict[Location, tuple[list[str], dict[str, object]]] = {}
"""By the folder of a pipeline's checkpoints: the names in it, and the identity that each flow had.

They are read again only after a name was added or removed. A flow that starts anew gets a unique identity, and a folder that is copied over
another flow's folder names the wrong flow.
"""


def _refuse_shared_checkpoint(location: Location, memory: dict[str, object]) -> None:
    for name, identity in _read_identities(location.parent).items():
        other = location.parent / name
        if name != location.name and (identity == memory.get("identity") or location.samefile(other)):
            raise UsageError(
                f"The checkpoints {location} and {other} are one and the same, and each flow needs its own. "
                f"Move away the one that is a copy or a link; its flow then starts with a full recompute."
            )


def _read_identities(root: Location) -> dict[str, object]:
    names = sorted(other.name for other in root.iterdir())
    known, identities = _IDENTITIES.get(root, ([], {}))
    if known != names:
        identities = {name: _read_checkpoint_identity(root / name / "flow.json") for name in names}
        _IDENTITIES[root] = (names, identities)
    return identities


def _refuse_foreign_offsets(location: Location, memory: dict[str, object]) -> None:
    """Raises UsageError if the offsets name tables other than those in flow.json."""
    inputs = memory.get("inputs")
    known = set(inputs.values()) if isinstance(inputs, dict) else set()
    strange = {table for table in read_streamed_table_ids(location / str(memory["identity"])) if table not in known}
    if strange:
        raise UsageError(
            f"The checkpoint {location / str(memory['identity'])} has positions in the Delta table {min(strange)}, "
            f"which is no input of the flow '{memory.get('flow')}'. Move {location} away; the flow then starts with a full recompute."
        )


def read_streamed_table_ids(checkpoint: Location) -> set[str]:
    """Returns the ids of the Delta tables that a Spark checkpoint's latest positions are in."""
    begun = batches.list_batch_numbers(checkpoint / "offsets")
    found = set()
    for line in (checkpoint / "offsets" / str(max(begun))).read_bytes().splitlines()[2:] if begun else ():
        try:
            found.add(str(json.loads(line)["reservoirId"]))
        except (ValueError, KeyError, TypeError):
            continue  # "-": nothing has been read of this input yet
    return found


def _read_checkpoint_identity(file: Location) -> object:
    try:
        return json.loads(file.read_text()).get("identity")
    except (OSError, ValueError):
        return None


def _read_starts(memory: Mapping[str, object]) -> dict[str, int]:
    """Returns the starts in flow.json. A checkpoint from before they were recorded has none."""
    starts = memory.get("starts")
    return {str(name): int(version) for name, version in starts.items()} if isinstance(starts, dict) else {}


def _reason_if_not_begun(location: Location, memory: dict[str, object] | None) -> str | None:
    """Returns why the checkpoint was made if it has no batch: a killed run came no further, or all files are lost.

    A new identity is right in both cases. With the old one, batches would get the numbers of batches that the tables already have.
    """
    if memory is None or batches.has_begun_batch(location / str(memory["identity"])):
        return None
    return str(memory.get("reason") or LOST_CHECKPOINT)


def _reason_if_unfinished(location: Location, memory: dict[str, object]) -> str | None:
    """Returns why the checkpoint was made, as long as its first, full batch is not done, be it without the stream."""
    done = read_followed_versions(memory) or batches.list_batch_numbers(location / str(memory["identity"]) / "commits")
    return None if done else str(memory.get("reason") or "") or None


def _reason_if_broken(
    location: Location, memory: dict[str, object] | None, inputs: Mapping[str, str], fingerprint: str
) -> str | None:
    if memory is None:
        return FIRST
    if memory.get("reset"):
        return str(memory["reset"])
    # A store has no folder before the stream's first file. A flow that never needed its stream has lost nothing.
    unused = bool(read_followed_versions(memory)) and not is_on_disk(location)
    if not unused and not (location / str(memory["identity"])).is_dir():
        return LOST_CHECKPOINT
    damage = batches.find_checkpoint_damage(location / str(memory["identity"]))
    if damage:
        return f"its checkpoint is damaged: {damage}"
    known = memory.get("inputs")
    known = known if isinstance(known, dict) else {}
    if sorted(known) != sorted(inputs):
        return "its list of inputs changed"
    made_again = [name for name in inputs if known[name] != inputs[name]]
    if made_again:
        return f"its input '{made_again[0]}' was made anew"
    if memory.get("fingerprint") != fingerprint:
        return TRANSFORM
    return None


def _write_flow_memory(location: Location, memory: dict[str, object]) -> None:
    write_json_durably(location / "flow.json", memory, sort_keys=True)
