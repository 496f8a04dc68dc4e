"""`sluice repair` without a JVM: what a lost commit means for its table, for those that read it, and for the ledgers."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import call_command, use_roots_of

from sluice.cli import main
from sluice.cli.repair import restore
from sluice.declare import F, Pipeline, Source, Watermark, materialized_view, table, windowed
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.delta_log import LOG, find_log_damage
from sluice.erasure import erasure_ledger, request_events, request_record, request_reversal, requests
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError, UsageError
from sluice.flows.bronze import accounting
from sluice.flows.progress import checkpoints, stream_starts
from sluice.flows.progress.flow_memory import read_flow_memory
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import known_files
from sluice.lake import commit_history, log
from sluice.lake.commit_history import REPAIR, WITHOUT_ROWS
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.repair import lost_commits, lost_removals, restoring

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

LAYER = __name__.rsplit(".", 1)[-1]
AT = datetime(2026, 11, 20, tzinfo=UTC)


@table(reads="pulses", keys="at", subject="who")
def pulse(pulses: DataFrame) -> DataFrame:
    """Heart rates."""
    return pulses


@materialized_view(reads="pulse", keys="day", subject="who")
def by_day(pulse: DataFrame) -> DataFrame:
    """A day's."""
    return pulse


@windowed(reads="pulse", keys="start", subject=None, watermark=Watermark("at", "10 minutes"))
def ten_minutes(pulse: DataFrame) -> DataFrame:
    """Windows."""
    return pulse.groupBy(F.window("at", "10 minutes")).count()


PIPELINE = Pipeline(name="ward", description="A ward.", owner="tests", layers=("ward.bronze", __name__))
PULSES = Source(name="pulses", comment="Pulses.", subject="who", domain="person", format="json", path="pulses")
WARD = build_declaration_graph(PIPELINE, [PULSES, pulse, by_day, ten_minutes])


def write(path: str, *rows: dict[str, Any]) -> None:
    """A commit for each row."""
    for row in rows:
        write_deltalake(path, pa.Table.from_pylist([row]), mode="append")


@pytest.fixture
def lake(settings: Settings) -> Settings:
    """Two deliveries, taken to bronze and silver in a commit each, and a checkpoint of each flow."""
    records = PipelineRecords(settings, "ward")
    deliveries = [{"delivery": number, "source": "pulses", "file": f"{number}.json", "event": "delivered"} for number in (1, 2)]
    for one in deliveries:
        delivery_tables.append_delivery_ledger_rows(records.delivery_ledger, [one], delivery_tables.DELIVERIES, "run")
    for number in (1, 2):
        outcome = {
            "delivery": number,
            "source": "pulses",
            "file": f"{number}.json",
            "state": "ingested",
            "rows": 1,
            "quarantined": 0,
        }
        delivery_tables.append_delivery_ledger_rows(
            records.outcome_ledger, [{**outcome, "recorded_at": AT}], delivery_tables.OUTCOMES, "run"
        )
    write(PipelineLake(settings, WARD).path("pulses"), {"_delivery": 1, "at": 1}, {"_delivery": 2, "at": 2})
    write(PipelineLake(settings, WARD).path("pulse"), {"_delivery": 1, "at": 1}, {"_delivery": 2, "at": 2})
    for flow in ("bronze_pulses", *(f"{LAYER}_{name}" for name in ("pulse", "by_day", "ten_minutes"))):
        checkpoints.open_checkpoint(records.checkpoints(flow), flow, {})
    return settings


def spoil(path: str, content: bytes = b"") -> Path:
    """Removes a table's last commit."""
    last = max(Path(path, LOG).glob("*.json"))
    last.write_bytes(content)
    return last


def reasons(settings: Settings) -> dict[str, str]:
    """By flow, why it starts again, if it was made to."""
    found = {}
    for flow in ("bronze_pulses", *(f"{LAYER}_{name}" for name in ("pulse", "by_day", "ten_minutes"))):
        memory = read_flow_memory(PipelineRecords(settings, "ward").checkpoints(flow), flow)
        if memory is not None and memory.reset:
            found[flow.removeprefix("bronze_").removeprefix(f"{LAYER}_")] = memory.reset
    return found


