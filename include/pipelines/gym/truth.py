"""What the tables must hold, worked out from what the maker knows, in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MILLIONTH = Decimal("1e-6")
AVERAGE_PLACES = Decimal("1e-10")


def heart_rate(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Of each device and instant, the positive reading received last."""
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
            "time": _instant(time),
            "heartrate": record["heartrate"],
            "received_at": _instant(record["received_at"]),
        }
        for (device, time), record in sorted(latest.items(), key=lambda item: item[0])
    ]


def device_day(rates: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each device's readings of a day (UTC), counted and averaged."""
    days: defaultdict[tuple[int, date], list[float]] = defaultdict(list)
    for rate in rates:
        days[rate["device_id"], rate["time"].date()].append(rate["heartrate"])
    return [
        {
            "device_id": device,
            "date": day,
            "readings": len(beats),
            "lowest": min(beats),
            "average": _average(beats),
            "highest": max(beats),
        }
        for (device, day), beats in sorted(days.items())
    ]


def topic(told: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The values of a topic's events that can be read."""
    return [record["value"] for record in told if record["kind"] != "malformed" and record["topic"] == name]


def workouts(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each start and stop of a workout once."""
    seen = {(value["user_id"], value["workout_id"], value["time"]): value for value in topic(told, "workout")}
    return [{**value, "time": _instant(value["time"])} for _, value in sorted(seen.items())]


def bpm(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each heart rate of a workout once."""
    seen = {(value["device_id"], value["time"]): value for value in topic(told, "bpm")}
    return [{**value, "time": _instant(value["time"])} for _, value in sorted(seen.items())]


def users(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Of each member, what was said last: not what was delivered last."""
    values = sorted(topic(told, "user_info"), key=lambda value: float(value["updated_at"]))
    latest = {value["user_id"]: value for value in values}
    return [{**value, "updated_at": _instant(value["updated_at"])} for _, value in sorted(latest.items())]


def completed_workouts(actions: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """The sessions of which both the start and the stop are known."""
    sessions: defaultdict[tuple[int, int], dict[str, dict[str, Any]]] = defaultdict(dict)
    for action in actions:
        sessions[action["user_id"], action["session_id"]][action["action"]] = action
    return [
        {
            "user_id": user,
            "session_id": session,
            "workout_id": both["start"]["workout_id"],
            "started_at": both["start"]["time"],
            "stopped_at": both["stop"]["time"],
            "seconds": (both["stop"]["time"] - both["start"]["time"]).total_seconds(),
        }
        for (user, session), both in sorted(sessions.items())
        if len(both) == 2
    ]


def visits(told: Iterable[dict[str, Any]]) -> list[dict[str, object]]:
    """Each visit with the latest time at which it was seen, whichever gym told of it."""
    last: dict[tuple[str, int, int], int] = {}
    for record in told:
        key = record["mac_address"], record["gym"], record["first_timestamp"]
        last[key] = max(last.get(key, 0), record["last_timestamp"])
    return [
        {"mac_address": address, "gym": gym, "first_seen": _instant(first), "last_seen": _instant(seen)}
        for (address, gym, first), seen in sorted(last.items())
    ]


def _average(beats: list[float]) -> float:
    """The average of millionths of a beat, as the view takes it."""
    total = sum((Decimal(repr(beat)).quantize(MILLIONTH, ROUND_HALF_UP) for beat in beats), Decimal(0))
    return float((total / len(beats)).quantize(AVERAGE_PLACES, ROUND_HALF_UP))


def _instant(seconds: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(seconds * 1e6))
