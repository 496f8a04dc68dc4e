"""`sluice land gym`: made-up deliveries, and the truth beside them."""

from __future__ import annotations

import csv
import itertools
import json
import math
import shutil
import struct
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.gym.maker import expected, land
from pipelines.gym.truth import member_bins
from sluice.declare import Landed, UsageError

DAY = 86_400
FILES_A_DAY = 9
"""Five of readings, one of each other source."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def land_here(root: Path, **options: Any) -> Landed:
    return land(root / "landing", root / "truth", **options)


def delivered(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "landing" / "readings").iterdir())}


def everything(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def told(root: Path, source: str = "readings") -> list[dict[str, Any]]:
    days = sorted((root / "truth" / source).iterdir())
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
    assert everything(tmp_path) == everything(four_days)
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
    for row, (key, kept) in zip(found, sorted(last.items()), strict=True):
        time, received_at = (instant(kept[name]) for name in ("time", "received_at"))
        expected_row = {"device_id": key[0], "time": time, "heartrate": kept["heartrate"], "received_at": received_at}
        assert row == {**expected_row, "plausible": kept["heartrate"] < 230}
    assert {row["plausible"] for row in found} == {True, False}


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


def instant(seconds: float) -> datetime:
    return EPOCH + timedelta(microseconds=round(seconds * 1e6))


def records(root: Path, source: str) -> list[tuple[str, dict[str, Any]]]:
    """A source's records as delivered, each with its file; from CSV with whole numbers where there are digits only."""
    found: list[tuple[str, dict[str, Any]]] = []
    for path in sorted((root / "landing" / source).iterdir()):
        content = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".csv":
            rows = csv.DictReader(content)
            found += [(path.name, {k: int(v) if v.isdigit() else v for k, v in row.items()}) for row in rows]
        else:
            found += [(path.name, json.loads(line)) for line in content]
    return found


def events(root: Path, topic: str) -> list[dict[str, Any]]:
    """The complete values of a topic's events, in the order of delivery, each with the member that its key names."""
    found = []
    for _, event in records(root, "events"):
        if event["topic"] == topic and event["value"].endswith("}"):
            found.append({"user_id": int(event["key"]), **json.loads(event["value"])})
    return found


@pytest.mark.parametrize("source", ["events", "registrations", "gym_visits", "gym_visits_north"])
def test_the_truth_tells_every_record_of_the_other_sources(four_days: Path, source: str) -> None:
    found = records(four_days, source)
    assert [(name, len(found)) for name in sorted({name for name, _ in found})] == [
        (name, len(found)) for name in sorted({record["file"] for record in told(four_days, source)})
    ]
    for (name, record), known in zip(found, told(four_days, source), strict=True):
        assert known["file"] == name
        if source != "events":
            assert record.items() >= {k: v for k, v in known.items() if k not in ("kind", "file")}.items()
        elif known["kind"] != "malformed":
            assert known["value"] == {"user_id": int(record["key"]), **json.loads(record["value"])}
            assert known["topic"] == record["topic"]


def test_an_export_has_all_topics_and_repeats_the_last_events_of_the_day_before(four_days: Path) -> None:
    exported: dict[tuple[str, int, int], dict[str, Any]] = {}
    again = 0
    for name, event in records(four_days, "events"):
        position = event["topic"], event["partition"], event["offset"]
        again += position in exported
        assert exported.setdefault(position, event) == event, name
    assert {topic for topic, _, _ in exported} == {"bpm", "workout", "user_info"}
    assert again == 3 * 5
    assert {event["partition"] for event in exported.values()} == {0, 1}


def test_a_value_a_day_is_cut_off_and_nothing_is_known_of_it(four_days: Path) -> None:
    cut = {name: event["value"] for name, event in records(four_days, "events") if not event["value"].endswith("}")}
    assert len(cut) == 4
    assert all(known["value"] == {} for known in told(four_days, "events") if known["kind"] == "malformed")
    for value in cut.values():
        with pytest.raises(ValueError, match=r"."):
            json.loads(value)


