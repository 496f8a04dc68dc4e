"""Alerts to a real server: what is sent, and that no alert can make a task fail or reveal the address."""

from __future__ import annotations

import http.server
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestration import alerts

pytestmark = pytest.mark.filterwarnings("default")

SECRET = "T0P-SECRET"
Told = list[dict[str, Any]]


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Told]]:
    """Starts a server that answers with a status, and points SLUICE_ALERTS to it. Gives the requests that it received."""
    servers = []

    def start(status: int) -> Told:
        told: Told = []

        class Answers(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                told.append({"path": self.path, "type": self.headers["Content-Type"], **json.loads(body)})
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        servers.append(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers))
        threading.Thread(target=servers[0].serve_forever, daemon=True).start()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("SLUICE_ALERTS", f"http://127.0.0.1:{servers[0].server_address[1]}/{SECRET}")
        return told

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_an_alert_is_json_with_a_sentence(receiver: Callable[[int], Told]) -> None:
    told = receiver(200)
    alerts.alert_stale_table("gym", "device_day", timedelta(days=2, hours=3), "36 hours")
    assert len(told) == 1
    assert told[0].pop("at")
    assert told[0] == {
        "path": f"/{SECRET}",
        "type": "application/json",
        "kind": "stale table",
        "text": "gym.device_day has had no new data for 2 days and 3 hours; its target is 36 hours.",
        "pipeline": "gym",
        "table": "device_day",
        "age_seconds": 183600,
        "freshness": "36 hours",
    }


@pytest.mark.parametrize(
    ("most", "sent"),
    [
        ({"heart_rate.plausible": 7}, []),
        ({"heart_rate.plausible": 6}, [("plausible", 7, 6)]),
        ({"heart_rate.plausible": 0, "heart_rate.quarantined": 1}, [("plausible", 7, 0), ("quarantined", 2, 1)]),
        ({"heart_rate.known": 1, "device_day.plausible": 0}, [("known", 2, 1)]),
        ({}, []),
    ],
)
def test_a_rule_over_its_threshold(
    receiver: Callable[[int], Told], most: dict[str, float], sent: list[tuple[str, int, int]]
) -> None:
    told = receiver(200)
    flow = {"flow": "heart_rate", "rules": {"plausible": 7}, "quarantined": 2, "quarantine_reasons": {"known": 2}}
    alerts.alert_exceeded_rules("gym", "af-1", {"flows": [flow]}, most)
    assert [(one["rule"], one["rows"], one["at_most"]) for one in told] == sent


def test_a_failure_tells_no_text_of_a_user(receiver: Callable[[int], Told]) -> None:
    told = receiver(200)
    task = SimpleNamespace(dag_id="gym", task_id="silver", run_id="Ada Lovelace", try_number=3)
    alerts.task_failed({"ti": task, "exception": ValueError("of Ada Lovelace")})
    assert told[0]["text"] == "Task silver of gym failed at try 3 (ValueError)."
    assert "Ada" not in json.dumps(told)


@pytest.mark.parametrize("status", [302, 307, 404, 500])
def test_a_receiver_that_refuses(receiver: Callable[[int], Told], caplog: pytest.LogCaptureFixture, status: int) -> None:
    told = receiver(status)
    assert not alerts.send_alert("test", "a test")
    assert len(told) == 1, "no redirect is followed"
    assert str(status) in caplog.text and SECRET not in caplog.text


@pytest.mark.parametrize(
    "value", ["ftp://127.0.0.1/{}", "http://[::1/{}", "http://127.0.0.1:1/{}", "http://127.0.0.1:x/{}", "no-such-file-{}"]
)
def test_a_receiver_that_is_not_there(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, value: str) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SLUICE_ALERTS", value.format(SECRET))
    assert not alerts.send_alert("test", "a test")
    assert "could not be sent" in caplog.text and SECRET not in caplog.text


def test_a_receiver_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(alerts, "TIMEOUT_SECONDS", 0.3)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("SLUICE_ALERTS", f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}")
        assert not alerts.send_alert("test", "a test")
    assert "could not be sent" in caplog.text


def test_a_file_may_hold_the_address(receiver: Callable[[int], Told], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = receiver(204)
    file = tmp_path / "alerts"
    file.write_text(alerts._alert_receiver_address() or "")
    monkeypatch.setenv("SLUICE_ALERTS", str(file))
    assert alerts.send_alert("test", "a test")
    assert len(told) == 1


def test_without_a_receiver_nothing_happens(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv("SLUICE_ALERTS", raising=False)
    with caplog.at_level(logging.DEBUG):
        assert not alerts.send_alert("test", "a test")
    assert caplog.text == ""
