"""The DAG `erasure`: it parses without Spark, goes on where a pipeline is broken, and speaks of requests by their ids only."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from sluice.erasure import request_events
from sluice.pipeline_records import PipelineRecords
from sluice.runs import due_requests

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import DAG
    from tests.checkout import Checkout

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

NOW = datetime.now(UTC)
SUBJECT = "4200000001"
A, B, C, D, E = ("a" * 12, "b" * 12, "c" * 12, "d" * 12, "e" * 12)
GYM = "gym.due"


@pytest.fixture
def dag(checkout: Checkout) -> DAG:
    from orchestration.erasure.dag import erasure_dag

    return erasure_dag()


@pytest.fixture
def asks_first(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> DAG:
    from orchestration.erasure.dag import erasure_dag

    monkeypatch.setenv("SLUICE_ERASURE_APPROVAL", "yes")
    return erasure_dag()


@pytest.fixture
def keep(checkout: Checkout) -> Iterator[Any]:
    """Writes requests as `sluice erase request` keeps them; the last of them, the person's pseudonym, is never to be seen."""
    folder = Path(PipelineRecords(checkout.settings, "gym").erasure_requests)
    folder.mkdir(parents=True, exist_ok=True)

    def one(request: str, state: str, days: float = 30, physical: float | None = None, *history: tuple[float, str, str]) -> None:
        told = {
            "request": request,
            "received_at": (NOW + timedelta(days=days - 30)).isoformat(),
            "due_at": (NOW + timedelta(days=days)).isoformat(),
            "state": state,
            "domain": "device_id",
            "pseudonyms": [SUBJECT],
            "subjects": [],
            "physical_due_at": None if physical is None else (NOW + timedelta(days=physical)).isoformat(),
            "history": [
                {"at": (NOW + timedelta(days=at)).isoformat(), "state": what, "note": note} for at, what, note in history
            ],
        }
        (folder / f"{request}.json").write_text(json.dumps(told))

    yield one
    for path in folder.iterdir():
        path.unlink()


@pytest.fixture
def alerts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    taken: list[dict[str, Any]] = []

    class Takes(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Takes)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SLUICE_ALERTS", f"http://127.0.0.1:{server.server_address[1]}/")
    yield taken
    server.shutdown()
    server.server_close()


def context(found: dict[str, Any] | None = None, *asked: str) -> dict[str, Any]:
    run = SimpleNamespace(dag_id="erasure", run_id="manual__1", run_type="manual")
    ti = SimpleNamespace(try_number=1, xcom_pull=lambda task_ids: found)
    return {"params": {"requests": list(asked)}, "dag_run": run, "ti": ti}


def test_a_group_for_each_pipeline_and_the_pool_that_its_other_jobs_wait_for(dag: DAG) -> None:
    pipelines = {path.parent.name for path in (Path(__file__).resolve().parents[2] / "include/pipelines").glob("*/pipeline.py")}
    assert {task.task_id for task in dag.tasks} == {f"{name}.{task}" for name in pipelines for task in ("due", "erase")}
    for name in pipelines:
        assert dag.get_task(f"{name}.erase").pool == f"sluice_{name}", "or it would write beside the runs of the pipeline"
        assert dag.get_task(f"{name}.due").downstream_task_ids == {f"{name}.erase"}
    assert not dag.catchup and type(dag.timetable).__name__ == "CronDataIntervalTimetable"
    assert dag.max_active_runs > 1, "a run that waits for approval may not keep the next day's from what is due"


def test_every_task_says_what_it_is_and_tells_of_its_failure(asks_first: DAG) -> None:
    from orchestration import alerts

    for task in asks_first.tasks:
        assert task.doc_md and task.task_display_name != task.task_id and task.owner == "sluice"
        callbacks = task.on_failure_callback
        assert alerts.task_failed in (callbacks if isinstance(callbacks, list | tuple) else [callbacks])