def repair(settings: Settings) -> lost_commits.LogRepair:
    (found,) = lost_commits.find_log_repairs(PipelineLake(settings, WARD))
    lost_commits.repair_table_log(PipelineLake(settings, WARD), found)
    assert lost_commits.find_log_repairs(PipelineLake(settings, WARD)) == []
    return found


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":{"timest'])
def test_a_lost_commit_of_silver_is_set_aside_and_its_flow_and_its_readers_start_anew(lake: Settings, content: bytes) -> None:
    path = PipelineLake(lake, WARD).path("pulse")
    last = spoil(path, content)
    checksum = last.with_name(f".{last.name}.crc")
    checksum.write_bytes(b"crc\x00\x00\x00\x02\x00abcd")
    (last.parent / f"{last.stem}.crc").write_text("{}")  # Delta's own, of what the table was with the commit
    found = repair(lake)
    assert (found.table, found.anew, found.streams) == ("pulse", ("pulse", "ten_minutes", "by_day"), ("ten_minutes",))
    assert found.since is not None and found.lost == {}
    assert set(reasons(lake)) == {"pulse", "by_day", "ten_minutes"} and set(reasons(lake).values()) == {
        "a commit of 'pulse' was lost"
    }
    (aside,) = Path(PipelineRecords(lake, "ward").bookkeeping("set_aside")).rglob(last.name)
    assert aside.read_bytes() == content
    assert not checksum.exists() and not (last.parent / f"{last.stem}.crc").exists()
    state = log.read_table_state(path)
    assert state is not None and (state.version, state.rows) == (1, 1)  # the next commit is another version than the lost one
    assert commit_history.read_commit_history(path)[0]["operation"] == REPAIR and REPAIR in WITHOUT_ROWS
    flow = f"{LAYER}_ten_minutes"
    why = stream_starts.find_stream_break(
        PipelineRecords(lake, "ward").checkpoints(flow),
        flow,
        {},
        "",
        PipelineLake(lake, WARD).path("ten_minutes"),
        lambda name: path,
    )
    assert why == "a commit of 'pulse' was lost"
    assert "sluice run ward --mode refresh --table ten_minutes" in str(
        stream_starts.broken_stream_error("ward", "ten_minutes", why)
    )


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":{"timest'])
def test_deliveries_whose_rows_were_in_a_lost_commit_of_bronze_are_taken_again(lake: Settings, content: bytes) -> None:
    spoil(PipelineLake(lake, WARD).path("pulses"), content)
    outcomes = PipelineRecords(lake, "ward").outcome_ledger
    assert delivery_tables.read_settled_deliveries(outcomes, {1, 2, 3}) == {1, 2}
    found = repair(lake)
    assert found.lost == {"pulses": (2,)} and set(reasons(lake)) == {"pulses", "pulse"}
    assert delivery_tables.read_settled_deliveries(outcomes, {1, 2, 3}) == {1}
    assert [row["state"] for row in run_ledger.read_delivery_ledger(PipelineRecords(lake, "ward"))] == ["ingested", "waiting"]
    assert delivery_tables.count_waiting_deliveries(outcomes.replace("outcomes", "deliveries"), outcomes, "pulses") == 1
    assert delivery_tables.select_live_deliveries(delivery_tables.read_source_outcomes(outcomes, "pulses"), replaces=False) == {1}


def test_a_commit_that_a_repair_made_says_nothing_of_when_the_next_one_was_made(lake: Settings) -> None:
    path = PipelineLake(lake, WARD).path("pulse")
    made = lost_commits._read_commit_time(path, 0)
    spoil(path)
    assert repair(lake).since == made
    write(path, {"_delivery": 3, "at": 3})
    spoil(path)
    assert repair(lake).since == made, "the commit before is the repair's, and later than what was lost may be"


def test_steps_that_found_nothing_in_a_table_are_not_lost_with_its_commit(lake: Settings) -> None:
    records = PipelineRecords(lake, "ward")
    made = [requests.receive_erasure_request(PipelineLake(lake, WARD), [Identifier("person", who)]).request for who in ("a", "b")]
    for request, rows in zip(made, (0, 2), strict=True):
        requests.advance_request_state(records, request, request_events.LOGICALLY, "")
        erasure_ledger.record_erasure_step(records, [request], "pulse", "tables", rows=rows)
    assert lost_removals.find_lost_erasures(records, "pulse", None) == ((made[1],), None)
    assert request_record.list_repeated_requests(records) == []
    lost_removals.repeat_lost_erasures(records, "pulse", made[1:])
    assert request_record.list_repeated_requests(records) == made[1:]
    assert request_record.read_erasure_request(records, made[1]).rows_left_at is None
    requests.advance_request_state(records, made[1], request_events.LOGICALLY, "")
    found = request_record.read_erasure_request(records, made[1])
    assert found.rows_left_at == found.history[-1].at, "it counts from the last time"


