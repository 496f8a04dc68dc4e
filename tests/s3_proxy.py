"""An HTTP proxy before an S3 server that does what real stores and networks do: conflicts, refusals, lost replies, late listings."""

from __future__ import annotations

import http.client
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_CONTENTS = re.compile(rb"<Contents>.*?</Contents>", re.DOTALL)
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}
COMMIT = re.compile(r"/_delta_log/\d{20}\.json\Z")
EVERYTHING = re.compile("")


@dataclass
class Faults:
    """Which faults a proxy has. Shares are of the conditional PUTs of the keys that `keys` finds; each is a number from 0 to 1.

    conflicts: answered 409 and not done. refused: answered 503 and not done. lost: done, and the connection is cut before the answer.
    failed_late: done, and answered 503. late: how many listings do not show a key that is new.
    partitioned: every request's connection is cut. ignores_conditions: PUTs are done whatever their conditions say.
    hold: waited for before a PUT is passed on, for a test that stops a writer there. observe: is told of each request before: method,
    path with query, body, and whether a header names an object to copy.
    """

    conflicts: float = 0
    refused: float = 0
    lost: float = 0
    failed_late: float = 0
    late: int = 0
    partitioned: bool = False
    ignores_conditions: bool = False
    keys: re.Pattern[str] = COMMIT
    hold: Callable[[str], None] = lambda path: None
    observe: Callable[[str, str, bytes, bool], None] = lambda *_: None
    random: random.Random = field(default_factory=lambda: random.Random(19))

    def draw_fault(self) -> str:
        """The name of the next PUT's fault; "" where it has none."""
        drawn = self.random.random()
        for name in ("conflicts", "refused", "lost", "failed_late"):
            share = getattr(self, name)
            if drawn < share:
                return name
            drawn -= share
        return ""


class _Server(ThreadingHTTPServer):
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error here."""


class FaultyProxy:
    """A running proxy.

    address: where it listens. faults: what it does, which may be changed. counts: how often each fault happened and each method was used.
    """

    def __init__(self, address: str, faults: Faults) -> None:
        self.faults = faults
        self.counts: Counter[str] = Counter()
        self.stored: dict[str, int] = {}
        self.behind = urlsplit(address).netloc
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_ProxyHandler,), {"proxy": self}))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def draw_fault(self, method: str, path: str, conditional: bool) -> str:
        with self.lock:
            self.counts[method] += 1
            fault = self.faults.draw_fault() if method == "PUT" and conditional and self.faults.keys.search(path) else ""
            if fault:
                self.counts[fault] += 1
            return fault

    def note_stored(self, path: str) -> None:
        with self.lock:
            self.stored[path] = self.faults.late

    def hide_late(self, path: str, query: str, body: bytes) -> bytes:
        """The listing without what was stored so lately that it does not show it yet. By listings, as seconds are more or fewer of them."""
        if not self.faults.late or "prefix" not in parse_qs(query):
            return body
        bucket = path.strip("/")

        def hide(found: re.Match[bytes]) -> bytes:
            key = _KEY.search(found[0])
            assert key
            name = f"/{bucket}/{unquote(key[1].decode())}"
            with self.lock:
                if not self.stored.get(name):
                    return found[0]
                self.stored[name] -= 1
                self.counts["late"] += 1
            return b""

        return _CONTENTS.sub(hide, body)


@contextmanager
def running_faulty_proxy(address: str, faults: Faults) -> Iterator[FaultyProxy]:
    """A proxy before the server at the address for as long as the block lasts."""
    proxy = FaultyProxy(address, faults)
    try:
        yield proxy
    finally:
        proxy.stop()


class _ProxyHandler(BaseHTTPRequestHandler):
    """Passes a request on, or does what the fault that was drawn for it says."""

    proxy: FaultyProxy
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def _pass_on(self) -> None:
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        body = self._read_body()
        self.proxy.faults.observe(self.command, self.path, body, "x-amz-copy-source" in self.headers)
        if self.proxy.faults.partitioned:
            self._cut()
            return
        conditional = any(name in self.headers for name in ("If-None-Match", "If-Match"))
        fault = self.proxy.draw_fault(self.command, path, conditional)
        if fault == "conflicts":
            return self._answer_error(409, "ConditionalRequestConflict")
        if fault == "refused":
            return self._answer_error(503, "SlowDown")
        if self.command == "PUT":
            self.proxy.faults.hold(path)
        status, headers, content = self._ask(body)
        if self.command == "PUT" and status == 200:
            self.proxy.note_stored(path)
        if fault == "lost" or self.proxy.faults.partitioned:
            return self._cut()
        if fault == "failed_late":
            return self._answer_error(503, "SlowDown")
        if self.command == "GET":
            content = self.proxy.hide_late(path, parts.query, content)
        self._answer(status, headers, content)

    def _read_body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        left_out = _HOP_BY_HOP | ({"if-none-match", "if-match"} if self.proxy.faults.ignores_conditions else set()) | {"expect"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in left_out}
        connection = http.client.HTTPConnection(self.proxy.behind, timeout=60)
        try:
            connection.request(self.command, self.path, body, headers | {"Content-Length": str(len(body))})
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
        try:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", length)
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True

    def _answer_error(self, status: int, code: str) -> None:
        content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>by the proxy</Message></Error>".encode()
        self._answer(status, [("Content-Type", "application/xml")], content)

    def _cut(self) -> None:
        self.close_connection = True
        self.connection.close()

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _pass_on