def test_some_workouts_start_and_stop_in_what_is_one_instant_as_float(four_days: Path) -> None:
    times: dict[tuple[int, int], list[float]] = {}
    for value in events(four_days, "workout"):
        times.setdefault((value["user_id"], value["session_id"]), []).append(value["time"])
    aborted = [both for both in map(sorted, times.values()) if round(both[-1] - both[0], 3) == 59]
    assert aborted
    assert any(len({struct.pack("f", time) for time in both}) == 1 for both in aborted)


def test_the_expected_workouts_follow_from_the_delivered_events(four_days: Path) -> None:
    tables = expected(four_days / "truth")
    actions = {(v["user_id"], v["workout_id"], v["session_id"], v["action"], v["time"]) for v in events(four_days, "workout")}
    assert {tuple(row.values()) for row in tables["workouts"]} == {(*rest, instant(time)) for *rest, time in actions}
    assert len(tables["workouts"]) == len(actions)
    times = {(user, session, action): time for user, _, session, action, time in actions}
    sessions = {(user, session) for user, session, _ in times}
    found = {(row["user_id"], row["session_id"]): row for row in tables["completed_workouts"]}
    assert found.keys() == sessions and len(tables["completed_workouts"]) == len(sessions)
    for session, row in found.items():
        start, stop = (times.get((*session, action)) for action in ("start", "stop"))
        assert row["in_progress"] is (stop is None)
        assert (row["started_at"], row["stopped_at"]) == tuple(time and instant(time) for time in (start, stop))
        assert row["seconds"] == (pytest.approx(stop - start, abs=1e-5) if start and stop else None)
    rates = {(value["device_id"], value["time"]): value["heartrate"] for value in events(four_days, "bpm")}
    assert {(row["device_id"], row["time"]): row["heartrate"] for row in tables["bpm"]} == {
        (device, instant(time)): beats for (device, time), beats in rates.items()
    }


def test_a_workout_that_goes_on_after_midnight_is_completed_by_the_export_of_the_day_after(four_days: Path) -> None:
    actions: dict[int, dict[str, str]] = {}
    for name, event in records(four_days, "events"):
        if event["topic"] == "workout" and event["value"].endswith("}"):
            value = json.loads(event["value"])
            actions.setdefault(value["session_id"], {}).setdefault(value["action"], name.removeprefix("events-")[:10])
    late = [both for both in actions.values() if len(both) == 2 and both["start"] < both["stop"]]
    assert late and all("start" in known for known in actions.values())
    going_on = [row for row in expected(four_days / "truth")["completed_workouts"] if row["in_progress"]]
    assert going_on and {row["started_at"].date() for row in going_on} == {date(2026, 11, 4)}  # type: ignore[attr-defined]


def test_what_was_said_last_of_a_member_is_not_what_was_delivered_last(four_days: Path) -> None:
    said = events(four_days, "user_info")
    last_delivered = {value["user_id"]: value for value in said}
    last_said = {value["user_id"]: value for value in sorted(said, key=lambda value: float(value["updated_at"]))}
    assert last_delivered != last_said
    found = {row["user_id"]: row["city"] for row in expected(four_days / "truth")["members"]}
    assert found == {user: value["city"] for user, value in last_said.items() if value["change"] != "delete"}
    assert len(found) == 18, "of 20 members two have left"


def test_members_leave_come_back_and_are_told_of_in_another_order_than_it_happened(four_days: Path) -> None:
    told_of: dict[int, list[tuple[str, float]]] = {}
    for value in events(four_days, "user_info"):
        told_of.setdefault(value["user_id"], []).append((value["change"], value["updated_at"]))
    as_told = {user: [change for change, _ in changes] for user, changes in told_of.items()}
    as_it_was = {user: [change for change, _ in sorted(changes, key=lambda one: one[1])] for user, changes in told_of.items()}
    assert as_told[7_000_000_001] == ["new", "update", "delete", "update", "new"]
    assert as_it_was[7_000_000_001] == ["new", "update", "update", "delete", "new"]
    assert (as_told[7_000_000_002], as_it_was[7_000_000_002]) == (["update", "new"], ["new", "update"])
    assert as_told[7_000_000_004] == ["new", "update", "delete", "update"] and as_it_was[7_000_000_004][-1] == "delete"
    assert all(len({at for _, at in changes}) == len(changes) for changes in told_of.values()), "none at one instant"


