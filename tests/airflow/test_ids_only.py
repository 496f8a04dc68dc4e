"""No identifier comes into Airflow's audit log by the form of the DAG `erasure`: the request is refused before Airflow sees it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from orchestration.erasure.ids_only import IdsOnly

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

IDS = ["a1b2c3d4e5f6", "0123456789ab"]
RUNS, BACKFILLS = "/api/v2/dags/erasure/dagRuns", "/api/v2/backfills"


def sent(path: str, *parts: bytes, method: str = "POST", ends: bool = True) -> tuple[bytes | None, int]:
    """What comes to Airflow of a request in these parts, None where it is refused; and the status of the answer."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    last: dict[str, Any] = {"type": "http.request", "body": b"", "more_body": False} if ends else {"type": "http.disconnect"}
    waiting = iter([*messages, last])
    seen: list[bytes] = []
    answers: list[Any] = []

    async def receive() -> Any:
        return next(waiting)

    async def send(message: Any) -> None:
        answers.append(message)

    async def airflow(scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            message = await receive()
            seen.append(message["body"])
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})

    asyncio.run(IdsOnly(airflow)({"type": "http", "method": method, "path": path}, receive, send))
    assert b"4200000001" not in b"".join(one.get("body", b"") for one in answers)
    return (b"".join(seen) if seen else None), answers[0]["status"]


def body(conf: Any, **more: Any) -> bytes:
    return json.dumps({"logical_date": None, "conf": conf, **more}).encode()


@pytest.mark.parametrize(
    "conf",
    [
        {"requests": ["4200000001"]},
        {"requests": [*IDS, "ada@example.org"]},
        {"requests": [IDS[0] + "\n"]},
        {"requests": IDS[0]},
        {"requests": [{"user_id": "4200000001"}]},
        {"requests": IDS, "user_id": "4200000001"},
        {"4200000001": []},
        ["4200000001"],
        "4200000001",
    ],
)
def test_what_is_no_id_is_refused(conf: Any) -> None:
    assert sent(RUNS, body(conf)) == (None, 400)
    assert sent(f"/behind/a/proxy{RUNS}/", body(conf)) == (None, 400)
    for path in (BACKFILLS, f"{BACKFILLS}/dry_run"):
        assert sent(path, json.dumps({"dag_id": "erasure", "dag_run_conf": conf}).encode()) == (None, 400)


def test_ids_come_as_they_were_sent() -> None:
    for conf in ({"requests": IDS}, {"requests": []}, {}, None):
        given = body(conf)
        assert sent(RUNS, given) == (given, 200)
        assert sent(RUNS, given[:7], given[7:]) == (given, 200)


def test_other_requests_are_left_alone() -> None:
    given = body({"who": "anybody"})
    assert sent("/api/v2/dags/gym/dagRuns", given) == (given, 200)
    assert sent(f"{RUNS}/list", given) == (given, 200)
    assert sent(RUNS, given, method="PATCH") == (given, 200)
    other = json.dumps({"dag_id": "gym", "dag_run_conf": {"who": "anybody"}}).encode()
    assert sent(BACKFILLS, other) == (other, 200)


def test_what_does_not_end_or_is_too_large_is_refused() -> None:
    assert sent(RUNS, body({"requests": ["4200000001"]})[:20], ends=False) == (None, 400)
    assert sent(RUNS, *[b" " * (1 << 19)] * 3, body({"requests": IDS})) == (None, 400)


def test_what_is_no_json_object_is_airflows_to_refuse() -> None:
    for given in (b"{", b"[1]", b""):
        assert sent(RUNS, given) == (given, 200)
