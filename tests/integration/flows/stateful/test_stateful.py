"""Streams with state: windows in each output, joins, late rows, idle inputs, erasure, what is refused and how a stream starts over."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.few_rows import append_delivery

import residue
from residue import needles
from sluice.declare import F, Pipeline, Source, Watermark, table, windowed
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import aging, requests
from sluice.errors import SluiceError, StopRequested
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.declare.interval import Interval
    from sluice.lake.flow_report import FlowReport
    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

PIPELINE = Pipeline(name="ward", description="A ward.", owner="tests", layers=("ward.bronze", __name__))
LAYERS = ("bronze", __name__.rsplit(".", 1)[-1])
START = datetime(2026, 1, 1, tzinfo=UTC)


def source(name: str, schema: str, **options: Any) -> Source:
    return Source(name=name, path=name, pattern="*.jsonl", schema=schema, comment="What was measured.", **options)


PULSES = source("pulses", "device BIGINT, at TIMESTAMP, pulse BIGINT", subject="device")
STAYS = source("stays", "device BIGINT, began TIMESTAMP, patient STRING")


@table(reads="pulses", keys=("device", "at"), subject="device")
def pulse(pulses: DataFrame) -> DataFrame:
    """Heart rates in beats per minute."""
    return pulses.select("device", "at", "pulse")


@table(reads="stays", keys=("device", "began"))
def stay(stays: DataFrame) -> DataFrame:
    """From when on a patient wears a device."""
    return stays.select("device", "began", "patient")


def of_window(rows: DataFrame, *window: str) -> DataFrame:
    """How many rows each window has, and their sum."""
    summed = rows.groupBy(F.window("at", *window)).agg(F.count(F.lit(1)).alias("pulses"), F.sum("pulse").alias("total"))
    return summed.select(F.col("window.start").alias("start"), "pulses", "total")


@windowed(reads="pulse", keys="start", watermark=Watermark("at", "10 minutes"))
def tumbling(pulse: DataFrame) -> DataFrame:
    """Ten minutes."""
    return of_window(pulse, "10 minutes")


@windowed(reads="pulse", keys="start", watermark=Watermark("at", "10 minutes"))
def sliding(pulse: DataFrame) -> DataFrame:
    """Ten minutes, every five."""
    return of_window(pulse.where("pulse > 0"), "10 minutes", "5 minutes")


@windowed(reads="pulse", keys="start", output="update", watermark=Watermark("at", "10 minutes"))
def updated(pulse: DataFrame) -> DataFrame:
    """Ten minutes, as they are so far."""
    return of_window(pulse, "10 minutes")


@windowed(reads="pulse", keys="device", output="complete")
def counted(pulse: DataFrame) -> DataFrame:
    """How many rows a device ever had."""
    return pulse.groupBy("device").agg(F.count(F.lit(1)).alias("pulses"))


@windowed(reads="pulses", keys=("device", "pulse"), watermark=Watermark("at", "10 minutes"))
def first_seen(pulses: DataFrame) -> DataFrame:
    """The first time that a device had a heart rate, of those within ten minutes."""
    return pulses.select("device", "at", "pulse").dropDuplicatesWithinWatermark(["device", "pulse"])


@windowed(
    reads=("pulse", "stay"),
    keys=("device", "at"),
    watermark={"pulse": Watermark("at", "10 minutes"), "stay": Watermark("began", "10 minutes")},
)
def worn(pulse: DataFrame, stay: DataFrame) -> DataFrame:
    """Who wore the device, of heart rates in the first hour."""
    other = stay.withColumnRenamed("device", "worn")
    near = F.expr("device = worn AND at >= began AND at <= began + INTERVAL 1 HOUR")
    return pulse.join(other, near).select("device", "at", "pulse", "patient")


def instant(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


class Ward(Lakehouse):
    """Rows by minute of a day. They are put into bronze, and a run is of the layer above it; if it lands, they come as files through all."""

    lands = False

    def pulses(self, *minutes: float, device: int = 1) -> None:
        self.deliver(PULSES, *((device, instant(minute), int(minute * 10)) for minute in minutes))

    def stays(self, *minutes: float, device: int = 1) -> None:
        self.deliver(STAYS, *((device, instant(minute), f"p{minute}") for minute in minutes))

    def deliver(self, source: Source, *rows: tuple[Any, ...]) -> None:
        """One file or delivery with these values of the columns that the source declares."""
        if not self.lands:
            self.landed += 1
            append_delivery(self.workspace(), source, self.landed, rows)
            return
        names = [part.split()[0] for part in (source.ddl or "").split(", ")]
        named = ({name: _told(value) for name, value in zip(names, row, strict=True)} for row in rows)
        self.land(f"{source.name}/{self.landed}.jsonl", "".join(json.dumps(row) + "\n" for row in named))

    def run(
        self, *wanted: str, mode: str = "increment", tables: Sequence[str] = (), interval: Interval | None = None
    ) -> dict[str, FlowReport]:
        layers = wanted or (LAYERS if self.lands else LAYERS[1:])
        return super().run(*layers, mode=mode, tables=tables, interval=interval)

    def minutes(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """A table's rows, instants as minutes of the day."""
        return sorted(tuple(_minute(value) for value in row) for row in self.rows(table, *columns))


