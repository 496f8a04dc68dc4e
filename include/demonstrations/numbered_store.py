"""A store of generated objects, for measuring: `running_numbered_store(...)` serves a million objects by their numbers, and stores none.

It answers a discovery's requests to S3: pages of a listing from a name on, and the status and content of an object. The objects' names are
`PREFIX/000000000.json` and so on; each holds one record with its number.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import gmtime, strftime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from demonstrations.store_server import S3Server

_PAGE = 1000
_WRITTEN = 1_600_000_000
"""When the first object was written, in seconds since 1970; each later one a second later."""
_HTTP_TIME, _LISTED_TIME = "%a, %d %b %Y %H:%M:%S GMT", "%Y-%m-%dT%H:%M:%S.000Z"


def name_object(number: int) -> str:
    """The name of an object below the prefix."""
    return f"{number:09d}.json"


def hold_record(number: int) -> bytes:
    """What an object holds: one JSON record."""
    return b'{"id": %09d}\n' % number


def tag_object(number: int) -> str:
    """Its ETag."""
    return f'"{md5(hold_record(number), usedforsecurity=False).hexdigest()}"'


def tell_written_second(number: int) -> int:
    """The time of its writing, in seconds since 1970."""
    return _WRITTEN + number


@contextmanager
def running_numbered_store(prefix: str, objects: int) -> Iterator[S3Server]:
    """Runs a store with this many objects below a prefix of any bucket, in a process of its own, as long as the block lasts."""
    command = [sys.executable, "-m", "demonstrations.numbered_store", prefix, str(objects)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield S3Server(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


class _Answers(BaseHTTPRequestHandler):
    """One request. The server knows the prefix, and how many objects there are."""

    protocol_version = "HTTP/1.1"
    server: _NumberedServer

    def do_GET(self) -> None:
        """A page of a listing, or an object."""
        place = urlsplit(self.path)
        said = {name: values[0] for name, values in parse_qs(place.query).items()}
        if "list-type" in said:
            self._answer(200, self._list_page(said).encode(), {"Content-Type": "application/xml"})
        else:
            self._tell_object(unquote(place.path), whole=True)

    def do_HEAD(self) -> None:
        """The status of an object."""
        self._tell_object(unquote(urlsplit(self.path).path), whole=False)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def _list_page(self, said: dict[str, str]) -> str:
        wanted, after = said.get("prefix", ""), said.get("continuation-token") or said.get("start-after", "")
        base = f"{self.server.prefix}/"
        listed = base.startswith(wanted) or wanted.startswith(base)
        first = self._find_first_after(after, base) if listed else self.server.objects
        last = min(first + int(said.get("max-keys", _PAGE)), self.server.objects)
        keys = ((number, base + name_object(number)) for number in range(first, last))
        page = [(number, key) for number, key in keys if key.startswith(wanted)]
        more = last < self.server.objects
        contents = "".join(_describe_object(number, key) for number, key in page)
        token = f"<NextContinuationToken>{page[-1][1]}</NextContinuationToken>" if more and page else ""
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>b</Name><Prefix>{wanted}</Prefix><KeyCount>{len(page)}</KeyCount><MaxKeys>{_PAGE}</MaxKeys>"
            f"<IsTruncated>{str(bool(token)).lower()}</IsTruncated>{token}{contents}</ListBucketResult>"
        )

    def _find_first_after(self, after: str, base: str) -> int:
        """The number of the first object whose key comes after a text."""
        low, high = 0, self.server.objects
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if base + name_object(middle) > after else (middle + 1, high)
        return low

    def _tell_object(self, path: str, whole: bool) -> None:
        name = path.rpartition("/")[2]
        number = int(name[:9]) if name[:9].isdigit() else self.server.objects
        if not path.endswith(f"/{self.server.prefix}/{name_object(number)}") or number >= self.server.objects:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>" if whole else b"")
            return
        headers = {"ETag": tag_object(number), "Last-Modified": strftime(_HTTP_TIME, gmtime(tell_written_second(number)))}
        self._answer(200, hold_record(number), headers, whole)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None, whole: bool = True) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if whole:
            self.wfile.write(body)


def _describe_object(number: int, key: str) -> str:
    written = strftime(_LISTED_TIME, gmtime(tell_written_second(number)))
    return (
        f"<Contents><Key>{key}</Key><LastModified>{written}</LastModified><ETag>{tag_object(number)}</ETag>"
        f"<Size>{len(hold_record(number))}</Size><StorageClass>STANDARD</StorageClass></Contents>"
    )


class _NumberedServer(ThreadingHTTPServer):
    """prefix, objects: what `_Answers` serves."""

    def __init__(self, prefix: str, objects: int) -> None:
        self.prefix, self.objects = prefix, objects
        super().__init__(("127.0.0.1", 0), _Answers)


if __name__ == "__main__":
    serving = _NumberedServer(sys.argv[1], int(sys.argv[2]))
    print(serving.server_port, flush=True)
    serving.serve_forever()
