"""Whether a stateful stream can resume from its checkpoint. It is never rebased by itself: its new state would not match its table.

Needs no JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sluice import delta_log
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.datasets.windowed import HEARTBEATS, Windowed
from sluice.errors import SluiceError
from sluice.flows.progress import batches, checkpoints
from sluice.lake import commit_history, log
from sluice.locations import locate
from sluice.pipeline_stages import RESTORE

REFRESH = "refresh"
"""The reason to make a table anew on request. It may change the schema."""
ERASED = "people were erased from its inputs"
"""Why a stream starts over although it could resume: its state holds rows of erased people and is forgotten with it."""

_OVER = (REFRESH, ERASED)
_MADE_ANEW = ("RESTORE", "REPLACE", "CREATE OR REPLACE", "TRUNCATE")


def reason_to_start_over(folder: str, flow: str, inputs: Mapping[str, str], code: str) -> str | None:
    """Returns why a stream starts over although this run was not asked to. None: it resumes, or cannot (see `find_stream_break`)."""
    why = checkpoints.reason_to_rebase(folder, flow, inputs, code)
    return why if why in (*_OVER, checkpoints.FIRST) else None


def find_stream_break(
    folder: str, flow: str, inputs: Mapping[str, str], code: str, target: str, place: Callable[[str], str]
) -> str | None:
    """Returns why a stream can neither resume nor begin, or None if it can. Arguments are those of `checkpoints.open_checkpoint`.

    target: the path of its table. place: returns the path of an input.
    """
    why, memory = checkpoints.reason_to_rebase(folder, flow, inputs, code), checkpoints.read_flow_memory(folder, flow)
    if memory is None or (why == checkpoints.FIRST and not batches.has_begun_batch(locate(folder) / str(memory["identity"]))):
        state = log.read_table_state(target)
        return checkpoints.LOST_CHECKPOINT if state is not None and state.rows != 0 else None
    if why is not None:
        return None if why in (*_OVER, checkpoints.FIRST) else why
    if not delta_log.is_delta_table(target):
        return checkpoints.GONE
    for name, version in batches.read_first_unread_versions(str(locate(folder) / str(memory["identity"])), inputs).items():
        if any(commit["version"] >= version and _is_restore_or_replace(commit) for commit in _read_input_commits(name, place)):
            return f"its input '{name}' was restored or replaced, and what was taken of it cannot be taken back"
    return None


def stream_fingerprint(stream: Windowed[Any]) -> str:
    """Returns the fingerprint of a stream's checkpoint. Heartbeats count, because they are one more source of the stream."""
    return compute_declaration_fingerprint(stream) + ("+idle" if stream.closes_when_idle else "")


def broken_stream_error(pipeline: str, stream: str, why: str) -> SluiceError:
    """Returns the error for a stream that cannot resume."""
    return SluiceError(
        f"Stream '{stream}' cannot go on: {why}. Its state holds what it has read so far, so it is not made anew by itself. "
        f"Start it over, from its inputs as they are now: sluice run {pipeline} --mode refresh --table {stream}"
    )


def _read_input_commits(name: str, place: Callable[[str], str]) -> list[dict[str, Any]]:
    return [] if name == HEARTBEATS else commit_history.read_commit_history(place(name))


def _is_restore_or_replace(commit: Mapping[str, Any]) -> bool:
    """Whether a commit is a restore or a replacement. Delta's are known by name; `sluice restore` merges old rows back."""
    return commit["note"].get("mode") == RESTORE or str(commit["operation"]).startswith(_MADE_ANEW)
