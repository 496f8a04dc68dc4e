"""The tables of `gym` from a few readings."""

from __future__ import annotations

import itertools
import random
import re
import runpy
import shutil
import subprocess
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.gym import truth
from pipelines.gym.bronze import readings
from pipelines.gym.gold import (
    device_counts,
    device_day,
    gym_stats,
    heart_rate_10min,
    workout_heart_rate,
    workout_heart_rate_stream,
    workout_summary,
)
from pipelines.gym.silver import (
    completed_workouts,
    fanned_out,
    heart_rate,
    member_bins,
    member_changes,
    member_keys,
    members_for_coaches,
    memberships,
    visits,
)
from pipelines.gym.truth import device_day as device_day_in_python
from sluice.declare import treat
from sluice.declare.quality.expectations import Action

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[3]
NAN, INFINITE = float("nan"), float("inf")


def delivered(spark: SparkSession, *rows: tuple[int | None, float | None, float | None, float | None]) -> DataFrame:
    return spark.createDataFrame(list(rows), readings.schema)


def rates(spark: SparkSession, *rows: tuple[int, str, float]) -> DataFrame:
    frame = spark.createDataFrame(list(rows), "device_id BIGINT, time STRING, heartrate DOUBLE")
    return frame.withColumn("time", F.col("time").cast("timestamp"))


def not_met(spark: SparkSession, *rows: tuple[int | None, float | None, float | None, float | None]) -> list[set[str]]:
    """The expectations that each row does not meet; NULL counts as not met."""
    conditions = [f"NOT coalesce({one.condition}, false) AS {one.name}" for one in heart_rate.expectations]
    judged = heart_rate(delivered(spark, *rows)).selectExpr(*conditions).collect()
    return [{name for name, broken in row.asDict().items() if broken} for row in judged]


def test_a_reading_gets_its_types_and_keeps_every_microsecond(spark: SparkSession) -> None:
    frame = heart_rate(delivered(spark, (4_200_000_001, 1_793_491_200.123457, 71.5, 1_793_491_201.000003)))
    assert frame.dtypes == [
        *(("device_id", "bigint"), ("time", "timestamp"), ("heartrate", "double"), ("received_at", "timestamp")),
        ("plausible", "boolean"),
    ]
    (row,) = frame.select("device_id", F.unix_micros("time"), "heartrate", F.unix_micros("received_at")).collect()
    assert tuple(row) == (4_200_000_001, 1_793_491_200_123_457, 71.5, 1_793_491_201_000_003)


def test_a_double_of_seconds_gives_the_microsecond_that_was_written(spark: SparkSession) -> None:
    # All but the last two are a microsecond early when they are cut off instead of rounded.
    instants = [8_276_924, 545_849_637_257_052, 1_101_664_201_833_407, 1_106_618_794_329_763, 1_793_491_200_123_457, -1_500_000]
    frame = heart_rate(delivered(spark, *((1, instant / 1e6, 60.0, instant / 1e6) for instant in instants)))
    found = frame.select(F.unix_micros("time"), F.unix_micros("received_at")).collect()
    assert [tuple(row) for row in found] == [(instant, instant) for instant in instants]


def test_instants_that_no_reader_could_hold_are_none(spark: SparkSession) -> None:
    frame = heart_rate(
        delivered(spark, *((1, time, 60.0, 1.0) for time in (NAN, INFINITE, 1e300, 253_402_300_800.0, None, -1.5)))
    )
    assert [row[0] for row in frame.select(F.unix_micros("time")).collect()] == [None, None, None, None, None, -1_500_000]


