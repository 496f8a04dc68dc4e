"""The endpoint of `sluice metrics --serve`: the same text, for a Prometheus that asks for it over HTTP."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ENDPOINT = "/metrics"
_FRESH = 5.0
"""Seconds for which a text is served again, so that frequent requests do not cause more reads of the lake."""
_SILENT = 30.0
"""Seconds after which a silent connection is closed."""


class MetricsServer(ThreadingHTTPServer):
    """Answers GET /metrics. compose: makes the text; only one thread at a time calls it."""

    daemon_threads = True

    def __init__(self, host: str, port: int, compose: Callable[[], str]) -> None:
        """Begin to listen. port: 0 for any free one. Raises OSError if the port cannot be opened."""
        super().__init__((host, port), _MetricsHandler)
        self._compose, self._lock = compose, threading.Lock()
        self._text, self._composed_at = "", 0.0

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        host, port = str(self.server_address[0]), self.server_address[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}{ENDPOINT}"

    def read_text(self) -> str:
        """The current text, or one that is at most a few seconds old."""
        with self._lock:
            if not self._composed_at or time.monotonic() - self._composed_at > _FRESH:
                self._text, self._composed_at = self._compose(), time.monotonic()
            return self._text

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Writes no traceback: the client has closed the connection, or was silent."""


def serve_until_signal(server: MetricsServer) -> None:
    """Answer until SIGTERM or SIGINT, then release the port. Call it in the main thread."""
    with server, _signals_end_server(server):
        server.serve_forever(poll_interval=0.2)


@contextmanager
def _signals_end_server(server: MetricsServer) -> Iterator[None]:
    def end(number: int, frame: Any) -> None:
        threading.Thread(target=server.shutdown).start()  # which waits for this thread

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _MetricsHandler(BaseHTTPRequestHandler):
    timeout = _SILENT
    server: MetricsServer

    def do_GET(self) -> None:
        """Sends the text for ENDPOINT, and 404 for every other path."""
        if self.path.partition("?")[0] != ENDPOINT:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        try:
            body = self.server.read_text().encode()
        except Exception:  # its text may quote data
            self.send_error(HTTPStatus.INTERNAL_SERVER_ERROR)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """Names the server without Python's version."""
        return "sluice"

    def log_message(self, format: str, *arguments: Any) -> None:
        """Writes nothing: one line per request would fill the log."""
