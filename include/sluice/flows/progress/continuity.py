"""Whether a stateful stream can go on from its checkpoint. It cannot be rebased by itself: its state would be another than its table's.

Read without a JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.windowed import HEARTBEATS, Windowed
from sluice.errors import SluiceError
from sluice.flows.progress import batches, checkpoints
from sluice.lake import log
from sluice.pipeline_stages import RESTORE

REFRESH = "refresh"
ERASED = "people were erased from its inputs"
"""Why a stream starts over although it could go on: what it keeps of them is forgotten with its state."""

_OVER = (REFRESH, ERASED)
FIRST = "first run"
_MADE_ANEW = ("RESTORE", "REPLACE", "CREATE OR REPLACE", "TRUNCATE")


def reason_to_start_over(folder: str, flow: str, inputs: Mapping[str, str], code: str) -> str | None:
    """Why a stream starts over, though nobody asked in this run; None: it goes on, or cannot (see `find_stream_break`)."""
    why = checkpoints.reason_to_rebase(folder, flow, inputs, code)
    return why if why in (*_OVER, FIRST) else None


def find_stream_break(
    folder: str, flow: str, inputs: Mapping[str, str], code: str, target: str, place: Callable[[str], str]
) -> str | None:
    """Why a stream can neither go on nor begin; None: it can. Arguments as of `checkpoints.open_checkpoint`.

    target: where its table lies; place: where an input does.
    """
    why, memory = checkpoints.reason_to_rebase(folder, flow, inputs, code), checkpoints.read_flow_memory(folder, flow)
    if memory is None or (why == FIRST and not batches.has_begun_batch(Path(folder) / str(memory["identity"]))):
        state = log.read_table_state(target)
        return "its checkpoint was lost" if state is not None and state.rows != 0 else None
    if why is not None:
        return None if why in (*_OVER, FIRST) else why
    if not log.is_delta_table(target):
        return checkpoints.GONE
    for name, version in batches.read_first_unread_versions(str(Path(folder) / str(memory["identity"])), inputs).items():
        if any(commit["version"] >= version and _is_restore_or_replace(commit) for commit in _read_input_commits(name, place)):
            return f"its input '{name}' was restored or replaced, and what was taken of it cannot be taken back"
    return None


def stream_fingerprint(stream: Windowed[Any]) -> str:
    """The fingerprint of a stream's checkpoint: heartbeats are one more source of it."""
    return compute_declaration_fingerprint(stream) + ("+idle" if stream.closes_when_idle else "")


def broken_stream_error(pipeline: str, stream: str, why: str) -> SluiceError:
    """The error of a stream that cannot go on."""
    return SluiceError(
        f"Stream '{stream}' cannot go on: {why}. Its state holds what it has read so far, so it is not made anew by itself. "
        f"Start it over, from its inputs as they are now: sluice run {pipeline} --mode refresh --table {stream}"
    )


def _read_input_commits(name: str, place: Callable[[str], str]) -> list[dict[str, Any]]:
    return [] if name == HEARTBEATS else log.read_commit_history(place(name))


def _is_restore_or_replace(commit: Mapping[str, Any]) -> bool:
    """Of Delta's own operations by their name; `sluice restore` merges differences, which bring rows of before once more."""
    return commit["note"].get("mode") == RESTORE or str(commit["operation"]).startswith(_MADE_ANEW)
