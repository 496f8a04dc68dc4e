"""The operator and the hook, with a stand-in for spark-submit that is a real process."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.checkout import read_notes
from tests.waiting import is_alive, until

from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import KNOWN_LAYERS, OPTIMIZE, SILVER, VERIFY, Stage, stages_after_layers
from sluice.table_properties import INSTANTS, MICROSECONDS

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

STAGES = {stage.name: stage for stage in (*KNOWN_LAYERS, *stages_after_layers())}
NEXT, ALL = "one table in turn", "all tables"
FORM: dict[str, Any] = {
    "mode": "increment",
    "from_date": None,
    "to_date": None,
    "tables": [],
    "upkeep_from": None,
    "verify": NEXT,
    "optimize_now": [],
}
DAY = {"data_interval_start": datetime(2026, 1, 1, 2, tzinfo=UTC), "data_interval_end": datetime(2026, 1, 2, 2, tzinfo=UTC)}


@pytest.fixture
def records(checkout: Checkout) -> Iterator[Path]:
    checkout.records.unlink(missing_ok=True)
    yield checkout.records
    checkout.records.unlink(missing_ok=True)


def told(records: Path) -> list[dict[str, Any]]:
    return read_notes(records)


def context(run_type: Any = "manual", *, run_id: str = "manual__1", **params: Any) -> dict[str, Any]:
    return {
        "params": {**FORM, **params},
        "dag_run": SimpleNamespace(dag_id="gym", run_id=run_id, run_type=run_type, start_date=datetime.now(UTC)),
        "ti": SimpleNamespace(try_number=2),
    }


def arguments(given: dict[str, Any]) -> dict[str, str]:
    from orchestration.dag_run import RunRequest, run_identity_arguments

    words = [*RunRequest.of(given).as_job_arguments("gym"), *run_identity_arguments(given)]
    assert all(isinstance(word, str) for word in words)
    return dict(zip(words[::2], words[1::2], strict=True))


def test_a_manual_run_says_what_the_form_says(checkout: Checkout) -> None:
    found = arguments(context(mode="replay", from_date="2026-01-01", to_date="2026-01-03", tables=["a", "b"]))
    assert found["--mode"] == "replay"
    assert (found["--from"], found["--to"]) == ("2026-01-01T00:00:00+00:00", "2026-01-04T00:00:00+00:00"), "the last day is taken"
    assert found["--tables"] == "a,b"


def test_what_the_form_leaves_open_is_left_out(checkout: Checkout) -> None:
    assert not {"--from", "--to", "--tables", "--verify", "--optimize-now"} & arguments(context()).keys()


def test_all_tables_are_verified_where_the_form_asks_for_it(checkout: Checkout) -> None:
    assert arguments(context(verify=ALL))["--verify"] == "all"
    assert arguments(context("backfill", verify=ALL) | DAY)["--verify"] == "all"
    assert "--verify" not in arguments(context("scheduled", verify=ALL) | DAY), "nobody filled in a form for it"


def test_tables_are_laid_out_where_the_form_demands_it(checkout: Checkout) -> None:
    assert arguments(context(optimize_now=["a", "b"]))["--optimize-now"] == "a,b"
    assert arguments(context("backfill", optimize_now=["a"]) | DAY)["--optimize-now"] == "a"
    assert "--optimize-now" not in arguments(context("scheduled", optimize_now=["a"]) | DAY), "nobody filled in a form for it"


@pytest.mark.parametrize(
    ("form", "remedy"),
    [
        ({"mode": "replay"}, "needs From and To"),
        ({"mode": "replay", "from_date": "2026-01-01"}, "needs From and To"),
        ({"mode": "replay", "from_date": "2026-01-03", "to_date": "2026-01-01"}, "Swap them"),
        ({"mode": "refresh"}, "needs Tables"),
        ({"mode": "refresh", "tables": ["a"], "to_date": "2026-01-01"}, "choose mode 'replay'"),
        ({"from_date": "2026-01-01"}, "choose mode 'replay'"),
        ({"tables": ["a"]}, "Leave Tables empty"),
    ],
)
def test_a_form_that_contradicts_itself_fails_before_spark_starts(
    operator: Any, records: Path, form: dict[str, Any], remedy: str
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    with pytest.raises(AirflowFailException, match=remedy):
        operator.execute(context(**form))
    assert told(records) == []


def test_a_backfill_replays_its_interval(checkout: Checkout) -> None:
    from airflow.utils.types import DagRunType

    for run_type in (DagRunType.BACKFILL_JOB, "backfill"):  # Airflow 2 gives the text
        # The id stays that of the scheduled run which is processed again.
        found = arguments(context(run_type, run_id="scheduled__2026-01-01", tables=["a"]) | DAY)
        assert found["--mode"] == "replay"
        assert (found["--from"], found["--to"]) == ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00"), "the day it is of"
        assert found["--tables"] == "a"


def test_a_scheduled_run_says_which_interval_it_is_for(checkout: Checkout) -> None:
    found = arguments(context("scheduled") | DAY)
    assert found["--mode"] == "increment"
    assert (found["--from"], found["--to"]) == ("2026-01-01T02:00:00+00:00", "2026-01-02T02:00:00+00:00")


@pytest.mark.parametrize("run_type", ["asset_triggered", "dataset_triggered"])
def test_a_run_that_data_started_takes_what_is_new(checkout: Checkout, run_type: str) -> None:
    found = arguments(context(run_type) | DAY)
    assert found["--mode"] == "increment"
    assert not {"--from", "--to"} & found.keys()


@pytest.mark.parametrize("stage", ["optimize", "vacuum", "verify"])
@pytest.mark.parametrize(
    ("run_type", "upkeep_from", "runs"),
    [
        ("backfill", None, False),
        ("backfill", "2026-01-02T02:00:01+00:00", False),
        ("backfill", "2026-01-02T02:00:00+00:00", True),
        ("backfill", "2026-01-02T03:00:00+01:00", True),
        ("scheduled", None, True),
        ("manual", None, True),
    ],
)
def test_a_backfill_does_its_upkeep_once(
    checkout: Checkout, records: Path, stage: str, run_type: str, upkeep_from: str | None, runs: bool
) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    task = SluiceSparkSubmitOperator(task_id=stage, pipeline="gym", stage=STAGES[stage])
    given = context(run_type, upkeep_from=upkeep_from) | DAY
    if runs:
        assert task.execute(given)["stage"] == stage
    else:
        with pytest.raises(AirflowSkipException, match="backfill"):
            task.execute(given)
    assert bool(told(records)) == runs


@pytest.mark.parametrize("seen", ["here", "by the job"])
def test_the_work_is_left_to_a_process_that_keeps_the_pipeline_running(
    checkout: Checkout, operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

    from sluice.runs.lease import holder

    folder = Path(PipelineRecords(checkout.settings, "gym").bookkeeping())
    folder.mkdir(parents=True, exist_ok=True)
    mine = holder.write_lease_description(folder, "kept", kept_running=True)
    try:
        if seen == "by the job":  # of another host nobody here knows whether it lives; that the lease is refused says so
            told_elsewhere = {**json.loads((folder / "lease.json").read_text()), "host": "elsewhere"}
            (folder / "lease.json").write_text(json.dumps(told_elsewhere))
            assert operator.execute(context())["stage"] == operator.stage.name, "what only may live is no reason to skip"
            monkeypatch.setenv("STAND_IN_EXIT", "3")
        before = len(told(records))
        with pytest.raises(AirflowSkipException, match=r"'gym' is kept running by run kept .* sluice stop gym"):
            operator.execute(context())
        with pytest.raises(
            AirflowFailException, match="A run in mode 'refresh' cannot be left to that process: Pipeline 'gym' is kept running"
        ):
            operator.execute(context(mode="refresh", tables=["device_day"]))
        assert len(told(records)) - before == (2 if seen == "by the job" else 0), "no job is started to find it out"
        another = holder.write_lease_description(folder, "another")
        if seen == "by the job":
            with pytest.raises(AirflowException, match="another job writes this pipeline"):
                operator.execute(context())
        holder.write_lease_end(folder, another)
    finally:
        holder.write_lease_end(folder, mine)
    monkeypatch.delenv("STAND_IN_EXIT", raising=False)
    assert operator.execute(context())["stage"] == operator.stage.name


@pytest.fixture
def kept_running(checkout: Checkout) -> Iterator[None]:
    """A process that keeps the pipeline running: this one."""
    from sluice.runs.lease import holder

    folder = Path(PipelineRecords(checkout.settings, "gym").bookkeeping())
    folder.mkdir(parents=True, exist_ok=True)
    mine = holder.write_lease_description(folder, "kept", kept_running=True)
    yield
    holder.write_lease_end(folder, mine)


def test_no_work_is_left_to_a_kept_running_process_that_was_asked_to_stop(
    checkout: Checkout, operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch, kept_running: None
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, AirflowSkipException

    request = PipelineRecords(checkout.settings, "gym").stop_request("kept")
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    try:
        assert operator.execute(context())["stage"] == "silver", "its job waits for the lease"
        monkeypatch.setenv("STAND_IN_EXIT", "3")
        with pytest.raises(AirflowException, match="another job writes this pipeline") as failure:
            operator.execute(context())
        assert not isinstance(failure.value, AirflowFailException | AirflowSkipException), "the next attempt gets it"
    finally:
        request.unlink()


@pytest.mark.parametrize(
    ("stage", "form", "asked"),
    [
        (VERIFY, {"verify": ALL}, VERIFY),
        (OPTIMIZE, {"optimize_now": ["device_day"]}, OPTIMIZE),
        (VERIFY, {"optimize_now": ["device_day"]}, OPTIMIZE),
        (SILVER, {"verify": ALL, "optimize_now": ["device_day"]}, VERIFY),
    ],
)
def test_what_the_form_asks_of_upkeep_is_not_left_to_a_kept_running_process(
    checkout: Checkout, records: Path, kept_running: None, stage: Stage, form: dict[str, Any], asked: Stage
) -> None:
    """Such a process verifies one table in turn, and lays out tables that need it. A task that is skipped takes all later ones with it."""
    from airflow.providers.common.compat.sdk import AirflowFailException

    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    operator = SluiceSparkSubmitOperator(task_id=stage.name, pipeline="gym", stage=stage)
    expected = f"What the form asks of '{asked.name}' cannot be left to that process: Pipeline 'gym' is kept"
    with pytest.raises(AirflowFailException, match=expected):
        operator.execute(context(**form))
    assert told(records) == []


def test_a_stage_of_a_quiet_pipeline_is_reported_without_a_submit(checkout: Checkout, operator: Any, records: Path) -> None:
    from sluice.declare.assembly.fingerprint import digest_declarations
    from sluice.declare.assembly.loading import load_declaration_graph
    from sluice.private_files import make_private_folder
    from sluice.runs import quiet

    settings, flows = checkout.settings, [{"flow": "workouts", "version": 7, "fingerprint": "f", "table_rules": {}}]
    settings.landing.joinpath("gym").mkdir(parents=True, exist_ok=True)
    books = Path(PipelineRecords(settings, "gym").bookkeeping())
    make_private_folder(books)
    now = datetime.now(UTC)
    seen = quiet.digest_run_inputs(PipelineRecords(settings, "gym")), quiet.digest_lake(PipelineRecords(settings, "gym"))
    declared = digest_declarations(load_declaration_graph(settings, "gym"))
    mark = quiet.QuietMark("r1", now, (), *seen, now + timedelta(hours=1), {"silver": flows}, declared)
    quiet.write_quiet_mark(PipelineRecords(settings, "gym"), mark)
    try:
        report = operator.execute(context())
        assert [(flow["flow"], flow["version_after"], flow["note"]) for flow in report["flows"]] == [
            ("workouts", 7, "nothing new")
        ]
        assert (report["stage"], report["quiet_since"]) == ("silver", "r1")
        assert operator.execute(context(verify=ALL))["quiet_since"] == "r1", "which concerns the task that verifies alone"
        assert told(records) == []
        operator.execute(context(mode="refresh", tables=["workouts"]))
        assert len(told(records)) == 1, "whoever asks for more gets it"
        settings.landing.joinpath("gym", "new").touch()
        assert "quiet_since" not in operator.execute(context())
        assert len(told(records)) == 2
    finally:
        books.joinpath("quiet.json").unlink()
        settings.landing.joinpath("gym", "new").unlink(missing_ok=True)


@pytest.fixture
def bronze_table(checkout: Checkout) -> Iterator[None]:
    """A small table of the pipeline, as delta-rs makes it."""
    path = PipelineRecords(checkout.settings, "gym").table_path("bronze", "readings")
    write_deltalake(path, pa.table({"_delivery": [1]}))
    DeltaTable(path).alter.set_table_properties({INSTANTS: MICROSECONDS}, raise_if_not_exists=False)
    yield
    shutil.rmtree(path)


@pytest.mark.parametrize(
    "stage", ["optimize", *(pytest.param(stage, marks=pytest.mark.slow) for stage in ("propagate_deletions", "vacuum"))]
)
def test_upkeep_that_needs_no_spark_is_not_submitted(checkout: Checkout, records: Path, bronze_table: None, stage: str) -> None:
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    operator: Any = SluiceSparkSubmitOperator(task_id=stage, pipeline="gym", stage=STAGES[stage])
    report = operator.execute(context())
    assert (report["stage"], told(records)) == (stage, [])
    assert [flow["flow"] for flow in report["flows"]][:1] == ([] if stage == "propagate_deletions" else ["readings"])
    assert operator.execute(context(mode="refresh", tables=["workouts"])) and len(told(records)) == 1


@pytest.fixture
def upkeep(checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Any]:
    """Makes the operator of a stage whose process without Spark is a script of the shell."""
    from orchestration.spark_submit import stage_job
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    def make(script: str) -> Any:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(stage_job, "sys", SimpleNamespace(executable=str(program)))
        return SluiceSparkSubmitOperator(task_id="optimize", pipeline="gym", stage=OPTIMIZE)

    return make


def test_a_task_that_is_killed_ends_its_process_without_spark_and_submits_nothing(
    records: Path, upkeep: Callable[[str], Any]
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    operator, seen = upkeep("exec sleep 600"), []

    def kill() -> None:
        until(lambda: operator._process_without_spark.pid is not None)
        seen.append(operator._process_without_spark.pid)
        operator.on_kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(AirflowException, match="killed before it was submitted"):
        operator.execute(context())
    killer.join()
    assert not is_alive(seen[0]) and told(records) == []


def test_a_task_that_is_killed_before_its_process_without_spark_starts_none(
    records: Path, upkeep: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow 3 calls `on_kill`, and goes on with `execute`."""
    from airflow.providers.common.compat.sdk import AirflowException

    operator = upkeep("exit 0")
    operator.on_kill()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("it was started"))
    with pytest.raises(AirflowException, match="killed before it was submitted"):
        operator.execute(context())