def test_faults_are_quarantined_and_the_implausible_is_only_warned_of(spark: SparkSession) -> None:
    time = 1_793_491_200.0
    known = {"known_device_and_time"}
    impossible = {"positive_heart_rate"}
    judged = {
        (1, time, 0.1, time): set(),
        (1, time, 229.9, time): set(),
        (1, time, 230.0, time): {"plausible_heart_rate"},
        (1, time, 1e300, time): {"plausible_heart_rate"},
        (1, time, 0.0, time): impossible,
        (1, time, -60.0, time): impossible,
        (1, time, None, time): impossible | {"plausible_heart_rate"},
        (1, time, NAN, time): impossible | {"plausible_heart_rate"},
        (None, time, 60.0, time): known,
        (1, None, 60.0, time): known,
        (1, time, 60.0, None): known,
    }
    assert not_met(spark, *judged) == list(judged.values())
    actions = {one.name: one.action for one in heart_rate.expectations}
    assert actions == {
        "known_device_and_time": Action.QUARANTINE,
        "positive_heart_rate": Action.QUARANTINE,
        "plausible_heart_rate": Action.WARN,
    }


def test_a_device_day_is_a_utc_day(spark: SparkSession) -> None:
    frame = device_day(
        rates(
            spark,
            (1, "2026-11-01 23:59:59.999999Z", 60.0),
            (1, "2026-11-01 00:00:00Z", 71.0),
            (1, "2026-11-01 12:00:00Z", 240.0),
            (1, "2026-11-02 00:00:00Z", 62.5),
            (2, "2026-11-01 12:00:00+13:00", 63.0),
        )
    )
    assert [tuple(row) for row in frame.orderBy("device_id", "date").collect()] == [
        (1, date(2026, 11, 1), 3, 60.0, 123.6666666667, 240.0),
        (1, date(2026, 11, 2), 1, 62.5, 62.5, 62.5),
        (2, date(2026, 10, 31), 1, 63.0, 63.0, 63.0),
    ]
    assert dict(frame.dtypes) == {
        **{"device_id": "bigint", "date": "date", "readings": "bigint"},
        **{"lowest": "double", "average": "double", "highest": "double"},
    }


def test_the_average_does_not_depend_on_the_order_of_the_rows(spark: SparkSession) -> None:
    beats = [0.1, 0.2, 0.3, 1e8, 70.333333, 1e-6]
    sums = {sum(order) for order in itertools.permutations(beats)}
    assert len(sums) > 1, "the values must be such that a sum of DOUBLEs depends on their order"
    orders = random.Random(7).sample(list(itertools.permutations(beats)), 40)
    rows = [(device, "2026-11-01 12:00:00Z", beat) for device, order in enumerate(orders) for beat in order]
    averages = device_day(rates(spark, *rows).coalesce(1)).select("average").distinct().collect()
    at = datetime(2026, 11, 1, 12, tzinfo=UTC)
    (expected,) = device_day_in_python({"device_id": 1, "time": at, "heartrate": beat} for beat in beats)
    assert [row[0] for row in averages] == [expected["average"]]


def test_a_reading_too_large_for_the_average_does_not_stop_the_view(spark: SparkSession) -> None:
    noon = "2026-11-01 12:00:00Z"
    (row,) = device_day(rates(spark, (1, noon, 60.0), (1, noon, 1e300))).collect()
    assert tuple(row) == (1, date(2026, 11, 1), 2, 60.0, 60.0, 1e300)


FANNED_OUT = {made.name: made for made in fanned_out}
EVENTS = "key STRING, topic STRING, value STRING"


def exported(spark: SparkSession, *rows: tuple[str, str, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), EVENTS)


def test_each_table_of_the_loop_has_the_events_of_its_topic(spark: SparkSession) -> None:
    whole = exported(
        spark,
        ("7", "workout", '{"workout_id": 3, "session_id": 9, "action": "start", "time": 1793491200.123457}'),
        ("8", "user_info", '{"change": "new", "updated_at": 2.5, "birth_date": "1980-04-20", "city": "Køge"}'),
        ("8", "user_info", '{"change": "delete", "updated_at": 3.5}'),
        ("7", "bpm", '{"device_id": 4200000001, "time": 1.5, "heartrate": 120.5}'),
        ("7", "weight", '{"kg": 70}'),
    )
    found = {name: made(whole) for name, made in FANNED_OUT.items()}
    assert {name: frame.count() for name, frame in found.items()} == {"workouts": 1, "bpm": 1}
    (start,) = found["workouts"].withColumn("time", F.unix_micros("time")).collect()
    assert start.asDict() == {
        **{"user_id": 7, "workout_id": 3, "session_id": 9, "action": "start"},
        "time": 1_793_491_200_123_457,
    }
    told = member_changes(whole).select("user_id", "change", F.unix_micros("updated_at"), "birth_date", "city", "first_name")
    assert sorted(map(tuple, told.collect()), key=lambda row: row[2]) == [
        (8, "new", 2_500_000, date(1980, 4, 20), "Køge", None),
        (8, "delete", 3_500_000, None, None, None),
    ]
    assert {made.comment for made in fanned_out} >= {"Starts and stops of workouts, one row each."}