def _told(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _minute(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return (value.replace(tzinfo=UTC) - START).total_seconds() / 60


def ward(settings: Settings, spark: SparkSession, *declared: Any) -> Ward:
    of_stays = [STAYS, stay] if any("stay" in one.reads for one in declared) else []
    return Ward(settings, spark, build_declaration_graph(PIPELINE, [PULSES, pulse, *of_stays, *declared]))


def test_each_output_once_the_rows_that_came_late_kept(settings: Settings, spark: SparkSession) -> None:
    lake = ward(settings, spark, tumbling, updated, counted, first_seen, worn)
    lake.pulses(5, 12, 31)  # from here on, what is not after minute 21 is late
    lake.stays(0, 30)
    lake.run()
    assert lake.minutes("tumbling") == [(0, 1, 50), (10, 1, 120)]
    assert lake.minutes("updated") == [(0, 1, 50), (10, 1, 120), (30, 1, 310)]
    assert lake.minutes("counted") == [(1, 3)]
    assert lake.minutes("first_seen", "at") == [(5,), (12,), (31,)]
    assert lake.minutes("worn", "at", "patient") == [(5, "p0"), (12, "p0"), (31, "p0"), (31, "p30")]
    before = lake.versions()
    assert {name: report.late for name, report in lake.run().items() if report.late} == {}
    assert lake.versions() == before, "nothing new, no commit"

    lake.pulses(9, 15, 20, 21, 22, 29)
    reports = lake.run()
    assert lake.minutes("tumbling_late", "at", "_missed") == [(9, "all"), (15, "all")]
    assert lake.minutes("updated") == [(0, 1, 50), (10, 1, 120), (20, 4, 920), (30, 1, 310)]
    assert lake.minutes("counted") == [(1, 9)] and "counted_late" not in lake.versions()
    assert lake.minutes("first_seen", "at") == [(5,), (12,), (22,), (29,), (31,)]
    assert lake.minutes("first_seen_late", "at") == [(9,), (15,), (20,), (21,)]
    assert (reports["tumbling"].late, reports["first_seen"].late, reports["counted"].late) == (2, 4, 0)
    assert reports["tumbling"].notes == ["2 rows of 'pulse' came too late, by up to 720 s: they are in tumbling_late"]
    assert reports["tumbling"].state_rows > 0 and reports["tumbling"].state_bytes > 0


@pytest.mark.thorough
def test_late_rows_expire_by_the_declared_time_after_the_run_that_found_them(settings: Settings, spark: SparkSession) -> None:
    keeping = replace(PIPELINE, keep_late="90 days")
    lake = Ward(settings, spark, build_declaration_graph(keeping, [PULSES, pulse, tumbling]))
    lake.pulses(5, 31)
    lake.run()
    lake.pulses(9, 15)
    assert lake.run()["tumbling"].late == 2
    now, rows = datetime.now(UTC), lake.rows("tumbling")
    assert aging.remove_old_rows_aside_or_late(lake.workspace(), now + timedelta(days=89)) == []
    (report,) = aging.remove_old_rows_aside_or_late(lake.workspace(), now + timedelta(days=91))
    assert (report.flow, report.expired) == ("tumbling_late", 2) and lake.rows("tumbling_late") == []
    assert aging.remove_old_rows_aside_or_late(lake.workspace(), now + timedelta(days=91)) == []
    lake.pulses(16, 60)
    assert lake.run()["tumbling"].late == 1, "the stream goes on, and keeps what comes late"
    assert lake.minutes("tumbling_late", "at") == [(16,)] and set(rows) <= set(lake.rows("tumbling"))


@pytest.mark.slow
def test_every_row_is_in_a_window_or_kept_as_late(settings: Settings, spark: SparkSession) -> None:
    lake = ward(settings, spark, tumbling, sliding)
    all_of_them: list[float] = []
    for minutes in ([0, 7, 40], [3, 24, 26, 33, 90], [41, 79, 81, 84.5, 300]):
        lake.pulses(*minutes)
        all_of_them += minutes
        lake.run()
    rows = Counter({start: pulses for start, pulses, _ in lake.minutes("tumbling")})
    late = Counter(int(at // 10) * 10.0 for (at,) in lake.minutes("tumbling_late", "at"))
    assert rows + late == Counter(int(at // 10) * 10.0 for at in all_of_them if at != 300)
    sums = {start: total for start, _, total in lake.minutes("sliding")}
    assert {missed for _, missed in lake.minutes("sliding_late", "at", "_missed")} == {"all", "some"}
    for start in range(0, 90, 5):
        inside = [at for at in all_of_them if start <= at < start + 10]
        missing = [at for at, _ in lake.minutes("sliding_late", "at", "_missed") if start <= at < start + 10]
        assert sums.get(start, 0) >= sum(at * 10 for at in inside if at and at not in missing), start


def test_f3_a_watermark_of_seconds_loses_no_backfilled_row(settings: Settings, spark: SparkSession) -> None:
    @windowed(reads="pulse", keys="start", watermark=Watermark("at", "30 seconds"))
    def hasty(pulse: DataFrame) -> DataFrame:
        """Minutes."""
        return of_window(pulse, "1 minute")

    lake = ward(settings, spark, hasty)
    lake.pulses(300)
    lake.run()
    lake.pulses(1, 2, 3)  # of hours before: a backfill
    report = lake.run()["hasty"]
    assert (report.late, report.rows_in, lake.minutes("hasty")) == (3, 3, [])
    assert lake.minutes("hasty_late", "at", "_input", "_watermark") == [(at, "pulse", 299.5) for at in (1, 2, 3)]


@pytest.mark.thorough
def test_a_stream_that_is_quiet_is_closed_once(settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    @windowed(reads="pulse", keys="start", watermark=Watermark("at", "10 minutes"), closes_when_idle="1 hour")
    def closing(pulse: DataFrame) -> DataFrame:
        """Ten minutes."""
        return of_window(pulse, "10 minutes")

    lake = ward(settings, spark, closing)
    lake.pulses(5, 31)
    lake.run()
    assert lake.minutes("closing") == [(0, 1, 50)] and lake.run()["closing"].notes == []
    _later(monkeypatch, hours=2)
    assert lake.run()["closing"].notes == ["nothing came for 1 hour: the windows up to 2026-01-01 00:40:00 were closed"]
    assert lake.minutes("closing") == [(0, 1, 50), (30, 1, 310)]
    before = lake.versions()
    assert lake.run()["closing"].notes == [] and lake.versions() == before, "once"
    monkeypatch.undo()
    lake.pulses(39, 41, 70)
    assert lake.run()["closing"].late == 1 and lake.minutes("closing_late", "at") == [(39,)]
    assert lake.minutes("closing") == [(0, 1, 50), (30, 1, 310), (40, 1, 410)]


def _later(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    from sluice.flows.stateful import idle

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(hours=hours)

    monkeypatch.setattr(idle, "datetime", Clock)


@pytest.mark.parametrize("where", [pytest.param("late.keep_late_rows", marks=pytest.mark.slow), "write_stream_batch"])
def test_a_batch_that_is_repeated_writes_once(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    from sluice.flows.stateful import flow

    lake = ward(settings, spark, tumbling)
    lake.pulses(5, 12, 31)
    lake.run()
    lake.pulses(9, 15, 60)
    *inside, name = where.split(".")
    owner: Any = functools.reduce(getattr, inside, flow)
    done: Callable[..., None] = getattr(owner, name)

    def dying(*arguments: Any) -> None:
        done(*arguments)
        raise StopRequested("killed")

    monkeypatch.setattr(owner, name, dying)
    with pytest.raises(StopRequested):
        lake.run()
    monkeypatch.undo()
    lake.run()
    assert lake.minutes("tumbling") == [(0, 1, 50), (10, 1, 120), (30, 1, 310)]
    assert lake.minutes("tumbling_late", "at") == [(9,), (15,)]


@pytest.mark.thorough
def test_a_first_batch_that_is_repeated_keeps_what_is_late(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluice.flows.stateful import flow

    lake = ward(settings, spark, tumbling)
    lake.pulses(5, 31)
    lake.deliver(PULSES, (2, None, 7))  # of no window, so late from the first batch on
    done = flow.late.keep_late_rows

    def dying(*arguments: Any) -> None:
        done(*arguments)
        raise StopRequested("killed")

    monkeypatch.setattr(flow.late, "keep_late_rows", dying)
    with pytest.raises(StopRequested):
        lake.run()
    monkeypatch.undo()
    lake.run()
    assert lake.rows("tumbling_late", "device", "at") == [(2, None)]


@pytest.mark.slow
def test_state_does_not_grow_with_the_number_of_runs(settings: Settings, spark: SparkSession) -> None:
    lake = ward(settings, spark, tumbling)
    files = []
    for run in range(8):
        lake.pulses(run * 60, run * 60 + 1)
        lake.run()
        state = Path(PipelineRecords(settings, "ward").checkpoints(f"{LAYERS[1]}_tumbling"))
        files.append(sum(1 for path in state.glob("*/state/**/*") if path.is_file()))
    assert max(files[5:]) <= max(files[1:5]) + 4, files  # a version more or less of one window's partition


@pytest.mark.slow
def test_a_stream_does_not_rebase_by_itself_and_starts_over_when_asked(settings: Settings, spark: SparkSession) -> None:
    lake = ward(settings, spark, tumbling)
    lake.pulses(5, 31)
    lake.run()
    lake.pulses(7)
    assert lake.run()["tumbling"].late == 1

    @windowed(reads="pulse", keys="start", watermark=Watermark("at", "10 minutes"), name="tumbling")
    def of_five(pulse: DataFrame) -> DataFrame:
        """Five minutes."""
        return of_window(pulse, "5 minutes")

    changed = ward(settings, spark, of_five)
    with pytest.raises(SluiceError, match=r"its transform changed.*--mode refresh --table tumbling"):
        changed.run()
    changed.run(mode="refresh", tables=["tumbling"])
    assert changed.minutes("tumbling") == [(5, 2, 120)] and changed.minutes("tumbling_late") == []
    assert "does not reach it" in changed.replay("2026-01-01", "2026-01-02")["tumbling"].notes[0]
    for path in Path(PipelineRecords(settings, "ward").checkpoints(f"{LAYERS[1]}_tumbling")).glob("*.json"):
        path.unlink()
    with pytest.raises(SluiceError, match="its checkpoint was lost"):
        changed.run()


@pytest.mark.usefixtures("uncontrolled")
def test_f9_complete_mode_forgets_an_erased_person(settings: Settings, spark: SparkSession) -> None:
    lake = ward(settings, spark, counted)
    lake.lands = True
    lake.pulses(5, device=1)
    lake.pulses(6, 32, device=7_700_000_077)
    lake.run()
    state = [residue.ScanRoot("state", PipelineRecords(settings, "ward").bookkeeping("checkpoints"))]
    wanted = needles.build_needles([("device", "7700000077")])
    assert lake.minutes("counted") == [(1, 1), (7_700_000_077, 2)] and residue.scan_roots(state, wanted, processes=1).hits
    requests.receive_erasure_request(PipelineLake(settings, lake.graph), ["7700000077"], "device")
    lake.run("propagate_deletions")
    assert lake.minutes("counted") == [(1, 1)] and residue.scan_roots(state, wanted, processes=1).hits == []
    assert residue.scan_roots(state, wanted, processes=1).unread == []


@pytest.mark.slow
def test_f9_an_erased_person_is_in_no_state_and_in_no_table(settings: Settings, spark: SparkSession) -> None:
    lake = ward(settings, spark, counted, tumbling)
    lake.lands = True
    lake.pulses(5, 31, device=1)
    lake.pulses(6, 32, device=77)
    lake.run()
    lake.pulses(7, device=77)
    lake.run()
    assert lake.minutes("counted") == [(1, 2), (77, 3)] and len(lake.rows("tumbling_late")) == 1
    requests.receive_erasure_request(PipelineLake(settings, lake.graph), ["77"], "device")
    lake.run("propagate_deletions")
    assert lake.minutes("counted") == [(1, 2)] and lake.minutes("tumbling") == [(0, 1, 50)]
    assert lake.rows("tumbling_late") == []
    lake.pulses(8, 33, device=77)
    lake.run()
    assert lake.minutes("counted") == [(1, 2)]
    for state in Path(PipelineRecords(settings, "ward").bookkeeping("checkpoints")).rglob("state"):
        keys = spark.read.format("statestore").load(str(state.parent)).select("key.*")
        assert "device" not in keys.columns or {row.device for row in keys.collect()} == {1}


TEN = Watermark("at", "10 minutes")


@windowed(reads=("pulse", "stay"), keys=("start",), watermark={"pulse": TEN, "stay": Watermark("began", "10 minutes")})
def of_both(pulse: DataFrame, stay: DataFrame) -> DataFrame:
    """Two streams put below each other, by position."""
    stays = stay.select("device", "began", F.lit(0))
    return (
        pulse
        .union(stays)
        .groupBy(F.window("at", "10 minutes").alias("w"))
        .count()
        .select(F.col("w.start").alias("start"), "count")
    )


@windowed(reads="pulse", keys=("who", "start"), watermark=TEN)
def renamed(pulse: DataFrame) -> DataFrame:
    """Columns named by position."""
    counted = pulse.toDF("who", "when", "beats").groupBy("who", F.window("when", "10 minutes")).count()
    return counted.select("who", F.col("window.start").alias("start"), "count")


@windowed(reads="pulse", keys=("id", "start"), watermark=TEN)
def by_struct(pulse: DataFrame) -> DataFrame:
    """Grouped by a STRUCT and by a field of one before the window."""
    made = pulse.withColumn("sent", F.struct(F.col("device").alias("id")))
    counted = made.groupBy("sent", "sent.id", F.window("at", "10 minutes")).count()
    return counted.select("id", F.col("window.start").alias("start"), "count")


@windowed(reads="pulse", keys="start", watermark=TEN)
def filtered(pulse: DataFrame) -> DataFrame:
    """Only some rows, in windows over some columns."""
    fast = pulse.where("pulse > 100").select("at", "pulse").where("pulse <> 160")
    return fast.groupBy(F.window("at", "10 minutes", "5 minutes")).count().select(F.col("window.start").alias("start"), "count")


@windowed(reads="pulse", keys="device", watermark=TEN, output="complete")
def firsts(pulse: DataFrame) -> DataFrame:
    """What Spark leaves out before the aggregation, though it takes everything there."""
    return pulse.where("pulse > 100").dropDuplicatesWithinWatermark(["device", "pulse"]).groupBy("device").count()


@windowed(reads="pulse", keys="start", watermark=TEN, output="complete")
def every(pulse: DataFrame) -> DataFrame:
    """Windows over all rows except those without an instant."""
    return pulse.groupBy(F.window("at", "10 minutes")).count().select(F.col("window.start").alias("start"), "count")


@windowed(reads="pulse", keys="start", watermark=TEN)
def uneven(pulse: DataFrame) -> DataFrame:
    """Windows whose length is not a multiple of their distance."""
    return of_window(pulse.where("pulse <> 160"), "10 minutes", "4 minutes")


@windowed(reads="pulse", keys=("device", "start"), watermark=TEN)
def sessions(pulse: DataFrame) -> DataFrame:
    """Each row says how long its session lasts; of 220 not at all."""
    lasting = F.session_window("at", F.expr("make_interval(0, 0, 0, 0, 0, IF(pulse = 220, 0, 1), 0)"))
    counted = pulse.groupBy("device", lasting.alias("w")).count()
    return counted.select("device", F.col("w.start").alias("start"), "count")


@windowed(reads="pulse", keys="start", watermark=TEN)
def by_hour(pulse: DataFrame) -> DataFrame:
    """A function by an author who has never seen a NULL."""
    return of_window(pulse.where(F.udf(lambda at: at.hour < 24, "boolean")("at")), "10 minutes")


@windowed(reads=("pulse", "stay"), keys=("device", "at"), watermark={"pulse": TEN, "stay": Watermark("began", "10 minutes")})
def fast_and_worn(pulse: DataFrame, stay: DataFrame) -> DataFrame:
    """A join of some rows, by some columns."""
    fast = pulse.where("pulse > 100").select("device", "at")
    began = stay.where("patient <> 'p7'").select(F.col("device").alias("worn"), "began")
    return fast.join(began, F.expr("device = worn AND at >= began AND at <= began + INTERVAL 1 HOUR")).select("device", "at")


@windowed(reads="pulse", keys="start", watermark=TEN)
def of_streams_only(pulse: DataFrame) -> DataFrame:
    """Nothing that can be looked at over tables."""
    if not pulse.isStreaming:
        raise RuntimeError("a stream is wanted")
    return of_window(pulse.where("pulse > 100"), "10 minutes")


@pytest.mark.thorough
def test_late_are_those_that_come_to_the_operator_and_no_transform_fails_for_their_count(
    settings: Settings, spark: SparkSession
) -> None:
    of_one = (renamed, by_struct, filtered, firsts, every, uneven, sessions, by_hour)
    lake = ward(settings, spark, of_both, *of_one, fast_and_worn, of_streams_only)
    lake.pulses(5, 31)
    lake.stays(5, 31)
    lake.run()  # from here on, what is not after minute 21 is late
    lake.pulses(9, 15, 16, 22)
    lake.deliver(PULSES, (2, None, 7), (3, None, 700))
    lake.stays(7, 8)
    reports = lake.run()

    assert sorted(lake.rows("of_both_late", "_input", "_missed")) == [("pulse", "all")] * 5 + [("stay", "all")] * 2
    for takes_all in ("renamed", "by_struct"):
        assert sorted(lake.rows(f"{takes_all}_late", "pulse")) == [(7,), (90,), (150,), (160,), (700,)], takes_all
    assert sorted(lake.rows("filtered_late", "pulse", "_missed")) == [(150, "some"), (700, "all")], "minute 15 has one window yet"
    assert sorted(lake.rows("firsts_late", "pulse")) == [(150,), (160,)], "and NULL is after no watermark, nor before it"
    of_by_time = [(7, "all"), (90, "unknown"), (150, "unknown"), (160, "unknown"), (700, "all")]
    of_join = [("pulse", 150, None), ("pulse", 160, None), ("stay", None, "p8")]
    assert sorted(lake.rows("fast_and_worn_late", "_input", "pulse", "patient"), key=repr) == of_join
    assert sorted(lake.rows("uneven_late", "pulse", "_missed")) == [(7, "all"), (90, "all"), (150, "some"), (700, "all")]
    assert sorted(lake.rows("sessions_late", "pulse")) == [(7,), (90,), (150,), (160,), (220,), (700,)]
    no_window = {pulse for pulse, closed in lake.rows("sessions_late", "pulse", "_watermark") if closed is None}
    assert no_window == {7, 220, 700}, "the watermark shut these out of nothing"
    assert sorted(lake.rows("by_hour_late", "pulse", "_missed")) == of_by_time
    assert lake.rows("every_late", "at", "_missed") == [(None, "all")] * 2 and lake.minutes("every")[0] == (0, 2)
    assert sorted(lake.rows("of_streams_only_late", "pulse", "_missed")) == of_by_time
    assert "(3 of them by their time alone: its plan does not tell which it takes)" in reports["of_streams_only"].notes[0]


@pytest.mark.thorough
def test_a_column_that_the_state_has_not_is_told_with_the_remedy(settings: Settings, spark: SparkSession) -> None:
    @windowed(reads="pulse", keys=("device", "at"), watermark=TEN)
    def unique(pulse: DataFrame) -> DataFrame:
        """All columns, once."""
        return pulse.dropDuplicates()

    @table(reads="pulses", keys=("device", "at"), subject="device", name="pulse")
    def wider(pulses: DataFrame) -> DataFrame:
        """With one column more."""
        return pulses.select("device", "at", "pulse", F.lit("bpm").alias("unit"))

    lake = ward(settings, spark, unique)
    lake.pulses(5, 31)
    lake.run()
    changed = Ward(settings, spark, build_declaration_graph(PIPELINE, [PULSES, wider, unique]), landed=lake.landed)
    changed.pulses(40)
    with pytest.raises(SluiceError, match=r"'unique' cannot go on: .*SCHEMA_NOT_COMPATIBLE.*--mode refresh --table unique"):
        changed.run()
    changed.run(mode="refresh", tables=["unique"])
    assert changed.minutes("unique", "at", "unit") == [(5, None), (31, None), (40, "bpm")]