def test_files_that_are_not_in_deliveries_any_more_are_put_back_by_the_next_discovery(lake: Settings) -> None:
    spoil(PipelineRecords(lake, "ward").delivery_ledger)
    assert repair(lake).table == "deliveries" and set(reasons(lake)) == {"pulses"}
    books = [PipelineRecords(lake, "ward").bookkeeping(name) for name in ("deliveries", "outcomes")]
    assert accounting.restore_lost_deliveries([PULSES], lake.landing / "ward", known_files.read_known_files(*books), "run")
    rows = delivery_tables.read_delivery_ledger_rows(books[0], ["delivery", "file", "event"])
    assert sorted(tuple(row.values()) for row in rows) == [(1, "1.json", "delivered"), (2, "2.json", "delivered")]


def test_outcomes_that_are_lost_are_counted_again_by_bronze_and_read_again_by_silver(lake: Settings) -> None:
    spoil(PipelineRecords(lake, "ward").outcome_ledger)
    repair(lake)
    outcomes = PipelineRecords(lake, "ward").outcome_ledger
    assert set(reasons(lake)) == {"pulses", "pulse"} and delivery_tables.read_settled_deliveries(outcomes, {1, 2}) == {1}


def test_a_lost_commit_between_others_leaves_the_later_ones(lake: Settings) -> None:
    path = PipelineRecords(lake, "ward").run_ledger
    write(path, {"run": "a"}, {"run": "b"}, {"run": "c"})
    Path(path, LOG, f"{1:020d}.json").unlink()
    assert repair(lake).anew == ()
    assert sorted(DeltaTable(path).to_pyarrow_table()["run"].to_pylist()) == ["a", "c"]


@pytest.mark.spark
def test_spark_goes_on_with_a_repaired_table_whose_commits_hold_their_times(lake: Settings, spark: SparkSession) -> None:
    path = PipelineLake(lake, WARD).path("pulse")
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')")
    for number in range(3, 9):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES ({number}, {number})")
    commits = sorted(Path(path, LOG).glob("*.json"))
    lost = [commits[version] for version in (4, 5, 7, 8)]
    for commit in lost:
        commit.write_bytes(b"")
    repair(lake)
    spark.sql("CLEAR CACHE")
    assert sorted(row[1] for row in spark.sql(f"SELECT * FROM delta.`{path}` VERSION AS OF 8").collect()) == [1, 2, 3, 6]
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (9, 9)")
    history = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()
    assert [row["version"] for row in history] == list(range(9, -1, -1))
    said = [json.loads(commit.read_bytes().splitlines()[0])["commitInfo"] for commit in commits[2:]]
    times = [one["inCommitTimestamp"] for one in said]
    assert times == sorted(set(times)) and next(iter(said[2])) == "inCommitTimestamp"


def test_a_cut_checkpoint_of_a_log_goes_and_nothing_starts_anew(lake: Settings) -> None:
    path = PipelineLake(lake, WARD).path("pulse")
    DeltaTable(path).create_checkpoint()
    (file,) = Path(path, LOG).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:20])
    assert repair(lake).anew == () and reasons(lake) == {}
    assert not file.exists() and len(commit_history.read_commit_history(path)) == 2


def test_a_cut_checkpoint_and_a_cut_commit_after_it_are_repaired_together(lake: Settings) -> None:
    path = PipelineLake(lake, WARD).path("pulse")
    DeltaTable(path).create_checkpoint()
    (file,) = Path(path, LOG).glob("*.parquet")
    write(path, {"_delivery": 3, "at": 3})
    spoil(path, b'{"commitInfo":{"timest')
    file.write_bytes(file.read_bytes()[:20])
    assert repair(lake).anew == ("pulse", "ten_minutes", "by_day")
    assert sorted(DeltaTable(path).to_pyarrow_table()["at"].to_pylist()) == [1, 2]


