"""The DAG `erasure` on a real Airflow with real Spark: what it does, what it asks for, and what Airflow keeps of it afterwards."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.system.running import ROOT, Checkout, ended, make_checkout, unpause
from tests.waiting import until

from orchestration.airflow_line import airflow_line
from orchestration.local import LocalAirflow
from orchestration.rest.client import Client
from orchestration.server.home import local_airflow_home
from pipelines.gym import maker
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.erasure import request_events, request_record, requests
from sluice.erasure.proof import certificate
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs import job, run_ledger
from sluice.settings import Settings

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.spark, pytest.mark.system, pytest.mark.filterwarnings("default")]

WAITING = ("awaiting_input", "deferred")
"""The states of a step that waits for an answer."""
NOBODY = "70000121409"
LAYERS = ("bronze", "silver", "gold")


@pytest.fixture
def gym(tmp_path: Path) -> Iterator[Checkout]:
    """A small lake whose removed files may go after a second, and whose requests wait for approval."""
    with pytest.MonkeyPatch.context() as patch:
        made = make_checkout(tmp_path, patch, {"erasure.py": ROOT / "dags" / "erasure.py"}, stand_in=False)
        patch.setenv("SLUICE_RETAIN", "1 second")
        patch.setenv("SLUICE_ERASURE_APPROVAL", "yes")
        yield replace(made, settings=Settings.current())


def states(client: Client, run: str) -> dict[str, str]:
    return {name: task["state"] for name, task in client.tasks("erasure", run).items() if name.startswith("gym.")}


def answer(client: Client, run: str, option: str) -> None:
    """Approve or reject, as the UI does."""

    def state() -> str | None:
        return states(client, run).get("gym.approve")

    until(lambda: state() in WAITING, 120, "the approval step")
    # Airflow 3.3.2 loses an answer that comes before its scheduler has heard, at its next look, that the step waits; it asks again then.
    next_answer = time.monotonic() + 15
    body = {"chosen_options": [option], "params_input": {}}
    path = f"/dags/erasure/dagRuns/{run}/taskInstances/gym.approve/-1/hitlDetails"

    def is_answered() -> bool:
        """Whether the step has ended. Answers each half a minute while it waits; 409 says that it has an answer, and is about to go on."""
        nonlocal next_answer
        now = state()
        if now in WAITING and time.monotonic() >= next_answer:
            client.request("PATCH", path, body, accept=(409,))
            next_answer = time.monotonic() + 30
        return now in ("success", "skipped", "failed")

    until(is_answered, 120, "the end of the approval step")


def test_a_request_is_approved_erased_certified_and_airflow_knows_ids_only(gym: Checkout) -> None:
    records = PipelineRecords(gym.settings, "gym")
    maker.land(gym.settings.landing / "gym", gym.settings.truth / "gym", days=1, scale=0.15)
    for stage in LAYERS:
        job.run_recorded_stage(gym.settings, job.JobRequest("gym", stage))
    graph = load_declaration_graph(gym.settings, "gym")
    member = str(run_ledger.read_table_rows(records, "completed_workouts")[0]["user_id"])
    asked = requests.receive_erasure_request(PipelineLake(gym.settings, graph), [Identifier("user_id", member)]).request
    with LocalAirflow(gym.settings, idle_schedule=True) as airflow:
        client = airflow.client
        unpause(client, "erasure")
        if airflow_line() == 3:
            client.trigger("erasure", "rejected", {"requests": [asked]})
            answer(client, "rejected", "Reject")
            assert ended(client, "erasure", "rejected", 300) == "success"
            assert states(client, "rejected")["gym.erase_approved"] == "skipped"
            assert request_record.read_erasure_request(records, asked).state == request_events.RECEIVED
            client.trigger("erasure", "approved", {"requests": [asked]})
            answer(client, "approved", "Approve")
        else:
            from sluice.runs import erasure_jobs

            erasure_jobs.approve_requests(records, [asked])
            client.trigger("erasure", "approved", {"requests": [asked]})
        assert ended(client, "erasure", "approved", 900) == "success", states(client, "approved")
        # A second that the bytes had to wait may not have been over yet.
        client.trigger("erasure", "again", {})
        assert ended(client, "erasure", "again", 900) == "success", states(client, "again")
        assert states(client, "again")["gym.due"] in ("success", "skipped")
        client.trigger("erasure", "nothing", {})
        assert ended(client, "erasure", "nothing", 300) == "success"
        assert states(client, "nothing")["gym.erase"] == "skipped", "no Spark where nothing is due"
        assert refused(client, member), "an identifier is no id"
    done = request_record.read_erasure_request(records, asked)
    assert done.state == request_events.CERTIFIED, [vars(event) for event in done.history]
    assert certificate.read_certificates(records, asked)[-1].verdict == certificate.PASS
    for name in ("events", "members_history", "completed_workouts"):
        assert member not in {str(row.get("user_id")) for row in run_ledger.read_table_rows(records, name)}
    kept = what_airflow_keeps(gym)
    assert asked in kept, "or this looks into nothing"
    assert member not in words(kept)


@pytest.fixture
def stands_in(tmp_path: Path) -> Iterator[Checkout]:
    """The same without Spark: what is asked of the job, and when."""
    with pytest.MonkeyPatch.context() as patch:
        made = make_checkout(tmp_path, patch, {"erasure.py": ROOT / "dags" / "erasure.py"}, stand_in=True)
        patch.setenv("SLUICE_ERASURE_APPROVAL", "yes")
        yield replace(made, settings=Settings.current())


@pytest.mark.skipif(airflow_line() == 2, reason="Airflow 2 has no approval step")
def test_nobody_is_erased_before_somebody_approves(stands_in: Checkout) -> None:
    graph = load_declaration_graph(stands_in.settings, "gym")
    asked = requests.receive_erasure_request(PipelineLake(stands_in.settings, graph), [Identifier("user_id", NOBODY)]).request
    with LocalAirflow(stands_in.settings, idle_schedule=True) as airflow:
        client = airflow.client
        unpause(client, "erasure")
        client.trigger("erasure", "rejected", {})
        until(lambda: states(client, "rejected").get("gym.erase") == "skipped", 120, "the job that nothing is due for")
        answer(client, "rejected", "Reject")
        assert ended(client, "erasure", "rejected") == "success"
        assert states(client, "rejected")["gym.erase_approved"] == "skipped" and stands_in.told() == []
        client.trigger("erasure", "approved", {"requests": [asked]})
        answer(client, "approved", "Approve")
        assert ended(client, "erasure", "approved") == "success"
        assert refused(client, NOBODY), "an identifier is no id"
    (told,) = [one["argv"] for one in stands_in.told() if "argv" in one]
    assert told[told.index("--requests") + 1] == asked and "--approved" in told
    kept = what_airflow_keeps(stands_in)
    assert asked in kept and NOBODY not in words(kept)


def refused(client: Client, member: str) -> bool:
    """Whether what is no id is refused, before Airflow keeps it."""
    try:
        client.trigger("erasure", "mistaken", {"requests": [member]})
    except SluiceError:
        return True
    return False


def what_airflow_keeps(gym: Checkout) -> str:
    """Its database, as text, and its logs."""
    folder = local_airflow_home(gym.settings)
    with sqlite3.connect(folder / "airflow.db") as connection:
        database = "\n".join(connection.iterdump())
    logs = [path.read_text(errors="replace") for path in (folder / "logs").rglob("*") if path.is_file()]
    return json.dumps([database, *logs])


def words(text: str) -> set[str]:
    return set(re.findall(r"[0-9A-Za-z]+", text))
