"""The process of the S3 server of demonstrations and tests: `python store_process.py PORT`.

moto looks for an object and writes it in two steps, so that two writers who ask If-None-Match at one moment may both win, as in no
real store. Here one write waits for the other. And moto lists the folders of removed objects, where a bucket keeps versions: not here.
"""

from __future__ import annotations

import copy
import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import FakeDeleteMarker, S3Backend
from werkzeug.serving import run_simple


class OneWriteAtATime:
    """An application that passes requests to another: reads at once, writes one after the other."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start_response)
        # The body is waited for before, so that no slow client keeps the others.
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._writing:
            return list(self._application(environ, start_response))


class OneContinue(MotoRequestHandler):
    """Says "100 Continue" once: the standard library and werkzeug each do, and of two a client takes the second for the answer."""

    def handle_expect_100(self) -> bool:
        """Leave it to werkzeug."""
        return True


def list_what_is_there(backend: S3Backend, bucket: Any, *given: Any, **named: Any) -> Any:
    """List the objects of a bucket as if it had no marks of removed ones."""
    there = copy.copy(bucket)
    there.keys = {name: key for name, key in bucket.keys.items() if not isinstance(key, FakeDeleteMarker)}
    return list_objects(backend, there, *given, **named)


list_objects = S3Backend.list_objects

if __name__ == "__main__":
    S3Backend.list_objects = list_what_is_there  # type: ignore[method-assign, assignment]
    application = DomainDispatcherApplication(create_backend_app)
    run_simple("127.0.0.1", int(sys.argv[1]), OneWriteAtATime(application), threaded=True, request_handler=OneContinue)
