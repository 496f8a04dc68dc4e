"""Kept running: what comes is taken, what does not come costs nothing, a failing flow is tried again, and a stop request ends it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from deltalake import DeltaTable
from tests.commands import use_roots_of
from tests.conftest import ROOT, Lakehouse

from sluice.declare import F, Pipeline, Source, expect_or_fail, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.errors import LeaseHeld, SluiceError
from sluice.lake import commit_history
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import DELETIONS
from sluice.runs import job, run_ledger, vault_expiry
from sluice.runs.execution import stages
from sluice.runs.keep_running import keeping
from sluice.runs.keep_running.keeping import LookReport, PipelineKeeper
from sluice.runs.lease import holder, lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PIPELINE = Pipeline(name="wards", description="Wards.", owner="t", layers=("wards.bronze", __name__))
SOURCES = (
    Source(name="stays", schema="patient STRING, ward STRING, beds INT", subject="patient", format="csv"),
    Source(name="visits", schema="id INT, ward STRING", format="csv"),
)


@table(reads="stays", keys="patient", subject="patient", sequence_by="beds")
@expect_or_fail("beds", "beds > 0")
def stay(stays: DataFrame) -> DataFrame:
    """Stays."""
    return stays.select("patient", "ward", "beds")


@table(reads="visits", keys="id")
def visit(visits: DataFrame) -> DataFrame:
    """Visits."""
    return visits.select("id", "ward")


@materialized_view(reads="stay", keys="ward")
def ward(stays: DataFrame) -> DataFrame:
    """Beds by ward."""
    return stays.groupBy("ward").agg(F.sum("beds").alias("beds"))


@materialized_view(reads=("stay", "visit"), keys="ward")
def visited(stays: DataFrame, visits: DataFrame) -> DataFrame:
    """Visits by ward."""
    return visits.join(stays, "ward", "left_semi").groupBy("ward").count()


@pytest.fixture
def wards(settings: Any, spark: SparkSession) -> Lakehouse:
    return Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [*SOURCES, stay, visit, ward, visited]))


def keeper_of(lake: Lakehouse, every: float = 0.0, upkeep: float = 3600.0) -> PipelineKeeper:
    workspace = lake.workspace(run="kept")
    return PipelineKeeper(workspace, job.JobRequest(lake.name, "", run="kept"), every, upkeep)


def flows(round_: LookReport | None) -> list[str]:
    return [] if round_ is None else [flow["flow"] for report in round_.reports for flow in report["flows"]]


def recorded(lake: Lakehouse) -> list[tuple[str, str]]:
    return [(row["stage"], row["flow"]) for row in run_ledger.read_run_ledger(lake.records)]


def jobs(spark: SparkSession) -> int:
    context: Any = spark.sparkContext._jsc
    return int(context.sc().dagScheduler().numTotalJobs())


def test_what_comes_is_taken_and_what_does_not_come_costs_nothing(wards: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    wards.land("stays/1.csv", "patient,ward,beds\np,a,1\nq,b,2\n")
    wards.land("visits/1.csv", "id,ward\n1,a\n")
    keeper = keeper_of(wards)
    first = keeper.look()
    assert sorted(flows(first)) == ["stay", "stays", "visit", "visited", "visits", "ward"]
    assert wards.rows("ward") == [("a", 1), ("b", 2)]
    known = recorded(wards)

    ran: list[str] = []
    real = stages.run_pipeline_stage
    monkeypatch.setattr(
        stages,
        "run_pipeline_stage",
        lambda workspace, stage, *given, **more: ran.append(stage) or real(workspace, stage, *given, **more),
    )
    before = jobs(wards.spark)
    assert [keeper.look() for _ in range(3)] == [None, None, None]
    assert (ran, jobs(wards.spark), recorded(wards)) == ([], before, known)

    wards.land("visits/2.csv", "id,ward\n2,b\n")
    assert flows(keeper.look()) == ["visits", "visit", "visited"], "what reads the other source is left alone"
    assert recorded(wards) == [*known, ("bronze", "visits"), (LAYER, "visit"), (LAYER, "visited")]
    wards.land("stays/2.csv", "patient,ward,beds,note\np,a,4,new column\n")
    assert sorted(flows(keeper.look())) == ["stay", "stays", "visited", "ward"], "and a new column is no matter"
    assert wards.rows("ward") == [("a", 4), ("b", 2)]
    assert keeper.look() is None
    assert not any(report.committed for report in wards.run().values()), "a triggered run finds the same checkpoints"


LAYER = __name__.rpartition(".")[2]


@pytest.mark.slow
def test_who_asked_to_be_erased_leaves_while_it_is_kept_running(wards: Lakehouse) -> None:
    wards.land("stays/1.csv", "patient,ward,beds\np,a,1\nq,b,2\n")
    keeper = keeper_of(wards)
    keeper.look()
    requests.receive_erasure_request(wards.lake, ["p"])
    round_ = keeper.look()
    assert round_ is not None and {report["stage"] for report in round_.reports} == {"propagate_deletions"}
    assert wards.rows("stay", "patient") == [("q",)] and wards.rows("ward") == [("b", 2)]
    assert keeper.look() is None


@pytest.mark.slow
def test_upkeep_takes_out_of_landed_files_who_was_erased_and_came_again(
    wards: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    wards.land("stays/1.csv", "patient,ward,beds\np-erased,a,1\nq,b,2\n")
    keeper = keeper_of(wards)
    keeper.look()
    requests.receive_erasure_request(wards.lake, ["p-erased"])
    keeper.look()
    again = wards.land("stays/2.csv", "patient,ward,beds\np-erased,a,1\nr,b,2\n")
    keeper.look()
    assert wards.rows("stay", "patient") == [("q",), ("r",)] and "p-erased" in again.read_text()
    forgotten: list[str] = []
    monkeypatch.setattr(vault_expiry, "forget_expired_identifiers", lambda of: forgotten.append(of.pipeline))
    keeper._next_upkeep = 0.0
    round_ = keeper.look()
    assert round_ is not None and not round_.errors
    assert "p-erased" not in again.read_text() and "r,b,2" in again.read_text()
    assert forgotten == ["wards", "wards"], "the vault, after the deletions and after the vacuum, as a run of these stages does"


@pytest.mark.slow
def test_a_flow_that_fails_is_tried_again_and_ends_it_when_it_fails_too_often(wards: Lakehouse) -> None:
    wards.land("stays/1.csv", "patient,ward,beds\np,a,1\n")
    keeper = keeper_of(wards, every=1000.0)
    keeper.look()
    wards.land("stays/2.csv", "patient,ward,beds\nq,b,-1\n")
    failed = keeper.look()
    assert failed is not None and list(failed.errors) == ["stay"] and "beds" in failed.errors["stay"]
    assert failed.failures == 1 and 900 < failed.again <= 1000
    assert keeper.look() is None, "not before its time"
    wards.land("visits/1.csv", "id,ward\n1,a\n")
    assert flows(keeper.look()) == ["visits", "visit"], "the others go on, but for what reads the one that fails"
    for _ in range(keeping.FAILURES - 1):
        keeper.give_up()
        keeper._failing["stay"].until = 0.0
        again = keeper.look()
        assert again is not None and list(again.errors) == ["stay"]
    with pytest.raises(SluiceError, match=f"'stay' failed {keeping.FAILURES} times in a row"):
        keeper.give_up()
    failed_rows = [row for row in run_ledger.read_run_ledger(wards.records) if row["state"] == "failed"]
    assert len(failed_rows) == keeping.FAILURES


@pytest.mark.thorough
def test_only_failures_in_a_row_count(wards: Lakehouse) -> None:
    keeper = keeper_of(wards)

    def failing(*names: str) -> dict[str, int]:
        for name in names:
            if name in keeper._failing:
                keeper._failing[name].until = 0.0
        keeper._note(DELETIONS.name, [], {name: SluiceError("no") for name in names})
        return {name: one.times for name, one in keeper._failing.items()}

    assert failing("aging", "landing") == {"aging": 1, "landing": 1}
    assert failing("aging") == {"aging": 2}, "the other one is done anew with its stage"
    assert failing() == {} and failing("aging") == {"aging": 1}
    keeper._note("bronze", [], {"landing": SluiceError("no"), "stays": SluiceError("no")})
    keeper._note("bronze", [], {})
    assert set(keeper._failing) == {"aging", "stays"}, "a flow may not have been due"


@pytest.mark.thorough
def test_a_table_whose_upkeep_fails_holds_up_no_flow(wards: Lakehouse) -> None:
    keeper = keeper_of(wards, every=1000.0)
    keeper._note("optimize", [], {"stay": SluiceError("no")})
    assert list(keeper._failing) == ["stay (optimize)"], "by itself, so that the flow and its readers run"
    keeper._note("optimize", [], {"visit": SluiceError("no")})
    assert list(keeper._failing) == ["visit (optimize)"], "the other one is done anew with its stage"
    wards.land("stays/1.csv", "patient,ward,beds\np,a,1\n")
    wards.land("visits/1.csv", "id,ward\n1,a\n")
    assert {"stay", "visit", "visited"} <= set(flows(keeper.look()))


@pytest.mark.slow
def test_upkeep_is_nothing_new_to_any_flow(wards: Lakehouse) -> None:
    for number in (1, 2, 3):
        wards.land(f"stays/{number}.csv", f"patient,ward,beds\np{number},a,1\n")
        wards.run()
    keeper, rows = keeper_of(wards, upkeep=0.0), wards.rows("stay")
    stages_ = {report["stage"] for report in (keeper.look() or pytest.fail("nothing was done")).reports}
    assert {"optimize", "verify"} <= stages_
    keeper._next_upkeep = time.monotonic() + 3600
    assert keeper.look() is None
    path = wards.workspace().path("stay")
    assert commit_history.read_commit_history(path, 1)[0]["operation"] == "OPTIMIZE" and len(DeltaTable(path).file_uris()) == 1
    assert wards.rows("stay") == rows and wards.rows("ward") == [("a", 3)]
    wards.land("stays/4.csv", "patient,ward,beds\np1,a,5\np4,b,2\n")
    assert {"stays", "stay", "ward"} <= set(flows(keeper.look()))
    assert wards.rows("ward") == [("a", 7), ("b", 2)] and len(wards.rows("stay")) == 4


@pytest.mark.slow
def test_a_table_that_differs_is_told_and_keeps_nobody_waiting(wards: Lakehouse) -> None:
    wards.land("stays/1.csv", "patient,ward,beds\np,a,1\nq,b,2\n")
    keeper = keeper_of(wards)
    keeper.look()
    DeltaTable(wards.workspace().path("stay")).delete("patient = 'q'")  # by somebody who is no flow
    keeper._next_upkeep = 0.0
    found = keeper.look()
    assert found is not None and list(found.differing) == ["stay"] and "full recompute" in found.differing["stay"]
    assert (found.errors, keeper._failing) == ({}, {}), "nothing of it is tried again in 10 s"
    wards.land("stays/2.csv", "patient,ward,beds\nr,c,3\n")
    assert {"stay", "ward"} <= set(flows(keeper.look())), "what reads it goes on"


def test_nobody_waits_for_a_lease_that_is_kept_unless_its_holder_was_asked_to_stop(wards: Lakehouse) -> None:
    settings, spark = wards.settings, wards.spark
    records = PipelineRecords(settings, "wards")
    with lock.hold_writer_lease(records, spark, "kept", 0, kept_running=True):
        started = time.monotonic()
        with pytest.raises(LeaseHeld) as caught, lock.hold_writer_lease(records, spark, "another", 60):
            pass
        assert time.monotonic() - started < 50, "of the 60 s that it may wait"
        assert f"kept running by run kept (process {os.getpid()}" in str(caught.value) and "sluice stop wards" in str(
            caught.value
        )
        request = records.stop_request("kept")
        request.parent.mkdir(parents=True)
        request.touch()
        with pytest.raises(LeaseHeld), lock.hold_writer_lease(records, spark, "another", 1.2):
            pass
        assert time.monotonic() - started > 1.2
    assert holder.find_lease_holder(records) is None


BRONZE = """
from sluice.declare import Source
visits = Source(name="visits", schema="id INT, ward STRING", format="csv")
"""
SILVER = """
from __future__ import annotations
from typing import TYPE_CHECKING
from sluice.declare import table
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

