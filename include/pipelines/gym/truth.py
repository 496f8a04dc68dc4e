"""What the tables must hold, computed in plain Python from what the maker knows."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from itertools import pairwise
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLIONTH = Decimal("1e-6")
AVERAGE_PLACES = Decimal("1e-10")
BANDS = (18, 25, 35, 45, 55, 65)
LONGEST = timedelta(hours=12)
"""The longest time that a workout may take. If its stop comes later, somebody forgot to press it."""


def heart_rate(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """For each device and instant, the positive reading received last."""
    latest: dict[tuple[int, float], dict[str, Any]] = {}
    for record in told:
        if record["kind"] in ("malformed", "negative"):
            continue
        key = record["device_id"], record["time"]
        if key not in latest or record["received_at"] > latest[key]["received_at"]:
            latest[key] = record
    return [
        {
            "device_id": device,
            "time": _to_instant(time),
            "heartrate": record["heartrate"],
            "received_at": _to_instant(record["received_at"]),
            "plausible": record["heartrate"] < 230,
        }
        for (device, time), record in sorted(latest.items(), key=lambda item: item[0])
    ]


def device_day(rates: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each device's readings of a day (UTC), counted and averaged."""
    days: defaultdict[tuple[int, date], list[float]] = defaultdict(list)
    for rate in rates:
        days[rate["device_id"], rate["time"].date()].append(rate["heartrate"])
    return [{"device_id": device, "date": day, **_summarise_heart_rate(beats)} for (device, day), beats in sorted(days.items())]


def _summarise_heart_rate(beats: list[float]) -> dict[str, object]:
    return {"readings": len(beats), "lowest": min(beats), "average": _average_heart_rate(beats), "highest": max(beats)}


