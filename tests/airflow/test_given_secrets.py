"""Airflow's secrets backend instead of secret files: the job gets the secrets in files of its own, and none of these remain."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

VALUE = hashlib.sha256(b"a key of tests").hexdigest()
CONTEXT: dict[str, Any] = {
    "params": {"mode": "increment", "from_date": None, "to_date": None, "tables": [], "upkeep_from": None, "verify": None},
    "dag_run": SimpleNamespace(dag_id="gym", run_id="manual__1", run_type="manual"),
    "ti": SimpleNamespace(try_number=1),
}


@pytest.fixture
def records(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AIRFLOW_VAR_SLUICE_SECRET_SUPPRESSION_KEY", VALUE)  # the back end that needs no server
    # Tests before this one may have started a Spark session, and with it named another checkout.
    for name in (
        "SLUICE_LAKE",
        "SLUICE_LANDING",
        "SLUICE_SECRETS",
        "SLUICE_RESTRICTED",
        "SLUICE_TRUTH",
        "SLUICE_VAULT",
        "SLUICE_ENV",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLUICE_ROOT", str(checkout.settings.root))
    checkout.records.unlink(missing_ok=True)
    yield checkout.records
    checkout.records.unlink(missing_ok=True)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which tasks of this test leave their secrets. In the machine's, tasks of other suites remove what is left."""
    from orchestration.spark_submit import job_secrets

    monkeypatch.setattr(job_secrets, "_memory_folder", lambda: str(tmp_path))
    return tmp_path


@pytest.fixture
def operator(checkout: Checkout) -> Any:
    from orchestration.spark_submit.operator import SluiceSparkSubmitOperator
    from sluice.pipeline_stages import SILVER

    return SluiceSparkSubmitOperator(task_id="silver", pipeline="gym", stage=SILVER)