def test_the_expected_history_tells_at_every_instant_what_was_true_then(four_days: Path) -> None:
    tables = expected(four_days / "truth")
    said = sorted(events(four_days, "user_info"), key=lambda value: float(value["updated_at"]))
    users = {value["user_id"] for value in said}
    history: list[dict[str, Any]] = tables["members_history"]
    for at in [instant(value["updated_at"] + late) for value in said for late in (-0.001, 0, 0.001)]:
        true = {value["user_id"]: value for value in said if instant(value["updated_at"]) <= at}
        there = {user: value["city"] for user, value in true.items() if value["change"] != "delete"}
        rows = [row for row in history if row["__START_AT"] <= at and (row["__END_AT"] is None or at < row["__END_AT"])]
        assert {row["user_id"]: row["city"] for row in rows} == there and len(rows) == len(there)
    of_nobody = [row for row in history if row["__END_AT"] is not None and row["__START_AT"] >= row["__END_AT"]]
    assert {row["user_id"] for row in history} == users and not of_nobody
    now = [{k: v for k, v in row.items() if not k.startswith("__")} for row in history if row["__END_AT"] is None]
    assert now == [{k: v for k, v in row.items() if k != "updated_at"} for row in tables["members"]]
    for before, after in itertools.pairwise(history):
        if before["__END_AT"] == after["__START_AT"]:
            assert before["user_id"] != after["user_id"] or before["city"] != after["city"], "nothing changed, and yet a new row"


def test_what_may_be_told_of_members_names_nobody(four_days: Path) -> None:
    tables = expected(four_days / "truth")
    assert len(tables["member_bins"]) == len(tables["members"])
    assert {frozenset(row) for row in tables["member_bins"]} == {frozenset({"age_band", "gender", "city", "state"})}
    on_the_day = {"birth_date": date(1961, 11, 3), "gender": "other", "city": "Graz", "state": "Steiermark"}
    bands = [
        member_bins([{**on_the_day, "updated_at": datetime(year, 11, day, tzinfo=UTC)}])[0]["age_band"]
        for year, day in ((2026, 2), (2026, 3), (1979, 2), (1979, 3), (1986, 2), (1986, 3))
    ]
    assert bands == ["55-64", ">=65", "<18", "18-24", "18-24", "25-34"]
    phones = {(row["user_id"], row["device_id"], row["mac_address"]) for _, row in records(four_days, "registrations")}
    assert {tuple(row.values()) for row in tables["member_keys"]} == phones and len(tables["member_keys"]) == len(phones)


def test_a_visit_is_seen_by_the_phone_that_is_registered_on_its_day(four_days: Path) -> None:
    registered = [record for _, record in records(four_days, "registrations")]
    assert len({one["device_id"] for one in registered}) == 20 and len({one["mac_address"] for one in registered}) == 23
    phones: dict[date, set[str]] = {}
    for day in (date(2026, 11, 1) + timedelta(days=after) for after in range(4)):
        until_then = sorted(
            (one for one in registered if instant(one["registered_at"]).date() <= day), key=lambda one: one["registered_at"]
        )
        phones[day] = set({one["device_id"]: one["mac_address"] for one in until_then}.values())
    for row in expected(four_days / "truth")["visits"]:
        assert row["mac_address"] in phones[row["first_seen"].date()]  # type: ignore[attr-defined]


def readings_in_workouts(root: Path) -> dict[tuple[int, datetime], tuple[int, int]]:
    """Member and session of each reading in a workout, from what was delivered alone, reading by reading."""
    registered = [record for _, record in records(root, "registrations")]
    at: dict[tuple[int, int], dict[str, float]] = {}
    for value in events(root, "workout"):
        at.setdefault((value["user_id"], value["session_id"]), {})[value["action"]] = value["time"]
    whole = [(*session, known["start"], known["stop"]) for session, known in at.items() if len(known) == 2]
    found: dict[tuple[int, datetime], tuple[int, int]] = {}
    for row in expected(root / "truth")["heart_rate"]:
        time: Any = row["time"]
        before = [one for one in registered if one["device_id"] == row["device_id"] and instant(one["registered_at"]) <= time]
        who = max(before, key=lambda one: int(one["registered_at"]))["user_id"] if before else None
        for user, session, start, stop in whole:
            if user == who and instant(start) <= time <= instant(stop):
                found[int(str(row["device_id"])), time] = (user, session)
    return found


