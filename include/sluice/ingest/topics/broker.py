"""Asks a Kafka cluster which topics there are, where their partitions begin and end, and how long they keep records. Changes nothing there."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined]  # no __all__

from sluice.declare.ingest.kafka import FIXED_PROPERTIES, KafkaSource
from sluice.errors import SluiceError, UsageError
from sluice.ingest.topics.offset_ranges import Partition
from sluice.locations import Location
from sluice.private_files import read_secret_file
from sluice.settings import Settings

PATIENCE = 10.0
"""How many seconds an answer may take."""

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_ABSENT = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
# The errors say everything; by itself the client writes each attempt to connect to standard error.
_SILENT = logging.getLogger("sluice.kafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class KeptOffsets(NamedTuple):
    """What the broker has of a partition: offsets from `earliest` up to `end`, of the topic with this id."""

    earliest: int
    end: int
    topic_id: str

    def of_same_topic(self, topic_id: str | None) -> bool:
        """Whether a range with this id belongs to this topic, and not to an earlier one of the same name."""
        return not topic_id or not self.topic_id or topic_id == self.topic_id

    def has(self, start: int, until: int, topic_id: str | None) -> bool:
        """Whether the broker has all of a range."""
        return self.of_same_topic(topic_id) and (start == until or self.earliest <= start <= until <= self.end)


class UnreachableBroker(SluiceError):
    """The cluster does not answer. Exit code 1: trying again may help."""


def read_client_properties(source: KafkaSource, secrets: Location | None = None) -> dict[str, Any]:
    """Returns the properties of a client for the source's cluster. secrets: the folder of options_file, unless the settings say it.

    Raises UsageError if the file is missing, may be read by others, or has a line that is not a property, or one that is fixed.
    """
    found: dict[str, Any] = {"bootstrap.servers": source.servers, **source.options}
    if source.options_file is None:
        return found
    path = secrets / source.options_file if secrets else Settings.current().secret(source.options_file)
    try:
        lines = read_secret_file(path).decode("utf-8").splitlines()
    except FileNotFoundError:
        raise UsageError(
            f"Source '{source.name}': its options_file {path} is not there. Write properties into it, mode 0600."
        ) from None
    for number, line in enumerate(lines, start=1):
        name, sign, value = line.partition("=")
        if line.strip() and not line.lstrip().startswith("#"):
            if not sign:
                raise UsageError(f"{path}, line {number}: a property is written name=value.")
            if name.strip() in FIXED_PROPERTIES:
                raise UsageError(
                    f"{path}, line {number}: '{name.strip()}' is not for this file: {FIXED_PROPERTIES[name.strip()].why}."
                )
            found[name.strip()] = value.strip()
    return found


@contextlib.contextmanager
def translate_kafka_errors(source: KafkaSource) -> Iterator[None]:
    """Turns the client's errors into UnreachableBroker, or UsageError if the properties are wrong."""
    try:
        yield
    except KafkaException as error:
        said: KafkaError = error.args[0]
        if said.code() == KafkaError._INVALID_ARG:
            raise UsageError(f"Source '{source.name}': the Kafka client refuses its options: {said.str()}.") from None
        raise UnreachableBroker(
            f"Source '{source.name}': Kafka at {source.servers} does not answer: {said.str()}. "
            "Check servers= and options=, and that the brokers run and can be reached from here."
        ) from None


def create_kafka_consumer(source: KafkaSource, secrets: Location | None = None) -> Consumer:
    """Returns a client that reads committed records from given offsets and leaves no trace at the broker. The caller must close it.

    Errors are those of `translate_kafka_errors`.
    """
    said = {
        "group.id": "sluice",
        **read_client_properties(source, secrets),
        **{name: one.value for name, one in FIXED_PROPERTIES.items() if one.value is not None},
    }
    with translate_kafka_errors(source):
        return Consumer(said, logger=_SILENT)


