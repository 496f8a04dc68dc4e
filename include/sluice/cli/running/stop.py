"""`sluice stop`: ask a run to end at a batch's boundary, wait for it, and where it must be, end it."""

from __future__ import annotations

import time
from typing import Annotated

import psutil  # type: ignore[import-untyped]  # it ships no types
import typer

from orchestration.stopping import end_process_and_jvm, is_process_alive
from sluice.cli.printing import PipelineName, escaping_console
from sluice.errors import SluiceError
from sluice.runs.lease import holder
from sluice.runs.lease.holder import LeaseHolder
from sluice.settings import Settings, require_known_pipeline

WITHIN = 60.0
_LOOK_AGAIN = 0.2
_BETWEEN_STAGES = 0.5
_PATIENCE = 10.0
"""Seconds between SIGTERM and SIGKILL, as for a job of Airflow's."""


def stop(
    pipeline: PipelineName,
    within: Annotated[
        float, typer.Option("--within", min=0, metavar="SECONDS", help="How long to wait for its end; 0: not at all.")
    ] = WITHIN,
    force: Annotated[
        bool, typer.Option("--force", help="Then end it: SIGTERM, SIGKILL. Only on the host where it runs.")
    ] = False,
) -> None:
    """Ask a pipeline's run to stop, and wait until it has. It does so before its next batch; the next run goes on from there."""
    settings = Settings.current()
    require_known_pipeline(settings, pipeline)
    found = holder.find_lease_holder(settings, pipeline)
    if found is None:  # between two stages of a run nobody holds the lease for a moment
        time.sleep(_BETWEEN_STAGES)
        found = holder.find_lease_holder(settings, pipeline)
    if found is None:
        escaping_console().print(f"Nothing runs on '{pipeline}'.")
        return
    process = _find_run_process(found)
    request = settings.stop_request(pipeline, found.run)
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    escaping_console().print(f"Asked {found} to stop. It does so before its next batch; what is committed stays.", soft_wrap=True)
    started = time.monotonic()
    while not _has_run_ended(settings, pipeline, found) and time.monotonic() - started < within:
        time.sleep(_LOOK_AGAIN)
    if _has_run_ended(settings, pipeline, found):
        escaping_console().print(f"It has ended, after {time.monotonic() - started:.0f} s. The next run goes on from there.")
    elif force:
        _force_run_end(found, process, within)
    elif within:
        raise SluiceError(
            f"It has not ended within {within:g} s, since its batch has not; the request stands. Wait longer with --within, or end it "
            f"now: sluice stop {pipeline} --within 0 --force"
        )


def _find_run_process(found: LeaseHolder) -> psutil.Process | None:
    """The process, remembered before it is waited for: its number may be another's afterwards. None where it is on another host."""
    for number in (found.pid, found.jvm) if found.here else ():
        if number is not None and psutil.pid_exists(number):
            return psutil.Process(number)
    return None


def _has_run_ended(settings: Settings, pipeline: str, found: LeaseHolder) -> bool:
    """Whether it has given the lease up, or is gone. A run that has been asked takes no other."""
    now = holder.find_lease_holder(settings, pipeline)
    return now is None or now.run != found.run


def _force_run_end(found: LeaseHolder, process: psutil.Process | None, within: float) -> None:
    if process is None or not is_process_alive(process):
        raise SluiceError(f"It has not ended within {within:g} s, and it is on {found.host}: there it can be ended with --force.")
    end_process_and_jvm(process, _PATIENCE)
    escaping_console().print("It was ended. What it had begun and not committed, the next run does again.")
