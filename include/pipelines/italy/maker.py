"""`sluice land italy`: what was delivered in the past, delivered again into the landing folder.

A file that came again overwrites the earlier one, as it did for every user of that feed, and has the
modification time of its delivery. So what a pipeline ever sees depends on how often it runs.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.italy.bronze import regional_reports
from pipelines.italy.histories import INSTANT, Event, History, open_history
from sluice.declare import Landed, UsageError, deliver_file

STATE = "landed.json"
TOUR: tuple[tuple[str, dict[str, object]], ...] = (
    ("until 20 April 2020", {"until": "2020-04-20T213017Z"}),
    ("until 11 May 2020", {"until": "2020-05-11T160642Z"}),
    ("the rest", {}),
)
"""The landings of `make run PIPELINE=italy`: the first contains the ragged rows, the second the semicolons."""

FORMS = {
    "%Y-%m-%d": timedelta(days=1),
    INSTANT: timedelta(seconds=1),
    "%Y-%m-%dT%H:%M:%SZ": timedelta(seconds=1),
}
"""The formats of `until`, and how long the time that each one names lasts."""


def land(landing: Path, truth: Path, *, from_path: str | Path | None = None, until: str | None = None) -> Landed:
    """Land the deliveries that follow those landed before, up to `until`: a day (UTC, all of it) or an instant.

    from_path: deliveries.tar.xz, its unpacked folder, or a clone of the public repository. Without `until`,
    all are landed. An `until` that is already past lands nothing, as a landing folder does not go back. If the
    landing folder was removed, landing starts over. Files and deletions count as delivered even if a later
    one of the same landing overwrites them. Raises UsageError, and lands nothing, if the path or the date is
    wrong or a file was changed.
    """
    if from_path is None:
        raise UsageError("--from is missing: it takes deliveries.tar.xz, its folder, or a clone of pcm-dpc/COVID-19.")
    end = _parse_until(until) if until else datetime.max.replace(tzinfo=UTC)
    history = open_history(Path(from_path).expanduser())
    folder = landing / regional_reports.path
    landed = _read_last_landed(truth / STATE) if folder.is_dir() else None
    events = [event for event in history.events if event.at < end and (landed is None or event.at > landed)]
    if not events and landed is None:
        raise UsageError(f"Nothing was delivered until {until}. The first delivery was at {history.events[0].instant}.")
    if events:
        _deliver_events(events, history, folder)
        landed = events[-1].at
        deliver_file(truth / STATE, json.dumps({"until": landed.strftime(INSTANT)}).encode())
    deleted = sum(event.deleted for event in events)
    return Landed(files=len(events) - deleted, deleted=deleted, until=landed.strftime(INSTANT) if landed else "")


def _parse_until(until: str) -> datetime:
    """The first instant after `until`. Raises UsageError."""
    for form, length in FORMS.items():
        try:
            return datetime.strptime(until, form).replace(tzinfo=UTC) + length
        except (ValueError, OverflowError):
            continue
    raise UsageError(
        f"--until '{until}' is not a date. Expected a day such as 2020-05-11 or an instant such as 2020-05-11T160642Z."
    )


def _read_last_landed(state: Path) -> datetime | None:
    """The instant of the last delivery landed before."""
    if not state.is_file():
        return None
    try:
        return datetime.strptime(json.loads(state.read_bytes())["until"], INSTANT).replace(tzinfo=UTC)
    except (ValueError, KeyError, TypeError):
        raise UsageError(f"{state} is damaged. Remove it, and landing starts over with the first delivery.") from None


def _deliver_events(events: list[Event], history: History, folder: Path) -> None:
    delivered = [event for event in events if not event.deleted]
    contents = iter(list(history.contents(delivered)))  # a list, so that all are checked before the first is written
    for event in events:
        target = folder / event.file
        if event.deleted:
            target.unlink(missing_ok=True)
        else:
            deliver_file(target, next(contents), at=event.at)
