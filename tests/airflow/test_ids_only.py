"""No identifier comes into Airflow's audit log by the form of the DAG `erasure`: the request is refused before Airflow sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestration.erasure.ids import RequestIdsOnly, refuse_identifiers_in_arguments
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings, list_pipeline_names

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("default")]

IDS = ["a1b2c3d4e5f6", "0123456789ab"]
RUNS, BACKFILLS = "/api/v2/dags/erasure/dagRuns", "/api/v2/backfills"
NOW = "2026-11-22T13:45:00.000Z"


@pytest.fixture(autouse=True)
def lake(settings: Settings) -> Iterator[None]:
    """Requests of these ids are there, of one pipeline or another."""
    for name, request in zip(list_pipeline_names(settings), IDS, strict=False):
        file = Path(PipelineRecords(settings, name).erasure_requests) / f"{request}.json"
        file.parent.mkdir(parents=True)
        file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Settings, "current", lambda: settings)
        yield


def sent(path: str, *parts: bytes, method: str = "POST", ends: bool = True, query: bytes = b"") -> tuple[bytes | None, int]:
    """What Airflow receives of a request in these parts (None if it is refused), and the status of the answer."""
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

    asyncio.run(RequestIdsOnly(airflow)({"type": "http", "method": method, "path": path, "query_string": query}, receive, send))
    assert b"4200000001" not in b"".join(one.get("body", b"") for one in answers)
    return (b"".join(seen) if seen else None), answers[0]["status"]


def body(conf: Any, **more: Any) -> bytes:
    return json.dumps({"logical_date": None, "conf": conf, **more}).encode()


CONFS: list[Any] = [
    {"requests": ["4200000001"]},
    {"requests": [*IDS, "ada@example.org"]},
    {"requests": [IDS[0] + "\n"]},
    {"requests": ["aabbccddeeff"]},
    {"requests": [*IDS, "491701234567"]},
    {"requests": IDS[0]},
    {"requests": [{"user_id": "4200000001"}]},
    {"requests": IDS, "user_id": "4200000001"},
    {"4200000001": []},
    ["4200000001"],
    "4200000001",
    0,
]


@pytest.mark.parametrize("conf", CONFS)
def test_what_is_no_id_is_refused(conf: Any) -> None:
    assert sent(RUNS, body(conf)) == (None, 400)
    assert sent(f"/behind/a/proxy{RUNS}/", body(conf)) == (None, 400)
    assert sent(f"{RUNS}\n", body(conf)) == (None, 400)
    with pytest.raises(UsageError, match=r"with ids of requests") as refused:
        refuse_identifiers_in_arguments(["dags", "trigger", "erasure", "--conf", json.dumps(conf)])
    assert "4200000001" not in str(refused.value)


@pytest.mark.parametrize(
    "beside",
    [
        {"user_id": "4200000001"},
        {"requests": ["ada@example.org"]},
        {"note": "4200000001"},
        {"partition_key": "4200000001"},
        {"dag_run_id": "4200000001"},
        {"dag_run_id": "ada@example.org"},
        {"dag_run_id": 4200000001},
        {"dag_run_id": "manual__4200000001"},
        {"dag_run_id": f"manual__{NOW}_4200000001"},
        {"logical_date": "4200000001"},
        {"run_after": 4200000001},
        {"data_interval_start": "ada@example.org"},
    ],
)
def test_nothing_else_is_sent_beside_ids(beside: dict[str, Any]) -> None:
    assert sent(RUNS, body({"requests": IDS}, **beside)) == (None, 400)


def test_what_is_asked_for_in_the_address_is_refused() -> None:
    assert sent(RUNS, body({"requests": IDS}), query=b"user_id=4200000001") == (None, 400)


def test_there_are_no_backfills_of_it() -> None:
    for path in (BACKFILLS, f"{BACKFILLS}/dry_run", f"{BACKFILLS}\n"):
        for more in ({}, {"dag_run_conf": {"requests": IDS}}, {"conf": {"user_id": "4200000001"}}):
            assert sent(path, json.dumps({"dag_id": "erasure", **more}).encode()) == (None, 400)


@pytest.mark.parametrize(
    "name", [None, "", "approved", "again-2", f"manual__{NOW}", "manual__2026-11-22T13:45:00+00:00_aB3dE5gH"]
)
def test_dates_and_a_name_may_be_sent(name: str | None) -> None:
    given = body({"requests": IDS}, dag_run_id=name, logical_date=NOW, run_after=None, note="", partition_key=None)
    assert sent(RUNS, given) == (given, 200)


def test_commands_of_ids_and_of_others_go_through() -> None:
    conf = json.dumps({"requests": IDS})
    for words in (["erasure"], ["erasure", "-c", conf], ["erasure", f"--conf={conf}"], ["gym", "--conf", '{"who": 1}']):
        refuse_identifiers_in_arguments(["dags", "trigger", *words])
    refuse_identifiers_in_arguments(["dags", "trigger", "erasure", "--run-id", "approved", "--logical-date", NOW, "-o", "json"])
    refuse_identifiers_in_arguments(["dags", "list-runs", "erasure"])
    for command in ("dags trigger erasure", "dags test erasure", "backfill create --dag-id=erasure"):
        for words in (
            ["--conf=4200000001"],
            ["--dag-run-conf", '{"user_id": 1}'],
            ['-c{"user_id": 1}'],
            ["-vc", '{"user_id": 1}'],
            ["--con", '{"user_id": 1}'],
            ["--run-id", "ada@example.org"],
            ["-r4200000001"],
            ["4200000001"],
        ):
            with pytest.raises(UsageError, match="Nothing was kept"):
                refuse_identifiers_in_arguments([*command.split(), *words])


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
