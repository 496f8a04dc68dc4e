"""Topics of a real broker into bronze: every record once, exactly as it is there, and what is lost is said."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from tests.broker import Broker
from tests.conftest import Lakehouse

from sluice.declare import KafkaSource, Pipeline
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import UsageError
from sluice.ingest.reading import kafka as reading
from sluice.ingest.topics import offsets
from sluice.ingest.topics.broker import UnreachableBroker
from sluice.ingest.topics.offset_ranges import LostOffsets, find_last_offset_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

PIPELINE = Pipeline(name="gym", description="A gym.", owner="tests", layers=("pipelines.gym.bronze",))
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def topic() -> str:
    """The name of a topic that no other test has."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def lake(settings: Settings, spark: SparkSession) -> Callable[..., Lakehouse]:
    """A lakehouse with these sources."""
    return lambda *sources: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, sources))


def source(kafka: Broker, **options: Any) -> KafkaSource:
    return KafkaSource(**{"name": "events", "servers": kafka.servers, **options})


def numbers(start: int, until: int) -> list[dict[str, Any]]:
    return [{"value": str(n).encode()} for n in range(start, until)]


def files(source: KafkaSource, *known: str) -> list[list[str]]:
    found = offsets.find_new_offset_ranges(source, find_last_offset_ranges((file, "delivered", "") for file in known), NOW)
    return [[one.file for one in batch] for batch in found.batches]


def read(source: KafkaSource, file: str, start: int | None = None) -> list[dict[str, Any]]:
    return [row for table in reading.read_offset_range(source, file, start=start) for row in table.to_pylist()]


# ------------------------------------------------------------------------------------------ reading ranges, without Spark


