"""What is no id does not come to the DAG `erasure`, and so not into Airflow's audit log.

Airflow 3 writes the body of a request there before it looks into it, and keeps that whether the request is refused or not. An identifier
that somebody types into the form, or sends beside it, would stay in its database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

from orchestration.erasure.ids import DAG_ID, may_be_asked

# A line break at the end is none to Airflow.
_RUNS = re.compile(rf"/dags/{DAG_ID}/dagRuns/?\n?\Z")
_BACKFILLS = re.compile(r"/backfills(/dry_run)?/?\n?\Z")
_LARGEST = 1 << 20
"""Bytes. A form with as many ids as it takes has a fiftieth of that."""
_REFUSED = (
    'A run of this DAG takes {"conf": {"requests": ["..."]}} with ids of requests, as `sluice erase list` tells them; dates; and a run\'s '
    "name of a few words. No note. It has no backfills: it works at all that is due. Nothing of this was kept."
)

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]


class IdsOnly:
    """A middleware of the API server that refuses a run of the DAG `erasure` which is asked for with anything but ids of requests."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it with 400."""
        if scope["type"] != "http" or scope["method"] != "POST" or not _asks_for_runs(scope["path"]):
            await self._app(scope, receive, send)
            return
        body, ended = await _read(receive)
        if not ended or not _may_pass(scope, body):
            await _refuse(send)
            return
        await self._app(scope, _again(body, receive), send)


def _asks_for_runs(path: str) -> bool:
    return bool(_RUNS.search(path) or _BACKFILLS.search(path))


async def _read(receive: Receive) -> tuple[bytes, bool]:
    """The body, and whether that is all of it: one that is too large is not read to its end."""
    parts: list[bytes] = []
    while sum(map(len, parts)) <= _LARGEST:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts), False
        parts.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(parts), True
    return b"", False


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body once more, and then what else comes."""
    given = False

    async def once() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


def _may_pass(scope: Any, body: bytes) -> bool:
    """Whether a request asks for nothing of this DAG's, or with ids only. What is no JSON object Airflow refuses without keeping it."""
    of_this = bool(_RUNS.search(scope["path"]))
    if of_this and scope.get("query_string"):
        return False  # it takes none, and keeps what there is
    try:
        asked = json.loads(body)
    except ValueError:
        return True
    if not isinstance(asked, dict):
        return True
    return may_be_asked(asked) if of_this else asked.get("dag_id") != DAG_ID


async def _refuse(send: Send) -> None:
    body = json.dumps({"detail": _REFUSED}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 400, "headers": headers})
    await send({"type": "http.response.body", "body": body})
