"""`sluice land gym`: made-up deliveries, and the truth beside them."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.gym.maker import expected, land
from sluice.declare import Landed, UsageError

DAY = 86_400
FILES_A_DAY = 5


def land_here(root: Path, **options: Any) -> Landed:
    return land(root / "landing", root / "truth", **options)


def delivered(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "landing" / "readings").iterdir())}


def told(root: Path) -> list[dict[str, Any]]:
    days = sorted((root / "truth" / "readings").iterdir())
    return [json.loads(line) for day in days for line in day.read_text().splitlines()]


def lines(root: Path) -> list[tuple[str, str]]:
    return [(name, line) for name, content in delivered(root).items() for line in content.decode().splitlines()]


@pytest.fixture(scope="module")
def four_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("gym")
    assert land_here(root, days=4) == Landed(files=4 * FILES_A_DAY, deleted=0, until="2026-11-04")
    return root


def test_days_landed_one_by_one_are_the_same_bytes(tmp_path: Path, four_days: Path) -> None:
    assert land_here(tmp_path) == Landed(files=3 * FILES_A_DAY, deleted=0, until="2026-11-03")
    assert land_here(tmp_path, days=1) == Landed(files=FILES_A_DAY, deleted=0, until="2026-11-04")
    assert delivered(tmp_path) == delivered(four_days)
    assert expected(tmp_path / "truth") == expected(four_days / "truth")


def test_another_seed_makes_other_readings(tmp_path: Path, four_days: Path) -> None:
    land_here(tmp_path, days=1, seed=8)
    name = "readings-2026-11-01-0600.jsonl"
    assert delivered(tmp_path)[name] != delivered(four_days)[name]


def test_scale_multiplies_the_devices_and_changes_none(tmp_path: Path, four_days: Path) -> None:
    land_here(tmp_path, days=4, scale=0.1)
    small, large = (expected(root / "truth")["device_day"] for root in (tmp_path, four_days))
    assert len({row["device_id"] for row in large}) == 20
    assert len({row["device_id"] for row in small}) == 2
    assert [row for row in small if row not in large] == []


def test_the_truth_tells_every_line_that_was_delivered(four_days: Path) -> None:
    assert len(told(four_days)) == len(lines(four_days))
    for (name, line), record in zip(sorted(lines(four_days)), sorted(lines_told(four_days)), strict=True):
        assert (name, line) == record


def lines_told(root: Path) -> list[tuple[str, str]]:
    """The lines again, from the truth; of malformed ones, which it does not hold, the delivered line."""
    broken = iter([(name, line) for name, line in lines(root) if not line.endswith("}")])
    fields = ("device_id", "time", "heartrate", "received_at")
    return [
        next(broken) if r["kind"] == "malformed" else (r["file"], json.dumps({field: r[field] for field in fields}))
        for r in told(root)
    ]


def test_everything_that_goes_wrong_in_real_deliveries_is_there(four_days: Path) -> None:
    kinds = Counter(record["kind"] for record in told(four_days))
    assert set(kinds) == {"fine", "duplicate", "correction", "late", "negative", "implausible", "malformed"}
    assert min(kinds.values()) > 10
    assert 15_000 < kinds["fine"] < 16_500
    assert delivered(four_days)["readings-2026-11-01-late.jsonl"] == b""


def test_each_kind_is_what_its_name_says(four_days: Path) -> None:
    first: dict[tuple[int, float], dict[str, Any]] = {}
    for record in told(four_days):
        kind = record["kind"]
        if kind == "malformed":
            continue
        key = record["device_id"], record["time"]
        day = datetime.fromtimestamp(record["time"], UTC).date()
        delivered_on = date.fromisoformat(record["file"].removeprefix("readings-")[:10])
        if kind in ("duplicate", "correction"):
            assert record["file"] != first[key]["file"]
            same = {**record, "kind": "", "file": ""} == {**first[key], "kind": "", "file": ""}
            assert same is (kind == "duplicate")
        if kind == "correction":
            assert record["received_at"] > first[key]["received_at"]
            assert record["heartrate"] != first[key]["heartrate"]
        if kind == "late":
            assert delivered_on > day
            assert record["received_at"] - record["time"] > DAY
        if kind in ("negative", "implausible", "fine"):
            assert delivered_on == day
        assert (record["heartrate"] < 0) is (kind == "negative")
        assert (record["heartrate"] >= 230) is (kind == "implausible")
        first.setdefault(key, record)


def test_malformed_lines_are_cut_off(four_days: Path) -> None:
    broken = 0
    for _, line in lines(four_days):
        try:
            assert isinstance(json.loads(line), dict)
        except ValueError:
            broken += 1
            assert line.startswith("{")
    assert broken == sum(record["kind"] == "malformed" for record in told(four_days))


def test_files_have_the_modification_time_of_their_delivery(four_days: Path) -> None:
    folder = four_days / "landing" / "readings"
    start = datetime(2026, 11, 2, tzinfo=UTC).timestamp()
    assert (folder / "readings-2026-11-02-0600.jsonl").stat().st_mtime == start + DAY / 4
    assert (folder / "readings-2026-11-02-late.jsonl").stat().st_mtime == start + DAY + 600
    for name, line in lines(four_days):
        if line.endswith("}"):
            assert json.loads(line)["received_at"] < (folder / name).stat().st_mtime


def test_the_expected_heart_rates_follow_from_the_delivered_lines(four_days: Path) -> None:
    """The fold once more, from the landing folder alone: the last received of each device and instant."""
    rows = [json.loads(line) for _, line in lines(four_days) if line.endswith("}")]
    rows = sorted((row for row in rows if row["heartrate"] > 0), key=lambda row: row["received_at"])
    last = {(row["device_id"], row["time"]): row for row in rows}
    found = expected(four_days / "truth")["heart_rate"]
    assert len(found) == len(last)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    for row, (key, kept) in zip(found, sorted(last.items()), strict=True):
        time, received_at = (epoch + timedelta(microseconds=round(kept[name] * 1e6)) for name in ("time", "received_at"))
        assert row == {"device_id": key[0], "time": time, "heartrate": kept["heartrate"], "received_at": received_at}


def test_the_expected_device_days_follow_from_the_heart_rates(four_days: Path) -> None:
    tables = expected(four_days / "truth")
    assert len(tables["device_day"]) == 20 * 4
    row = tables["device_day"][5]
    beats = [
        rate["heartrate"]
        for rate in tables["heart_rate"]
        if rate["device_id"] == row["device_id"] and rate["time"].date() == row["date"]  # type: ignore[attr-defined]
    ]
    assert (row["readings"], row["lowest"], row["highest"]) == (len(beats), min(beats), max(beats))  # type: ignore[type-var]
    assert row["average"] == pytest.approx(math.fsum(beats) / len(beats), abs=1e-9)  # type: ignore[arg-type]


def test_a_removed_landing_folder_starts_over_with_its_truth(tmp_path: Path) -> None:
    land_here(tmp_path, days=2, scale=0.1)
    shutil.rmtree(tmp_path / "landing")
    assert land_here(tmp_path, days=1, scale=0.1) == Landed(files=FILES_A_DAY, deleted=0, until="2026-11-01")
    assert {row["date"] for row in expected(tmp_path / "truth")["device_day"]} == {date(2026, 11, 1)}


def test_seed_and_scale_stay_as_they_were(tmp_path: Path) -> None:
    land_here(tmp_path, days=1, scale=0.1, seed=3)
    before = delivered(tmp_path)
    with pytest.raises(UsageError, match=r"--seed 4: the days until 2026-11-01 were landed with 3"):
        land_here(tmp_path, days=1, seed=4)
    with pytest.raises(UsageError, match=r"--scale 1.0: the days until 2026-11-01 were landed with 0.1"):
        land_here(tmp_path, days=1, scale=1.0)
    assert delivered(tmp_path) == before
    assert land_here(tmp_path, days=1).until == "2026-11-02"
    assert {row["device_id"] for row in expected(tmp_path / "truth")["device_day"]} == {4_200_000_001, 4_200_000_002}


@pytest.mark.parametrize("options", [{"days": 0}, {"days": -1}, {"scale": 0.0}, {"scale": -1.0}, {"scale": float("nan")}])
def test_options_out_of_range_land_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected"):
        land_here(tmp_path, **options)
    assert list(tmp_path.iterdir()) == []
