"""The process of the S3 server of demonstrations and tests: `python store_process.py PORT`. Port 0 is any free one; the first line says which.

moto checks for an object and writes it in two steps. So two writers that send If-None-Match at the same moment may both succeed, unlike in a
real store; here one write waits for the other. And in a bucket with versions, moto also lists the folders of removed objects; here it does not.
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
from werkzeug.serving import make_server


class OneWriteAtATime:
    """An application that passes requests to another one: reads at once, writes one after the other."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._writing = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start_response)
        # The body is read first, so that a slow client does not hold up the others.
        if length := int(environ.get("CONTENT_LENGTH") or 0):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self._writing:
            return list(self._application(environ, start_response))


class OneContinue(MotoRequestHandler):
    """Says "100 Continue" once: the standard library and werkzeug both say it, and a client would take the second one for the answer."""

    def handle_expect_100(self) -> bool:
        """Leave it to werkzeug."""
        return True


def list_what_is_there(backend: S3Backend, bucket: Any, *given: Any, **named: Any) -> Any:
    """List the objects of a bucket as if it had no delete markers."""
    there = copy.copy(bucket)
    there.keys = {name: key for name, key in bucket.keys.items() if not isinstance(key, FakeDeleteMarker)}
    return list_objects(backend, there, *given, **named)


list_objects = S3Backend.list_objects

if __name__ == "__main__":
    S3Backend.list_objects = list_what_is_there  # type: ignore[method-assign, assignment]
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", int(sys.argv[1]), OneWriteAtATime(application), threaded=True, request_handler=OneContinue)
    print(f"The S3 server is at http://127.0.0.1:{server.server_port}", flush=True)  # whoever started it waits for this line
    server.serve_forever()
