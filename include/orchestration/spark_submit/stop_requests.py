"""Stop requests: those of tasks that Airflow killed, which are told from those of `sluice stop`, and those that an attempt finds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from sluice.durable_files import write_text_durably

_KILLED = "killed"
"""The content of such a request. That of `sluice stop` is empty; a job looks only whether there is one."""


def ask_killed_job_to_stop(request: Path) -> None:
    """Ask the job of a killed task to stop before its next batch. A request of `sluice stop` that is there remains one."""
    if not request.exists():
        request.parent.mkdir(parents=True, exist_ok=True)
        write_text_durably(request, _KILLED)


def concerns_killed_job(request: Path) -> bool:
    """Whether a request was made for the job of a killed task alone, and not by `sluice stop`. Raises FileNotFoundError."""
    return request.read_text() == _KILLED


def remove_earlier_stop_request(
    request: Path, run_began: datetime | None, first_attempt: bool, is_job_alive: Callable[[], bool]
) -> bool:
    """Remove a request that was there before this attempt. Returns whether it is for this DAG run and no job has obeyed it.

    An earlier attempt of this task, or of a DAG run that was cleared since, leaves a request too; that one was obeyed. A killed task leaves
    one for its own job alone. run_began: when the DAG run began. is_job_alive: whether a job of an earlier attempt still works; it has yet
    to find a request of `sluice stop`, which stays for it then.
    """
    try:
        asked_at, is_for_killed_job = request.stat().st_mtime, concerns_killed_job(request)
    except FileNotFoundError:
        return False
    if is_for_killed_job or not is_job_alive():
        request.unlink(missing_ok=True)
    return first_attempt and not is_for_killed_job and run_began is not None and asked_at >= run_began.timestamp()
