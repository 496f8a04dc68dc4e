"""Looking at a delivered file before its records are read: is it still the one that was discovered, can it be read as its source says?

Every byte of it is looked at, once and in parts: its hash, its compression, its encoding. What cannot be read goes to quarantine whole.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

from sluice.declare.ingest.kafka import KafkaSource
from sluice.declare.ingest.source import Source
from sluice.ingest.deliveries.discovery import GONE, modified
from sluice.ingest.files import opening
from sluice.ingest.files.opening import Unreadable
from sluice.ingest.formats import columnar, delimited
from sluice.ingest.ledger import INGESTED, MISSED, QUARANTINED, VANISHED
from sluice.ingest.reading.delivery import Delivery, Examined

CHANGED = "the file was changed after it was discovered; the change is a delivery of its own"
_BLANKS = b" \t\r\n"
_LONGEST_VALUE = 2**31 - 1


def examine(source: Source, deliveries: list[Delivery]) -> list[Examined]:
    """Look at each delivery. No file raises: what is wrong with it is in its reason, without any of its content.

    Raises Unreachable where a topic's broker does not answer.
    """
    if isinstance(source, KafkaSource):
        from sluice.ingest.reading import kafka  # its client is loaded only where topics are read

        return kafka.examine(source, deliveries)
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda delivery: _examine(source, delivery), deliveries))


def unchanged(delivery: Delivery) -> bool:
    """Whether the file is still the one that was discovered, by its size and modification time. Reads nothing of it."""
    try:
        return delivery.size is None or modified(delivery.path) == (delivery.size, delivery.modified_at)
    except OSError:
        return False


def _examine(source: Source, delivery: Delivery) -> Examined:
    if delivery.event == GONE:
        return Examined(delivery, VANISHED)
    try:
        if delivery.path.is_symlink():
            return Examined(delivery, QUARANTINED, opening.LINK)
        if modified(delivery.path) != (delivery.size, delivery.modified_at):
            return Examined(delivery, MISSED, CHANGED)
        found = _content(source, delivery)
        # A file that is written to while it is looked at is neither what it was nor what it will be.
        return found if modified(delivery.path) == (delivery.size, delivery.modified_at) else Examined(delivery, MISSED, CHANGED)
    except FileNotFoundError:
        return Examined(delivery, MISSED, "the file was gone before it could be read")
    except OSError as error:
        return Examined(delivery, MISSED, f"the file could not be opened: {error.strerror}")


def _content(source: Source, delivery: Delivery) -> Examined:
    digest = hashlib.sha256()
    try:
        look = _of_bytes if source.format in ("parquet", "binary") else _of_text
        found = look(source, delivery, digest)
    except Unreadable as reason:
        return Examined(delivery, QUARANTINED, str(reason))
    if delivery.sha256 is not None and digest.hexdigest() != delivery.sha256:
        return Examined(delivery, MISSED, CHANGED)
    return found


def _of_bytes(source: Source, delivery: Delivery, digest: hashlib._Hash) -> Examined:
    size = sum(len(part) for part in opening.chunks(source, delivery.path, digest.update))
    if size and source.format == "parquet":
        rows, size = columnar.measure(source, delivery.path)
        return Examined(delivery, INGESTED, empty=not rows, text_bytes=size)
    if size > _LONGEST_VALUE:
        raise Unreadable(f"the file has more than {_LONGEST_VALUE} bytes, and a binary file is one value")
    return Examined(delivery, INGESTED, empty=not size, text_bytes=size)


def _of_text(source: Source, delivery: Delivery, digest: hashlib._Hash) -> Examined:
    size, blank, start, line = 0, True, b"", 0
    for text in opening.pieces(source, delivery.path, digest.update):
        size += len(text)
        if blank:
            blank = not text.replace(b"\xef\xbb\xbf", b"").strip(_BLANKS)
        if source.format == "csv" and len(start) < delimited.HEADER_LIMIT:
            start += text
        end = text.rfind(b"\n") + 1
        line = len(text) - end + (0 if end else line)
        if line > opening.LONGEST and not source.multi_line:
            raise Unreadable(opening.too_long())
    if blank:
        return Examined(delivery, INGESTED, empty=True, text_bytes=size)
    header = delimited.header(source, start) if source.format == "csv" and source.header else ()
    return Examined(delivery, INGESTED, header=header, text_bytes=size)
