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


def _average(beats: list[float]) -> float:
    """The average of millionths of a beat, as the view takes it."""
    total = sum((Decimal(repr(beat)).quantize(MILLIONTH, ROUND_HALF_UP) for beat in beats), Decimal(0))
    return float((total / len(beats)).quantize(AVERAGE_PLACES, ROUND_HALF_UP))


def _instant(seconds: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(seconds * 1e6))
