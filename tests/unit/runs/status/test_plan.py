"""What is reported before a run, from ledgers, logs and checkpoints that are made here without Spark."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import Call

from sluice.declare import Pipeline, Source, schedule_intervals, table
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.declare.interval import Interval
from sluice.flows.progress import checkpoints, positions
from sluice.flows.progress.positions import StreamPosition
from sluice.ingest import delivery_tables
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.planning import plan
from sluice.runs.status import lag, reconciliation, stale, timeliness
from sluice.runs.status.books import PipelineBooks
from sluice.settings import Settings

DAY = timedelta(days=1)
START = datetime(2026, 1, 1, 2, tzinfo=UTC)

pytestmark = pytest.mark.usefixtures("root_folders")


@table(reads="reports", keys="id")
def report(reports: Any) -> Any:
    """A report."""
    return reports.select("id")


def declared(**options: Any) -> Graph:
    source = Source(name="reports", format="csv", path="reports", comment="x", **options)
    layers = ("pipelines.shop.bronze", __name__)
    return build_declaration_graph(Pipeline(name="shop", description="x", owner="x", layers=layers), [source, report])


def run_row(at: datetime, **values: Any) -> dict[str, Any]:
    head = {"run": f"r{at:%d%H%M}", "pipeline": "shop", "mode": "increment", "state": "done", "started_at": at, "ended_at": at}
    return {**head, **values}


def record(settings: Settings, pipeline: str, rows: list[dict[str, Any]]) -> None:
    run_ledger.append_run_rows(PipelineRecords(settings, pipeline), rows)


def both_layers(at: datetime, **values: Any) -> list[dict[str, Any]]:
    return [
        run_row(at, stage="bronze", flow="reports", **values),
        run_row(at + timedelta(minutes=1), run=f"r{at:%d%H%M}", stage=__name__.rsplit(".", 1)[-1], flow="report", **values),
    ]


def deliver(settings: Settings, days: list[int], recorded: datetime) -> None:
    """One file a day of January, read at that time, with ten rows each."""
    at = [datetime(2026, 1, day, 5, tzinfo=UTC) for day in days]
    head = [
        {"delivery": d, "source": "reports", "file": f"r-202601{d:02}.csv", "modified_at": t}
        for d, t in zip(days, at, strict=True)
    ]
    path = PipelineRecords(settings, "shop").bookkeeping("")
    deliveries = [{**row, "event": "delivered", "size": 100, "discovered_at": recorded} for row in head]
    outcomes = [
        {**row, "state": "ingested", "rows": 10, "quarantined": 0, "suppressed": 0, "recorded_at": recorded} for row in head
    ]
    write_deltalake(f"{path}/deliveries", pa.Table.from_pylist(deliveries, schema=delivery_tables.DELIVERIES), mode="append")
    delivery_tables.append_delivery_ledger_rows(f"{path}/outcomes", outcomes, delivery_tables.OUTCOMES, "r")


def make_silver(settings: Settings, shop: Graph, code: str) -> None:
    path = PipelineRecords(settings, "shop").table_path(shop.layer(shop["report"]), "report")
    # A property of Sluice's own, which delta-rs sets on a table that it makes only through the raw metadata.
    write_deltalake(path, pa.table({"id": [1]}), configuration={"delta.logRetentionDuration": "interval 30 days"})
    first = Path(path) / "_delta_log" / f"{0:020d}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"]["sluice.fingerprint"] = code
    first.write_text("\n".join(json.dumps(line) for line in lines))


JANUARY = Interval.of("2026-01-01", "2026-01-31")


def test_days_that_earlier_code_folded_are_stale_until_they_are_replayed(settings: Settings) -> None:
    shop, code = declared(date_in_path="%Y%m%d"), compute_declaration_fingerprint(report)
    make_silver(settings, shop, "before")
    deliver(settings, [1, 2, 3, 6], START)
    record(settings, "shop", both_layers(START, fingerprint="before"))
    deliver(settings, [7], START + DAY)
    record(settings, "shop", both_layers(START + DAY, fingerprint=code))
    table_ = shop.tables["report"]
    assert stale.find_stale_intervals(PipelineLake(settings, shop), table_) == [Interval.of("2026-01-01", "2026-01-06")]
    assert stale.forecast_stale_intervals(PipelineLake(settings, shop), table_, JANUARY) == []
    middle = Interval.of("2026-01-02", "2026-01-03")
    left = [Interval.of("2026-01-01", "2026-01-01"), Interval.of("2026-01-06", "2026-01-06")]
    assert stale.forecast_stale_intervals(PipelineLake(settings, shop), table_, middle) == left
    replayed = {"mode": "replay", "interval_start": middle.start, "interval_end": middle.end}
    record(settings, "shop", both_layers(START + 2 * DAY, fingerprint=code, **replayed | {"state": "failed"}))
    assert stale.find_stale_intervals(PipelineLake(settings, shop), table_) == [Interval.of("2026-01-01", "2026-01-06")]
    record(settings, "shop", both_layers(START + 3 * DAY, fingerprint=code, **replayed))
    assert stale.find_stale_intervals(PipelineLake(settings, shop), table_) == left
    record(settings, "shop", both_layers(START + 4 * DAY, fingerprint=code, note="folded anew: refresh"))
    assert stale.find_stale_intervals(PipelineLake(settings, shop), table_) == []


def test_rows_by_code_that_came_between_are_stale_after_going_back(settings: Settings) -> None:
    shop, code = declared(date_in_path="%Y%m%d"), compute_declaration_fingerprint(report)
    make_silver(settings, shop, code)
    deliver(settings, [1], START)
    record(settings, "shop", both_layers(START, fingerprint=code))
    deliver(settings, [2], START + DAY)
    record(settings, "shop", both_layers(START + DAY, fingerprint="between"))
    assert stale.find_stale_intervals(PipelineLake(settings, shop), shop.tables["report"]) == [
        Interval.of("2026-01-02", "2026-01-02")
    ]


def test_of_records_with_dates_of_their_own_all_dates_are_stale(settings: Settings) -> None:
    shop, code = declared(dated_by="day"), compute_declaration_fingerprint(report)
    make_silver(settings, shop, "before")
    deliver(settings, [1, 2], START)
    record(settings, "shop", both_layers(START, fingerprint="before"))
    record(settings, "shop", both_layers(START + DAY, fingerprint=code))
    table_ = shop.tables["report"]
    assert [stale.describe_stale_interval(one) for one in stale.find_stale_intervals(PipelineLake(settings, shop), table_)] == [
        "all dates"
    ]
    assert [
        stale.describe_stale_interval(one)
        for one in stale.forecast_stale_intervals(PipelineLake(settings, shop), table_, JANUARY)
    ] == [
        "before 2026-01-01",
        "from 2026-02-01 on",
    ]
    assert stale.forecast_stale_intervals(PipelineLake(settings, shop), table_, JANUARY, extent=JANUARY) == []


def scheduled(day: int, **values: Any) -> list[dict[str, Any]]:
    start = START + (day - 1) * DAY
    return both_layers(start + DAY, **{"interval_start": start, "interval_end": start + DAY, **values})


def test_gaps_are_what_never_ran_and_what_failed(settings: Settings) -> None:
    shop, now = declared(), START + 9 * DAY + timedelta(hours=1)
    assert timeliness.find_schedule_gaps(PipelineLake(settings, shop), now) == []
    for day in (1, 2, 7):
        record(settings, "shop", scheduled(day))
    record(settings, "shop", [scheduled(5)[0], {**scheduled(5)[1], "state": "failed"}])
    (found,) = timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)[:1]
    assert found.interval == Interval(START + 2 * DAY, START + 6 * DAY)
    assert (found.why, found.command("shop")) == ("never ran or failed", "sluice backfill shop --from 2026-01-03 --to 2026-01-06")
    # The interval of the 9th has just ended, and its run may still come; that of the 8th is missing.
    assert [one.interval for one in timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)][1:] == [
        Interval(START + 7 * DAY, START + 8 * DAY)
    ]


def test_a_table_that_got_another_name_opens_no_gap_and_a_run_without_its_stage_does(settings: Settings) -> None:
    shop, now = declared(), START + 4 * DAY + timedelta(hours=1)
    for day in (1, 2, 3):
        bronze, silver = scheduled(day)
        record(settings, "shop", [bronze, {**silver, "flow": "reports_as_it_was_called"}] if day != 2 else [bronze])
    record(settings, "shop", scheduled(4))
    assert [gap.interval for gap in timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)] == [
        Interval(START + DAY, START + 2 * DAY)
    ]


def test_a_retry_and_a_backfill_close_a_gap_and_a_part_of_the_tables_does_not(settings: Settings) -> None:
    shop, now = declared(), START + 4 * DAY + timedelta(hours=1)
    record(settings, "shop", scheduled(1))
    record(settings, "shop", [{**row, "state": "failed"} for row in scheduled(2)])
    record(settings, "shop", [{**row, "started_at": row["started_at"] + timedelta(hours=1)} for row in scheduled(2)])
    assert [gap.interval for gap in timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)] == [
        Interval(START + 2 * DAY, START + 3 * DAY)
    ]
    third = {
        "mode": "replay",
        "interval_start": datetime(2026, 1, 3, tzinfo=UTC),
        "interval_end": datetime(2026, 1, 5, tzinfo=UTC),
    }
    record(settings, "shop", both_layers(START + 5 * DAY, **third)[:1])
    assert len(timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)) == 1
    record(settings, "shop", both_layers(START + 6 * DAY, **third))
    assert timeliness.find_schedule_gaps(PipelineLake(settings, shop), now) == []


@pytest.mark.parametrize("first", [2, 3])
def test_the_backfill_of_the_day_whose_run_is_missing_closes_the_gap(settings: Settings, first: int) -> None:
    shop, now = declared(), START + 5 * DAY + timedelta(hours=1)
    for day in {1, 2, 3, 4} - set(range(first, 4)):
        record(settings, "shop", scheduled(day))
    (gap,) = timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)
    assert gap.interval == Interval(START + (first - 1) * DAY, START + 3 * DAY)
    assert gap.command("shop") == f"sluice backfill shop --from 2026-01-0{first} --to 2026-01-03"
    for day in range(first, 4):
        midnight = datetime(2026, 1, day, tzinfo=UTC)
        replay = {"mode": "replay", "interval_start": midnight, "interval_end": midnight + DAY}
        record(settings, "shop", both_layers(START + (6 + day) * DAY, **replay))
    assert timeliness.find_schedule_gaps(PipelineLake(settings, shop), now) == []


def test_the_backfill_of_a_gap_of_hours_reaches_its_last_day(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, hour = declared(), timedelta(hours=1)
    shop = replace(shop, pipeline=replace(shop.pipeline, schedule="*/5 * * * *"))
    for start in (START, START + 2 * DAY):
        record(settings, "shop", both_layers(start + hour, interval_start=start, interval_end=start + hour))
    asked: list[Interval] = []

    def count_overlapping(schedule: str, span: Interval) -> list[Interval]:
        asked.append(span)
        return schedule_intervals.data_intervals_overlapping(schedule, span)

    monkeypatch.setattr(timeliness, "data_intervals_overlapping", count_overlapping)
    (gap, *_) = timeliness.find_schedule_gaps(PipelineLake(settings, shop), START + 2 * DAY + hour)
    assert gap.command("shop") == "sluice backfill shop --from 2026-01-01 --to 2026-01-03"
    assert max(span.end - span.start for span in asked) < hour, "the ticks of months are not listed one by one"


def test_what_was_taken_while_it_was_kept_running_is_no_gap(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    shop, now = declared(), START + 9 * DAY + timedelta(hours=1)
    record(settings, "shop", scheduled(1))
    looks = iter([START + 3.5 * DAY, START + 3.6 * DAY, START + 3.6 * DAY + timedelta(seconds=30), START + 5.5 * DAY])
    monkeypatch.setattr(
        timeliness, "datetime", SimpleNamespace(now=lambda zone: next(looks), fromisoformat=datetime.fromisoformat)
    )
    span = timeliness.KeptRunningSpan(PipelineRecords(settings, "shop"))
    span.write()
    assert not (Path(PipelineRecords(settings, "shop").bookkeeping()) / "kept_running.json").exists(), "nothing was taken yet"
    for _ in range(3):
        span.looked()
    monkeypatch.undo()
    open_ones = [gap.interval for gap in timeliness.find_schedule_gaps(PipelineLake(settings, shop), now)]
    before, after = Interval(START + 1 * DAY, START + 3 * DAY), Interval(START + 5.5 * DAY, START + 8 * DAY)
    assert open_ones == [before, after], "its first look took all of its day, its last one what had come until then"


def checkpoint(settings: Settings, flow: str, inputs: dict[str, str], *offsets: tuple[int, int], done: int) -> Path:
    """A checkpoint as Spark leaves it. offsets: by batch, version and index; done: how many batches were finished."""
    made = checkpoints.open_checkpoint(PipelineRecords(settings, "shop").checkpoints(flow), flow, inputs)
    for folder in ("offsets", "commits"):
        (Path(made.path) / folder).mkdir()
    (Path(made.path) / "metadata").write_text('{"id": "a"}')
    (table_id,) = inputs.values()
    for number, (version, index) in enumerate(offsets):
        line = {
            "sourceVersion": 1,
            "reservoirId": table_id,
            "reservoirVersion": version,
            "index": index,
            "isStartingVersion": False,
        }
        (Path(made.path) / "offsets" / str(number)).write_text("v1\n{}\n" + json.dumps(line))
    for number in range(done):
        (Path(made.path) / "commits" / str(number)).write_text("v1\n{}")
    return Path(made.path)


def test_what_a_checkpoint_has_not_taken_waits(settings: Settings) -> None:
    shop = declared()
    (settings.landing / "shop" / "reports").mkdir(parents=True)
    for day in (1, 2, 3):
        deliver(settings, [day], START + day * DAY)
    make_silver(settings, shop, compute_declaration_fingerprint(report))
    outcomes = PipelineRecords(settings, "shop").outcome_ledger
    flow = f"{shop.layer(shop['report'])}_report"
    checkpoint(settings, flow, {"outcomes": log.read_table_id(outcomes)}, (2, -1), (4, -1), done=1)
    progress = positions.read_flow_progress(PipelineRecords(settings, "shop").checkpoints(flow), flow)
    assert progress and (progress.batch, progress.unfinished, progress.positions["outcomes"]) == (0, (1,), StreamPosition(2))
    silver = next(found for found in lag.measure_pipeline_lag(PipelineBooks(settings, shop)) if found.table == "report")
    assert (silver.anew, silver.deliveries, silver.rows, silver.bytes, silver.since) == (None, 2, 20, 200, START + 2 * DAY)
    shutil.rmtree(PipelineLake(settings, shop).path("report"))
    silver = next(found for found in lag.measure_pipeline_lag(PipelineBooks(settings, shop)) if found.table == "report")
    assert (silver.anew, silver.deliveries) == (checkpoints.TABLE_MISSING, 3)


def test_a_version_may_be_taken_in_part_and_upkeep_is_no_change(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in range(3):
        write_deltalake(path, pa.table({"a": [number]}), mode="append")
    DeltaTable(path).optimize.compact()
    assert [change.version for change in positions.list_changes_since(path, StreamPosition(1))] == [1, 2]
    assert [change.version for change in positions.list_changes_since(path, StreamPosition(1, taken=1))] == [2]
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):  # as a clean-up of the log does
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(positions.StreamChangesLost, match="version 1"):
        positions.list_changes_since(path, StreamPosition(1))


def test_the_plan_of_a_backfill_names_what_it_would_take(settings: Settings) -> None:
    shop = declared(date_in_path="%Y%m%d")
    folder = settings.landing / "shop" / "reports"
    folder.mkdir(parents=True)
    deliver(settings, [1, 2, 40 - 9], START)
    make_silver(settings, shop, compute_declaration_fingerprint(report))
    write_deltalake(PipelineRecords(settings, "shop").table_path("bronze", "reports"), pa.table({"_delivery": [1] * 30}))
    for name in ("r-20260102-late.csv", "r-20260301.csv"):
        (folder / name).write_text("id\n1\n")
    found = plan.plan_run(PipelineLake(settings, shop), "replay", Interval.of("2026-01-01", "2026-01-05"))
    bronze, silver = found.steps
    assert (bronze.does, [file["file"] for file in bronze.files]) == ("ingest", ["r-20260102-late.csv"])
    assert (silver.does, silver.deliveries) == ("fold again", 3)
    assert (
        plan.plan_run(PipelineLake(settings, shop), "replay", Interval.of("2026-02-01", "2026-02-05")).steps[1].does == "nothing"
    )


def test_the_ledger_is_held_against_the_tables(settings: Settings) -> None:
    shop = declared()
    deliver(settings, [1, 2], START)
    path = PipelineRecords(settings, "shop").table_path("bronze", "reports")
    write_deltalake(path, pa.table({"_delivery": [1] * 10 + [2] * 10}))
    assert [account.adds_up for account in reconciliation.reconcile_deliveries(PipelineLake(settings, shop))] == [True]
    write_deltalake(path, pa.table({"_delivery": [2] * 3}), mode="append")
    (account,) = reconciliation.reconcile_deliveries(PipelineLake(settings, shop))
    assert account.off == {"reports": 3}
    assert account.deliveries == [{"table": "reports", "delivery": 2, "counted": 10, "there": 13}]
    DeltaTable(path).delete("_delivery = 2")
    record(settings, "shop", [run_row(START, stage="propagate_deletions", flow="reports", deleted=10)])
    assert [account.adds_up for account in reconciliation.reconcile_deliveries(PipelineLake(settings, shop))] == [True]
    DeltaTable(path).delete("_delivery = 1")
    assert [account.off for account in reconciliation.reconcile_deliveries(PipelineLake(settings, shop))] == [{"reports": -10}]


def test_without_a_lake_the_plan_is_a_first_run(call: Call, settings: Settings) -> None:
    assert call("plan", "gym")[0] == 0
    (settings.landing / "gym" / "readings").mkdir(parents=True)
    (settings.landing / "gym" / "readings" / "a.jsonl").write_text("{}\n")
    code, out, _ = call("plan", "gym", "--json")
    steps = {step["table"]: step for step in json.loads(out)["steps"]}
    assert code == 0 and not Path(settings.lake).exists()
    assert [steps[name]["does"] for name in ("readings", "heart_rate", "device_day")] == [
        "ingest",
        "fold anew",
        "recompute in full",
    ]
    assert (steps["readings"]["deliveries"], steps["readings"]["bytes"]) == (1, 3)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("plan", "gim"), "'gym'"),
        (("plan", "gym", "--from", "2026-01-01"), "belong together"),
        (("plan", "gym", "--mode", "refesh"), "'refresh'"),
        (("plan", "gym", "--mode", "refresh"), "--table"),
        (("plan", "gym", "--mode", "refresh", "--table", "hart_rate"), "'heart_rate'"),
        (("checkpoint", "show", "gym.hart_rate"), "'heart_rate'"),
        (("checkpoint", "reset", "gym"), "<pipeline>.<table>"),
        (("checkpoint", "reset", "gym.heart_rate_10min", "--yes"), "sluice run gym --mode refresh --table heart_rate_10min"),
    ],
)
def test_wrong_use_is_answered_with_a_hint(call: Call, arguments: tuple[str, ...], hint: str) -> None:
    code, _, err = call(*arguments)
    assert code == 2 and hint in err


def test_a_reset_asks_and_is_refused_while_somebody_writes(call: Call, settings: Settings) -> None:
    graph_ = load_declaration_graph(settings, "gym")
    flow, folder = PipelineBooks(settings, graph_).flow_checkpoints(graph_["heart_rate"])
    made = checkpoints.open_checkpoint(folder, flow, {"outcomes": "1"})
    assert call("checkpoint", "reset", "gym.heart_rate")[0] == 2
    lock = Path(PipelineRecords(settings, "gym").bookkeeping()) / "lease.lock"
    holding = (
        "import fcntl, sys; file = open(sys.argv[1], 'a+b'); fcntl.lockf(file, fcntl.LOCK_EX); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holding, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        code, _, err = call("checkpoint", "reset", "gym.heart_rate", "--yes")
        assert code == 3 and "is being written by" in err
        assert Path(made.path).exists()
        other.communicate("\n")
    code, out, _ = call("checkpoint", "reset", "gym.heart_rate", "--yes", "--json")
    assert code == 0 and json.loads(out.splitlines()[-1])["reset"] is True
    assert not Path(made.path).exists()
    with lock.open("a+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is free again
    shown = json.loads(call("checkpoint", "show", "gym", "--json")[1])["checkpoints"]
    assert {row["table"]: row["identity"] for row in shown}["device_day"] is None


def test_a_stream_that_cannot_go_on_is_not_shown_as_if_it_started_anew(call: Call, settings: Settings) -> None:
    graph_ = load_declaration_graph(settings, "gym")
    write_deltalake(PipelineRecords(settings, "gym").table_path("silver", "heart_rate"), pa.table({"time": [1]}))
    flow, folder = PipelineBooks(settings, graph_).flow_checkpoints(graph_["heart_rate_10min"])
    checkpoints.open_checkpoint(folder, flow, {})
    checkpoints.reset_checkpoint(folder, flow)
    (shown,) = json.loads(call("checkpoint", "show", "gym.heart_rate_10min", "--json")[1])["checkpoints"]
    assert shown["next"] is None and "cannot go on: its checkpoint was reset" in shown["stuck"]
    assert "--mode refresh" in " ".join(call("checkpoint", "show", "gym.heart_rate_10min")[1].split())


def test_status_checks_only_when_asked(call: Call, settings: Settings) -> None:
    at = {"delivery": 1, "source": "readings", "file": "a", "state": "ingested", "rows": 5, "recorded_at": START}
    write_deltalake(PipelineRecords(settings, "gym").outcome_ledger, pa.Table.from_pylist([at], schema=delivery_tables.OUTCOMES))
    write_deltalake(PipelineRecords(settings, "gym").table_path("bronze", "readings"), pa.table({"_delivery": [1] * 4}))
    code, out, _ = call("status", "gym")
    assert code == 0 and "readings has 1 row too few" in out
    assert call("status", "gym", "--check")[0] == 1
    assert call("status", "gym", "--check", "--json")[0] == 1