def test_f1_a_start_and_a_stop_59_s_apart_stay_two_rows(spark: SparkSession) -> None:
    value = '{"workout_id": 3, "session_id": 9, "action": "%s", "time": %.3f}'
    begin = 1_793_520_000.25
    both = exported(spark, *(("7", "workout", value % (action, begin + late)) for action, late in (("start", 0), ("stop", 59))))
    made = FANNED_OUT["workouts"]
    rows = made(both)
    assert rows.select(*made.keys).distinct().count() == 2
    assert rows.select(F.unix_seconds("time").cast("float")).distinct().count() == 1, "as FLOAT they would be one"
    (whole,) = completed_workouts(rows).collect()
    assert (whole.user_id, whole.session_id, whole.workout_id, whole.seconds, whole.in_progress) == (7, 9, 3, 59.0, False)


def test_a_value_that_cannot_be_read_is_set_aside_and_its_member_is_known(spark: SparkSession) -> None:
    made = FANNED_OUT["workouts"]
    (rule,) = made.expectations
    assert rule.action is Action.QUARANTINE
    texts = ('{"workout_id": 3, "session_id": 9, "act', '{"workout_id": 3}', "no JSON", '{"workout_id": 3, "time": "soon"}')
    rows = made(exported(spark, *(("7", "workout", text) for text in texts)))
    assert [row.user_id for row in rows.where(f"NOT coalesce({rule.condition}, false)").collect()] == [7, 7, 7, 7]


def test_a_workout_is_in_progress_until_its_stop_is_known(spark: SparkSession) -> None:
    value = '{"workout_id": %d, "session_id": %d, "action": "%s", "time": %.1f}'
    told = ((3, 9, "start", 5.0), (4, 10, "stop", 7.0), (5, 11, "start", 8.0), (5, 11, "stop", 9.5))
    actions = FANNED_OUT["workouts"](exported(spark, *(("7", "workout", value % one) for one in told)))
    rows = completed_workouts(actions).withColumns({name: F.unix_seconds(name) for name in ("started_at", "stopped_at")})
    assert sorted(map(tuple, rows.collect())) == [
        *((7, 9, 3, 5, None, None, True), (7, 10, 4, None, 7, None, False)),
        (7, 11, 5, 8, 9, 1.5, False),
    ]
    assert completed_workouts.sql is not None, "this one is declared by a text"


def test_an_age_is_of_whole_years_and_of_the_day_of_the_last_change(spark: SparkSession) -> None:
    told = [
        *(
            (1, "1961-11-03", "2026-11-02 23:59:59"),
            (2, "1961-11-03", "2026-11-03 00:00:00"),
            (3, "2004-02-29", "2026-02-28 12:00:00"),
        ),
        *((4, "2004-02-29", "2026-03-01 12:00:00"), (5, "2026-01-01", "2026-01-01 00:00:00"), (6, None, "2026-01-01 00:00:00")),
    ]
    members = spark.createDataFrame(
        [(who, born, at, "other", "Graz", "Steiermark") for who, born, at in told],
        "user_id BIGINT, birth_date STRING, updated_at STRING, gender STRING, city STRING, state STRING",
    ).withColumns({"birth_date": F.col("birth_date").cast("date"), "updated_at": F.col("updated_at").cast("timestamp")})
    ages = {row.pseudonym: row.age_band for row in member_bins(members).collect()}
    assert ages == {1: 64, 2: 65, 3: 21, 4: 22, 5: 0, 6: None}, "before the treatments they are numbers, and no pseudonyms"


