"""A small client of Airflow's REST API, for what a user does in the UI: trigger, watch, read a log. One interface for both lines."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

from sluice.errors import SluiceError

ATTEMPTS = 6
"""How many times a request is sent; on SQLite the API server answers 500 when the database is busy."""

PAGE = 100
"""How many entries of a list are requested at once; Airflow gives no more by default."""

OPEN_STATES = ("queued", "running")


class NotFound(SluiceError):
    """The API answered 404."""


class DagMissing(SluiceError):
    """Airflow has not parsed a DAG within the time that it was waited for."""


class Client(ABC):
    """Speaks to the API at `address` as one user. Each line of Airflow has a subclass."""

    PREFIX: ClassVar[str]
    """Before every path."""

    def __init__(self, address: str, user: str, password: str) -> None:
        self.address = address
        self._login = {"username": user, "password": password}
        # Talks to the loopback address directly, whatever proxy the environment names. Keeps the session that Airflow 2 gives
        # with its first answer: without it each request would hash the password and write the database.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor())

    @abstractmethod
    def is_healthy(self) -> bool:
        """Whether all parts that this Airflow needs are healthy."""

    @abstractmethod
    def trigger(self, dag: str, run: str, conf: dict[str, Any]) -> None:
        """Start a run called `run`, as the UI's form does. A repeated call starts no second run."""

    @abstractmethod
    def result(self, dag: str, run: str, task: str) -> dict[str, Any] | None:
        """What the task returned: the report of its job. None if it returned nothing."""

    @abstractmethod
    def log(self, dag: str, run: str, task: str, attempt: int) -> list[str]:
        """The lines of a task's log."""

    @abstractmethod
    def events(self) -> list[dict[str, Any]]:
        """The events of all assets, the oldest first: uri, extra, ..."""

    @abstractmethod
    def fail_task(self, dag: str, run: str, task: str) -> None:
        """Mark a task as failed, as the UI does; a running task is killed."""

    @abstractmethod
    def _authorization(self) -> str:
        """The header that proves the user's identity. May call the server."""

    @abstractmethod
    def _renew(self) -> bool:
        """Forget a token that expires, if there is one. Returns whether there was."""

    def has_dag(self, dag: str) -> bool:
        """Whether Airflow has parsed the DAG. Raises SluiceError with the first import error, if there is one."""
        try:
            self.request("GET", f"/dags/{dag}")
        except NotFound:
            errors = self.request("GET", "/importErrors")["import_errors"]
            if errors:
                last_line = errors[0]["stack_trace"].strip().splitlines()[-1]
                raise SluiceError(f"Airflow cannot import {errors[0]['filename']}: {last_line}") from None
            return False
        return True

    def wait_for_dag(self, dag: str, seconds: float) -> None:
        """Return once Airflow has parsed the DAG. Raises DagMissing if it has not within this time, and what `has_dag` raises."""
        deadline = time.monotonic() + seconds
        while not self.has_dag(dag):
            if time.monotonic() > deadline:
                raise DagMissing(f"Airflow at {self.address} has no DAG '{dag}'. There must be a dags/{dag}.py.")
            time.sleep(0.5)

    def is_paused(self, dag: str) -> bool:
        """Whether the DAG is paused; runs of a paused DAG stay queued. Raises NotFound."""
        return cast(bool, self.request("GET", f"/dags/{dag}")["is_paused"])

    def pause(self, dag: str, paused: bool) -> None:
        """Pause or unpause a DAG."""
        self.request("PATCH", f"/dags/{dag}", {"is_paused": paused})

    def runs(self, dag: str, *states: str) -> list[dict[str, Any]]:
        """The DAG's runs in these states, or all, as the API gives them: dag_run_id, state, run_type, ..."""
        asked = urllib.parse.urlencode([("state", state) for state in states])
        found: list[dict[str, Any]] = []
        while True:
            page = self.request("GET", f"/dags/{dag}/dagRuns?limit={PAGE}&offset={len(found)}&{asked}")
            found += page["dag_runs"]
            if not page["dag_runs"] or len(found) >= page["total_entries"]:
                return found

    def end_open_runs(self, dag: str) -> int:
        """Fail the open runs of an Airflow that no longer exists; new runs would queue behind them."""
        runs = self.runs(dag, *OPEN_STATES)
        for run in runs:
            self.request("PATCH", dag_run_path(dag, run["dag_run_id"]), {"state": "failed"})
        return len(runs)

    def run_state(self, dag: str, run: str) -> str:
        """queued, running, success or failed."""
        return cast(str, self.request("GET", dag_run_path(dag, run))["state"])

    def tasks(self, dag: str, run: str) -> dict[str, dict[str, Any]]:
        """The run's task instances by task, as the API gives them: state, try_number, duration, ..."""
        instances = self.request("GET", f"{dag_run_path(dag, run)}/taskInstances?limit={PAGE}")["task_instances"]
        return {instance["task_id"]: instance for instance in instances}

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        accept: tuple[int, ...] = (200,),
        media: str = "application/json",
    ) -> Any:
        """Send a request to the path below PREFIX and return the answer's JSON, or its text if media is text/plain.

        Repeats it while the server is busy. Returns {} for a refusal whose code is in `accept`. Raises NotFound, or
        SluiceError for any other refusal.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.send(method, self.PREFIX + path, body, media, self._authorization())
            except urllib.error.HTTPError as error:
                if error.code in accept:
                    return {}
                expired = error.code == 401 and attempt == 1 and self._renew()
                if not expired and (error.code < 500 or attempt == ATTEMPTS):
                    raise _refusal_error(method, path, error) from None
            except (OSError, http.client.HTTPException):
                if attempt == ATTEMPTS:
                    raise SluiceError(f"Airflow's API at {self.address} does not answer.") from None
            time.sleep(0.5 * attempt)
        raise AssertionError("unreachable")

    def send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        media: str = "application/json",
        authorization: str = "",
    ) -> Any:
        """Send one request to a path of the server. Raises HTTPError for a refusal, OSError if there is no answer."""
        headers = {"Accept": media, "Content-Type": "application/json"}
        if authorization:
            headers["Authorization"] = authorization
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=headers, method=method)
        with self._opener.open(request, timeout=70) as answer:
            content = answer.read().decode()
        return content if media == "text/plain" else json.loads(content or "{}")


def dag_run_path(dag: str, run: str) -> str:
    """The path of a run; a run id may hold any character."""
    return f"/dags/{dag}/dagRuns/{urllib.parse.quote(run, safe='')}"


def _refusal_error(method: str, path: str, error: urllib.error.HTTPError) -> SluiceError:
    try:
        detail = json.load(error).get("detail", "")
    except ValueError:
        detail = ""
    kind = NotFound if error.code == 404 else SluiceError
    return kind(f"Airflow's API answered {error.code} to {method} {path.partition('?')[0]}: {detail}")
