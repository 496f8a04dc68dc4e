"""Stop requests of tasks that Airflow killed, which ask a job to stop as those of `sluice stop` do, and are told from them."""

from __future__ import annotations

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
