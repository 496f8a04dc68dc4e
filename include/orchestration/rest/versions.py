"""The two REST APIs behind one client: /api/v1 of Airflow 2, /api/v2 of Airflow 3."""

from __future__ import annotations

import base64
import http.client
import json
import re
from typing import Any, cast

from orchestration.airflow_line import airflow_line
from orchestration.rest.client import Client, NotFound, dag_run_path
from sluice.errors import SluiceError

_TIME_AND_CALL_SITE = re.compile(r"^(\[\S+\] \{\S+:\d+\})? [A-Z]+ - ")


def make_airflow_client(address: str, user: str, password: str) -> Client:
    """A client for the API of the installed Airflow."""
    kind = ClientOfAirflow2 if airflow_line() == 2 else ClientOfAirflow3
    return kind(address, user, password)


class ClientOfAirflow3(Client):
    """Speaks /api/v2 with a token: a given one, or one that it fetches when needed and again after it expires."""

    PREFIX = "/api/v2"

    def __init__(self, address: str, user: str, password: str, token: str | None = None) -> None:
        super().__init__(address, user, password)
        self._token = token
        self._is_given = token is not None

    def is_healthy(self) -> bool:
        """Whether API server, scheduler and DAG processor are healthy."""
        return _are_airflow_parts_healthy(self, "/api/v2/monitor/health", ("metadatabase", "scheduler", "dag_processor"))

    def trigger(self, dag: str, run: str, conf: dict[str, Any]) -> None:
        """Start a run without a logical date. A repeated call starts no second run."""
        body = {"dag_run_id": run, "logical_date": None, "conf": conf}
        self.request("POST", f"/dags/{dag}/dagRuns", body, accept=(409,))

    def result(self, dag: str, run: str, task: str) -> dict[str, Any] | None:
        """What the task returned: the report of its job."""
        try:
            entry = self.request("GET", f"{dag_run_path(dag, run)}/taskInstances/{task}/xcomEntries/return_value")
        except NotFound:
            return None
        value = entry["value"]
        return cast(dict[str, Any], json.loads(value) if isinstance(value, str) else value)

    def log(self, dag: str, run: str, task: str, attempt: int) -> list[str]:
        """The lines of a task's log."""
        path = f"{dag_run_path(dag, run)}/taskInstances/{task}/logs/{attempt}?full_content=true"
        content = self.request("GET", path)["content"]
        if isinstance(content, str):
            return content.splitlines()
        events = (event if isinstance(event, str) else event.get("event", "") for event in content)
        return [line for event in events for line in event.splitlines()]

    def events(self) -> list[dict[str, Any]]:
        """The events of all assets."""
        return cast(list[dict[str, Any]], self.request("GET", "/assets/events?order_by=timestamp")["asset_events"])

    def fail_task(self, dag: str, run: str, task: str) -> None:
        """Mark a task as failed; where it runs it is killed."""
        self.request("PATCH", f"{dag_run_path(dag, run)}/taskInstances/{task}", {"new_state": "failed"})

    def _authorization(self) -> str:
        if self._token is None:
            self._token = self.send("POST", "/auth/token", self._login)["access_token"]
        return f"Bearer {self._token}"

    def _renew(self) -> bool:
        if self._is_given:
            return False
        self._token = None
        return True


class ClientOfAirflow2(Client):
    """Speaks /api/v1; the password goes with each request."""

    PREFIX = "/api/v1"

    def is_healthy(self) -> bool:
        """Whether webserver and scheduler are healthy; the scheduler parses the DAGs."""
        return _are_airflow_parts_healthy(self, "/api/v1/health", ("metadatabase", "scheduler"))

    def trigger(self, dag: str, run: str, conf: dict[str, Any]) -> None:
        """Start a run whose logical date is now. A repeated call starts no second run."""
        self.request("POST", f"/dags/{dag}/dagRuns", {"dag_run_id": run, "conf": conf}, accept=(409,))

    def result(self, dag: str, run: str, task: str) -> dict[str, Any] | None:
        """What the task returned: the report of its job."""
        path = f"{dag_run_path(dag, run)}/taskInstances/{task}/xcomEntries/return_value?stringify=false"
        try:
            return cast(dict[str, Any], self.request("GET", path)["value"])
        except NotFound:
            return None

    def log(self, dag: str, run: str, task: str, attempt: int) -> list[str]:
        """The lines of a task's log, without the time and call site that Airflow 2 writes before each."""
        path = f"{dag_run_path(dag, run)}/taskInstances/{task}/logs/{attempt}?full_content=true"
        lines = cast(str, self.request("GET", path, media="text/plain")).splitlines()
        return [_TIME_AND_CALL_SITE.sub("", line) for line in lines]

    def events(self) -> list[dict[str, Any]]:
        """The events of all assets, which Airflow 2 calls datasets."""
        found = self.request("GET", "/datasets/events?order_by=timestamp")["dataset_events"]
        return [{**event, "uri": event["dataset_uri"]} for event in found]

    def fail_task(self, dag: str, run: str, task: str) -> None:
        """Mark a task as failed; where it runs it is killed."""
        path = f"{dag_run_path(dag, run)}/taskInstances/{task}"
        self.request("PATCH", path, {"dry_run": False, "new_state": "failed"})

    def _authorization(self) -> str:
        login = f"{self._login['username']}:{self._login['password']}"
        return f"Basic {base64.b64encode(login.encode()).decode()}"

    def _renew(self) -> bool:
        return False


def _are_airflow_parts_healthy(client: Client, path: str, parts: tuple[str, ...]) -> bool:
    try:
        health = client.send("GET", path)
    except (SluiceError, OSError, ValueError, http.client.HTTPException):
        return False
    return all(health.get(part, {}).get("status") == "healthy" for part in parts)
