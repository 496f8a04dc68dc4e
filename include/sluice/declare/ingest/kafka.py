"""A source that is one Kafka topic or several. Its deliveries are ranges of offsets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar, Literal, NamedTuple, get_args

from sluice.declare import kinds
from sluice.declare.field_values import CHECKED_BY_ITSELF, check_names, describe_value
from sluice.declare.ingest.source import Source
from sluice.declare.interval import parse_instant
from sluice.declare.kinds import SourceKind
from sluice.errors import DeclarationError, UsageError, nearest_name_hint

SCHEMA = (
    "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, "
    "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestamp_type INT"
)
"""The bronze columns of every topic. timestamp_type: 0, the producer's time; 1, the time of the append; -1, the record has none."""

_OF_BOTH = {
    "name",
    "comment",
    "into",
    "subject",
    "domain",
    "subject_in",
    "subject_at",
    "personal",
    "dated_by",
    "may_refresh",
    "layout",
    "infer_types",
    "widen_types",
}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


class FixedProperty(NamedTuple):
    """A property of the client that a source cannot choose. value: what it is, unless another option says it; why: the reason."""

    value: bool | str | None
    why: str


FIXED_PROPERTIES: Mapping[str, FixedProperty] = {
    "bootstrap.servers": FixedProperty(None, "servers= says it"),
    "auto.offset.reset": FixedProperty(
        "error", "starting_offsets= says where to begin, on_lost_offsets= what to do where offsets are gone"
    ),
    "enable.auto.commit": FixedProperty(False, "the lake's ledger records how far it has read; there is no consumer group"),
    "enable.auto.offset.store": FixedProperty(False, "the lake's ledger records how far it has read"),
    "enable.partition.eof": FixedProperty(True, "ranges have ends of their own"),
    "isolation.level": FixedProperty("read_committed", "only what is committed is read"),
    "allow.auto.create.topics": FixedProperty(False, "reading makes no topics"),
}
_SECRET = re.compile(r"password|secret|\.pem\Z|jaas|token(?!\.endpoint)")

OnLostOffsets = Literal["fail", "take_earliest"]
StartingOffsets = str | Mapping[str, Mapping[int, int]]


_PLAIN = Source(name="plain", schema=SCHEMA)
"""A source without any option of files."""