def test_f7_the_expected_heart_rates_of_workouts_follow_from_what_was_delivered(four_days: Path) -> None:
    tables = expected(four_days / "truth")
    found: list[dict[str, Any]] = tables["workout_heart_rate"]
    within = {(row["device_id"], row["time"]): (row["user_id"], row["session_id"]) for row in found}
    assert within == readings_in_workouts(four_days) and len(within) == len(found) > 200
    sessions = Counter((row["user_id"], row["session_id"]) for row in found)
    assert {(row["user_id"], row["session_id"]): row["readings"] for row in tables["workout_summary"]} == sessions
    assert {row["age_band"] is None for row in tables["workout_summary"]} == {True, False}, "some trained when they had left"


def test_f7_whatever_belongs_together_comes_in_any_order(four_days: Path) -> None:
    tables = expected(four_days / "truth")
    found: list[dict[str, Any]] = tables["workout_heart_rate"]
    delivered_on = {(one["device_id"], one["registered_at"]): one["file"] for one in told(four_days, "registrations")}
    late = {device for (device, at), file in delivered_on.items() if f"{instant(at):%Y-%m-%d}" not in file}
    assert late == {4_200_000_003, 4_200_000_013}
    first_day = [row for row in found if row["time"].date() == date(2026, 11, 1)]
    assert {row["device_id"] for row in first_day} & late, "taken in a workout, and registered only a day later"
    late_readings = {(one["device_id"], instant(one["time"])) for one in told(four_days) if one["kind"] == "late"}
    assert late_readings & {(row["device_id"], row["time"]) for row in found}, "readings that came after their workout"
    at_night = [row for row in found if row["time"].date() > row["started_at"].date()]
    assert at_night, "the stop of a workout that goes on after midnight is exported a day after its start"


def test_who_trains_and_is_seen_in_a_gym_came_there_to_train(four_days: Path) -> None:
    rows: list[dict[str, Any]] = expected(four_days / "truth")["gym_stats"]
    assert len(rows) > 30 and sum(row["minutes_exercising"] > 10 for row in rows) > 10
    assert all(0 <= row["minutes_exercising"] <= row["minutes_in_gym"] for row in rows)
    assert sum(row["visits"] for row in rows) <= len(expected(four_days / "truth")["visits"])


def test_the_expected_visits_follow_from_what_the_gyms_delivered(four_days: Path) -> None:
    last: dict[tuple[str, int, int], int] = {}
    delivered_twice = 0
    for _, record in [*records(four_days, "gym_visits"), *records(four_days, "gym_visits_north")]:
        key = record["mac_address"], record["gym"], record["first_timestamp"]
        delivered_twice += key in last
        last[key] = max(last.get(key, 0), record["last_timestamp"])
    assert delivered_twice > 0
    found = [tuple(row.values()) for row in expected(four_days / "truth")["visits"]]
    assert found == [(who, gym, instant(first), instant(seen)) for (who, gym, first), seen in sorted(last.items())]
    assert {gym for _, gym, _ in last} == {2, 5, 7}


def test_a_visit_that_was_not_over_comes_whole_the_day_after(four_days: Path) -> None:
    both = [record for source in ("gym_visits", "gym_visits_north") for record in told(four_days, source)]
    assert {record["kind"] for record in both} == {"fine", "unfinished", "finished", "duplicate"}
    last_of: dict[str, dict[tuple[str, int], int]] = {"unfinished": {}, "finished": {}}
    for record in both:
        if record["kind"] in last_of:
            last_of[record["kind"]][record["mac_address"], record["first_timestamp"]] = record["last_timestamp"]
    assert len(last_of["finished"]) >= 3
    assert all(last > last_of["unfinished"][visit] for visit, last in last_of["finished"].items())


def test_what_a_visit_tells_grows(four_days: Path) -> None:
    fields: dict[str, set[str]] = {}
    for name, record in records(four_days, "gym_visits"):
        names = {*record, *(f"access_point.{name}" for name in record["access_point"])}
        fields.setdefault(name.removeprefix("gym-visits-")[:10], set()).update(names)
    first, second, third, fourth = (fields[f"2026-11-0{day}"] for day in (1, 2, 3, 4))
    assert first == second
    assert third - second == {"band"} and fourth - third == {"access_point.channel"}


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
