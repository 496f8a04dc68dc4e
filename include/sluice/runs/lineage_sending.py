"""Sends OpenLineage events to a server, or keeps them in files of the pipeline, whose oldest it removes. Sending never fails a run.

On a disk events are appended to `events.jsonl`. Once that is large it gets a name with its time, and the next events begin a new one. On a
store, where nothing is appended, the events of each call are an object of their own. A kill at any point leaves some files more than should be
kept, or one line cut off, which the next call ends.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import accumulate
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sluice.durable_files import PRIVATE
from sluice.locations import Location, is_on_disk, list_file_sizes, locate
from sluice.own_records import LINEAGE_EVENTS
from sluice.pipeline_records import PipelineRecords
from sluice.printable import count_noun
from sluice.private_files import make_private_folder
from sluice.settings import Settings

if TYPE_CHECKING:
    from openlineage.client.event_v2 import JobEvent, RunEvent

FILE_BYTES = 8_000_000
"""The size in bytes at which a file of events is closed."""
KEPT_BYTES = 64_000_000
KEPT_FILES = 1_000
"""The most bytes and the most closed files that are kept: the newest ones, and always the very newest. A file that exceeds either is removed."""
MOST_REMOVED = 100
"""The most files that one call removes, because a stage waits for it: a store that had no limit before may have many more."""
_OPEN = "events.jsonl"
_CLOSED = "events-"
_SECONDS = 5.0


def send_lineage_events(settings: Settings, pipeline: str, build: Callable[[], Sequence[RunEvent | JobEvent]]) -> None:
    """Sends events in order. If one cannot be sent, no other is tried: an absent server must not hold up the run."""
    count, sent = 1, 0
    try:
        events = build()
        count = len(events)
        with _open_client(settings, pipeline) as client:
            for event in events:
                client.emit(event)
                sent += 1
    except Exception as error:  # whatever it is, the run has done its work
        left = count - sent
        print(f"OpenLineage: {count_noun(left, 'event')} not sent ({type(error).__name__})", file=sys.stderr)


@contextmanager
def _open_client(settings: Settings, pipeline: str) -> Iterator[Any]:
    """A client whose events go to the server, to the end of the open file, or on a store to an object of their own."""
    from openlineage.client import OpenLineageClient
    from openlineage.client.transport.file import FileConfig, FileTransport
    from openlineage.client.transport.http import HttpConfig, HttpTransport

    if settings.openlineage_url:
        config = HttpConfig.from_dict({"url": settings.openlineage_url, "timeout": _SECONDS, "retry": {"total": 0}})
        yield OpenLineageClient(transport=HttpTransport(config))
        return
    folder = locate(PipelineRecords(settings, pipeline).bookkeeping(LINEAGE_EVENTS.name))
    make_private_folder(folder)
    with _oldest_events_removed(folder), TemporaryDirectory(prefix="sluice-events-") as local:
        file = _open_events_file(folder) if is_on_disk(folder) else locate(local) / _OPEN
        file.touch(mode=PRIVATE)
        try:
            yield OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=str(file), append=True)))
        finally:
            if not is_on_disk(folder) and (content := file.read_bytes()):
                _name_closed_file(folder).write_bytes(content)


@contextmanager
def _oldest_events_removed(folder: Location) -> Iterator[None]:
    """Removes the oldest events after the block, also if it failed because the disk was full. If they cannot be removed, they stay."""
    try:
        yield
    finally:
        with suppress(OSError):
            remove_oldest_events(folder)


def _open_events_file(folder: Location) -> Location:
    """The file that events are appended to. A large one is closed first, and a line that a kill cut off is ended."""
    file = folder / _OPEN
    size = file.stat().st_size if file.exists() else 0
    if size >= FILE_BYTES:
        file.rename(_name_closed_file(folder))
    elif size:
        with file.open("r+b") as found:
            found.seek(-1, 2)
            if found.read() != b"\n":
                found.write(b"\n")
    return file


def _name_closed_file(folder: Location) -> Location:
    return folder / f"{_CLOSED}{datetime.now(UTC):%Y%m%dT%H%M%S%f}.jsonl"


def remove_oldest_events(folder: Location) -> None:
    """Removes closed files that are beyond what is kept, the oldest first."""
    sizes = {name: size for name, size in list_file_sizes(folder).items() if name.startswith(_CLOSED)}
    newest_first = sorted(sizes, reverse=True)
    kept = accumulate(sizes[name] for name in newest_first)
    beyond = [
        name
        for position, (name, size) in enumerate(zip(newest_first, kept, strict=True))
        if size > KEPT_BYTES or position >= KEPT_FILES
    ]
    for name in reversed([name for name in beyond if name != newest_first[0]][-MOST_REMOVED:]):
        (folder / name).unlink(missing_ok=True)