@table(reads="visits", keys="id")
def visit(visits: DataFrame) -> DataFrame:
    return visits.select("id", "ward")
"""
DECLARED = """
from sluice.declare import Pipeline
PIPELINE = Pipeline(name="wards", description="Wards.", owner="t", layers=("pipelines.wards.bronze", "pipelines.wards.silver"))
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A root of its own with one small pipeline, for processes that are started with it."""
    folder = tmp_path / "root" / "include" / "pipelines" / "wards"
    folder.mkdir(parents=True)
    for name, text in (("__init__", ""), ("pipeline", DECLARED), ("bronze", BRONZE), ("silver", SILVER)):
        (folder / f"{name}.py").write_text(text)
    for name in ("spark_jobs", "environments", ".sluice"):
        (tmp_path / "root" / name).symlink_to(ROOT / name)
    monkeypatch.setenv("SLUICE_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'root' / 'include'}:{ROOT / 'include'}")
    use_roots_of(monkeypatch, tmp_path)
    yield tmp_path


def sluice(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sluice.cli", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=900)
    return process.returncode, out, err


def land(root: Path, number: int) -> None:
    file = root / "landing" / "wards" / "visits" / f"{number}.csv"
    file.parent.mkdir(parents=True, exist_ok=True)
    written = root / file.name  # a process that looks each second sees it whole and with its time, or not at all
    written.write_text(f"id,ward\n{number},a\n")
    os.utime(written, (1_600_000_000 + number,) * 2)
    written.rename(file)


def line_with(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdout is not None
    patience = threading.Timer(900, process.kill)
    patience.start()
    said = []
    for line in process.stdout:
        said.append(line)
        if text in line:
            patience.cancel()
            return line
    patience.cancel()
    raise AssertionError(f"it ended without saying '{text}': {said}")


def commands_below(pid: int) -> list[list[str]]:
    """The command lines of a process's children that live, at any depth."""
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended meanwhile, or is a zombie
            found.append(process.cmdline())
    return found