def test_a_task_that_is_killed_while_its_process_without_spark_starts_ends_it(
    records: Path, upkeep: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    operator, start, seen = upkeep("exec sleep 30"), subprocess.Popen, []

    def start_and_be_killed(*given: Any, **options: Any) -> Any:
        seen.append(start(*given, **options))
        operator.on_kill()
        return seen[-1]

    monkeypatch.setattr(subprocess, "Popen", start_and_be_killed)
    with pytest.raises(AirflowException, match="killed before it was submitted"):
        operator.execute(context())
    assert [process.returncode for process in seen] == [-signal.SIGKILL], "it did not work to its end"
    assert told(records) == []


def test_a_run_that_is_asked_to_stop_in_a_stage_without_spark_submits_nothing(
    records: Path, upkeep: Callable[[str], Any]
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    with pytest.raises(AirflowException, match="stopped on request"):
        upkeep("echo sluice optimize: stopped on request; exit 5").execute(context())
    assert told(records) == []
    assert upkeep("exit 1").execute(context()) and len(told(records)) == 1, "any other failure is left to the job"


@pytest.mark.parametrize("stage", ["silver", "gold"])
def test_nothing_is_left_to_a_process_that_keeps_one_stage_running(
    checkout: Checkout, operator: Any, records: Path, stage: str
) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    from sluice.runs.lease import holder

    folder = Path(PipelineRecords(checkout.settings, "gym").bookkeeping())
    folder.mkdir(parents=True, exist_ok=True)
    mine = holder.write_lease_description(folder, "kept", kept_running=True, stage=stage)
    try:
        told_ = rf"run kept .* in the stage '{stage}' alone\. No other stage can run until it has ended\. .* sluice stop gym"
        with pytest.raises(AirflowFailException, match=told_):
            operator.execute(context())
    finally:
        holder.write_lease_end(folder, mine)
    assert told(records) == []


def test_a_job_gets_nothing_of_airflow(operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_ALERTS", "")
    monkeypatch.delenv("SLUICE_AIRFLOW_PORT")  # of these tests
    operator.execute(context())
    assert told(records)[0]["input"] == "nothing", "a task's standard input is its line to its supervisor"
    names = told(records)[0]["environment"]
    assert "SLUICE_LAKE" in names
    assert [name for name in names if "AIRFLOW" in name or name == "SLUICE_ALERTS"] == []


def test_no_text_of_a_user_gets_into_the_run_identity(checkout: Checkout) -> None:
    found = arguments(context(run_id="Ada Lovelace; rm -rf /"))
    assert re.fullmatch("af-[0-9a-f]{12}", found["--run-id"])
    assert found["--airflow-run"] == found["--run-id"] + "-2"
    assert found["--run-id"] == arguments(context(run_id="Ada Lovelace; rm -rf /"))["--run-id"]
    assert found["--run-id"] != arguments(context(run_id="another"))["--run-id"]


def run_here(dag: Any, logical_date: datetime | None) -> Any:
    """A run of the DAG in this process; Airflow 2 has another word for the date, and no run without one."""
    from orchestration.airflow_line import airflow_line

    return dag.test(logical_date=logical_date) if airflow_line() == 3 else dag.test(execution_date=logical_date)


@pytest.mark.parametrize(
    "logical_date",
    [
        pytest.param(None, id="manual"),
        pytest.param(datetime(2026, 1, 5, 2, tzinfo=UTC), id="dated", marks=pytest.mark.slow),
    ],
)
def test_a_run_submits_every_stage_in_order(checkout: Checkout, records: Path, logical_date: datetime | None) -> None:
    from orchestration.airflow_line import airflow_line

    if airflow_line() == 3:
        from airflow.dag_processing.dagbag import DagBag
    else:
        from airflow.models.dagbag import DagBag

    dag = DagBag(str(checkout.settings.root / "dags")).dags["gym"]
    run = run_here(dag, logical_date)
    assert run.state == "success"
    calls = [entry["argv"] for entry in told(records)]
    spark_jobs = checkout.settings.root / "spark_jobs"
    stages = ["bronze", "silver", "gold", "propagate_deletions", "optimize", "vacuum", "verify"]
    assert [call[8] for call in calls] == [str(spark_jobs / f"{stage}.py") for stage in stages]
    assert calls[0][:4] == ["--master", "local[2]", "--properties-file", str(spark_jobs / "conf" / "spark-defaults.conf")]
    assert calls[0][4:8] == ["--name", "sluice-gym-bronze", "--deploy-mode", "client"]
    assert calls[0][9:13] == ["--pipeline", "gym", "--mode", "increment"]


@pytest.fixture
def operator(checkout: Checkout) -> Any:
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    return SluiceSparkSubmitOperator(task_id="silver", pipeline="gym", stage=SILVER)


def test_the_report_comes_back(operator: Any, records: Path) -> None:
    assert operator.execute(context())["flows"][0]["version_after"] == 4


@pytest.mark.parametrize("code", [1, 2, 3])
def test_exit_codes(operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    monkeypatch.setenv("STAND_IN_EXIT", str(code))
    with pytest.raises(AirflowException, match="There is no table 'hart_rate'") as failure:
        operator.execute(context())
    assert isinstance(failure.value, AirflowFailException) == (code == 2), "only exit code 2 rules out a retry"
    assert failure.value.__suppress_context__, "the command line and its stack trace are no news"


@pytest.mark.parametrize(
    ("code", "reports", "said", "final"),
    [
        (1, True, {"retry_helps": False}, True),
        (1, True, {}, False),
        (1, False, {}, False),
        (3, False, {}, False),
        (137, False, {}, False),
    ],
    ids=["tables differ", "stopped on request", "the JVM was lost", "the lease is held", "killed"],
)
def test_what_differs_from_its_recompute_is_not_tried_again(
    checkout: Checkout,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    reports: bool,
    said: dict[str, Any],
    final: bool,
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator

    monkeypatch.setenv("STAND_IN_EXIT", str(code))
    monkeypatch.setenv("STAND_IN_SAYS", json.dumps(said))
    if reports:
        monkeypatch.setenv("STAND_IN_REPORTS", "yes")
    with pytest.raises(AirflowException) as failure:
        SluiceSparkSubmitOperator(task_id="verify", pipeline="gym", stage=VERIFY).execute(context())
    assert isinstance(failure.value, AirflowFailException) == final, "any other failure may pass"


def test_a_missing_connection_is_no_yarn(operator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException

    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    with pytest.raises(AirflowFailException, match="no Airflow connection 'spark_default'"):
        operator.execute(context())


def test_the_log_is_without_noise(operator: Any, records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator.execute(context())
    log = capsys.readouterr().out
    assert "the silver job starts" in log
    assert "incubator" not in log
    assert '"flows"' not in log, "the report is in the XCom already"


@pytest.mark.parametrize("asked", [True, False])
def test_the_job_of_events_is_told_the_runs_above_it(
    checkout: Checkout, operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """The ids are those that apache-airflow-providers-openlineage 2.20.3 made of these parts."""
    monkeypatch.delenv("OPENLINEAGE_NAMESPACE", raising=False)
    monkeypatch.setenv("SLUICE_OPENLINEAGE", "yes" if asked else "no")
    at = datetime(2026, 11, 21, 2, tzinfo=UTC)
    given = context()
    given["dag_run"] = SimpleNamespace(**vars(given["dag_run"]), logical_date=at, run_after=at, clear_number=1)
    given["ti"] = SimpleNamespace(dag_id="gym", task_id="gold", try_number=2, map_index=-1)
    operator.execute(given)
    words = told(records)[0]["argv"]
    said = dict(word.split("=", 1) for word in words if word.startswith("spark.openlineage."))
    assert said == ({
        "spark.openlineage.parentRunId": "01a1fbd4-f500-7f08-8fb5-ca1375a1358b",
        "spark.openlineage.parentJobNamespace": "default",
        "spark.openlineage.parentJobName": "gym.gold",
        "spark.openlineage.rootParentRunId": "01a1fbd4-f500-73a6-8e47-681b74e837a5",
        "spark.openlineage.rootParentJobNamespace": "default",
        "spark.openlineage.rootParentJobName": "gym",
    } if asked else {})  # fmt: skip


def test_an_earlier_stop_request_does_not_stop_a_retry(
    checkout: Checkout, operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration.dag_run import run_identity

    request = PipelineRecords(checkout.settings, "gym").stop_request(run_identity(context()))
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    monkeypatch.setenv("STAND_IN_SECONDS", "0.3")
    assert operator.execute(context())["stage"] == "silver"


@pytest.mark.parametrize("try_number", [1, 2])
@pytest.mark.parametrize("seen_by", ["its lease", "its signs of life"])
def test_a_stop_request_stays_while_the_job_of_an_earlier_attempt_works(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen_by: str, try_number: int
) -> None:
    """Airflow lost that attempt, and tries again; `sluice stop` asked the job that still works."""
    from airflow.providers.common.compat.sdk import AirflowException

    from orchestration.dag_run import run_identity
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator
    from sluice.runs.followed_job import find_living_job, locate_followed_job
    from sluice.runs.lease import holder

    operator = SluiceSparkSubmitOperator(task_id="silver", pipeline="gym", stage=SILVER)
    lake = PipelineRecords(replace(checkout.settings, lake=str(tmp_path)), "gym")
    given = context() | {"ti": SimpleNamespace(try_number=try_number)}
    run, beats = run_identity(given), itertools.count()
    request, beating = lake.stop_request(run), locate_followed_job(lake, f"{run}-silver-0-1")
    for file in (request, beating):
        file.parent.mkdir(parents=True, exist_ok=True)
    beating.write_text("{}")
    monkeypatch.setattr(find_living_job, "__defaults__", (lambda _: beating.write_text(f'{{"beat": {next(beats)}}}'), 1.0))
    folder = Path(lake.bookkeeping())
    if seen_by == "its lease":
        beating.unlink()
        mine = holder.write_lease_description(folder, run)

    def look() -> bool:
        request.touch()
        with contextlib.suppress(AirflowException):  # a first attempt is told that its run is to stop
            operator._refuse_unanswered_stop(lake, given)  # type: ignore[arg-type]  # what it reads of it
        return request.exists()

    assert look(), "the job has not found it yet"
    if seen_by == "its lease":
        holder.write_lease_end(folder, mine)
    else:
        monkeypatch.setattr(find_living_job, "__defaults__", (lambda _: None, 1.0))
    assert not look(), "it was obeyed, or the job is dead"


@pytest.mark.parametrize("deploy_mode", ["client", "cluster"])
@pytest.mark.parametrize(
    ("left", "try_number"),
    [("", 2), ("killed", 1)],
    ids=["that the attempt before obeyed", "for the driver of a killed task"],
)
def test_an_earlier_stop_request_does_not_stop_a_stage_without_spark(
    checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch, deploy_mode: str, left: str, try_number: int
) -> None:
    """Its process stops as long as there is a request, and no job follows that would take the request away."""
    from tests.airflow.test_chosen_spark import connect  # which imports this module

    from orchestration.dag_run import run_identity
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator
    from orchestration.spark_submit.stage_job import EndOfProcess, ProcessWithoutSpark
    from sluice.runs.followed_job import STOPPED

    connect(monkeypatch, host="yarn", extra={"profile": "yarn", "deploy-mode": deploy_mode})
    given = context() | {"ti": SimpleNamespace(try_number=try_number)}
    request = PipelineRecords(checkout.settings, "gym").stop_request(run_identity(given))
    request.parent.mkdir(parents=True, exist_ok=True)
    request.write_text(left)

    def run_stage(_: ProcessWithoutSpark, stage: str, arguments: list[str], environment: object) -> EndOfProcess:
        if request.exists():
            return EndOfProcess(STOPPED, "stopped on request.")
        Path(arguments[arguments.index("--report") + 1]).write_text(json.dumps({"stage": stage, "flows": []}))
        return EndOfProcess(0, "done")

    monkeypatch.setattr(ProcessWithoutSpark, "run_stage", run_stage)
    try:
        report = SluiceSparkSubmitOperator(task_id="optimize", pipeline="gym", stage=OPTIMIZE).execute(given)
        assert (report["stage"], told(records), request.exists()) == ("optimize", [], False)
    finally:
        request.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("written", "stops"),
    [(timedelta(seconds=5), True), (timedelta(seconds=-5), False)],
    ids=["of this run", "before it was cleared"],
)
def test_a_request_in_the_last_batch_of_the_task_before_ends_the_run(
    checkout: Checkout, operator: Any, records: Path, written: timedelta, stops: bool
) -> None:
    """The job before was past its last look and succeeded: no job obeyed the request of `sluice stop`."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    from orchestration.dag_run import run_identity

    began = datetime.now(UTC) - timedelta(minutes=1)
    first = context() | {"ti": SimpleNamespace(try_number=1)}
    first["dag_run"].start_date = began
    request = PipelineRecords(checkout.settings, "gym").stop_request(run_identity(first))
    request.parent.mkdir(parents=True, exist_ok=True)
    request.touch()
    os.utime(str(request), ((began + written).timestamp(),) * 2)
    if stops:
        with pytest.raises(AirflowException, match="sluice stop asked this run to stop") as failure:
            operator.execute(first)
        assert not isinstance(failure.value, AirflowFailException), (
            "Airflow tries the task again a minute later, as after any stop"
        )
    else:
        assert operator.execute(first)["stage"] == "silver"
    assert bool(told(records)) != stops
    assert not request.exists()


def test_a_request_for_the_driver_of_a_killed_task_does_not_end_the_next_task(
    checkout: Checkout, operator: Any, records: Path
) -> None:
    """Somebody marked the killed task as a success, and nobody asked the run to stop."""
    from orchestration.dag_run import run_identity
    from orchestration.spark_submit.chosen_spark import find_cluster_manager
    from orchestration.spark_submit.cluster_driver import SubmittedDriver
    from orchestration.spark_submit.cluster_task import follow_driver

    following = context() | {"ti": SimpleNamespace(try_number=1)}
    following["dag_run"].start_date = datetime.now(UTC) - timedelta(minutes=1)
    run = run_identity(following)
    driver = SubmittedDriver("spark_default", "gym", run, "attempt", name="", submitted_at=time.time())
    follow_driver(driver, find_cluster_manager("yarn"), checkout.settings).stop(ask_seconds=0)
    assert PipelineRecords(checkout.settings, "gym").stop_request(run).exists(), "for a driver that is not at a batch's end yet"
    assert operator.execute(following)["stage"] == "silver"


def test_a_killed_task_asks_its_own_job_to_stop_and_no_later_one(checkout: Checkout) -> None:
    from orchestration.spark_submit.hook import SluiceSparkSubmitHook
    from orchestration.spark_submit.stop_requests import concerns_killed_job

    request = PipelineRecords(checkout.settings, "gym").stop_request("af-1")
    hook = SluiceSparkSubmitHook(stop_request=request, conn_id="spark_default")
    with subprocess.Popen(["sleep", "600"], process_group=0) as job:
        hook._submit_sp = job
        killed = threading.Thread(target=hook.stop_submit)
        killed.start()
        try:
            until(lambda: request.exists() and concerns_killed_job(request), 15, "the request to the job")
        finally:
            job.kill()
            killed.join()


def test_what_a_failed_job_did_is_alerted_of(operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One table set rows aside and another failed: the next attempt sets none aside."""
    from airflow.providers.common.compat.sdk import AirflowException

    from orchestration import alerts

    sent: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        alerts, "send_alert", lambda kind, text, **facts: sent.append((facts["table"], facts["rule"], facts["rows"]))
    )
    monkeypatch.setenv("STAND_IN_EXIT", "1")
    operator.alert_when = {"device_day.quarantined": 0}
    with pytest.raises(AirflowException, match="exit code 1"):
        operator.execute(context())
    assert sent == [], "nobody knows what it did"
    monkeypatch.setenv("STAND_IN_REPORTS", "yes")
    with pytest.raises(AirflowException, match="exit code 1"):
        operator.execute(context())
    assert sent == [("device_day", "quarantined", 2)]


def test_what_a_job_did_before_its_task_took_too_long_is_alerted_of(
    operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowTaskTimeout

    from orchestration import alerts
    from orchestration.spark_submit.hook import SluiceSparkSubmitHook

    sent: list[str] = []
    monkeypatch.setattr(alerts, "send_alert", lambda kind, text, **facts: sent.append(facts["table"]))
    monkeypatch.setenv("STAND_IN_REPORTS", "yes")
    operator.alert_when = {"device_day.quarantined": 0}
    whole = SluiceSparkSubmitHook.submit

    def take_too_long(hook: Any, *arguments: Any) -> None:
        whole(hook, *arguments)
        raise AirflowTaskTimeout

    monkeypatch.setattr(SluiceSparkSubmitHook, "submit", take_too_long)
    with pytest.raises(AirflowTaskTimeout):
        operator.execute(context())
    assert sent == ["device_day"]


def test_a_task_that_is_killed_before_it_submits_does_not_submit(
    operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow 3 calls `on_kill`, and goes on with `execute`."""
    from airflow.providers.common.compat.sdk import AirflowException

    def kill_and_leave_it_to_the_job(_: object) -> None:
        operator.on_kill()

    monkeypatch.setattr(operator, "_run_without_spark", kill_and_leave_it_to_the_job)
    with pytest.raises(AirflowException, match="killed before it was submitted"):
        operator.execute(context())
    assert told(records) == []


@pytest.mark.crash
@pytest.mark.parametrize("when", ["before", "while it starts"])
def test_a_job_that_is_killed_as_it_is_submitted_does_not_live_on(
    checkout: Checkout, records: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    from orchestration.spark_submit.hook import SluiceSparkSubmitHook

    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    hook = SluiceSparkSubmitHook(
        stop_request=PipelineRecords(checkout.settings, "gym").stop_request("af-1"),
        conn_id="spark_default",
        ask_seconds=4,
        terminate_seconds=2,
        application_args=["--run-id", "af-1"],
    )
    build = hook._build_spark_submit_command

    def build_and_be_killed(application: str) -> Any:
        hook.on_kill()
        return build(application)

    if when == "before":
        hook.on_kill()
    else:
        monkeypatch.setattr(hook, "_build_spark_submit_command", build_and_be_killed)
    started = time.monotonic()
    with pytest.raises(AirflowException):
        hook.submit("silver.py")
    assert time.monotonic() - started < 200, "it did not work to its end"
    pids = [entry["pid"] for entry in told(records) if "pid" in entry]
    assert bool(pids) == (when != "before")
    until(lambda: not any(map(is_alive, pids)), 10, "the end of the job")  # who was killed takes an instant to be gone


@pytest.mark.crash
@pytest.mark.parametrize(
    ("stubborn", "ask_seconds", "terminate_seconds", "at_least"),
    [("", 120, 1, 0), ("asked", 1, 120, 1), ("terminated", 1, 1, 2)],
)
def test_a_job_is_asked_then_terminated_then_killed(
    checkout: Checkout,
    records: Path,
    monkeypatch: pytest.MonkeyPatch,
    stubborn: str,
    ask_seconds: float,
    terminate_seconds: float,
    at_least: float,
) -> None:
    """The step that must stop the job has much time, and those that must not have little: a slow machine changes no answer."""
    from airflow.providers.common.compat.sdk import AirflowException

    from orchestration.spark_submit.hook import SluiceSparkSubmitHook

    monkeypatch.setenv("STAND_IN_SECONDS", "300")
    monkeypatch.setenv("STAND_IN_STUBBORN", stubborn)
    hook = SluiceSparkSubmitHook(
        stop_request=PipelineRecords(checkout.settings, "gym").stop_request("af-1"),
        conn_id="spark_default",
        ask_seconds=ask_seconds,
        terminate_seconds=terminate_seconds,
        application_args=["--run-id", "af-1"],
    )

    def submit() -> None:
        with pytest.raises(AirflowException, match="Error code is"):
            hook.submit("silver.py")

    thread = threading.Thread(target=submit)
    thread.start()
    until(lambda: len(told(records)) == 2, what="the start of the job")
    started = time.monotonic()
    hook.on_kill()
    seconds = time.monotonic() - started
    thread.join()
    assert at_least <= seconds < 100, "it waited for each step that failed, and for none that did not"
    assert ({"stopped": "on request"} in told(records)) == (stubborn == "")
    pids = [entry["pid"] for entry in told(records) if "pid" in entry]
    assert len(pids) == 2
    until(lambda: not any(map(is_alive, pids)), 10, "the end of the job")  # who was killed takes an instant to be gone
