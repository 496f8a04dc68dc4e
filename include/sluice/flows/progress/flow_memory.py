"""What a flow remembers between its runs, beside what Spark keeps of its stream: flow.json in the folder of the flow's checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice import delta_log
from sluice.durable_files import write_json_durably
from sluice.errors import UsageError
from sluice.flows.progress import batches
from sluice.lake import log
from sluice.locations import Location, locate

_FILE = "flow.json"
_UNREADABLE = "unreadable"


@dataclass(frozen=True)
class ReadTypes:
    """The types of the columns that a flow reads, as they are in the table's log. mark: of everything that decides which columns these are."""

    mark: str = ""
    columns: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class FlowMemory:
    """A flow's memory. Each field but `location` is a key of flow.json.

    location: the flow's folder. identity: the name of its current checkpoint, a folder there. inputs: the table ids of what it streams, by
    name. fingerprint: the transform's. reason: why the checkpoint was made. starts: by input, the version that the stream began at.
    reset: why the flow is to start anew. followed: by input, the last version that it has taken without its stream. passed: those that it
    had taken when the checkpoint was made. unbounded: the inputs whose changes can touch each row of a view, as its probe found them.
    probe_rules: the number of the rules that the probe went by. read_types: what a silver table reads.
    """

    location: Location
    flow: str
    identity: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    fingerprint: str = ""
    reason: str | None = None
    starts: Mapping[str, int] = field(default_factory=dict)
    reset: str | None = None
    followed: Mapping[str, int] = field(default_factory=dict)
    passed: Mapping[str, int] = field(default_factory=dict)
    unbounded: tuple[str, ...] = ()
    probe_rules: int | None = None
    read_types: ReadTypes = ReadTypes()

    @property
    def checkpoint(self) -> Location:
        """The folder of the current checkpoint."""
        return self.location / self.identity

    @property
    def file(self) -> Location:
        """Where it is written."""
        return self.location / _FILE


def read_flow_memory(folder: str, flow: str) -> FlowMemory | None:
    """Returns a flow's memory, or None if it has none. Raises UsageError if the checkpoint belongs to another flow or is shared with one."""
    location = locate(folder)
    try:
        memory = load_flow_memory(location)
    except ValueError:
        return FlowMemory(location, flow, _UNREADABLE)
    if memory is None:
        return None
    if memory.flow != flow:
        raise UsageError(
            f"The checkpoint {location} belongs to the flow '{memory.flow}', not to '{flow}'. "
            "Move it away; the flow then starts with a full recompute."
        )
    _refuse_shared_checkpoint(memory)
    _refuse_foreign_offsets(memory)
    return memory


def load_flow_memory(location: Location) -> FlowMemory | None:
    """Returns what a flow's folder says, whichever flow's it is, or None if it says nothing. Raises ValueError if that is damaged."""
    kept = _load_memory_file(location)
    if kept is None:
        return None
    unbounded, rules, types = kept.get("unbounded"), kept.get("probe_rules"), kept.get("read_types")
    return FlowMemory(
        location=location,
        flow=str(kept.get("flow")),
        identity=kept["identity"],
        inputs={name: str(table) for name, table in _as_mapping(kept.get("inputs")).items()},
        fingerprint=str(kept.get("fingerprint") or ""),
        reason=str(kept["reason"]) if kept.get("reason") else None,
        starts=_parse_versions(kept.get("starts")),
        reset=str(kept["reset"]) if kept.get("reset") else None,
        followed=_parse_versions(kept.get("followed")),
        passed=_parse_versions(kept.get("passed")),
        unbounded=tuple(map(str, unbounded)) if isinstance(unbounded, list) else (),
        probe_rules=rules if isinstance(rules, int) else None,
        read_types=ReadTypes(str(_as_mapping(types).get("mark") or ""), _as_mapping(_as_mapping(types).get("columns"))),
    )


def write_flow_memory(memory: FlowMemory) -> None:
    """Replaces a flow's memory. What it has nothing of is left out, but for the fingerprint: an earlier Sluice takes none for another one."""
    kept = {**vars(memory), "read_types": vars(memory.read_types) if memory.read_types.mark else None}
    del kept["location"]
    plain = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in kept.items()
        if value or name == "fingerprint"
    }
    write_json_durably(memory.file, plain, sort_keys=True)


