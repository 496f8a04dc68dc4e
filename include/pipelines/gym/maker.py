"""`sluice land gym`: made-up deliveries with everything that goes wrong in real ones, and the truth beside them.

Per day four files of readings, each with a few duplicates, corrections, sensor faults, implausible and
malformed lines, and a fifth file with late readings of the days before (empty on the first day). In addition,
one file for each other source; the modules `events`, `members` and `visits` say what is in them.
The same seed, scale and day give the same bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pipelines.gym import truth as truths
from pipelines.gym.bronze import events, gym_visits, gym_visits_north, readings, registrations
from pipelines.gym.events import events as day_events
from pipelines.gym.members import FIRST_MEMBER
from pipelines.gym.members import registrations as day_registrations
from pipelines.gym.trackers import FIRST_DAY, File, day_files
from pipelines.gym.visits import visits
from sluice.declare import Landed, Source, UsageError, deliver_file

STATE = "landed.json"
SOURCES = (readings, events, registrations, gym_visits, gym_visits_north)
TO_SHOW = (
    "What was known of one member, and when. The second move was reported after the member had left",
    "members_history",
    f'''SELECT "__START_AT", "__END_AT", city, state FROM t WHERE user_id = {FIRST_MEMBER} ORDER BY "__START_AT"''',
)
"""What a tour prints: a title, a table, and a query over it that calls the table t."""


@dataclass(frozen=True, kw_only=True)
class _State:
    seed: int
    scale: float
    days: int


def land(landing: Path, truth: Path, *, days: int = 3, seed: int | None = None, scale: float | None = None) -> Landed:
    """Land the next `days` days, the first of all being FIRST_DAY.

    seed (7): decides which readings are made up. scale (1.0): multiplies the 20 devices of 200 readings a day. Both
    stay as they were at the first landing. The truth of each day goes to <truth>/<source>/<day>.jsonl. If the
    landing folder of the readings was removed, landing starts over. Raises UsageError for an argument out of range.
    """
    if days < 1:
        raise UsageError(f"--days {days}: expected at least 1.")
    if scale is not None and not 0 < scale < 1e6:
        raise UsageError(f"--scale {scale}: expected a number above 0 and below a million.")
    state = _load_landing_state(truth / STATE, seed, scale, start_over=not (landing / readings.path).is_dir())
    if state.days == 0:
        for old in (old for source in SOURCES for old in (truth / source.name).glob("*.jsonl")):
            old.unlink()
    files = 0
    for day in range(state.days, state.days + days):
        for source, made in _make_day_files(state, day).items():
            for file in made:
                deliver_file(landing / source.path / file.name, file.text.encode(), at=file.delivered_at)
            deliver_file(
                truth / source.name / f"{_format_day(day)}.jsonl",
                "".join(f"{line}\n" for line in _list_truth_lines(made)).encode(),
            )
            files += len(made)
        deliver_file(truth / STATE, json.dumps(asdict(_State(seed=state.seed, scale=state.scale, days=day + 1))).encode())
    return Landed(files=files, deleted=0, until=_format_day(state.days + days - 1))


def expected(truth: Path) -> dict[str, list[dict[str, object]]]:
    """What silver and gold must hold after everything that was landed, computed without Spark.

    `device_counts` is the only stream here: the others drop late rows, and which rows are late depends on when the batches ran.
    """
    told = {source.name: _read_truth(truth / source.name) for source in SOURCES}
    rates = truths.heart_rate(told["readings"])
    workouts, members = truths.workouts(told["events"]), truths.members(told["events"])
    sessions, history = truths.completed_workouts(workouts), truths.members_history(told["events"])
    memberships, visits = (
        truths.memberships(told["registrations"]),
        truths.visits([*told["gym_visits"], *told["gym_visits_north"]]),
    )
    of_workouts = truths.workout_heart_rate(rates, memberships, sessions)
    return {
        "heart_rate": rates,
        "workouts": workouts,
        "bpm": truths.bpm(told["events"]),
        "completed_workouts": sessions,
        "members": members,
        "members_history": history,
        "member_keys": truths.member_keys(told["registrations"]),
        "member_bins": truths.member_bins(members),
        "memberships": memberships,
        "visits": visits,
        "workout_heart_rate": of_workouts,
        "workout_summary": truths.workout_summary(of_workouts, history),
        "gym_stats": truths.gym_stats(visits, memberships, sessions),
        "device_counts": truths.device_counts(rates),
        "device_day": truths.device_day(rates),
    }


def _make_day_files(state: _State, day: int) -> dict[Source, list[File]]:
    """The files of a day, by source."""
    others, north = visits(state.seed, state.scale, day)
    return {
        readings: day_files(state.seed, state.scale, day),
        events: [day_events(state.seed, state.scale, day)],
        registrations: [day_registrations(state.seed, state.scale, day)],
        gym_visits: [others],
        gym_visits_north: [north],
    }


def _read_truth(folder: Path) -> list[dict[str, Any]]:
    lines = (line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text(encoding="utf-8").splitlines())
    return [json.loads(line) for line in lines]


def _load_landing_state(path: Path, seed: int | None, scale: float | None, *, start_over: bool) -> _State:
    """The state from which landing continues. Raises UsageError if seed or scale differ from those of the days before."""
    if start_over or not path.is_file():
        return _State(seed=7 if seed is None else seed, scale=1.0 if scale is None else scale, days=0)
    try:
        state = _State(**json.loads(path.read_bytes()))
    except (ValueError, TypeError):
        raise UsageError(f"{path} is damaged. Remove it, and landing starts over with the first day.") from None
    for option, asked, used in (("seed", seed, state.seed), ("scale", scale, state.scale)):
        if asked is not None and asked != used:
            raise UsageError(
                f"--{option} {asked}: the days until {_format_day(state.days - 1)} were landed with {used}.\n"
                f"To start over, remove {path.parent} and the landing folder."
            )
    return state


def _format_day(day: int) -> str:
    return (FIRST_DAY + timedelta(days=day)).date().isoformat()


def _list_truth_lines(made: list[File]) -> list[str]:
    """The truth of a day, one line per record: what kind it is and, unless it is malformed, what it says."""
    return [json.dumps(record) for file in made for record in file.told]
