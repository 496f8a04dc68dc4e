"""Whether a stateful stream can go on from its checkpoint. It cannot be rebased by itself: its state would be another than its table's.

Read without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sluice.declare.assembly.fingerprint import fingerprint
from sluice.declare.datasets.windowed import Windowed
from sluice.errors import SluiceError
from sluice.flows.progress import batches, checkpoints, restored, spark_files
from sluice.lake import log

HEARTBEATS = "_idle"
"""The name of a stream's heartbeats among its inputs."""

REFRESH = "refresh"
ERASED = "people were erased from its inputs"
"""Why a stream starts over although it could go on: what it keeps of them is forgotten with its state."""

_OVER = (REFRESH, ERASED)
FIRST = "first run"
_MADE_ANEW = ("RESTORE", "REPLACE", "CREATE OR REPLACE", "TRUNCATE")


def start_of(folder: str, flow: str, inputs: Mapping[str, str], code: str) -> str | None:
    """Why a stream starts over, though nobody asked in this run; None: it goes on, or cannot (see `broken`)."""
    why = checkpoints.reason(folder, flow, inputs, code)
    return why if why in (*_OVER, FIRST) else None


def broken(folder: str, flow: str, inputs: Mapping[str, str], code: str, target: str, place: Callable[[str], str]) -> str | None:
    """Why a stream can neither go on nor begin; None: it can. Arguments as of `checkpoints.current`.

    target: where its table lies; place: where an input does.
    """
    why, memory = checkpoints.reason(folder, flow, inputs, code), checkpoints.remembered(folder, flow)
    if memory is None or (why == FIRST and not spark_files.has_begun(Path(folder) / str(memory["identity"]))):
        state = log.state(target)
        return "its checkpoint was lost" if state is not None and state.rows != 0 else None
    if why is not None:
        return None if why in (*_OVER, FIRST) else why
    if not log.exists(target):
        return checkpoints.GONE
    for name, version in batches.unread(str(Path(folder) / str(memory["identity"])), inputs).items():
        if any(commit["version"] >= version and _anew(commit) for commit in _commits(name, place)):
            return f"its input '{name}' was restored or replaced, and what was taken of it cannot be taken back"
    return None


def mark(stream: Windowed[Any]) -> str:
    """The fingerprint of a stream's checkpoint: heartbeats are one more source of it."""
    return fingerprint(stream) + ("+idle" if stream.closes_when_idle else "")


def refusal(pipeline: str, stream: str, why: str) -> SluiceError:
    """The error of a stream that cannot go on."""
    return SluiceError(
        f"Stream '{stream}' cannot go on: {why}. Its state holds what it has read so far, so it is not made anew by itself. "
        f"Start it over, from its inputs as they are now: sluice run {pipeline} --mode refresh --table {stream}"
    )


def _commits(name: str, place: Callable[[str], str]) -> list[dict[str, Any]]:
    return [] if name == HEARTBEATS else log.commits(place(name))


def _anew(commit: Mapping[str, Any]) -> bool:
    """Of Delta's own operations by their name; `sluice restore` merges differences, which bring rows of before once more."""
    return commit["note"].get("mode") == restored.MODE or str(commit["operation"]).startswith(_MADE_ANEW)
