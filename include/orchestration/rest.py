"""A small client of Airflow's REST API, for what a user does in the UI: trigger, look, read a log."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, cast

from sluice.errors import SluiceError

ATTEMPTS = 6
"""How often a request is sent; on SQLite the API server answers 500 when the database is busy."""


class NotFound(SluiceError):
    """The API answered 404."""


class Client:
    """Speaks to the API server at `address` as one user."""

    def __init__(self, address: str, user: str, password: str) -> None:
        self.address = address
        self._login = {"username": user, "password": password}
        self._token: str | None = None

    def is_healthy(self) -> bool:
        """Whether API server, scheduler and DAG processor all say so."""
        try:
            health = self._send("GET", "/api/v2/monitor/health", None)
        except (SluiceError, OSError, http.client.HTTPException):
            return False
        parts = ("metadatabase", "scheduler", "dag_processor")
        return all(health.get(part, {}).get("status") == "healthy" for part in parts)

    def has_dag(self, dag: str) -> bool:
        """Whether Airflow has parsed the DAG. Raises SluiceError with the first import error there is."""
        try:
            self.request("GET", f"/dags/{dag}")
        except NotFound:
            errors = self.request("GET", "/importErrors")["import_errors"]
            if errors:
                last_line = errors[0]["stack_trace"].strip().splitlines()[-1]
                raise SluiceError(f"Airflow cannot import {errors[0]['filename']}: {last_line}") from None
            return False
        return True

    def pause(self, dag: str, paused: bool) -> None:
        """Pause or unpause a DAG; the runs of a paused one stay queued."""
        self.request("PATCH", f"/dags/{dag}?update_mask=is_paused", {"is_paused": paused})

    def end_open_runs(self, dag: str) -> int:
        """Fail the runs that an Airflow left open which is gone; new ones would queue behind them."""
        runs = self.request("GET", f"/dags/{dag}/dagRuns?state=running&state=queued&limit=100")["dag_runs"]
        for run in runs:
            self.request("PATCH", f"{_run(dag, run['dag_run_id'])}?update_mask=state", {"state": "failed"})
        return len(runs)

    def trigger(self, dag: str, run: str, conf: dict[str, Any]) -> None:
        """Start a run called `run`, as the UI's form does. Sent twice, it starts once."""
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        self.request("POST", f"/dags/{dag}/dagRuns", body, accept=(200, 409))

    def run_state(self, dag: str, run: str) -> str:
        """queued, running, success or failed."""
        return cast(str, self.request("GET", _run(dag, run))["state"])

    def tasks(self, dag: str, run: str) -> dict[str, dict[str, Any]]:
        """The run's task instances by task, as the API gives them: state, try_number, duration, ..."""
        instances = self.request("GET", f"{_run(dag, run)}/taskInstances?limit=100")["task_instances"]
        return {instance["task_id"]: instance for instance in instances}

    def result(self, dag: str, run: str, task: str) -> dict[str, Any] | None:
        """What the task returned: the report of its job."""
        try:
            entry = self.request("GET", f"{_run(dag, run)}/taskInstances/{task}/xcomEntries/return_value")
        except NotFound:
            return None
        value = entry["value"]
        return cast(dict[str, Any], json.loads(value) if isinstance(value, str) else value)

    def log(self, dag: str, run: str, task: str, attempt: int) -> list[str]:
        """The lines of a task's log."""
        path = f"{_run(dag, run)}/taskInstances/{task}/logs/{attempt}?full_content=true"
        content = self.request("GET", path)["content"]
        if isinstance(content, str):
            return content.splitlines()
        events = (event if isinstance(event, str) else event.get("event", "") for event in content)
        return [line for event in events for line in event.splitlines()]

    def request(self, method: str, path: str, body: dict[str, Any] | None = None, *, accept: tuple[int, ...] = (200,)) -> Any:
        """Send a request to /api/v2 and return the answer's JSON. Repeats it while the server is busy.

        Raises NotFound, or SluiceError for any other answer that is not accepted.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                if self._token is None:
                    self._token = self._send("POST", "/auth/token", self._login)["access_token"]
                return self._send(method, f"/api/v2{path}", body)
            except urllib.error.HTTPError as error:
                if error.code in accept:
                    return {}
                if error.code == 401 and attempt == 1:
                    self._token = None
                elif error.code < 500 or attempt == ATTEMPTS:
                    raise self._refusal(method, path, error) from None
            except (OSError, http.client.HTTPException):
                if attempt == ATTEMPTS:
                    raise SluiceError(f"Airflow's API at {self.address} does not answer.") from None
            time.sleep(0.5 * attempt)
        raise AssertionError("unreachable")

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Any:
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=headers, method=method)
        with _OPENER.open(request, timeout=70) as answer:
            return json.load(answer)

    def _refusal(self, method: str, path: str, error: urllib.error.HTTPError) -> SluiceError:
        try:
            detail = json.load(error).get("detail", "")
        except ValueError:
            detail = ""
        kind = NotFound if error.code == 404 else SluiceError
        return kind(f"Airflow's API answered {error.code} to {method} {path.partition('?')[0]}: {detail}")


def _run(dag: str, run: str) -> str:
    return f"/dags/{dag}/dagRuns/{urllib.parse.quote(run, safe='')}"


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Talks to the loopback address directly, whatever proxy the environment names."""