def test_who_is_who_is_restricted_and_under_the_pseudonym_of_the_bins() -> None:
    assert member_keys.restricted and not member_bins.restricted
    assert member_keys.treatments["pseudonym"] == member_bins.treatments["pseudonym"] == treat.hmac("member")
    assert member_bins.treatments["age_band"] == treat.bin(18, 25, 35, 45, 55, 65)


def test_a_coach_sees_no_surname_and_no_birthday(spark: SparkSession) -> None:
    columns = "user_id BIGINT, first_name STRING, last_name STRING, birth_date DATE, gender STRING, city STRING"
    members = spark.createDataFrame([(7, "Ada", "Holm", date(1980, 4, 20), "female", "Køge")], columns)
    (seen,) = members_for_coaches(members).collect()
    assert seen.asDict() == {
        "user_id": 7,
        "first_name": "Ada",
        "last_name": "H***",
        "birth_date": date(1980, 1, 1),
        "city": "Køge",
    }


@pytest.mark.parametrize("kind", ["string", "bigint", "double"])
def test_visits_are_the_same_from_texts_and_from_numbers(spark: SparkSession, kind: str) -> None:
    seen = spark.createDataFrame([("02:aa", 5, 1_793_491_200, 1_793_491_260)], "mac_address STRING, gym INT, a BIGINT, b BIGINT")
    first, last = (F.col(name).cast(kind).alias(f"{which}_timestamp") for name, which in (("a", "first"), ("b", "last")))
    found = visits(seen.select("mac_address", F.col("gym").cast("string" if kind == "string" else "bigint"), first, last))
    assert found.dtypes == [("mac_address", "string"), ("gym", "bigint"), ("first_seen", "timestamp"), ("last_seen", "timestamp")]
    (row,) = found.withColumns({name: F.unix_micros(name) for name in ("first_seen", "last_seen")}).collect()
    assert tuple(row) == ("02:aa", 5, 1_793_491_200_000_000, 1_793_491_260_000_000)


MEMBERSHIPS = "device_id BIGINT, registered_at STRING, user_id BIGINT, mac_address STRING"
SESSIONS = "user_id BIGINT, session_id BIGINT, workout_id BIGINT, started_at STRING, stopped_at STRING"
VISITS = "mac_address STRING, gym BIGINT, first_seen STRING, last_seen STRING"
HISTORY = "user_id BIGINT, birth_date DATE, __START_AT STRING, __END_AT STRING"
READINGS = (
    "device_id BIGINT, time STRING, user_id BIGINT, session_id BIGINT, workout_id BIGINT, started_at STRING, heartrate DOUBLE"
)


def at(spark: SparkSession, columns: str, *rows: tuple[Any, ...]) -> DataFrame:
    """Rows whose instants are written as hours and minutes of 2026-11-01, or of the day before as -22:30."""
    frame = spark.createDataFrame([tuple(map(_instant, row)) for row in rows], columns)
    instants = [
        name for name in ("time", "registered_at", "started_at", "stopped_at", "first_seen", "last_seen") if name in columns
    ]
    instants += [name for name in ("__START_AT", "__END_AT") if name in columns]
    return frame.withColumns({name: F.col(name).cast("timestamp") for name in instants})


def _instant(value: Any) -> Any:
    if not (isinstance(value, str) and re.fullmatch(r"-?\d\d:\d\d", value)):
        return value
    return f"2026-10-31 {value[1:]}:00Z" if value[0] == "-" else f"2026-11-01 {value}:00Z"