def topic(told: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The values of a topic's events that can be read."""
    return [record["value"] for record in told if record["kind"] != "malformed" and record["topic"] == name]


def workouts(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """The starts and stops of workouts, each once."""
    seen = {(value["user_id"], value["workout_id"], value["time"]): value for value in topic(told, "workout")}
    return [{**value, "time": _to_instant(value["time"])} for _, value in sorted(seen.items())]


def bpm(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """The heart rates of workouts, each once."""
    seen = {(value["device_id"], value["time"]): value for value in topic(told, "bpm")}
    return [{**value, "time": _to_instant(value["time"])} for _, value in sorted(seen.items())]


def users(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """The latest report about each member, which is not always the one delivered last."""
    return [said[-1] for said in _by_member(told)]


def members(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """The latest report about each member who has not left, which is not always the one delivered last."""
    last = [said[-1] for said in _by_member(told) if said[-1]["change"] != "delete"]
    return [{name: value for name, value in one.items() if name != "change"} for one in last]


def members_history(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """What was known of each member, and when. Nothing is known between a member's leaving and return."""
    found: list[dict[str, object]] = []
    for said in _by_member(told):
        open_row: dict[str, object] = {}
        for one in said:
            known = {name: value for name, value in one.items() if name not in ("change", "updated_at")}
            if one["change"] != "delete" and known.items() <= open_row.items():
                continue
            open_row["__END_AT"] = one["updated_at"]
            open_row = {} if one["change"] == "delete" else {**known, "__START_AT": one["updated_at"], "__END_AT": None}
            found += [open_row] if open_row else []
    return found


def _by_member(told: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The reports about each member, each once, in the order of their instants. The maker never makes two for one instant."""
    said: defaultdict[int, dict[datetime, dict[str, Any]]] = defaultdict(dict)
    for value in topic(told, "user_info"):
        at = _to_instant(value["updated_at"])
        born = {"birth_date": date.fromisoformat(value["birth_date"])} if "birth_date" in value else {}
        said[value["user_id"]][at] = {**value, **born, "updated_at": at}
    return [[one for _, one in sorted(of.items())] for _, of in sorted(said.items())]


def member_keys(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Every device and phone that a member has or had. The pseudonyms depend on a secret that is not known here."""
    columns = ("user_id", "device_id", "mac_address")
    return [dict(zip(columns, key, strict=True)) for key in sorted({tuple(one[name] for name in columns) for one in told})]


def member_bins(members: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Members without their names: the band of their age at the last change, and where they live. Pseudonyms: see member_keys."""
    return [
        {
            "age_band": _find_age_band(member["birth_date"], member["updated_at"].date()),
            **{n: member[n] for n in ("gender", "city", "state")},
        }
        for member in members
    ]


def _find_age_band(born: date, at: date) -> str:
    age = at.year - born.year - ((at.month, at.day) < (born.month, born.day))
    for low, high in zip((0, *BANDS), BANDS, strict=False):
        if age < high:
            return f"{low}-{high - 1}" if low else f"<{high}"
    return f">={BANDS[-1]}"


def completed_workouts(actions: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each session with its start and its stop, as far as known. A session without a stop is in progress."""
    sessions: defaultdict[tuple[int, int], dict[str, dict[str, Any]]] = defaultdict(dict)
    for action in actions:
        sessions[action["user_id"], action["session_id"]][action["action"]] = action
    found: list[dict[str, object]] = []
    for (user, session), known in sorted(sessions.items()):
        start, stop = (known.get(action, {}).get("time") for action in ("start", "stop"))
        row = {"user_id": user, "session_id": session, "workout_id": next(iter(known.values()))["workout_id"]}
        seconds = (stop - start).total_seconds() if start and stop else None
        found.append({**row, "started_at": start, "stopped_at": stop, "seconds": seconds, "in_progress": stop is None})
    return found


def memberships(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each registration once."""
    columns = ("device_id", "registered_at", "user_id", "mac_address")
    found = sorted({tuple(one[name] for name in columns) for one in told})
    return [{**dict(zip(columns, one, strict=True)), "registered_at": _to_instant(one[1])} for one in found]


def _find_member_at(memberships: Iterable[dict[str, Any]], of: str, thing: object, at: datetime) -> int | None:
    """The member to whom a device or phone belonged at an instant: by its latest registration until then."""
    known = [(one["registered_at"], one["device_id"], one["user_id"]) for one in memberships if one[of] == thing]
    return max((one for one in known if one[0] <= at), default=(at, 0, None))[2]


def workout_heart_rate(
    rates: Iterable[dict[str, Any]], memberships: list[dict[str, Any]], sessions: Iterable[dict[str, Any]]
) -> list[dict[str, object]]:
    """The readings of each finished workout, from the device that belonged to the member at that time."""
    of_device: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for rate in rates:
        of_device[rate["device_id"]].append(rate)
    found: list[dict[str, object]] = []
    for session in sessions:
        start, stop = session["started_at"], session["stopped_at"]
        if start is None or stop is None or stop - start > LONGEST:
            continue
        about = {name: session[name] for name in ("user_id", "session_id", "workout_id", "started_at")}
        for device in {one["device_id"] for one in memberships if one["user_id"] == session["user_id"]}:
            for rate in of_device[device]:
                if (
                    start <= rate["time"] <= stop
                    and _find_member_at(memberships, "device_id", device, rate["time"]) == session["user_id"]
                ):
                    found.append({**{name: rate[name] for name in ("device_id", "time", "heartrate")}, **about})
    return found


def workout_summary(readings: Iterable[dict[str, Any]], history: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The readings of each workout, counted and averaged, with the age band as known at its start. A member who had left has no band."""
    sessions: defaultdict[tuple[Any, ...], list[float]] = defaultdict(list)
    columns = ("user_id", "session_id", "workout_id", "started_at")
    for one in readings:
        sessions[tuple(one[name] for name in columns)].append(one["heartrate"])
    found = []
    for session, beats in sorted(sessions.items()):
        user, _, _, start = session
        known = [one for one in history if one["user_id"] == user and one["__START_AT"] <= start]
        born = next((one["birth_date"] for one in known if one["__END_AT"] is None or start < one["__END_AT"]), None)
        band = _find_age_band(born, start.date()) if born else None
        found.append({**dict(zip(columns, session, strict=True)), "age_band": band, **_summarise_heart_rate(beats)})
    return found


def gym_stats(
    visits: Iterable[dict[str, Any]], memberships: list[dict[str, Any]], sessions: list[dict[str, Any]]
) -> list[dict[str, object]]:
    """Each member's day in a gym, by phone: visits, minutes there, and minutes of workouts among them."""
    days: defaultdict[tuple[Any, ...], list[tuple[timedelta, timedelta]]] = defaultdict(list)
    for visit in visits:
        first, last = visit["first_seen"], visit["last_seen"]
        user = _find_member_at(memberships, "mac_address", visit["mac_address"], first)
        mine = [one for one in sessions if one["user_id"] == user and one["started_at"] and one["stopped_at"]]
        known = [(one["started_at"], one["stopped_at"]) for one in mine if one["stopped_at"] - one["started_at"] <= LONGEST]
        if user is not None:
            days[user, visit["mac_address"], visit["gym"], first.date()].append((
                last - first,
                _measure_covered_time(first, last, known),
            ))
    found = []
    for day, spent in sorted(days.items()):
        there, exercising = (sum(times, timedelta(0)) / timedelta(minutes=1) for times in zip(*spent, strict=True))
        about = dict(zip(("user_id", "mac_address", "gym", "date"), day, strict=True))
        found.append({**about, "visits": len(spent), "minutes_in_gym": there, "minutes_exercising": exercising})
    return found


def _measure_covered_time(first: datetime, last: datetime, spans: list[tuple[datetime, datetime]]) -> timedelta:
    """How much of the time from first to last is covered by at least one of the spans."""
    instants = sorted({first, last, *(at for span in spans for at in span if first < at < last)})
    going_on = [
        after - before for before, after in pairwise(instants) if any(start <= before and after <= stop for start, stop in spans)
    ]
    return sum(going_on, timedelta(0))


def device_counts(rates: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """How many readings each device took."""
    counts = Counter(rate["device_id"] for rate in rates)
    return [{"device_id": device, "readings": count} for device, count in sorted(counts.items())]


def visits(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each visit with the latest time at which it was seen, whichever gym reported it."""
    last: dict[tuple[str, int, int], int] = {}
    for record in told:
        key = record["mac_address"], record["gym"], record["first_timestamp"]
        last[key] = max(last.get(key, 0), record["last_timestamp"])
    return [
        {"mac_address": address, "gym": gym, "first_seen": _to_instant(first), "last_seen": _to_instant(seen)}
        for (address, gym, first), seen in sorted(last.items())
    ]


def _average_heart_rate(beats: list[float]) -> float:
    """The average of millionths of a beat, computed as in the view."""
    total = sum((Decimal(repr(beat)).quantize(MILLIONTH, ROUND_HALF_UP) for beat in beats), Decimal(0))
    return float((total / len(beats)).quantize(AVERAGE_PLACES, ROUND_HALF_UP))


def _to_instant(seconds: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(seconds * 1e6))
