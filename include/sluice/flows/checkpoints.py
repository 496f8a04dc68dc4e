"""Checkpoints: one a flow, placed here and nowhere else, given up when the flow cannot go on from it.

A flow's folder holds flow.json, which says what the current checkpoint is for, and the checkpoint itself under a random identity:
a deleted and re-made checkpoint counts its batches from 0 again and must not be mistaken for the old one.
"""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sluice.errors import UsageError


@dataclass(frozen=True)
class Checkpoint:
    """Where a flow remembers how far it came. rebased: why it starts anew with a full first batch; None: it goes on."""

    flow: str
    path: str
    identity: str
    rebased: str | None


def current(folder: str, flow: str, inputs: Mapping[str, str], fingerprint: str = "", anew: str | None = None) -> Checkpoint:
    """A flow's checkpoint, a fresh one where it cannot go on.

    inputs: the table ids of what the flow streams, by name. fingerprint: of the transform; "" where a change of it does not matter.
    anew: a reason to start anew in any case. Raises UsageError where the folder belongs to another flow.
    """
    place = Path(folder)
    memory = _remembered(place, flow)
    reason = anew or _broken(place, memory, inputs, fingerprint)
    if reason is None and memory is not None:
        identity = str(memory["identity"])
        return Checkpoint(flow, str(place / identity), identity, None)
    identity = uuid.uuid4().hex[:12]
    (place / identity).mkdir(parents=True)
    _remember(
        place,
        {
            "flow": flow,
            "identity": identity,
            "inputs": dict(inputs),
            "fingerprint": fingerprint,
            "reason": reason,
        },
    )
    if memory is not None:
        shutil.rmtree(place / str(memory["identity"]), ignore_errors=True)
    return Checkpoint(flow, str(place / identity), identity, reason)


def _remembered(place: Path, flow: str) -> dict[str, object] | None:
    try:
        memory: dict[str, object] = json.loads((place / "flow.json").read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return {"flow": flow, "identity": "unreadable"}
    if memory.get("flow") != flow:
        raise UsageError(
            f"The checkpoint {place} belongs to the flow '{memory.get('flow')}', not to '{flow}'. "
            "Move it away; the flow then starts with a full recompute."
        )
    return memory


def _broken(place: Path, memory: dict[str, object] | None, inputs: Mapping[str, str], fingerprint: str) -> str | None:
    if memory is None:
        return "first run"
    if not (place / str(memory["identity"])).is_dir():
        return "its checkpoint was lost"
    known = memory.get("inputs")
    known = known if isinstance(known, dict) else {}
    if sorted(known) != sorted(inputs):
        return "its list of inputs changed"
    made_again = [name for name in inputs if known[name] != inputs[name]]
    if made_again:
        return f"its input '{made_again[0]}' was made anew"
    if memory.get("fingerprint") != fingerprint:
        return "its transform changed"
    return None


def _remember(place: Path, memory: dict[str, object]) -> None:
    temporary = place / ".flow.json.tmp"
    temporary.write_text(json.dumps(memory, sort_keys=True))
    temporary.replace(place / "flow.json")