def readings_of_workouts(spark: SparkSession, times: list[tuple[int, str]], worn: list[Any], sessions: list[Any]) -> list[Any]:
    """The device, hour and minute, member and session of each reading that is found in a workout."""
    taken = at(spark, "device_id BIGINT, time STRING, heartrate DOUBLE", *((device, time, 60.0) for device, time in times))
    found = workout_heart_rate(taken, at(spark, MEMBERSHIPS, *worn), at(spark, SESSIONS, *sessions))
    shown = found.select("device_id", F.date_format("time", "HH:mm"), "user_id", "session_id").collect()
    return sorted(map(tuple, shown))


def test_f7_a_reading_is_of_the_workout_that_its_member_was_in(spark: SparkSession) -> None:
    times = [
        (1, "07:59"),
        (1, "08:00"),
        (1, "08:30"),
        (1, "09:00"),
        (1, "09:01"),
        (2, "08:30"),
        (1, "11:00"),
        (1, "12:30"),
        (9, "08:30"),
    ]
    worn = [(1, "07:00", 7, "a"), (2, "07:00", 8, "b")]
    sessions = [(7, 10, 3, "08:00", "09:00"), (7, 11, 3, "10:30", None), (7, 12, 3, None, "13:00"), (8, 13, 4, "08:00", "08:30")]
    found = [(1, "08:00", 7, 10), (1, "08:30", 7, 10), (1, "09:00", 7, 10), (2, "08:30", 8, 13)]
    assert readings_of_workouts(spark, times, worn, sessions) == found
    stopped = [*sessions, (7, 14, 3, "10:30", "11:00"), (8, 15, 3, "00:00", "12:01")]
    assert readings_of_workouts(spark, times, worn, stopped) == sorted([*found, (1, "11:00", 7, 14)]), "no workout has 12 hours"


def test_f7_a_device_that_changes_hands_belongs_to_whom_it_was_registered_last_when_it_measured(spark: SparkSession) -> None:
    times = [(1, "07:00"), (1, "08:30"), (1, "09:00"), (1, "10:00"), (1, "11:00")]
    sessions = [(7, 10, 3, "06:30", "12:00"), (8, 11, 3, "06:30", "12:00")]
    first, again = (1, "08:00", 7, "a"), (1, "11:00", 7, "c")
    handed_on = (1, "09:00", 8, "b")
    assert readings_of_workouts(spark, times, [first], sessions) == [
        (1, f"{time}", 7, 10) for time in ("08:30", "09:00", "10:00", "11:00")
    ]
    # A registration that comes later, of an instant between two others, changes whose the readings after it are.
    assert readings_of_workouts(spark, times, [again, first, handed_on], sessions) == [
        *((1, "08:30", 7, 10), (1, "09:00", 8, 11), (1, "10:00", 8, 11), (1, "11:00", 7, 10))
    ]


def test_a_workout_is_summed_up_with_the_age_that_was_known_at_its_start(spark: SparkSession) -> None:
    born = date(1961, 11, 1)
    taken = [(1, f"08:{minute}", 7, 10, 3, "08:00", beats) for minute, beats in (("05", 60.0), ("10", 90.5), ("15", 240.0))]
    taken += [
        (1, "00:05", 7, 11, 3, "-23:50", 70.0),
        (2, "08:05", 8, 12, 4, "08:00", 80.0),
        (2, "10:05", 8, 13, 4, "10:00", 81.0),
    ]
    # The first was known by another date of birth before; the second left at nine.
    history = [(7, date(1999, 1, 1), "-00:00", "-12:00"), (7, born, "-12:00", None), (8, born, "-12:00", "09:00")]
    frame = workout_summary(at(spark, READINGS, *taken), at(spark, HISTORY, *history))
    columns = ("user_id", "session_id", "workout_id", "age_band", "readings", "lowest", "average", "highest")
    assert sorted(map(tuple, frame.select(*columns).collect())) == [
        *((7, 10, 3, 65, 3, 60.0, 130.1666666667, 240.0), (7, 11, 3, 64, 1, 70.0, 70.0, 70.0)),
        *((8, 12, 4, 65, 1, 80.0, 80.0, 80.0), (8, 13, 4, None, 1, 81.0, 81.0, 81.0)),
    ]
    assert workout_summary.treatments["age_band"] == member_bins.treatments["age_band"]
    assert set(frame.columns) == {*columns, "started_at"}, "nothing else of a member"


