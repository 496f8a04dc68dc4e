"""A real Kafka broker on this machine's loopback: one JVM, from jars of Maven Central that are fetched once into .sluice/kafka-jars."""

from __future__ import annotations

import base64
import logging
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tests.fetched_jars import JAVA, fetch_jars, jars_folder
from tests.waiting import until

from orchestration.server.free_ports import find_free_ports

_LIST = "kafka-jars"
JARS = jars_folder(_LIST)
FLAGS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx384m")

# A client that outlives its broker says so, on standard error unless told otherwise.
_SILENT = logging.getLogger("tests.broker")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=4194304
"""
_LOG = """\
rootLogger.level=WARN
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %c %m%n
logger.kafka.name=kafka
logger.kafka.level=INFO
"""


class Broker:
    """A broker that runs. servers: where; the rest is what tests do to it. stop() ends it, at once: nothing there is worth keeping."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "log4j2.properties").write_text(_LOG)
        for attempt in range(3):  # another process may take a free port first
            if self._start(folder / f"data{attempt}"):
                break
        else:
            pytest.fail(f"the broker did not start:\n{self._said()[-3000:]}")
        self.admin = AdminClient({"bootstrap.servers": self.servers}, logger=_SILENT)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Make a topic. config: with underscores for dots."""
        said = {name.replace("_", "."): value for name, value in config.items()}
        self._done(self.admin.create_topics([NewTopic(topic, partitions, 1, config=said)]))
        self._wait_for_partitions(topic, partitions)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions. partitions: how many it has then."""
        self._done(self.admin.create_partitions([NewPartitions(topic, partitions)]))
        self._wait_for_partitions(topic, partitions)

    def _wait_for_partitions(self, topic: str, partitions: int) -> None:
        """Returns when the broker knows what its controller has made, a moment earlier."""

        def are_there() -> bool:
            found = self.admin.list_topics(timeout=60).topics.get(topic)
            return found is not None and sum(one.leader >= 0 for one in found.partitions.values()) == partitions

        until(are_there, what=f"topic {topic}")

    def configure(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        resource.add_incremental_config(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET))
        self._done(self.admin.incremental_alter_configs([resource]))

    def drop(self, topic: str) -> None:
        self._done(self.admin.delete_topics([topic]))
        deadline = time.monotonic() + 120
        while topic in self.admin.list_topics(timeout=60).topics:
            assert time.monotonic() < deadline, f"topic {topic} is still there"
            time.sleep(0.05)

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset, as retention does."""
        self._done(self.admin.delete_records([TopicPartition(topic, partition, before)]))

    def put(self, topic: str, records: Sequence[Mapping[str, Any]], partition: int = 0) -> None:
        """Append records: value, key, headers, timestamp (milliseconds), each of them optional."""
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 0}, logger=_SILENT)
        failed: list[str] = []

        def note_failure(error: object, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        for record in records:
            producer.produce(topic, partition=partition, on_delivery=note_failure, **record)
        assert producer.flush(120) == 0 and failed == []

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(60)

    @staticmethod
    def _done(futures: Mapping[Any, Any]) -> None:
        for future in futures.values():
            future.result(120)

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        log = f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}"
        command = [JAVA, *FLAGS, log, "-cp", f"{JARS}/*", program, *arguments]
        with (self.folder / "out.log").open("ab") as out:
            return subprocess.Popen(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    def _start(self, data: Path, seconds: float = 600) -> bool:
        port, controller = find_free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        settings = self.folder / "server.properties"
        settings.write_text(_PROPERTIES.format(port=port, controller=controller, data=data))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(settings)).wait(300)
        before = len(self._said())
        self._process = self._run("kafka.Kafka", str(settings))
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            if "Kafka Server started" in self._said()[before:]:
                return True
            time.sleep(0.05)
        self.stop()
        return False

    def _said(self) -> str:
        return (self.folder / "out.log").read_text(errors="replace")


def running(folder: Path) -> Iterator[Broker]:
    """A broker for a fixture. Where its jars cannot be fetched the tests are skipped, which says why; in CI they fail."""
    why = fetch_jars(_LIST)
    if why:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(why)
    broker = Broker(folder)
    try:
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)
