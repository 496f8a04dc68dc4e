"""Checks what a run of the DAG `erasure` is started with: ids of requests, and nothing that could identify a person.

Airflow 3 writes the body of every request into its audit log before it validates it, and keeps it even if it refuses the request. An
identifier that somebody types into the form, or sends with it, would stay in its database. So its API server and `./airflow` ask this
module first. It imports no Airflow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sluice.errors import UsageError
from sluice.runs import due_requests
from sluice.settings import Settings

DAG_ID = "erasure"

REQUEST = "^[0-9a-f]{12}$(?!\n)"
"""The form of an id. `$` alone would allow a line break after it."""
_DATES = ("logical_date", "run_after", "data_interval_start", "data_interval_end")
_FREE = ("note", "partition_key")
_COMMANDS = (("dags", "trigger"), ("dags", "test"), ("dags", "backfill"), ("backfill", "create"))
_OPTIONS = (
    "-c", "--conf", "--dag-run-conf", "-r", "--run-id", "--dag-id", "-e", "--exec-date", "-l", "--logical-date", "-s", "--start-date", "-o",
    "--output", "-v", "--verbose",
)  # fmt: skip
_RUN = re.compile(r"[a-z]{1,24}([-_]{1,2}[a-z]{1,24}){0,3}([-_]{1,2}[0-9]{1,4})?\Z")
"""The form of a run's name. Airflow's own have a date: `manual__2026-11-22T00:00:00+00:00`, and letters after that."""
_DATED = re.compile(r"[a-z_]{1,24}__(.{10,32}?)(_[A-Za-z0-9]{8})?\Z")


def is_harmless_run_request(body: Mapping[str, Any]) -> bool:
    """Whether a request to Airflow's API for a run has nothing but request ids, dates, and a plain name of the run."""
    allowed = {"conf", "dag_run_id", *_DATES, *_FREE}
    return (
        body.keys() <= allowed
        and not any(body.get(name) for name in _FREE)
        and all(body.get(name) is None or _is_date_text(body[name]) for name in _DATES)
        and (not body.get("dag_run_id") or _is_plain_run_name(body["dag_run_id"]))
        and holds_only_request_ids(body.get("conf"))
    )


def holds_only_request_ids(conf: Any) -> bool:
    """Whether a conf holds only ids of existing requests, or nothing. The form alone is not enough: a bare MAC address looks like an id."""
    if conf is None or conf == {}:
        return True
    if not isinstance(conf, dict) or conf.keys() != {"requests"} or not isinstance(conf["requests"], list):
        return False
    if not all(isinstance(one, str) and re.search(REQUEST, one) for one in conf["requests"]):
        return False
    return not conf["requests"] or due_requests.all_requests_exist(Settings.current(), conf["requests"])


def refuse_identifiers_in_arguments(arguments: Sequence[str]) -> None:
    """Refuse an Airflow command that starts this DAG with anything else: Airflow stores a command's words before it checks them.

    Raises UsageError, whose message quotes none of them.
    """
    every = [part for word in arguments for part in (word, word.partition("=")[2])]
    if tuple(arguments[:2]) in _COMMANDS and DAG_ID in every and not all(map(_is_harmless_argument, arguments[2:])):
        raise UsageError(
            f"A run of the DAG '{DAG_ID}' takes --conf '{{\"requests\": [...]}}' with ids of requests, as `sluice erase list` tells them, "
            "dates, and a run's name of a few words. Write options in full and apart from their values. Nothing was kept."
        )


def _is_harmless_argument(word: str) -> bool:
    option, joined, value = word.partition("=")
    if option in _OPTIONS:
        return not joined or _is_harmless_argument(value)
    return word == DAG_ID or _is_date_text(word) or _is_plain_run_name(word) or _is_json_of_request_ids(word)


def _is_json_of_request_ids(text: str) -> bool:
    try:
        return holds_only_request_ids(json.loads(text))
    except ValueError:
        return False


def _is_date_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and "-" in value and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


def _is_plain_run_name(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    dated = _DATED.match(value)
    return bool(_RUN.match(value)) or (dated is not None and _is_date_text(dated[1]))


# To Airflow a line break at the end does not count.
_RUNS = re.compile(rf"/dags/{DAG_ID}/dagRuns/?\n?\Z")


_BACKFILLS = re.compile(r"/backfills(/dry_run)?/?\n?\Z")


_LARGEST = 1 << 20


"""Bytes. A form with the greatest number of ids has a fiftieth of that."""


_REFUSED = (
    'A run of this DAG takes {"conf": {"requests": ["..."]}} with ids of requests, as `sluice erase list` tells them; dates; and a run\'s '
    "name of a few words. No note. It has no backfills: it works at all that is due. Nothing of this was kept."
)


Receive = Callable[[], Awaitable[Any]]


Send = Callable[[Any], Awaitable[None]]


class RequestIdsOnly:
    """A middleware of the API server that refuses to start a run of the DAG `erasure` with anything but ids of requests."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it with 400."""
        if scope["type"] != "http" or scope["method"] != "POST" or not _asks_for_dag_runs(scope["path"]):
            await self._app(scope, receive, send)
            return
        body, ended = await _receive_whole_body(receive)
        if not ended or not _may_request_pass(scope, body):
            await _send_refusal(send)
            return
        await self._app(scope, _replay_received_body(body, receive), send)


def _asks_for_dag_runs(path: str) -> bool:
    return bool(_RUNS.search(path) or _BACKFILLS.search(path))


async def _receive_whole_body(receive: Receive) -> tuple[bytes, bool]:
    """The body, and whether it is complete: a body that is too large is not read to its end."""
    parts: list[bytes] = []
    while sum(map(len, parts)) <= _LARGEST:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts), False
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts), True
    return b"", False


def _replay_received_body(body: bytes, receive: Receive) -> Receive:
    """Returns a function that gives the received body again, and then whatever else comes."""
    given = False

    async def once() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


def _may_request_pass(scope: Any, body: bytes) -> bool:
    """Whether a request does not concern this DAG, or has only ids. Airflow refuses what is no JSON object without keeping it."""
    of_this = bool(_RUNS.search(scope["path"]))
    if of_this and scope.get("query_string"):
        return False  # nothing that starts a run needs a query, and Airflow would keep it
    try:
        asked = json.loads(body)
    except ValueError:
        return True
    if not isinstance(asked, dict):
        return True
    return is_harmless_run_request(asked) if of_this else asked.get("dag_id") != DAG_ID


async def _send_refusal(send: Send) -> None:
    body = json.dumps({"detail": _REFUSED}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