@pytest.mark.slow
def test_a_process_takes_what_lands_until_it_is_stopped_and_a_triggered_run_goes_on(root: Path, settings: Any) -> None:
    records = PipelineRecords(settings, "wards")
    land(root, 1)
    kept = sluice("run", "wards", "--trigger", "processing-time=1s")
    try:
        assert "wards is kept running: it looks every 1 s" in line_with(kept, "kept running")
        assert "visits" in line_with(kept, "visit +1")
        land(root, 2)
        assert "(1 delivery)" in line_with(kept, "visit +1")
        refused = ended(sluice("run", "wards", "--wait", "60"))
        assert refused[0] == 3 and "Pipeline 'wards' is kept running by run " in refused[2]
        stopped = ended(sluice("stop", "wards"))
        assert stopped[0] == 0 and "It has ended, after " in stopped[1]
        code, out, err = ended(kept)
        assert code == 0 and "wards was stopped on request; 2 looks did something." in out, err
    finally:
        kept.kill()
    assert holder.find_lease_holder(records) is None
    assert not list(Path(records.bookkeeping("stop_requests")).iterdir())
    code, out, err = ended(sluice("run", "wards", "--json"))
    assert code == 0, err
    reports = json.loads(out.splitlines()[-1])["reports"]
    assert not any(report["committed"] for report in reports[:2]), "the same checkpoints: nothing is new"
    assert sorted(row["id"] for row in run_ledger.read_table_rows(records, "visit")) == [1, 2]


@pytest.mark.slow
def test_ctrl_c_is_a_request_to_stop(root: Path, settings: Any) -> None:
    land(root, 1)
    kept = sluice("run", "wards", "--keep-running", "--stage", "bronze")
    try:
        line_with(kept, "visits +1")
        (jvm,) = (command for command in commands_below(kept.pid) if "org.apache.spark" in str(command))
        assert "-XX:+UseSerialGC" in jvm and "-XX:TieredStopAtLevel=1" not in jvm, "it lives long"
        found = holder.find_lease_holder(PipelineRecords(settings, "wards"))
        assert found is not None and found.stage == "bronze", "others are told that nobody does the other stages"
        kept.send_signal(signal.SIGINT)
        started = time.monotonic()
        code, out, err = ended(kept)
        assert code == 0 and "was stopped on request" in out and "Stopping before the next batch" in err
        assert time.monotonic() - started < 200
    finally:
        kept.kill()
    assert [row["flow"] for row in run_ledger.read_run_ledger(PipelineRecords(settings, "wards"))] == ["visits"]