def test_minutes_in_the_gym_and_minutes_of_exercise_there(spark: SparkSession) -> None:
    seen = [("a", 5, "08:00", "09:30"), ("a", 5, "12:00", "12:45"), ("a", 2, "18:00", "19:00"), ("b", 5, "-23:30", "00:30")]
    seen += [("b", 5, "08:00", "09:00"), ("x", 5, "08:00", "09:00"), ("a", 2, "06:00", "06:30")]
    owned = [(1, "-07:00", 8, "b"), (2, "07:00", 7, "a"), (2, "07:30", 7, "c")]
    sessions = [
        (7, 10, 3, "08:15", "09:00"),
        (7, 11, 3, "09:15", "10:00"),
        (7, 12, 3, "12:30", None),
        (8, 13, 3, "09:00", "10:00"),
    ]
    sessions += [(8, 14, 3, "-23:45", "00:15"), (8, 15, 3, None, "08:30")]
    frame = gym_stats(at(spark, VISITS, *seen), at(spark, MEMBERSHIPS, *owned), at(spark, SESSIONS, *sessions))
    sunday, day_before = date(2026, 11, 1), date(2026, 10, 31)
    assert sorted(map(tuple, frame.collect())) == [
        (7, "a", 2, sunday, 1, 60.0, 0.0),  # at six the phone was nobody's
        (7, "a", 5, sunday, 2, 135.0, 60.0),  # of the workout in progress nothing is known
        (8, "b", 5, day_before, 1, 60.0, 30.0),
        (8, "b", 5, sunday, 1, 60.0, 0.0),
    ]


def test_a_minute_in_two_workouts_counts_once_and_of_a_forgotten_one_none(spark: SparkSession) -> None:
    seen, owned = [("a", 5, "08:00", "10:00"), ("a", 5, "18:00", "19:00")], [(1, "07:00", 7, "a")]
    times = [("07:50", "08:30"), ("08:10", "08:20"), ("08:20", "08:50"), ("09:00", "09:10"), ("06:00", "18:30")]
    sessions = [(7, number, 1, *span) for number, span in enumerate(times)]
    found = gym_stats(at(spark, VISITS, *seen), at(spark, MEMBERSHIPS, *owned), at(spark, SESSIONS, *sessions)).collect()
    assert [(row.visits, row.minutes_in_gym, row.minutes_exercising) for row in found] == [(2, 180.0, 60.0)]


def test_the_truth_of_overlapping_and_forgotten_workouts() -> None:
    def on_that_day(hour: int, minute: int = 0) -> datetime:
        return datetime(2026, 11, 1, hour, minute, tzinfo=UTC)

    spans = [((8, 0), (8, 30)), ((8, 10), (8, 20)), ((8, 20), (8, 50)), ((6, 0), (18, 30))]
    sessions = [{"user_id": 7, "started_at": on_that_day(*start), "stopped_at": on_that_day(*stop)} for start, stop in spans]
    owned = {"registered_at": on_that_day(7), "device_id": 1, "user_id": 7, "mac_address": "a"}
    visit = {"mac_address": "a", "gym": 5, "first_seen": on_that_day(8), "last_seen": on_that_day(10)}
    (found,) = truth.gym_stats([visit], [owned], sessions)
    assert (found["minutes_in_gym"], found["minutes_exercising"]) == (120.0, 50.0)


def test_a_phone_that_changes_hands_is_whose_it_was(spark: SparkSession) -> None:
    seen = [("a", 5, "08:00", "09:00"), ("a", 5, "12:00", "12:30")]
    owned = [(1, "07:00", 7, "a"), (2, "10:00", 8, "a")]
    frame = gym_stats(at(spark, VISITS, *seen), at(spark, MEMBERSHIPS, *owned), at(spark, SESSIONS, (7, 1, 1, "20:00", "21:00")))
    assert sorted((row.user_id, row.minutes_in_gym) for row in frame.collect()) == [(7, 60.0), (8, 30.0)]


