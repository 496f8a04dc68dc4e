"""How a job ends, as its task is told: by an exit code, or through the lake when its driver runs on another host than that task.

Each attempt of a task has one small JSON file below `_sluice/followed_jobs`. The driver rewrites it every few seconds while it
works, and at its end with its exit code, its last line and its report. The follower uses only its own clock: a driver whose file
has not changed for a while is lost, whatever the hosts' clocks say.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any

from sluice.durable_files import remove_file_durably, write_file_durably
from sluice.errors import SluiceError
from sluice.locations import Location, find_last_write, locate
from sluice.own_records import FOLLOWED_JOBS
from sluice.pipeline_records import PipelineRecords

SPARK_IS_NEEDED = 4
"""How a process without Spark ends if the stage must be submitted. Nothing, or a part of it, is done then."""
STOPPED = 5
"""How it ends if somebody asked the run to stop: then no job is submitted either."""
BEAT_SECONDS = 10.0
"""Seconds between two signs of life of a driver. On a store each is one PUT."""
LOST_AFTER_SECONDS = 90.0
"""How long a driver may be silent: a little longer than a lease on a store is held for it."""
_KEPT_SECONDS = 7 * 86_400
"""How long the file of a job that nobody follows any more stays."""


RETRY_HELPS = "retry_helps"
"""The field of a failed job's report that is False if the same job would fail again, although its exit code means 'failed'."""


@dataclass(frozen=True)
class JobEnd:
    """How a job ended. exit_code: see `sluice.errors`. reason: its last line; "" if it succeeded.

    report: as the job script prints it; of a job that failed, what its flows did nevertheless, if that is known.
    """

    exit_code: int
    reason: str = ""
    report: dict[str, Any] | None = None


class JobLost(SluiceError):
    """A followed job is silent, or never gave a sign of life."""


def locate_followed_job(records: PipelineRecords, attempt: str) -> Location:
    """The file of an attempt of a task. attempt: its unique id."""
    return locate(records.bookkeeping(FOLLOWED_JOBS.name)) / f"{attempt}.json"


@contextmanager
def tell_follower(location: str, beat_seconds: float = BEAT_SECONDS) -> Iterator[Callable[[JobEnd], None]]:
    """Writes to `location` that this job lives, until the end of the block. Yields the function that writes how it ended.

    location: "" if nobody follows. A sign of life that cannot be written is skipped: the next one may succeed, and a follower that sees none
    for long gives up. Raises OSError if the end cannot be written.
    """
    if not location:
        yield lambda _: None
        return
    file, ended = locate(location), threading.Event()
    file.parent.mkdir(parents=True, exist_ok=True)

    def beat() -> None:
        number = 0
        while True:
            number += 1
            with suppress(Exception):  # a store may answer with anything while it does not work
                _write_job_state(file, {"beat": number})
            if ended.wait(beat_seconds):
                return

    thread = threading.Thread(target=beat, name="sluice-follower", daemon=True)

    def end(found: JobEnd) -> None:
        ended.set()
        thread.join()
        _write_job_state(file, asdict(found))

    thread.start()
    try:
        yield end
    finally:
        ended.set()


class JobWatch:
    """Watches a followed job. Each process that follows it has a watch of its own.

    start_seconds: how long its first sign of life may take, from now; a cluster may have no room for its driver.
    """

    def __init__(self, location: Location, start_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._location, self._clock = location, clock
        self._seen = ""
        self._patience = start_seconds
        self._since = clock()
        self._end: JobEnd | None = None

    def look(self) -> JobEnd | None:
        """Return how it ended, at each look from then on; None while it lives or may yet start. Raises JobLost.

        Several threads may share a watch: a task that follows its driver and the one that stops it each learn the end.
        If the location does not answer, that counts as a look without a change.
        """
        if self._end is not None:
            return self._end
        try:
            text = self._location.read_text(encoding="utf-8")
        except OSError:
            text = ""
        if text and text != self._seen:
            self._seen, self._patience, self._since = text, LOST_AFTER_SECONDS, self._clock()
            said = json.loads(text)
            if "exit_code" in said:
                self._end = JobEnd(**said)
                return self._end
        if self._clock() - self._since > self._patience:
            raise JobLost(
                f"The driver has said nothing for {self._patience:.0f} s: it was killed, or its host is cut off from the lake. "
                "The next attempt goes on from what is committed."
                if self._seen
                else f"No driver has said anything within {self._patience:.0f} s. It had no room on the cluster, failed before it began, "
                f"or does not reach the lake, where {self._location} would be."
            )
        return None


def find_living_job(
    records: PipelineRecords, prefix: str, sleep: Callable[[float], None] = time.sleep, beat_seconds: float = BEAT_SECONDS
) -> Location | None:
    """The file of a job that an earlier attempt submitted and that still works; None without one. prefix: of the attempts' ids.

    Waits for up to three signs of life, and only if there is a file of a job without a known end.
    """
    folder = locate(records.bookkeeping(FOLLOWED_JOBS.name))
    open_ones = {file: text for file in folder.glob(f"{prefix}*.json") if "exit_code" not in (text := _read_if_there(file))}
    for _ in range(3 if open_ones else 0):
        sleep(beat_seconds)
        for file, text in open_ones.items():
            now = _read_if_there(file)
            if now not in ("", text):
                return file
    return None


def collect_ended_jobs(records: PipelineRecords, prefix: str) -> list[JobEnd]:
    """Returns how jobs ended that nobody has collected, and removes their files. prefix: of the attempts' ids."""
    found = []
    for file in locate(records.bookkeeping(FOLLOWED_JOBS.name)).glob(f"{prefix}*.json"):
        if "exit_code" in (text := _read_if_there(file)):
            found.append(JobEnd(**json.loads(text)))
            remove_file_durably(file)
    return found


def remove_old_followed_jobs(records: PipelineRecords) -> None:
    """Remove the files of jobs that ended long ago or were lost, and whose tasks never collected them."""
    oldest = time.time() - _KEPT_SECONDS
    for file in locate(records.bookkeeping(FOLLOWED_JOBS.name)).glob("*.json"):
        try:
            if find_last_write(file) < oldest:
                remove_file_durably(file)
        except OSError:
            continue


def _write_job_state(file: Location, state: dict[str, Any]) -> None:
    # The end is reported in any case, whether the job holds the lease or has lost it.
    write_file_durably(file, json.dumps(state).encode(), guarded=False)


def _read_if_there(file: Location) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
