"""The trigger of a run, by which it looks for what is new once or again and again, in Sluice's words or Spark's."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sluice.errors import UsageError, nearest_name_hint

SECONDS_BETWEEN_LOOKS = 10.0
"""The default of seconds between the looks of a process that is kept running."""

TRIGGERS = ("available-now", "once", "processing-time")
_NEVER = ("continuous", "real-time")
_UNITS = {
    "ms": 0.001,
    "millisecond": 0.001,
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")
_LEAST = 1.0


@dataclass(frozen=True)
class Trigger:
    """every: seconds from one look to the next; None: one look, and the run ends. note: what to say about it."""

    every: float | None = None
    note: str = ""


def parse_trigger(text: str | None = None, keep_running: bool = False) -> Trigger:
    """Returns the trigger that was asked for, in Sluice's words or Spark's. Raises UsageError, with the nearest name, for any other."""
    if text is None:
        return Trigger(SECONDS_BETWEEN_LOOKS if keep_running else None)
    name, _, value = (part.strip() for part in text.partition("="))
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[_ ]", "-", name).lower()
    if name in _NEVER:
        raise UsageError(
            f"There is no trigger '{name}' here: Spark has it for sources and sinks that take record by record, and Delta is neither; nor "
            f"could rows be merged exactly once without batches. The nearest is --trigger processing-time={_LEAST:g}s."
        )
    if name not in TRIGGERS:
        raise UsageError(f"There is no trigger '{name}'.{nearest_name_hint(name, TRIGGERS)}")
    if name == "processing-time":
        return Trigger(_parse_trigger_seconds(value))
    if value:
        raise UsageError(f"The trigger '{name}' takes no value; to look again and again: --trigger processing-time={value}.")
    if name == "once" and keep_running:
        raise UsageError("The trigger 'once' and --keep-running contradict each other: leave one of them out.")
    note = (
        "The trigger 'once' is deprecated in Spark; 'available-now' is taken, which keeps to the limits of a batch."
        if name == "once"
        else ""
    )
    return Trigger(SECONDS_BETWEEN_LOOKS if keep_running else None, note)


def _parse_trigger_seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.lower())
    unit = found[2] if found and found[2] in _UNITS else found[2].removesuffix("s") if found else ""
    if found is None or unit not in _UNITS:
        raise UsageError(
            f"The trigger 'processing-time' takes how often to look, as in processing-time=10s or processing-time='5 minutes', not '{text[:40]}'."
        )
    seconds = float(found[1]) * _UNITS[unit]
    if seconds < _LEAST:
        raise UsageError(f"The trigger 'processing-time' takes {_LEAST:g}s at least: each look lists the landing folder.")
    return seconds