def test_a_record_is_read_with_all_that_it_has(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    binary = bytes(range(256))
    kafka.put(
        topic,
        [
            {"key": b"k", "value": b'{"a": 1}', "timestamp": 1_600_000_000_123},
            {"key": b"k", "value": None, "timestamp": 1_600_000_001_000},  # a tombstone
            {"value": binary, "headers": [("h", b"1"), ("h", binary), ("none", None)], "timestamp": 1_600_000_002_000},
            {"key": b"", "value": b"", "timestamp": 1_600_000_003_000},
        ],
    )
    rows = read(source(kafka, topics=topic), f"{topic}/0/0-4")
    first = datetime(2020, 9, 13, 12, 26, 40, 123_000, tzinfo=UTC)
    assert rows[0] == {
        "key": b"k",
        "value": b'{"a": 1}',
        "headers": None,
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": first,
        "timestamp_type": 0,
        "_row": 0,
    }
    assert [(row["key"], row["value"]) for row in rows[1:]] == [(b"k", None), (None, binary), (b"", b"")]
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": binary}, {"key": "none", "value": None}]
    assert rows[2]["headers"] == headers


def test_exactly_the_range_is_read_and_again_the_same(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    kafka.put(topic, numbers(0, 25_000))
    some = source(kafka, topics=topic)
    for start, until in ((7, 8), (0, 25_000), (9_999, 20_001)):
        rows = read(some, f"{topic}/0/{start}-{until}")
        assert [(int(row["value"]), row["offset"], row["_row"]) for row in rows] == [
            (n, n, n - start) for n in range(start, until)
        ]
    assert read(some, f"{topic}/0/5-5") == []


def test_of_transactions_only_what_is_committed_is_read_and_an_open_one_comes_later(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    some = source(kafka, topics=topic)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": topic})
    producer.init_transactions()

    def transaction(values: str, end: Callable[[], Any] | None) -> None:
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value.encode())
        producer.flush()
        if end:
            end()

    transaction("ab", producer.commit_transaction)
    transaction("xy", producer.abort_transaction)
    transaction("cd", None)
    until = _until(lambda: files(some), [[f"{topic}/0/0-6"]])  # 2 records and a marker, 2 aborted and a marker
    assert [row["value"] for row in read(some, until[0][0])] == [b"a", b"b"]
    assert read(some, f"{topic}/0/3-6") == [], "nothing but what was aborted, and the range ends all the same"
    producer.commit_transaction()
    until = _until(lambda: files(some, f"{topic}/0/0-6"), [[f"{topic}/0/6-9"]])
    assert [row["value"] for row in read(some, until[0][0])] == [b"c", b"d"]
    assert read(some, f"{topic}/0/3-6") == [], "nor what came behind it since"


def _until(what: Callable[[], Any], wanted: Any) -> Any:
    """A transaction's marker is written a moment after the producer hears of its end."""
    deadline = time.monotonic() + 120
    while (found := what()) != wanted and time.monotonic() < deadline:
        time.sleep(0.02)
    assert found == wanted
    return found


def test_a_range_that_goes_while_it_is_read_is_an_error_and_not_a_short_answer(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    kafka.put(topic, numbers(0, 10))
    kafka.forget(topic, 0, 4)
    with pytest.raises(LostOffsets, match="offsets 2 up to 9 went while they were read"):
        read(source(kafka, topics=topic), f"{topic}/0/2-9")
    assert [row["_row"] for row in read(source(kafka, topics=topic), f"{topic}/0/2-9", start=4)] == [2, 3, 4, 5, 6]


# ------------------------------------------------------------------------------------------------------ what is new


@pytest.mark.parametrize(
    ("starting", "wanted"),
    [("earliest", "2-10"), ("latest", "10-10"), ({0: 5}, "5-10"), ("2020-09-13T12:26:47Z", "7-10"), ("2030-01-01", "10-10")],
)
def test_the_first_run_begins_where_the_source_says(kafka: Broker, topic: str, starting: Any, wanted: str) -> None:
    kafka.create(topic)
    kafka.put(topic, [{"value": b"", "timestamp": 1_600_000_000_000 + 1000 * n} for n in range(10)])
    kafka.forget(topic, 0, 2)
    begin = {topic: starting} if isinstance(starting, dict) else starting
    assert files(source(kafka, topics=topic, starting_offsets=begin)) == [[f"{topic}/0/{wanted}"]]


def test_offsets_to_start_from_that_are_not_there_are_errors(kafka: Broker, topic: str) -> None:
    kafka.create(topic)
    kafka.put(topic, numbers(0, 10))
    kafka.forget(topic, 0, 2)
    with pytest.raises(LostOffsets, match="the next offset is 1, the broker's earliest is 2"):
        files(source(kafka, topics=topic, starting_offsets={topic: {0: 1}}))
    with pytest.raises(UsageError, match=r"starting_offsets says 11 .* ends at 10"):
        files(source(kafka, topics=topic, starting_offsets={topic: {0: 11}}))


def test_new_topics_of_a_pattern_and_new_partitions_are_found_and_read_from_their_start(kafka: Broker, topic: str) -> None:
    some = source(kafka, topic_pattern=f"{topic}[.].*", starting_offsets="latest")
    assert files(some) == []
    kafka.create(f"{topic}.a")
    kafka.put(f"{topic}.a", numbers(0, 3))
    assert files(some) == [[f"{topic}.a/0/3-3"]]
    kafka.grow(f"{topic}.a", 2)
    kafka.create(f"{topic}.b")
    kafka.create(f"{topic}c")
    for name, partition in ((f"{topic}.a", 1), (f"{topic}.b", 0), (f"{topic}c", 0)):
        kafka.put(name, numbers(0, 1), partition)
    assert files(some, f"{topic}.a/0/3-3") == [[f"{topic}.a/1/0-1", f"{topic}.b/0/0-1"]]


def test_a_topic_that_is_not_there_is_an_error_with_the_nearest_name(kafka: Broker, topic: str) -> None:
    with pytest.raises(UsageError, match=f"has no topic '{topic}'"):
        files(source(kafka, topics=topic))
    assert topic not in kafka.admin.list_topics(timeout=10).topics, "asking makes no topic"


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(kafka: Broker, topic: str) -> None:
    """Its offsets alone do not reveal it: the new topic has more of them than were read from the old one."""
    kafka.create(topic)
    kafka.put(topic, numbers(0, 3))
    some = source(kafka, topics=topic)
    known = {(one.topic, one.partition): one for batch in offsets.find_new_offset_ranges(some, {}, NOW).batches for one in batch}
    kafka.drop(topic)
    with pytest.raises(LostOffsets, match="the broker has no such partition any more"):
        offsets.find_new_offset_ranges(some, known, NOW)
    kafka.create(topic)
    kafka.put(topic, numbers(100, 110))
    with pytest.raises(LostOffsets, match="the topic was made anew"):
        offsets.find_new_offset_ranges(some, known, NOW)


def test_a_broker_that_does_not_answer_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setattr("sluice.ingest.topics.broker.PATIENCE", 0.5)
    with pytest.raises(UnreachableBroker, match=r"Kafka at 127\.0\.0\.1:1 does not answer: .* Check servers=") as error:
        offsets.find_new_offset_ranges(KafkaSource(name="events", servers="127.0.0.1:1", topics="a"), {}, NOW)
    assert "\n" not in str(error.value)
    assert capfd.readouterr().err == "", "the client's own words stay away"


def test_an_option_that_the_client_does_not_know_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r'refuses its options: No such configuration property: "sasl\.mechnism"'):
        offsets.find_new_offset_ranges(
            KafkaSource(name="events", servers="127.0.0.1:1", topics="a", options={"sasl.mechnism": "PLAIN"}), {}, NOW
        )


# ------------------------------------------------------------------------------------------------ through to bronze


def states(lake: Lakehouse) -> list[tuple[Any, ...]]:
    return [(row["file"].partition("/")[2], row["state"], row["rows"]) for row in lake.outcomes()]


@pytest.mark.spark
def test_records_come_to_bronze_once_in_micro_batches_of_the_declared_size(
    kafka: Broker, topic: str, lake: Callable[..., Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create(topic, 2)
    kafka.put(topic, [{"key": b"k", "value": b"\xff\x00", "headers": [("h", None)], "timestamp": 1_600_000_000_000}])
    kafka.put(topic, [*numbers(1, 59), {"key": b"k", "value": None}])
    kafka.put(topic, numbers(0, 40), partition=1)
    gym = lake(source(kafka, topics=topic, max_offsets_per_trigger=50))
    report = gym.run()["events"]
    assert (report.batches, report.deliveries, report.rows_in, report.rows_out) == (2, 4, 100, 100)
    assert states(gym) == [
        ("0/0-30", "ingested", 30),
        ("1/0-20", "ingested", 20),
        ("0/30-60", "ingested", 30),
        ("1/20-40", "ingested", 20),
    ]
    wanted = [(0, n, n % 30) for n in range(60)] + [(1, n, n % 20) for n in range(40)]
    assert [tuple(row) for row in gym.rows("events", "partition", "offset", "_row")] == sorted(wanted, key=repr)
    (first,) = [row for row in gym.rows("events") if row[3:6] == (topic, 0, 0)]
    assert (first[0], first[1], [tuple(header) for header in first[2]]) == (b"k", b"\xff\x00", [("h", None)])
    assert (first[6].timestamp(), first[7]) == (1_600_000_000.0, 0)
    assert sum(row[0] is None for row in gym.rows("events", "value")) == 1, "the tombstone"

    assert gym.run()["events"].batches == 0
    monkeypatch.setattr("sluice.ingest.reading.records.MOST_BYTES_IN_PROCESS", -1)  # as many as these are else read by no worker
    kafka.put(topic, numbers(60, 63))
    assert gym.run()["events"].rows_out == 3
    assert states(gym)[4:] == [("0/60-63", "ingested", 3)]
    assert sorted(row[0] for row in gym.rows("events", "offset") if row)[-1] == 62


@pytest.mark.spark
@pytest.mark.crash
def test_killed_between_two_commits_no_record_comes_twice_and_none_is_missing(
    kafka: Broker, topic: str, lake: Callable[..., Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.crash.test_commit_points import Crash, crash_at

    kafka.create(topic)
    kafka.put(topic, numbers(0, 8))
    gym = lake(source(kafka, topics=topic, max_offsets_per_trigger=4))
    crashes = [
        (
            "sluice.ingest.delivery_tables",
            "append_delivery_ledger_rows",
        ),  # the first micro-batch is in the ledger, the others are not
        ("sluice.flows.bronze.intake", "commits.append_rows"),  # bronze has it, and no outcome says so
    ]
    for module, function in crashes:
        crashed = crash_at(monkeypatch, module, function, after=True)
        with pytest.raises(Crash):
            gym.run()
        assert crashed
        monkeypatch.undo()
    kafka.put(topic, numbers(8, 10))
    gym.run()
    assert sorted(gym.rows("events", "offset")) == [(n,) for n in range(10)]
    assert states(gym) == [
        ("0/0-4", "ingested", 4),
        ("0/4-8", "ingested", 4),
        ("0/8-10", "ingested", 2),
    ]


@pytest.mark.spark
def test_lost_offsets_fail_the_run_until_the_source_goes_on_and_then_are_in_the_ledger(
    kafka: Broker, topic: str, lake: Callable[..., Lakehouse], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sluice.ingest.deliveries import discovery

    kafka.create(topic)
    kafka.put(topic, numbers(0, 5))
    stays, goes_on = (lake(source(kafka, topics=topic, on_lost_offsets=on)) for on in ("fail", "take_earliest"))
    discover = discovery.discover_deliveries
    with monkeypatch.context() as patch:
        patch.setattr(
            discovery, "discover_deliveries", lambda *said, **more: (discover(*said, **more), kafka.forget(topic, 0, 2))[0]
        )
        with pytest.raises(LostOffsets, match=r"offsets 0 up to 2 are gone, the broker's earliest is 2 \(delivery 1\)"):
            stays.run()
    goes_on.run()
    assert states(stays) == [("0/0-5", "ingested", 3)]
    assert "offsets 0 up to 2 are gone" in str(stays.outcomes()[0]["reason"])

    kafka.put(topic, numbers(5, 12))
    kafka.forget(topic, 0, 8)
    with pytest.raises(LostOffsets, match=f"topic '{topic}', partition 0: the next offset is 5, the broker's earliest is 8"):
        stays.run()
    assert len(stays.outcomes()) == 1
    goes_on.run()
    assert states(stays)[1:] == [("0/5-8", "missed", 0), ("0/8-12", "ingested", 4)]
    assert (
        stays.outcomes()[1]["reason"] == f"topic '{topic}', partition 0: offsets 5 up to 8 are gone, the broker's earliest is 8"
    )
    assert sorted(stays.rows("events", "offset", "_row")) == [(2, 2), (3, 3), (4, 4), (8, 0), (9, 1), (10, 2), (11, 3)]
    before = stays.versions()
    stays.run()
    assert stays.versions() == before, "what was missed is settled"


@pytest.mark.thorough
@pytest.mark.spark
def test_records_near_the_end_of_their_retention_warn_in_the_run_and_in_the_status(
    kafka: Broker, topic: str, lake: Callable[..., Lakehouse]
) -> None:
    from sluice.runs.status import lag
    from sluice.runs.status.books import PipelineBooks

    hour = 3_600_000
    kafka.create(topic)
    now = int(time.time() * 1000)
    kafka.put(topic, [{"value": b"", "timestamp": now - int(0.83 * hour)}])
    gym = lake(source(kafka, topics=topic))
    assert gym.run()["events"].notes == []
    kafka.configure(topic, "retention.ms", str(hour))
    kafka.put(topic, [{"value": b"", "timestamp": now - int(0.83 * hour)}])
    warning = f"topic '{topic}', partition 0: offset 1 is not read yet and has lived 80% of the topic's retention (1 hour)"
    (flow,) = lag.measure_pipeline_lag(PipelineBooks(gym.settings, gym.graph))
    assert (flow.deliveries, flow.rows) == (1, 1)
    assert flow.stuck is None
    assert [warning in said for said in flow.warnings] == [True]
    assert [warning in said for said in gym.run()["events"].notes] == [True]
    assert lag.measure_pipeline_lag(PipelineBooks(gym.settings, gym.graph))[0].warnings == ()


@pytest.mark.thorough
@pytest.mark.spark
def test_plan_replay_and_refresh_of_a_topic(kafka: Broker, topic: str, lake: Callable[..., Lakehouse]) -> None:
    from sluice.runs.planning import plan

    kafka.create(topic)
    kafka.put(topic, numbers(0, 6))
    gym = lake(source(kafka, topics=topic, max_offsets_per_trigger=4, may_refresh=True))
    (step,) = plan.plan_run(gym.lake).steps
    assert (step.does, step.deliveries, step.rows) == ("ingest", 2, 6)
    assert [file["file"] for file in step.files] == [f"{topic}/0/0-4", f"{topic}/0/4-6"]
    gym.run()
    before = gym.rows("events", "_delivery", "_row", "offset", "value")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    gym.replay(today, today)
    assert gym.rows("events", "_delivery", "_row", "offset", "value") == before
    kafka.forget(topic, 0, 3)  # half of the first range
    (step,) = plan.plan_run(gym.lake, mode="refresh", tables=["events"]).steps
    assert (step.does, step.deliveries) == ("read again", 1)
    report = gym.run(mode="refresh", tables=["events"])["events"]
    assert "1 delivery read again, 1 kept whose files are gone or changed" in report.notes
    assert gym.rows("events", "_delivery", "_row", "offset", "value") == before