class Broker:
    """A source's cluster. Its methods raise UnreachableBroker."""

    def __init__(self, source: KafkaSource, secrets: Location | None = None) -> None:
        self._source = source
        with translate_kafka_errors(source):
            self._client = AdminClient(read_client_properties(source, secrets), logger=_SILENT)

    def partitions(self) -> list[Partition]:
        """Returns the partitions of those existing topics that the source reads."""
        with translate_kafka_errors(self._source):
            topics = self._client.list_topics(timeout=PATIENCE).topics
            mine = [topic for name, topic in topics.items() if self._source.subscribes(name) and not self._is_absent(topic.error)]
        return sorted((str(topic.topic), number) for topic in mine for number in topic.partitions)

    def ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Returns, by topic, the id that distinguishes it from an earlier one of its name; "" if the broker has none. Leaves out missing topics."""
        names = sorted(set(topics))
        if not names:
            return {}
        found = self._answers(self._client.describe_topics(TopicCollection(names), request_timeout=PATIENCE))
        said = {topic: str(answer.topic_id) for topic, answer in found.items()}
        return {topic: "" if topic_id == _NO_ID else topic_id for topic, topic_id in said.items()}

    def earliest(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Returns the first offset of each partition that the broker still has. Leaves out missing partitions."""
        return self._offsets(partitions, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def ends(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Returns the offset after the last committed one. What an open transaction wrote, and everything after it, comes later."""
        return self._offsets(partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def first_since(self, partitions: Sequence[Partition], milliseconds: int) -> dict[Partition, int | None]:
        """Returns the first offset whose record is not older than this time (since 1970), or None if all are older."""
        found = self._offsets(partitions, OffsetSpec.for_timestamp(milliseconds))
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def kept(self) -> dict[Partition, KeptOffsets]:
        """Returns what there is of each partition that the source reads. Raises UnreachableBroker if answers differ, as for a changing topic."""
        partitions = self.partitions()
        earliest, ends, ids = self.earliest(partitions), self.ends(partitions), self.ids(topic for topic, _ in partitions)
        for topic, number in partitions:
            if (topic, number) not in earliest or (topic, number) not in ends or topic not in ids:
                raise UnreachableBroker(
                    f"Source '{self._source.name}': topic '{topic}', partition {number} comes or goes just now. Try again."
                )
        return {one: KeptOffsets(earliest[one], ends[one], ids[one[0]]) for one in partitions}

    def retention(self, topics: Iterable[str]) -> dict[str, int]:
        """Returns, by topic, after how many milliseconds it deletes records. Leaves out topics that keep them."""
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(set(topics))]
        if not asked:
            return {}
        answers = self._answers(self._client.describe_configs(asked, request_timeout=PATIENCE))
        said = {resource.name: {name: entry.value for name, entry in found.items()} for resource, found in answers.items()}
        deleting = {
            topic: int(of["retention.ms"]) for topic, of in said.items() if "delete" in of.get("cleanup.policy", "delete")
        }
        return {topic: milliseconds for topic, milliseconds in deleting.items() if milliseconds >= 0}

    @staticmethod
    def _is_absent(error: KafkaError | None) -> bool:
        if error is not None and error.code() not in _ABSENT:
            raise KafkaException(error)  # it exists and cannot be read now
        return error is not None

    def _offsets(self, partitions: Sequence[Partition], spec: OffsetSpec) -> dict[Partition, int]:
        if not partitions:
            return {}
        asked = {TopicPartition(topic, number): spec for topic, number in partitions}
        committed = IsolationLevel.READ_COMMITTED
        answers = self._answers(self._client.list_offsets(asked, isolation_level=committed, request_timeout=PATIENCE))
        return {(key.topic, key.partition): answer.offset for key, answer in answers.items()}

    def _answers(self, futures: Mapping[Any, Future[Any]]) -> dict[Any, Any]:
        """Returns the answer for each; leaves out what does not exist."""
        found = {}
        with translate_kafka_errors(self._source):
            for key, future in futures.items():
                try:
                    found[key] = future.result(timeout=2 * PATIENCE)
                except KafkaException as error:
                    if error.args[0].code() not in _ABSENT:
                        raise
        return found
