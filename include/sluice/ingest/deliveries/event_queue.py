"""Events in an SQS queue. A received message is invisible for a while, and is removed once its objects are recorded.

A message about something else becomes visible again at once. If nobody takes it, it ends in the queue's own dead-letter queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sluice.ingest.deliveries.object_events import MOST_EVENTS, NoEvents, ReceivedEvents, read_object_names
from sluice.locations import Location
from sluice.stores.s3_client import open_sqs_client
from sluice.stores.store_location import StoreLocation

_TOGETHER = 10
"""The most messages of a request."""
_HIDDEN = 300
"""Seconds for which a received message is invisible to others. If the run is killed, it comes again after that."""
_WAIT = 1
"""Seconds to wait for a message. Without a wait, SQS asks only some of its servers, and may say that there is none."""


@dataclass(frozen=True)
class QueuedEvents(ReceivedEvents):
    """url: of the queue. receipts: of the messages about the source's objects; those of `others` are visible again already."""

    url: str
    receipts: tuple[str, ...]

    def acknowledge(self) -> None:
        """Remove the messages."""
        with _raise_no_events(self.url):
            for some in _number_entries(self.receipts):
                open_sqs_client().delete_message_batch(QueueUrl=self.url, Entries=some)

    def give_back(self) -> None:
        """Make the messages visible again at once."""
        _show_again(self.url, self.receipts)


def receive_events(address: str, folder: StoreLocation, landing: Location) -> QueuedEvents:
    """Receives the messages of a queue, sqs://QUEUE. Raises NoEvents."""
    ours: list[str] = []
    others: list[str] = []
    names: set[str] = set()
    with _raise_no_events(address):
        url = _find_queue_url(address)
        is_all = False
        while not is_all and len(ours) + len(others) < MOST_EVENTS:
            told = open_sqs_client().receive_message(
                QueueUrl=url, MaxNumberOfMessages=_TOGETHER, WaitTimeSeconds=_WAIT, VisibilityTimeout=_HIDDEN
            )
            messages = told.get("Messages", ())
            is_all = not messages
            for message in messages:
                found = read_object_names(message["Body"], folder)
                (others if found is None else ours).append(message["ReceiptHandle"])
                names.update(found or ())
    _show_again(url, others)
    return QueuedEvents(frozenset(names), len(others), is_all, url, tuple(ours))


def count_events(address: str, _landing: Location) -> int:
    """Returns about how many messages are visible in the queue. Raises NoEvents."""
    with _raise_no_events(address):
        name = "ApproximateNumberOfMessages"
        said = open_sqs_client().get_queue_attributes(QueueUrl=_find_queue_url(address), AttributeNames=[name])
        return int(said["Attributes"][name])


def _find_queue_url(address: str) -> str:
    account, _, queue = address.removeprefix("sqs://").rpartition("/")
    of_account = {"QueueOwnerAWSAccountId": account} if account else {}
    return str(open_sqs_client().get_queue_url(QueueName=queue, **of_account)["QueueUrl"])


def _show_again(url: str, receipts: Sequence[str]) -> None:
    with _raise_no_events(url):
        for some in _number_entries(receipts):
            entries = [{**one, "VisibilityTimeout": 0} for one in some]
            open_sqs_client().change_message_visibility_batch(QueueUrl=url, Entries=entries)


def _number_entries(receipts: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    entries = [{"Id": str(number), "ReceiptHandle": receipt} for number, receipt in enumerate(receipts)]
    return (entries[first : first + _TOGETHER] for first in range(0, len(entries), _TOGETHER))


@contextmanager
def _raise_no_events(address: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # it has no types

    try:
        yield
    except ClientError as error:
        raise NoEvents(f"{address} answers {error.response['Error']['Code']}") from None
    except BotoCoreError as error:
        raise NoEvents(f"{address} gives no answer ({type(error).__name__})") from None
