"""The DAG as people use it, on a real Airflow with a stand-in for Spark: other DAGs, alerts, links, a cleared task."""

from __future__ import annotations

import http.server
import json
import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.browser import Browser, missing
from tests.system.running import Checkout, ended, make_checkout, run_to_end, unpause
from tests.waiting import is_alive, until, wait_past_schedule

from orchestration.airflow_line import airflow_line
from orchestration.local import LOGIN, LocalAirflow, local_airflow_password
from orchestration.rest.client import Client
from sluice.column_origins import Origin, TableOrigins, TracedColumn
from sluice.pipeline_records import PipelineRecords
from sluice.runs.status.column_lineage_record import write_column_lineage

pytestmark = [pytest.mark.airflow, pytest.mark.system, pytest.mark.filterwarnings("default")]

DAGS = Path(__file__).parent / "dags"


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes alerts."""

    taken: list[dict[str, Any]]

    def do_POST(self) -> None:
        self.taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def alerts() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    taken: list[dict[str, Any]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), type("Mine", (Receiver,), {"taken": taken}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/hook/of-a-secret", taken
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory, alerts: tuple[str, list[dict[str, Any]]]) -> Iterator[Checkout]:
    root = tmp_path_factory.mktemp("dag")
    with pytest.MonkeyPatch.context() as patch:
        made = make_checkout(root, patch, {"gym.py": DAGS / "watched_gym.py", "report.py": DAGS / "report.py"}, stand_in=True)
        (root / "alerts").write_text(alerts[0] + "\n")
        patch.setenv("SLUICE_ALERTS", "alerts")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield made


@pytest.fixture(scope="module")
def client(here: Checkout) -> Iterator[Client]:
    """With a scheduler that makes runs, or no event would start one. So the gym's first run, its latest scheduled one, is its doing."""
    here.order(STAND_IN_ROWS="2")
    wait_past_schedule()
    with LocalAirflow(here.settings) as airflow:
        unpause(airflow.client, "report", "gym")
        first = until(lambda: airflow.client.request("GET", "/dags/gym/dagRuns")["dag_runs"], what="the scheduled run")[0]
        assert first["run_type"] == "scheduled"
        assert ended(airflow.client, "gym", first["dag_run_id"]) == "success"
        yield airflow.client


def reports(client: Client) -> list[dict[str, str]]:
    """The states of the tasks of each run of the DAG downstream, oldest first; once none is open."""

    def closed() -> list[str] | None:
        runs = client.request("GET", "/dags/report/dagRuns?order_by=start_date&limit=100")["dag_runs"]
        return None if any(run["state"] in ("queued", "running") for run in runs) else [run["dag_run_id"] for run in runs] or [""]

    runs = [run for run in until(closed) if run]
    return [{name: task["state"] for name, task in client.tasks("report", run).items()} for run in runs]


def states(client: Client, run: str) -> dict[str, str]:
    return {name: task["state"] for name, task in client.tasks("gym", run).items()}


WORKED = {"new_version_of_device_day": "success", "write_the_report": "success"}
SKIPPED = {"new_version_of_device_day": "skipped", "write_the_report": "skipped"}


def test_a_dag_downstream_waits_for_data(here: Checkout, client: Client) -> None:
    assert [event["extra"] for event in client.events()] == [{"table": "gym.device_day", "version": 0, "rows": 2}]
    until(lambda: reports(client) == [WORKED])

    # The same data; optimize makes a version of the table all the same.
    run = run_to_end(client, "gym")
    announcing = ("publish_device_day", "publish_workout_summary", "publish_gym_stats")
    assert states(client, run) == dict.fromkeys(
        ("bronze", "silver", "gold", "propagate_deletions", "optimize", "vacuum", "verify"), "success"
    ) | dict.fromkeys(announcing, "skipped")
    assert client.run_state("gym", run) == "success"
    assert len(client.events()) == 1

    here.order(STAND_IN_ROWS="3")
    run_to_end(client, "gym")
    event = client.events()[-1]
    assert (event["extra"]["rows"], len(client.events())) == (3, 2)
    until(lambda: reports(client) == [WORKED, WORKED])

    if airflow_line() == 3:  # Somebody announces that version once more.
        client.request("POST", "/assets/events", {"asset_id": event["asset_id"], "extra": event["extra"]})
        until(lambda: len(reports(client)) == 3)
        assert reports(client)[-1] == SKIPPED
    run_to_end(client, "report")
    assert reports(client)[-1] == WORKED, "what somebody starts goes on"


def test_alerts_reach_the_receiver(here: Checkout, client: Client, alerts: tuple[str, list[dict[str, Any]]]) -> None:
    taken = alerts[1]
    here.order(STAND_IN_ROWS="2")
    run_to_end(client, "gym")
    taken.clear()
    run = run_to_end(client, "gym", {"mode": "replay"})
    assert states(client, run)["bronze"] == "failed"
    assert client.tasks("gym", run)["bronze"]["try_number"] == 1, "a form that contradicts itself is not tried again"
    assert "needs From and To" in json.dumps(client.request("GET", f"/dags/gym/dagRuns/{run}/taskInstances/bronze/logs/1"))
    failed = until(lambda: [one for one in taken if one["kind"] == "task failed"])
    assert len(failed) == 1
    assert set(failed[0]) == {"kind", "text", "at", "pipeline", "task", "run", "try_number", "error"}
    assert (failed[0]["pipeline"], failed[0]["task"]) == ("gym", "bronze")
    assert run not in json.dumps(taken), "a run id may be a user's text"

    run_to_end(client, "gym")
    over = [one for one in taken if one["kind"] == "rule threshold"]
    assert {(one["table"], one["rule"], one["rows"], one["at_most"]) for one in over} == {
        ("device_day", "plausible_heart_rate", 7, 6)
    }
    stale = [one for one in taken if one["kind"] == "stale table"]
    assert [(one["table"], one["freshness"]) for one in stale] == [("device_day", "1 second")]
    if airflow_line() == 3:
        late = until(lambda: [one for one in taken if one["kind"] == "run late"])
        assert {(one["pipeline"], one["deadline"]) for one in late} == {("gym", "1 second")}


