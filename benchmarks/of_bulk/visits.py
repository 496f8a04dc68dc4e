"""The records of the bulk benchmark, and what is asked of them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path

COLUMNS = (
    "id BIGINT, device STRING, heart_rate DOUBLE, steps BIGINT, at TIMESTAMP, "
    "day DATE, active BOOLEAN, gym STRING, note STRING, score DOUBLE"
)
BY_DEVICE = "SELECT device, day, count(*) AS visits, sum(steps) AS steps FROM visits GROUP BY device, day"


def make_record(number: int, rng: random.Random, odd: Mapping[str, object] | None = None) -> str:
    """A line of about 150 bytes with ten fields. odd: fields that it has otherwise, or more."""
    fields = {
        "id": number,
        "device": f"t{rng.randrange(10_000):05d}",
        "heart_rate": round(rng.uniform(40, 190), 1),
        "steps": rng.randrange(20_000),
        "at": f"2026-11-20T{rng.randrange(24):02d}:{rng.randrange(60):02d}:{rng.randrange(60):02d}Z",
        "day": f"2026-11-{1 + number % 20:02d}",
        "active": rng.random() < 0.5,
        "gym": f"g{rng.randrange(50)}",
        "note": None if rng.random() < 0.5 else "good",
        "score": round(rng.random(), 3),
    }
    return json.dumps({**fields, **(odd or {})}, separators=(",", ":"))


def land_records(folder: Path, prefix: str, numbers: range, files: int) -> int:
    """Write records of these numbers in so many files. Returns their bytes."""
    rng = random.Random(numbers.start)
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for file in range(files):
        some = numbers[file * len(numbers) // files : (file + 1) * len(numbers) // files]
        path = folder / f"{prefix}{file:04d}.json"
        path.write_text("".join(make_record(number, rng) + "\n" for number in some))
        size += path.stat().st_size
    return size
