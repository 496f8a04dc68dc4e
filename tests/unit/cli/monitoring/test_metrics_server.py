"""`sluice metrics --serve`: the text over HTTP, on this machine alone unless asked, until SIGTERM."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.unit.cli.monitoring.test_metrics import parse

from sluice.cli import main
from sluice.cli.monitoring import metrics_server
from sluice.cli.monitoring.metrics_server import CONTENT_TYPE, MetricsServer
from sluice.settings import Settings


def test_a_process_answers_on_this_machine_until_it_is_ended(settings: Settings) -> None:
    environment = {**os.environ, **settings.root_variables}
    command = [sys.executable, "-m", "sluice.cli", "metrics", "gym", "--serve", "0"]
    with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[1].rstrip(",")
            assert url.startswith("http://127.0.0.1:") and url.endswith("/metrics")
            with urllib.request.urlopen(url, timeout=60) as answer:
                assert answer.headers["Content-Type"] == CONTENT_TYPE
                found = parse(answer.read().decode())
            assert found["pipeline_readable"] == {'pipeline="gym"': 1} and found["records_add_up"]
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(url.removesuffix("metrics"), timeout=60)
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) == 0
        finally:
            process.kill()


@contextmanager
def serving(server: MetricsServer) -> Iterator[http.client.HTTPConnection]:
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    asking = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=120)
    try:
        yield asking
    finally:
        asking.close()
        server.shutdown()
        server.server_close()
        thread.join()


def ask(asking: http.client.HTTPConnection, method: str = "GET", path: str = "/metrics") -> tuple[int, str]:
    asking.request(method, path)
    answer = asking.getresponse()
    said = answer.status, answer.read().decode()
    asking.close()
    return said


def test_who_asks_often_gets_the_text_of_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def compose() -> str:
        made.append(1)
        return f"text {len(made)}"

    monkeypatch.setattr(metrics_server, "_FRESH", 3600.0)
    with serving(MetricsServer("127.0.0.1", 0, compose)) as asking:
        assert [ask(asking), ask(asking, path="/metrics?x=1")] == [(200, "text 1")] * 2
        monkeypatch.setattr(metrics_server, "_FRESH", 0.0)
        assert ask(asking) == (200, "text 2")
        assert ask(asking, "POST")[0] == 501 and ask(asking, path="/metrics/x")[0] == 404


def test_an_error_is_told_without_its_text(capsys: pytest.CaptureFixture[str]) -> None:
    def compose() -> str:
        raise ValueError("ada lovelace")

    with serving(MetricsServer("127.0.0.1", 0, compose)) as asking:
        status, said = ask(asking)
    assert status == 500 and "lovelace" not in said + "".join(capsys.readouterr())


def test_a_port_that_is_taken_and_two_ways_at_once_are_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with MetricsServer("127.0.0.1", 0, lambda: "") as taken:
        for arguments, said in (
            (["--serve", str(taken.server_address[1])], "Nothing can listen on 127.0.0.1"),
            (["--serve", "0", "--to", "x.prom"], "exclude each other"),
            (["nobody", "--serve", "0"], "nobody"),
        ):
            with pytest.raises(SystemExit) as ended:
                main(["metrics", *arguments])
            assert ended.value.code == 2 and said in capsys.readouterr().err