def told(records: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(records.read_text().splitlines()[0])
    return found


def test_a_job_gets_what_its_pipeline_needs_in_files_of_its_own_and_nothing_else(operator: Any, records: Path) -> None:
    os.environ["AIRFLOW_VAR_SLUICE_SECRET_OTHER"] = "of another pipeline"
    try:
        operator.execute(CONTEXT)
    finally:
        del os.environ["AIRFLOW_VAR_SLUICE_SECRET_OTHER"]
    found = told(records)
    assert found["given"]["files"] == {"suppression.key": VALUE}
    assert found["given"]["modes"] == ["0o600", "0o700"]
    assert not Path(found["given"]["folder"]).exists(), "it goes with the job"
    assert VALUE not in json.dumps([found["argv"], found["environment"]])
    assert "SLUICE_SECRETS_GIVEN" not in os.environ


def test_nothing_stays_where_the_job_fails(operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import AirflowException

    monkeypatch.setenv("STAND_IN_EXIT", "1")
    with pytest.raises(AirflowException):
        operator.execute(CONTEXT)
    found = told(records)["given"]
    assert found["files"] and not Path(found["folder"]).exists()


def test_a_value_is_in_no_log_and_in_nothing_that_airflow_stores_of_a_task(
    operator: Any, records: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        report = operator.execute(CONTEXT)
    printed = capfd.readouterr()
    shown = printed.out + printed.err + caplog.text
    assert "sluice_secret_suppression_key" in shown, "the search would find it"
    rendered = {name: getattr(operator, name, None) for name in operator.template_fields}
    for text in (shown, json.dumps(report), json.dumps(rendered, default=str), repr(vars(operator))):
        assert VALUE not in text


def test_a_file_comes_before_airflow(checkout: Checkout, operator: Any, records: Path) -> None:
    file = checkout.settings.secrets / "suppression.key"
    file.parent.mkdir(mode=0o700, exist_ok=True)
    file.write_text(hashlib.sha256(b"another").hexdigest())
    try:
        operator.execute(CONTEXT)
    finally:
        file.unlink()
    assert told(records)["given"]["files"] == {}


def test_what_a_killed_task_left_is_removed_by_the_next(operator: Any, records: Path, memory: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left, running = (memory / f"sluice-given-{pid}-{datetime.now(UTC).timestamp():.0f}" for pid in (ended.pid, os.getppid()))
    for folder in (left, running):
        folder.mkdir(mode=0o700)
    try:
        operator.execute(CONTEXT)
        assert not left.exists() and running.exists(), "another task's stays"
    finally:
        running.rmdir()


def test_the_job_of_a_killed_task_keeps_its_secrets(operator: Any, records: Path, memory: Path) -> None:
    """Airflow may kill a task whose driver lives on, and needs its keys for the next batch."""
    from orchestration.spark_submit import job_secrets

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder = memory / f"sluice-given-{ended.pid}-{datetime.now(UTC).timestamp():.0f}"
    folder.mkdir(mode=0o700)
    job = subprocess.Popen(["sleep", "600"], env={**os.environ, job_secrets.SECRETS_VARIABLE: str(folder)})
    try:
        operator.execute(CONTEXT)
        assert folder.exists()
    finally:
        job.kill()
        job.wait()
    operator.execute(CONTEXT)
    assert not folder.exists()


def test_wrong_declarations_are_said_by_the_job(operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orchestration.spark_submit import job_secrets

    def broken(*_: object) -> None:
        raise NameError("tabel")

    monkeypatch.setattr(job_secrets, "load_declaration_graph", broken)
    operator.execute(CONTEXT)
    assert told(records)["given"]["files"] == {}


class BackEnd:
    """A back end of Airflow that answers in this way."""

    def __init__(self, answer: str | Exception | None) -> None:
        self._answer = answer

    def get_connection(self, conn_id: str) -> None:
        return None

    def get_variable(self, key: str) -> str | None:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([TimeoutError(VALUE)], "unknown"),
        ([None, TimeoutError(VALUE), None], "unknown"),
        ([None, None], None),
        ([None, ""], None),
        ([NotImplementedError()], None),
    ],
    ids=["an outage", "an outage of one of several", "no such variable", "an empty variable", "no variables at all"],
)
def test_a_back_end_that_cannot_be_asked_is_not_one_without_the_secret(
    operator: Any, records: Path, monkeypatch: pytest.MonkeyPatch, answers: list[str | Exception | None], found: str | None
) -> None:
    """Airflow says in both cases that there is no such variable, and the job would make another key."""
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

    from orchestration.airflow_line import airflow_line

    monkeypatch.delenv("AIRFLOW_VAR_SLUICE_SECRET_SUPPRESSION_KEY")
    place = "sdk.execution_time.supervisor.ensure_secrets_backend" if airflow_line() == 3 else "configuration.ensure_secrets"
    module, _, name = f"airflow.{place}_loaded".rpartition(".")
    variables = getattr(importlib.import_module(module), name)  # which the connection comes from
    monkeypatch.setattr(f"{module}.{name}", lambda: [*variables(), *map(BackEnd, answers)])
    if found is None:
        operator.execute(CONTEXT)
        assert told(records)["given"]["files"] == {}
        return
    with pytest.raises(AirflowException, match="BackEnd could not be asked for the variable sluice_secret_") as failure:
        operator.execute(CONTEXT)
    assert not isinstance(failure.value, AirflowFailException) and VALUE not in str(failure.value)
    assert not records.exists(), "no job is submitted"


@pytest.mark.parametrize("error", ["VARIABLE_NOT_FOUND", "API_SERVER_ERROR", "GENERIC_ERROR", "raised"])
def test_an_outage_of_airflows_own_server_is_not_a_missing_variable(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    """A task asks it through its supervisor, by a back end that conceals errors."""
    from orchestration.airflow_line import airflow_line

    if airflow_line() == 2:
        pytest.skip("a task of Airflow 2 asks the database")
    from airflow.providers.common.compat.sdk import AirflowException
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse

    from orchestration.spark_submit import job_secrets

    def send(_: object) -> ErrorResponse:
        if error == "raised":
            raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))
        return ErrorResponse(error=ErrorType(error))

    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    if error == "VARIABLE_NOT_FOUND":
        assert job_secrets._ask_airflow_variable("sluice_secret_none") is None
    else:
        with pytest.raises(AirflowException, match="ExecutionAPISecretsBackend could not be asked"):
            job_secrets._ask_airflow_variable("sluice_secret_none")


@pytest.mark.parametrize(("error", "retried"), [("CONNECTION_NOT_FOUND", False), ("API_SERVER_ERROR", True)])
def test_an_outage_of_airflows_own_server_is_not_a_missing_connection(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch, error: str, retried: bool
) -> None:
    from orchestration.airflow_line import airflow_line

    if airflow_line() == 2:
        pytest.skip("a task of Airflow 2 asks the database")
    from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
    from airflow.sdk.exceptions import ErrorType
    from airflow.sdk.execution_time import task_runner
    from airflow.sdk.execution_time.comms import ErrorResponse

    from orchestration.spark_submit import hook

    answer = ErrorResponse(error=ErrorType(error))
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=lambda _: answer), raising=False)
    with pytest.raises(AirflowException) as failure:
        hook._require_connection("spark_nowhere")
    assert isinstance(failure.value, AirflowFailException) is not retried
    assert ("could not be asked for the connection spark_nowhere" in str(failure.value)) is retried