def test_a_cut_checkpoint_of_bronze_is_repaired_before_the_commit_that_cannot_be_read_with_it(lake: Settings) -> None:
    path = PipelineLake(lake, WARD).path("pulses")
    DeltaTable(path).create_checkpoint()
    (file,) = Path(path, LOG).glob("*.parquet")
    write(path, {"_delivery": 3, "at": 3})
    outcome = {"delivery": 3, "source": "pulses", "file": "3.json", "state": "ingested", "rows": 1, "recorded_at": AT}
    delivery_tables.append_delivery_ledger_rows(
        PipelineRecords(lake, "ward").outcome_ledger, [outcome], delivery_tables.OUTCOMES, "run"
    )
    spoil(path)
    file.write_bytes(file.read_bytes()[:20])
    (first,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert [one.file for one in first.damage] == [file.name] and [one.version for one in first.later] == [2]
    assert first.refused is None and first.anew == () and first.lost == {}
    told = restore._describe_log_repair("ward", first)
    assert "takes their place" not in told and f"{2:020d}.json is empty" in told and told.endswith("Repeat: sluice repair ward")
    lost_commits.repair_table_log(PipelineLake(lake, WARD), first)
    assert repair(lake).lost == {"pulses": (3,)}
    assert sorted(DeltaTable(path).to_pyarrow_table()["at"].to_pylist()) == [1, 2]


def test_a_log_of_bronze_that_is_not_whole_before_its_damage_is_refused_with_its_name_and_what_to_do(lake: Settings) -> None:
    path = PipelineLake(lake, WARD).path("pulses")
    spoil(path)
    log_of_first = Path(path, LOG, f"{0:020d}.json")
    whole = log_of_first.read_text()
    log_of_first.write_text("\n".join(line for line in whole.splitlines() if "metaData" not in line))
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert (
        found.refused and "'ward.pulses'" in found.refused and "version 0" in found.refused and "from a backup" in found.refused
    )
    log_of_first.write_text(whole)
    for file in Path(path).glob("*.parquet"):
        file.unlink()
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert found.refused and "'ward.pulses'" in found.refused


def test_a_cut_checkpoint_without_the_commits_before_it_is_refused_before_anything_is_read_of_it(lake: Settings) -> None:
    path = PipelineLake(lake, WARD).path("pulses")
    DeltaTable(path).create_checkpoint()
    (file,) = Path(path, LOG).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:20])
    Path(path, LOG, f"{0:020d}.json").unlink()
    Path(path, LOG, f"{2:020d}.json").write_bytes(b"")
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert found.refused and "checkpoint of the log of 'ward.pulses' is damaged" in found.refused


def test_bronze_is_repaired_after_the_record_by_which_its_losses_are_found(lake: Settings) -> None:
    spoil(PipelineLake(lake, WARD).path("pulses"))
    spoil(PipelineRecords(lake, "ward").outcome_ledger)
    found = {one.table: one for one in lost_commits.find_log_repairs(PipelineLake(lake, WARD))}
    assert found["outcomes"].refused is None
    assert "sluice repair ward" in str(found["pulses"].refused) and "'ward.pulses'" in str(found["pulses"].refused)
    lost_commits.repair_table_log(PipelineLake(lake, WARD), found["outcomes"])
    assert repair(lake).table == "pulses"


def test_a_cut_checkpoint_of_the_list_of_erased_people_loses_nobody(lake: Settings) -> None:
    request = requests.receive_erasure_request(PipelineLake(lake, WARD), [Identifier("person", "anna")])
    path = PipelineRecords(lake, "ward").suppression_list
    write(path, {"request": "other"}, {"request": request.request})
    requests.advance_request_state(PipelineRecords(lake, "ward"), request.request, request_events.LOGICALLY, "")
    DeltaTable(path).create_checkpoint()
    (file,) = Path(path, LOG).glob("*.parquet")
    file.write_bytes(file.read_bytes()[:20])
    assert repair(lake).refused is None


@pytest.mark.parametrize("follows", [False, True])
def test_a_lost_commit_whose_checkpoint_holds_the_table_without_older_commits_is_repaired(lake: Settings, follows: bool) -> None:
    path = PipelineLake(lake, WARD).path("pulse")
    DeltaTable(path).create_checkpoint()
    Path(path, LOG, f"{0:020d}.json").unlink()  # as Delta does when it is old
    lost = spoil(path)
    if follows:
        write(path, {"_delivery": 3, "at": 3})
    repair(lake)
    assert sorted(DeltaTable(path).to_pyarrow_table()["at"].to_pylist()) == ([1, 2, 3] if follows else [1, 2])
    # Only a neighbour shows that the table's commits need not hold their times.
    assert ("inCommitTimestamp" in json.loads(lost.read_bytes())["commitInfo"]) is not follows