Visitor = urllib.request.OpenerDirector


def stranger() -> Visitor:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())


def visitor(here: Checkout, client: Client) -> Visitor:
    """Somebody whose browser is logged in."""
    found = stranger()
    if airflow_line() == 3:
        found.addheaders = [("Authorization", client._authorization())]
        return found
    page = found.open(f"{client.address}/login/").read().decode()
    token = re.search(r'name="csrf_token"[^>]*value="([^"]+)"', page)
    assert token
    form = {"username": LOGIN, "password": local_airflow_password(here.settings), "csrf_token": token[1]}
    found.open(f"{client.address}/login/", urllib.parse.urlencode(form).encode()).close()
    return found


def fetched(url: str, by: Visitor) -> tuple[int, str]:
    try:
        with by.open(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_a_task_links_to_its_tables_and_its_log(here: Checkout, client: Client) -> None:
    here.order(STAND_IN_ROWS="4")
    run = run_to_end(client, "gym")
    links = client.request("GET", f"/dags/gym/dagRuns/{run}/taskInstances/gold/links")
    links = links.get("extra_links", links)
    history, log = links["Table history"], links["Spark log"]
    assert history.startswith(f"{client.address}/sluice/")
    assert log.startswith(f"{client.address}/dags/gym/") and run in log and "gold" in log
    mine = visitor(here, client)
    status, page = fetched(history, mine)
    assert status == 200
    assert "<h2>device_day</h2>" in page and "WRITE" in page
    report = links["Pipeline report"]
    status, page = fetched(report, mine)
    assert status == 200 and "<svg" in page and "device_day" in page
    assert "<svg" not in fetched(report, stranger())[1]
    status, page = fetched(history, stranger())
    assert status == (401 if airflow_line() == 3 else 200), "Airflow 2 shows its login"
    assert "<h2>" not in page
    for name in ("history", "report"):
        assert fetched(f"{client.address}/sluice/nothing/{name}", mine)[0] in (403, 404)


@pytest.mark.skipif(airflow_line() == 2, reason="the pages that lead to the link are Airflow 3's")
def test_somebody_logs_in_and_looks_from_a_task_at_the_tables_and_their_columns(here: Checkout, client: Client) -> None:
    if lacking := missing():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"1 test of a page in a browser needs {lacking}, which is missing")
    here.order(STAND_IN_ROWS="4")
    run = run_to_end(client, "gym")
    records = PipelineRecords(here.settings, "gym")
    Path(records.bookkeeping()).mkdir(parents=True, exist_ok=True)
    mean = TracedColumn("mean_heart_rate", "double", (Origin("heart_rate", "beats", "aggregation"),))
    write_column_lineage(records, {"device_day": TableOrigins("device_day", "m", (mean,))})
    with Browser() as browser:
        browser.view(1400, 900)
        browser.go(f"{client.address}/dags/gym/runs/{run}/tasks/gold")
        browser.write("//input[@name='username']", LOGIN)
        browser.write("//input[@name='password']", local_airflow_password(here.settings))
        browser.click("//button[@type='submit' or contains(., 'Sign in')]")
        browser.click("//a[.='Details']")
        browser.click("//a[.='Pipeline report']")
        shown = browser.until("Tables, and what they are made of", "device_day", "4 rows")
        assert browser.run("return document.querySelectorAll('svg[aria-label=lineage] a').length") > 10
        assert "mean_heart_rate" not in shown
        browser.click("//*[local-name()='a'][@*[.='#table-device_day']]")
        shown = browser.until("mean_heart_rate", "heart_rate.beats", "Last versions")
        assert "readings.heartrate" not in shown and shown.count("Columns, and where they come from") == 1, "this table alone"
        browser.click("//a[.='all tables']")
        browser.until("Its columns are known after its next run")
        browser.view(390, 900)
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth"), "a phone shows its whole width"
        assert browser.run("return performance.getEntriesByType('resource').length") == 0, "nothing is fetched"


@pytest.mark.crash
@pytest.mark.skipif(airflow_line() == 2, reason="a clear does not reach a running task of Airflow 2.11; marking it failed does")
def test_clearing_a_running_task_stops_its_job_and_runs_it_again(here: Checkout, client: Client) -> None:
    here.order(STAND_IN_SECONDS="300")
    here.records.unlink(missing_ok=True)
    client.trigger("gym", "cleared", {})
    job, child = until(lambda: len(here.told()) == 2 and [entry["pid"] for entry in here.told()])
    until(lambda: client.tasks("gym", "cleared")["bronze"]["state"] == "running")
    here.order(STAND_IN_ROWS="4")
    body = {"dry_run": False, "dag_run_id": "cleared", "task_ids": ["bronze"], "only_failed": False, "only_running": False}
    client.request("POST", "/dags/gym/clearTaskInstances", body)
    until(lambda: {"stopped": "on request"} in here.told(), 90, "the job")
    until(lambda: not is_alive(job) and not is_alive(child), 20, "the job")
    until(lambda: client.run_state("gym", "cleared") == "success", 300)
    assert client.tasks("gym", "cleared")["bronze"]["try_number"] == 2