def test_a_reading_is_in_two_windows_of_ten_minutes(spark: SparkSession) -> None:
    taken = at(
        spark, "device_id BIGINT, time STRING, heartrate DOUBLE", (1, "08:04", 60.0), (1, "08:05", 71.0), (2, "08:05", 80.0)
    )
    found = heart_rate_10min(taken).select(
        "device_id", F.date_format("begin", "HH:mm"), F.date_format("end", "HH:mm"), "readings", "average"
    )
    assert sorted(map(tuple, found.collect())) == [
        *((1, "07:55", "08:05", 1, 60.0), (1, "08:00", "08:10", 2, 65.5), (1, "08:05", "08:15", 1, 71.0)),
        *((2, "08:00", "08:10", 1, 80.0), (2, "08:05", "08:15", 1, 80.0)),
    ]
    assert sorted(map(tuple, device_counts(taken).collect())) == [(1, 2), (2, 1)]


def test_a_stream_of_heart_rates_is_joined_with_the_starts_of_two_hours_before(spark: SparkSession) -> None:
    starts = "user_id BIGINT, workout_id BIGINT, session_id BIGINT, action STRING, time STRING"
    told = [(7, 3, 10, "start", "08:00"), (7, 3, 10, "stop", "08:30"), (7, 3, 11, "start", "09:30"), (8, 4, 12, "start", "08:00")]
    beats = [(7, 1, time, 60.0) for time in ("07:59", "08:00", "10:00", "10:01", "11:31")]
    sent = at(spark, "user_id BIGINT, device_id BIGINT, time STRING, heartrate DOUBLE", *beats)
    found = workout_heart_rate_stream(sent, at(spark, starts, *told))
    assert sorted((row[0], row[1]) for row in found.select(F.date_format("time", "HH:mm"), "session_id").collect()) == [
        *(("08:00", 10), ("10:00", 10), ("10:00", 11), ("10:01", 11))
    ]


def test_there_is_a_stream_of_each_kind() -> None:
    assert [one.output for one in (device_counts, heart_rate_10min, workout_heart_rate_stream)] == [
        "complete",
        "append",
        "append",
    ]
    assert heart_rate_10min.closes_when_idle and heart_rate_10min.late == "heart_rate_10min_late"
    assert not set(workout_heart_rate_stream.keys) - set(workout_heart_rate.keys), "keys as those of the view"


def test_gold_reads_memberships_and_nothing_restricted() -> None:
    assert not memberships.restricted and memberships.keys == ("device_id", "registered_at")
    assert memberships.private == {"device_id", "user_id", "mac_address"}
    read = {name for view in (workout_heart_rate, workout_summary, gym_stats, device_day) for name in view.reads}
    assert "memberships" in read and "member_keys" not in read
    assert workout_heart_rate.subject == workout_summary.subject == gym_stats.subject == "user_id"


def test_what_is_declared() -> None:
    assert readings.subject == heart_rate.subject == device_day.subject == "device_id"
    assert (heart_rate.keys, heart_rate.sequence_by) == (("device_id", "time"), "received_at")
    assert device_day.keys == ("device_id", "date")


def test_the_diff_in_the_manual_applies_and_does_what_it_says(spark: SparkSession, tmp_path: Path) -> None:
    manual = (ROOT / "docs" / "add-a-pipeline.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"```diff\n(.*?)```", manual, flags=re.DOTALL)
    gold = tmp_path / "include" / "pipelines" / "gym" / "gold.py"
    gold.parent.mkdir(parents=True)
    shutil.copy(ROOT / gold.relative_to(tmp_path), gold)
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=tmp_path, check=True, capture_output=True)
    changed: dict[str, Any] = runpy.run_path(str(gold))
    frame = changed["sensor_day"](rates(spark, (1, "2026-11-01 12:00:00Z", 60.0), (2, "2026-11-01 13:00:00Z", 230.0)))
    assert [tuple(row) for row in frame.collect()] == [(date(2026, 11, 1), 2, 1)]