def test_approval_is_a_step_of_airflow_3_and_only_where_it_is_asked_for(asks_first: DAG) -> None:
    from orchestration.airflow_line import airflow_line

    if airflow_line() == 2:
        assert "gym.approve" not in {task.task_id for task in asks_first.tasks}
        return
    edges = {(task.task_id, down) for task in asks_first.tasks for down in task.downstream_task_ids if down.startswith("gym")}
    assert edges == {(GYM, "gym.erase"), (GYM, "gym.approve"), ("gym.approve", "gym.erase_approved")}
    step = asks_first.get_task("gym.approve")
    assert step.defaults == ["Reject"] and step.response_timeout < timedelta(days=1), "the next day asks again"
    assert step.pool != "sluice_gym", "it waits for a person, and the pipeline must not"


def test_a_broken_pipeline_stops_nobody_elses_erasure(
    checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration.erasure.dag import erasure_dag

    folder = tmp_path / "include" / "pipelines" / "broken"
    folder.mkdir(parents=True)
    (folder / "pipeline.py").write_text("this is no Python")
    for name in ("environments", "spark_jobs"):
        (tmp_path / name).symlink_to(checkout.settings.root / name)
    monkeypatch.setenv("SLUICE_ROOT", str(tmp_path))
    assert {task.task_id for task in erasure_dag().tasks} == {"broken.due", "broken.erase"}


@pytest.mark.parametrize(
    "value", [SUBJECT, [SUBJECT], ["anna@example.org"], [A, A], [A + "\n"], ["a,b"], ["--approved"], "all", None]
)
def test_the_form_takes_no_identifier(dag: DAG, value: Any) -> None:
    from airflow.providers.common.compat.sdk import ParamValidationError

    with pytest.raises(ParamValidationError):
        dag.params.get_param("requests").resolve(value)


def test_the_form_takes_ids_or_nothing(dag: DAG) -> None:
    form = dag.params.get_param("requests")
    assert form.resolve([]) == [] and form.resolve([A, B]) == [A, B]
    assert form.description and "Never write an identifier" in form.description
    assert set(dag.params) == {"requests"}


def test_what_is_due_by_what_is_due_of_it(keep: Any, dag: DAG) -> None:
    keep(A, request_events.RECEIVED)
    keep(B, request_events.LOGICALLY, 30, 1)
    keep(C, request_events.LOGICALLY, 30, -1)
    keep(D, request_events.CERTIFIED, 30, -40, (-31, request_events.CERTIFIED, ""))
    keep(E, request_events.PHYSICALLY)
    found = dag.get_task(GYM).execute(context())
    lists = {"unapproved": [], "erase": [A], "finish": [C], "scan": [E], "again": [D], "later": [B], "now": [A, C, E, D]}
    assert found == {**lists, "asked_by_data": False}
    assert SUBJECT not in json.dumps(found)


def test_a_certified_request_is_scanned_once_more_and_a_lifted_one_never(keep: Any, dag: DAG) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    keep(A, request_events.CERTIFIED, 30, -90, (-70, request_events.CERTIFIED, ""), (-40, request_events.CERTIFIED, ""))
    keep(B, request_events.CERTIFIED, 30, -90, (-70, request_events.CERTIFIED, ""), (-40, request_events.LIFTED, ""))
    keep(C, request_events.CERTIFIED, 30, -20, (-29, request_events.CERTIFIED, ""))
    with pytest.raises(AirflowSkipException, match="Nothing is due"):
        dag.get_task(GYM).execute(context())


def test_only_what_was_asked_for(keep: Any, dag: DAG) -> None:
    from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

    keep(A, request_events.RECEIVED)
    keep(B, request_events.RECEIVED)
    assert dag.get_task(GYM).execute(context(None, B))["now"] == [B]
    with pytest.raises(AirflowSkipException):
        dag.get_task("italy.due").execute(context(None, B))
    with pytest.raises(AirflowFailException, match="no erasure request 'cccccccccccc'"):
        dag.get_task(GYM).execute(context(None, C))


def test_without_approval_nothing_is_erased(keep: Any, asks_first: DAG) -> None:
    keep(A, request_events.RECEIVED)
    keep(B, request_events.RECEIVED, 30, None, (0, request_events.RECEIVED, request_events.APPROVED))
    keep(C, request_events.LOGICALLY, 30, -1)
    found = asks_first.get_task(GYM).execute(context())
    assert (found["unapproved"], found["now"]) == ([A], [B, C]), "the bytes of who was erased go in any case"


def test_an_open_request_is_told_of_before_its_deadline(keep: Any, dag: DAG, alerts: list[dict[str, Any]]) -> None:
    keep(A, request_events.LOGICALLY, 6.5, 1)
    keep(B, request_events.RECEIVED, -1)
    keep(C, request_events.RECEIVED, 8)
    keep(D, request_events.CERTIFIED, 1, -1, (0, request_events.CERTIFIED, ""))
    dag.get_task(GYM).execute(context())
    told = {one["request"]: (one["kind"], one["state"], one["days_left"]) for one in alerts}
    assert told == {A: ("erasure due", request_events.LOGICALLY, 6), B: ("erasure late", request_events.RECEIVED, -1)}
    assert SUBJECT not in json.dumps(alerts)


@pytest.fixture
def records(checkout: Checkout) -> Iterator[Path]:
    checkout.records.unlink(missing_ok=True)
    yield checkout.records
    checkout.records.unlink(missing_ok=True)


@pytest.mark.parametrize(("task", "which", "approved"), [("erase", "now", False), ("erase_approved", "unapproved", True)])
def test_the_job_is_told_ids_and_nothing_else(asks_first: DAG, records: Path, task: str, which: str, approved: bool) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    from orchestration.airflow_line import airflow_line

    if approved and airflow_line() == 2:
        pytest.skip("Airflow 2 has no approval step")
    found = {"now": [], "unapproved": [], which: [A, B]}
    assert asks_first.get_task(f"gym.{task}").execute(context(found))["stage"] == "erase"
    words = json.loads(records.read_text().splitlines()[0])["argv"]
    after = words[words.index(next(word for word in words if word.endswith("erase.py"))) + 1 :]
    assert after[:4] == ["--pipeline", "gym", "--requests", f"{A},{B}"]
    assert ("--approved" in after) == approved
    records.unlink()
    with pytest.raises(AirflowSkipException):
        asks_first.get_task(f"gym.{task}").execute(context({"now": [], "unapproved": []}))
    assert not records.exists(), "no Spark where nothing is due"


def test_rows_that_may_ask_start_the_job_for_all_that_is_due(
    keep: Any, dag: DAG, records: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    monkeypatch.setattr(due_requests, "may_hold_unseen_requests", lambda of: of.pipeline == "gym")
    found = dag.get_task(GYM).execute(context())
    assert (found["now"], found["asked_by_data"]) == ([], True)
    keep(A, request_events.LOGICALLY, 30, 1)
    with pytest.raises(AirflowSkipException):
        dag.get_task(GYM).execute(context(None, A))
    assert dag.get_task("gym.erase").execute(context({**found, "now": [A]}))["stage"] == "erase"
    words = json.loads(records.read_text().splitlines()[0])["argv"]
    assert words[words.index("--requests") + 1] == "", "with whom it finds"


def test_the_engine_and_airflow_agree_on_what_waits(checkout: Checkout, keep: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.erasure import request_record
    from sluice.settings import Settings

    keep(A, request_events.RECEIVED)
    keep(B, request_events.RECEIVED, 30, None, (0, request_events.RECEIVED, request_events.APPROVED))
    for answer in ("no", "yes"):
        monkeypatch.setenv("SLUICE_ERASURE_APPROVAL", answer)
        settings = Settings.current()
        waiting = [one.request for one in request_record.list_waiting_requests(PipelineRecords(settings, "gym"))]
        assert tuple(waiting) == due_requests.find_due_requests(PipelineRecords(settings, "gym"), NOW).erase
        assert waiting == ([B] if answer == "yes" else [A, B])
