"""What people want to know: the heart rates of each workout, how members use the gyms, each device's day; and some streams.

A reading belongs to the member whose registration was valid when it was taken, whichever of the two arrived first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.gym.instants import age
from pipelines.gym.silver import BANDS
from sluice.declare import F, TimeReach, Watermark, Window, materialized_view, treat, windowed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LONGEST = "12 hours"
"""If a stop comes later than this, somebody forgot to press it: nobody knows when the workout ended, so nothing counts towards it."""


@materialized_view(
    reads=("heart_rate", "memberships", "completed_workouts"),
    keys=("device_id", "time", "session_id"),
    zorder_by="time",
    subject="user_id",
    reach={"completed_workouts": TimeReach("time", after=LONGEST, input="started_at")},
)
def workout_heart_rate(heart_rate: DataFrame, memberships: DataFrame, completed_workouts: DataFrame) -> DataFrame:
    """The readings (beats per minute) of a member's device during a workout, including its start and its stop (UTC)."""
    worn, reading = _until_the_next(memberships, "device_id").alias("worn"), heart_rate.alias("reading")
    session = _select_ended_workouts(completed_workouts).alias("session")
    mine = "reading.device_id = worn.device_id AND time >= registered_at AND (time < until) IS NOT FALSE"
    within = "worn.user_id = session.user_id AND time BETWEEN started_at AND stopped_at"
    return (
        reading
        .join(worn, F.expr(mine))
        .join(session, F.expr(within))
        .select("reading.device_id", "time", "session.user_id", "session_id", "workout_id", "started_at", "heartrate")
    )


@materialized_view(
    reads=("workout_heart_rate", "members_history"),
    keys=("user_id", "session_id"),
    subject="user_id",
    personal={"age_band": treat.bin(*BANDS)},
)
def workout_summary(workout_heart_rate: DataFrame, members_history: DataFrame) -> DataFrame:
    """Each workout's readings in beats per minute, with the member's age at its start as known then. Workouts without readings are left out."""
    sessions = workout_heart_rate.groupBy("user_id", "session_id", "workout_id", "started_at").agg(
        *_summarise_heart_rate("heartrate")
    )
    known = members_history.select(F.col("user_id").alias("who"), "birth_date", "__START_AT", "__END_AT")
    then = F.expr("user_id = who AND started_at >= __START_AT AND (started_at < __END_AT) IS NOT FALSE")
    with_age = sessions.join(known, then, "left").withColumn("age_band", age("birth_date", "started_at"))
    return with_age.drop("who", "birth_date", "__START_AT", "__END_AT")


@materialized_view(
    reads=("visits", "memberships", "completed_workouts"),
    keys=("user_id", "mac_address", "gym", "date"),
    zorder_by="date",
    subject="user_id",
)
def gym_stats(visits: DataFrame, memberships: DataFrame, completed_workouts: DataFrame) -> DataFrame:
    """A member's day (UTC) in a gym, by phone: visits, minutes in the gym, and minutes of exercise among them.

    A visit belongs to the day on which it began. Phones that nobody registered are left out. A minute in two workouts counts once.
    """
    owned = _until_the_next(memberships, "mac_address").alias("owned")
    visit, session = visits.alias("visit"), _select_ended_workouts(completed_workouts).alias("session")
    mine = (
        "visit.mac_address = owned.mac_address AND visit.first_seen >= registered_at AND (visit.first_seen < until) IS NOT FALSE"
    )
    during = "owned.user_id = session.user_id AND started_at < last_seen AND stopped_at > first_seen"
    # Without a workout, least and greatest would skip the NULLs and count the whole visit as exercise.
    there = F.col("session.user_id").isNotNull()
    begun = F.when(there, F.greatest("first_seen", "started_at")).alias("begun")
    ended = F.when(there, F.least("last_seen", "stopped_at")).alias("ended")
    with_workouts = (
        visit
        .join(owned, F.expr(mine))
        .join(session, F.expr(during), "left")
        .select("owned.user_id", "visit.mac_address", "gym", "first_seen", "last_seen", begun, ended)
    )
    of_visit = _sum_exercised_time(with_workouts, "user_id", "mac_address", "gym", "first_seen", "last_seen")
    # Microseconds are whole numbers, so the sums do not depend on the order of the rows.
    return of_visit.groupBy("user_id", "mac_address", "gym", F.to_date("first_seen").alias("date")).agg(
        F.count(F.lit(1)).alias("visits"),
        (F.sum(F.unix_micros("last_seen") - F.unix_micros("first_seen")) / 6e7).alias("minutes_in_gym"),
        (F.sum("exercised") / 6e7).alias("minutes_exercising"),
    )