@dataclass(frozen=True, kw_only=True)
class KafkaSource(Source):
    """Topics of a Kafka cluster. With brokers and a topic alone, bronze gets every record as delivered, from the earliest on.

    Bronze has the columns key, value (BINARY: nothing is decoded), headers, topic, partition, offset, timestamp and timestamp_type. The
    options of `Source` that are not about files apply here too: comment, into, subject, personal, dated_by (such as "timestamp") and
    may_refresh (a refresh reads again what the topic's retention still has).

    servers: bootstrap brokers, "host:port", separated by commas. topics: their names; or topic_pattern: a regular expression that must
    match the whole name. Topics and partitions that are created later are found at the next run.
    starting_offsets: where the source's first run begins: "earliest", "latest", an instant such as "2026-11-20T00:00Z" (the first
    record that is not older), or {"topic": {partition: offset}}, with the earliest offset for any partition it leaves out. With
    "latest", a topic that is found later still begins at its earliest offset and a new partition at 0, so that nothing that arrived
    between two runs is skipped.
    max_offsets_per_trigger: the most offsets that a micro-batch takes from all partitions together, shared in proportion to what waits
    in each. A run settles at its start which offsets are its last.
    on_lost_offsets: what happens if the broker has removed offsets that nobody has read. "fail": the run fails and names them.
    "take_earliest": the ledger records them as missed, with the reason, and reading goes on behind them.
    options: further properties of librdkafka, such as security.protocol. Do not write secrets here: options_file names a file in
    SLUICE_SECRETS, mode 0600, with properties such as sasl.password, one "name=value" per line.
    """

    kind: ClassVar[SourceKind] = kinds.TOPIC
    # Follows the name, also of a copy by `dataclasses.replace`: a topic has no folder.
    path: str = field(init=False, default="")
    servers: str
    topics: tuple[str, ...] = ()
    topic_pattern: str | None = None
    starting_offsets: StartingOffsets = field(default="earliest", hash=False, metadata=CHECKED_BY_ITSELF)
    max_offsets_per_trigger: int = 1_000_000
    on_lost_offsets: OnLostOffsets = "fail"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    options_file: str | None = None

    def __post_init__(self) -> None:
        self._refuse_options_of_files()
        object.__setattr__(self, "schema", SCHEMA)
        super().__post_init__()
        object.__setattr__(self, "topics", check_names(self.topics, "topics", f"KafkaSource '{self.name}'"))
        mistake = self._mistake() or self._mistake_in_offsets() or self._mistake_in_options()
        if mistake:
            raise DeclarationError(f"KafkaSource '{self.name}': {mistake}")

    @property
    def has_fixed_schema(self) -> bool:
        """Yes: the columns are those of every topic."""
        return True

    @property
    def needed_secrets(self) -> tuple[str, ...]:
        """The file with its options, if it has one."""
        return (self.options_file,) if self.options_file else ()

    def subscribes(self, topic: str) -> bool:
        """Returns whether it reads a topic of this name. A pattern does not match topics that Kafka keeps for itself."""
        if self.topic_pattern is None:
            return topic in self.topics
        return not topic.startswith("__") and re.fullmatch(self.topic_pattern, topic) is not None

    def _refuse_options_of_files(self) -> None:
        plain = replace(_PLAIN, name=self.name, path="")
        for one in fields(Source):
            said = getattr(self, one.name)
            if one.name not in _OF_BOTH and said not in (one.default, getattr(plain, one.name)):
                raise DeclarationError(f"KafkaSource '{self.name}': {one.name} is an option of files; leave it out.")

    def _mistake(self) -> str | None:
        if not self.servers or any(":" not in server for server in self.servers.split(",")):
            return f"servers is 'host:port', with commas between several, not '{self.servers}'."
        if bool(self.topics) == (self.topic_pattern is not None):
            return "say topics= or topic_pattern=, one of the two."
        for topic in self.topics:
            if not _TOPIC.match(topic):
                return (
                    f"'{topic}' is no topic's name: letters, digits, '.', '_' and '-'. A regular expression is a topic_pattern."
                )
        try:
            re.compile(self.topic_pattern or "")
        except re.error as error:
            return f"topic_pattern is no regular expression: {error}."
        if self.max_offsets_per_trigger < 1:
            return "max_offsets_per_trigger is at least 1."
        known = get_args(OnLostOffsets)
        if self.on_lost_offsets not in known:
            return f"unknown on_lost_offsets '{self.on_lost_offsets}'.{nearest_name_hint(str(self.on_lost_offsets), known)}"
        return None

    def _mistake_in_offsets(self) -> str | None:
        said = self.starting_offsets
        if not isinstance(said, Mapping):
            if _is_instant_or_end(said):
                return None
            return f"starting_offsets is 'earliest', 'latest', an instant or {{'topic': {{0: 23}}}}, not {describe_value(said)}."
        for topic, offsets in said.items():
            if not isinstance(topic, str) or not self.subscribes(topic):
                return (
                    f"starting_offsets names the topic '{topic}', which is not read.{nearest_name_hint(str(topic), self.topics)}"
                )
            if not isinstance(offsets, Mapping) or not all(type(n) is int and n >= 0 for pair in offsets.items() for n in pair):
                return f"starting_offsets of '{topic}' are partitions and offsets, whole numbers from 0, as in {{0: 23, 1: 0}}."
        return None

    def _mistake_in_options(self) -> str | None:
        for name, value in self.options.items():
            if not isinstance(name, str) or not isinstance(value, str):
                return "options are texts, as in {'security.protocol': 'SASL_SSL'}."
            if name in FIXED_PROPERTIES:
                return f"'{name}' is not for options: {FIXED_PROPERTIES[name].why}."
            if _SECRET.search(name):
                return f"'{name}' is a secret. Write it into a file in SLUICE_SECRETS and name that: options_file='kafka.properties'."
        if self.options_file is not None and ("/" in self.options_file or self.options_file.startswith(".")):
            return "options_file is the name of a file in SLUICE_SECRETS, without a folder."
        return None


def _is_instant_or_end(said: object) -> bool:
    if said in ("earliest", "latest"):
        return True
    try:
        return isinstance(said, str) and bool(parse_instant(said, "starting_offsets"))
    except UsageError:
        return False