def _load_memory_file(location: Location) -> dict[str, Any] | None:
    """Returns what the file holds; None if there is none. Raises ValueError if that names no checkpoint."""
    try:
        kept: Any = json.loads((location / _FILE).read_bytes())
    except FileNotFoundError:
        return None
    if not isinstance(kept, dict) or not isinstance(kept.get("identity"), str):
        raise ValueError("no identity")
    return kept


def _as_mapping(kept: object) -> dict[str, Any]:
    return kept if isinstance(kept, dict) else {}


def _parse_versions(kept: object) -> dict[str, int]:
    versions = _as_mapping(kept)
    if not all(isinstance(version, int) for version in versions.values()):
        raise ValueError("a version that is no number")
    return versions


_IDENTITIES: dict[Location, tuple[list[str], dict[str, str | None]]] = {}
"""By the folder of a pipeline's checkpoints: the names in it, and the identity that each flow had.

They are read again only after a name was added or removed. A flow that starts anew gets a unique identity, and a folder that is copied over
another flow's folder names the wrong flow.
"""


def _refuse_shared_checkpoint(memory: FlowMemory) -> None:
    location = memory.location
    for name, identity in _read_identities(location.parent).items():
        other = location.parent / name
        if name != location.name and (identity == memory.identity or location.samefile(other)):
            raise UsageError(
                f"The checkpoints {location} and {other} are one and the same, and each flow needs its own. "
                f"Move away the one that is a copy or a link; its flow then starts with a full recompute."
            )


def _read_identities(root: Location) -> dict[str, str | None]:
    names = sorted(other.name for other in root.iterdir())
    known, identities = _IDENTITIES.get(root, ([], {}))
    if known != names:
        identities = {name: _read_checkpoint_identity(root / name) for name in names}
        _IDENTITIES[root] = (names, identities)
    return identities


def _read_checkpoint_identity(location: Location) -> str | None:
    try:
        kept = _load_memory_file(location)
    except (OSError, ValueError):
        return None
    return None if kept is None else str(kept["identity"])


def _refuse_foreign_offsets(memory: FlowMemory) -> None:
    """Raises UsageError if the offsets name tables other than those in flow.json."""
    strange = read_streamed_table_ids(memory.checkpoint) - set(memory.inputs.values())
    if strange:
        raise UsageError(
            f"The checkpoint {memory.checkpoint} has positions in the Delta table {min(strange)}, "
            f"which is no input of the flow '{memory.flow}'. Move {memory.location} away; the flow then starts with a full recompute."
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


def reason_if_retyped(folder: str, flow: str, source: str, path: str) -> str | None:
    """Returns why a flow must fold anew, or None if the columns that it reads have the types that its rows were made from.

    The text of the number 1 is '1' as a BIGINT and '1.0' as a DOUBLE: rows made from now on would get other keys and texts than those that
    are there. A flow of an earlier Sluice has recorded no types, and then nothing is known. path: the bronze table's.
    """
    memory = read_flow_memory(folder, flow)
    types = memory.read_types.columns if memory is not None else {}
    if not types or not delta_log.is_delta_table(path):
        return None
    there = log.read_column_types(path)
    differing = [name for name, kind in types.items() if name in there and there[name] != kind]
    return next((why for name in differing if (why := _describe_retyping(source, name, types[name], there[name]))), None)


def _describe_retyping(source: str, column: str, before: object, now: object) -> str | None:
    """Returns what happened to a column, or None if its type only has more nested fields, or NULL in more places."""
    from pyspark.sql.types import StructType  # loaded here, so that a status without such a column does not wait for it

    from sluice.lake.nested_types import has_other_type

    was, got = (
        StructType.fromJson({"fields": [{"name": column, "type": kind, "nullable": True, "metadata": {}}]})[column].dataType
        for kind in (before, now)
    )
    if not has_other_type(was, got):
        return None
    return f"column '{column}' of '{source}' was {was.simpleString()} and is {got.simpleString()}"