@windowed(reads="heart_rate", keys="device_id", output="complete", subject="device_id")
def device_counts(heart_rate: DataFrame) -> DataFrame:
    """How many readings each device has taken so far."""
    return heart_rate.groupBy("device_id").agg(F.count(F.lit(1)).alias("readings"))


@windowed(
    reads="heart_rate",
    keys=("device_id", "begin"),
    watermark=Watermark("time", "30 minutes"),
    closes_when_idle="2 days",
    zorder_by="begin",
    subject="device_id",
)
def heart_rate_10min(heart_rate: DataFrame) -> DataFrame:
    """Each device's average heart rate over ten minutes, every five minutes (UTC). A window is final half an hour after its end."""
    sliding = F.window("time", "10 minutes", "5 minutes")
    counted = heart_rate.groupBy("device_id", sliding.alias("sliding")).agg(
        F.count(F.lit(1)).alias("readings"), _average_heart_rate("heartrate").alias("average")
    )
    return counted.select(
        "device_id", F.col("sliding.start").alias("begin"), F.col("sliding.end").alias("end"), "readings", "average"
    )


@windowed(
    reads=("bpm", "workouts"),
    keys=("device_id", "time", "session_id"),
    watermark={"bpm": Watermark("time", "1 day"), "workouts": Watermark("time", "1 day")},
    subject="user_id",
)
def workout_heart_rate_stream(bpm: DataFrame, workouts: DataFrame) -> DataFrame:
    """What devices sent (beats per minute) in the two hours after their member's workout began: a join of two streams (UTC).

    Unlike `workout_heart_rate`, it does not know when a workout stopped, and it drops what is a day late.
    """
    starts = workouts.where("action = 'start'").select(
        F.col("user_id").alias("who"), "session_id", F.col("time").alias("started_at")
    )
    sent = bpm.select("user_id", "device_id", "time", "heartrate")
    within = "user_id = who AND time >= started_at AND time <= started_at + INTERVAL 2 HOURS"
    return sent.join(starts, F.expr(within)).select("device_id", "time", "user_id", "session_id", "started_at", "heartrate")


@materialized_view(reads="heart_rate", keys=("device_id", "date"), zorder_by="date", subject="device_id")
def device_day(heart_rate: DataFrame) -> DataFrame:
    """How many readings a device took on a day (UTC), with the lowest, the average and the highest in beats per minute."""
    return heart_rate.groupBy("device_id", F.to_date("time").alias("date")).agg(*_summarise_heart_rate("heartrate"))


def _summarise_heart_rate(heartrate: str) -> list[Column]:
    lowest, highest = F.min(heartrate).alias("lowest"), F.max(heartrate).alias("highest")
    return [F.count(F.lit(1)).alias("readings"), lowest, _average_heart_rate(heartrate).alias("average"), highest]


def _average_heart_rate(heartrate: str) -> Column:
    # A sum of DOUBLEs depends on the order of the rows in its last bits, and a view must equal its recompute.
    # A sum of DECIMALs does not: the average is taken of millionths of a beat. (A sensor that reports a
    # thousand billion beats has no such DECIMAL; it shows in `highest` and stays out of the average.)
    return F.avg(F.col(heartrate).try_cast("decimal(18,6)")).cast("double")


def _sum_exercised_time(workouts: DataFrame, *visit: str) -> DataFrame:
    """The microseconds of each visit that its workouts (`begun` to `ended`) cover. What two of them cover counts once."""
    # Only the part of a workout after the end of all earlier ones counts.
    before = Window.partitionBy(*visit).orderBy("begun", "ended").rowsBetween(Window.unboundedPreceding, -1)
    since = F.greatest("begun", F.max("ended").over(before))
    own = F.greatest(F.unix_micros("ended") - F.unix_micros(since), F.lit(0))
    return workouts.withColumn("own", own).groupBy(*visit).agg(F.sum("own").alias("exercised"))


def _select_ended_workouts(workouts: DataFrame) -> DataFrame:
    """The workouts whose end is known."""
    return workouts.where(f"stopped_at <= started_at + INTERVAL {LONGEST}")


def _until_the_next(memberships: DataFrame, of: str) -> DataFrame:
    """Each membership of a device or a phone, with the instant `until` which it is valid; NULL while it still is."""
    # If two have the same instant, the first in this order is never valid.
    following = Window.partitionBy(of).orderBy("registered_at", "device_id", "user_id")
    return memberships.withColumn("until", F.lead("registered_at").over(following))