def test_what_cannot_be_made_up_is_refused_with_what_to_do(lake: Settings) -> None:
    requests.receive_erasure_request(PipelineLake(lake, WARD), [Identifier("person", "anna")])
    path = PipelineRecords(lake, "ward").suppression_list
    write(path, {"request": "other"}, {"request": "lost"})
    spoil(path)
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert found.refused is None  # a request that is not carried out is on no list
    shutil.rmtree(path)
    first = spoil(PipelineLake(lake, WARD).path("pulse"))
    first.unlink()
    spoil(PipelineLake(lake, WARD).path("pulse"))
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    with pytest.raises(SluiceError, match=r"first commit of 'ward\.pulse' is damaged.*from a backup; or move"):
        lost_commits.repair_table_log(PipelineLake(lake, WARD), found)
    with pytest.raises(UsageError, match="Did you mean 'pulse'"):
        lost_commits.find_log_repairs(PipelineLake(lake, WARD), "pulze")


def test_people_who_are_not_on_the_list_any_more_are_no_repair(lake: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    request = requests.receive_erasure_request(PipelineLake(lake, WARD), [Identifier("person", "anna")])
    path = PipelineRecords(lake, "ward").suppression_list
    write(path, {"request": "other"}, {"request": request.request})
    requests.advance_request_state(PipelineRecords(lake, "ward"), request.request, request_events.LOGICALLY, "")
    spoil(path)
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert found.refused and request.request in found.refused and "come back" in found.refused


@pytest.mark.parametrize("begun", [False, True])
def test_a_request_that_erased_nobody_is_on_no_list_and_one_that_is_begun_must_be(lake: Settings, begun: bool) -> None:
    records = PipelineRecords(lake, "ward")
    failed, waiting = (
        requests.receive_erasure_request(PipelineLake(lake, WARD), [Identifier("person", name)]) for name in ("anna", "bert")
    )
    requests.advance_request_state(records, failed.request, request_events.FAILED, "several people had it")
    if begun:
        erasure_ledger.record_erasure_step(records, [waiting.request], "pulse", "tables", rows=1)
    write(records.suppression_list, {"request": "other"}, {"request": "lost"})
    spoil(records.suppression_list)
    (found,) = lost_commits.find_log_repairs(PipelineLake(lake, WARD))
    assert bool(found.refused) is begun
    assert not found.refused or (waiting.request in found.refused and failed.request not in found.refused)


def test_a_restore_waits_for_requests_that_stand_and_says_which_need_approval(lake: Settings) -> None:
    workspace: Any = SimpleNamespace(pipeline="ward", records=PipelineRecords(replace(lake, erasure_approval=True), "ward"))
    taken_back, stands = (
        requests.receive_erasure_request(PipelineLake(lake, WARD), [Identifier("person", name)]) for name in ("anna", "bert")
    )
    request_reversal.withdraw_erasure_request(workspace.records, taken_back.request)
    with pytest.raises(
        SluiceError, match=rf"Run: sluice erase approve ward {stands.request}, or .*; then: sluice run ward --stage"
    ):
        restoring._refuse_while_requests_wait(workspace, request_record.list_erasure_requests(workspace.records))
    request_reversal.withdraw_erasure_request(workspace.records, stands.request)
    restoring._refuse_while_requests_wait(workspace, request_record.list_erasure_requests(workspace.records))


def test_the_command_says_what_it_will_do_asks_and_does_it(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_roots_of(monkeypatch, settings)
    path = PipelineRecords(settings, "gym").outcome_ledger
    for number in (1, 2):
        delivery_tables.append_delivery_ledger_rows(
            path, [{"delivery": number, "source": "readings", "file": "a", "state": "ingested"}], delivery_tables.OUTCOMES, "run"
        )

    def call(*arguments: str) -> tuple[int, str, str]:
        return call_command(capsys, "repair", "gym", *arguments)

    assert call() == (0, "No log of 'gym' is damaged.\n", "")
    last = spoil(path)
    with pytest.raises(SystemExit):
        main(["ledger", "gym"])
    assert "sluice repair gym" in capsys.readouterr().err
    code, out, err = call()
    assert code == 2 and "readings" in out and "is empty" in out and "Give --yes" in err and last.read_bytes() == b""
    code, out, _ = call("--yes")
    assert code == 0 and "Done. Run: sluice run gym" in out and list(find_log_damage(path)) == []
