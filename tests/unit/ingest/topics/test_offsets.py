"""Which ranges of offsets are delivered, by what the broker and the ledger say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.declare import KafkaSource
from sluice.declare.interval import Interval
from sluice.errors import DeclarationError, UsageError
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import discovery
from sluice.ingest.deliveries.discovery import DiscoveryOptions
from sluice.ingest.topics import offsets
from sluice.ingest.topics.broker import KeptOffsets, read_client_properties
from sluice.ingest.topics.offset_ranges import (
    BrokerOffsets,
    LostOffsets,
    OffsetRange,
    compute_new_offset_ranges,
    find_last_offset_ranges,
    parse_offset_range,
    split_offset_ranges,
)
from sluice.record_states import DELIVERED, EXISTING, VANISHED

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)
A0, A1 = ("a", 0), ("a", 1)


def source(**options: Any) -> KafkaSource:
    return KafkaSource(**{"name": "events", "servers": "127.0.0.1:9092", "topics": ("a", "b"), **options})


def standing(
    ends: dict[tuple[str, int], int], earliest: dict[tuple[str, int], int] | None = None, ids: str = "one"
) -> BrokerOffsets:
    first = dict.fromkeys(ends, 0) | (earliest or {})
    return BrokerOffsets({topic: ids for topic, _ in ends}, first, ends, first)


def known(*files: str, topic_id: str = "one", event: str = "delivered") -> dict[tuple[str, int], OffsetRange]:
    return find_last_offset_ranges((file, event, topic_id) for file in files)


def files(found: Any) -> list[list[str]]:
    return [[one.file for one in batch] for batch in found.batches]


def test_a_range_is_named_by_topic_partition_and_offsets() -> None:
    assert OffsetRange("a.b-c_d", 3, 5, 9).file == "a.b-c_d/3/5-9"
    assert parse_offset_range("a.b-c_d/3/5-9") == OffsetRange("a.b-c_d", 3, 5, 9)
    with pytest.raises(ValueError, match="not a range"):
        parse_offset_range("a/1/5-9.json")


def test_the_next_range_begins_where_the_last_one_ended() -> None:
    found = compute_new_offset_ranges(source(), standing({A0: 12, A1: 7}), known("a/0/0-5", "a/0/5-10", "a/1/0-7"), NOW)
    assert files(found) == [["a/0/10-12"]]
    assert found.batches[0][0].row == {
        "file": "a/0/10-12",
        "event": "delivered",
        "size": None,
        "modified_at": NOW,
        "sha256": "one",
    }


def test_a_partition_that_is_seen_first_is_in_the_ledger_even_when_it_is_empty() -> None:
    """Otherwise a run that starts at "latest" would forget where it began, and skip what came before the next one."""
    started = BrokerOffsets({"a": "one"}, {A0: 0, A1: 0}, {A0: 50, A1: 0}, {A0: 50, A1: 0})
    assert files(compute_new_offset_ranges(source(), started, {}, NOW)) == [["a/0/50-50", "a/1/0-0"]]
    assert files(compute_new_offset_ranges(source(), standing({A0: 60, A1: 0}), known("a/0/50-50", "a/1/0-0"), NOW)) == [
        ["a/0/50-60"]
    ]


@pytest.mark.parametrize("starting_offsets", ["latest", "earliest"])
def test_a_topic_that_appears_after_a_first_run_without_any_is_read_from_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starting_offsets: str
) -> None:
    kept: dict[tuple[str, int], KeptOffsets] = {}

    class SomeBroker:
        def __init__(self, source: KafkaSource) -> None:
            pass

        def kept(self) -> dict[tuple[str, int], KeptOffsets]:
            return kept

    monkeypatch.setattr(offsets, "Broker", SomeBroker)
    deliveries = str(tmp_path / "deliveries")
    some = source(topics=(), topic_pattern="gym.*", starting_offsets=starting_offsets)

    def discover(within: Interval | None = None) -> list[tuple[str, str]]:
        first = (
            discovery
            .discover_deliveries([some], tmp_path, deliveries, "r", DiscoveryOptions(within))
            .raise_first_refusal()
            .recorded
        )
        rows = delivery_tables.sort_deliveries_by_number(delivery_tables.read_delivery_ledger_rows(deliveries))
        return [(row["event"], row["file"]) for row in rows[len(rows) - first :]]

    assert discover(Interval.of("2020-01-01", "2999-01-01")) == [], "a look within an interval is no first discovery"
    assert discover() == [(EXISTING, "")]
    assert discover() == []
    assert offsets.find_retention_warnings(some, deliveries, str(tmp_path / "outcomes")) == []
    kept["gym.a", 0] = KeptOffsets(0, 1000, "id")
    assert discover() == [(DELIVERED, "gym.a/0/0-1000")]
    kept["gym.b", 0] = KeptOffsets(0, 7, "id")
    assert discover() == [(DELIVERED, "gym.b/0/0-7")]


def test_nothing_new_is_no_range() -> None:
    assert files(compute_new_offset_ranges(source(), standing({A0: 5}), known("a/0/0-5"), NOW)) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (standing({A0: 20}, {A0: 8}), r"topic 'a', partition 0: the next offset is 5, the broker's earliest is 8"),
        (
            standing({A0: 3}),
            r"topic 'a', partition 0: the next offset is 5, but the topic was made anew, or cut off, and ends at 3",
        ),
        (standing({A0: 20}, ids="two"), r"the next offset is 5, but the topic was made anew"),
        (standing({("b", 0): 0}), r"topic 'a', partition 0: the next offset is 5, and the broker has no such partition any more"),
    ],
    ids=["deleted", "shorter", "another of that name", "gone"],
)
def test_lost_offsets_fail_the_run_and_say_what_to_do(now: BrokerOffsets, said: str) -> None:
    with pytest.raises(LostOffsets, match=said) as error:
        compute_new_offset_ranges(source(), now, known("a/0/0-5"), NOW)
    assert "on_lost_offsets='take_earliest'" in str(error.value)
    assert "retention.ms" in str(error.value)


def test_a_gap_is_a_delivery_of_its_own_where_the_source_goes_on() -> None:
    found = compute_new_offset_ranges(source(on_lost_offsets="take_earliest"), standing({A0: 20}, {A0: 8}), known("a/0/0-5"), NOW)
    assert files(found) == [["a/0/5-8", "a/0/8-20"]]


def test_a_topic_that_was_made_anew_is_read_from_its_start_and_the_loss_is_told_once() -> None:
    goes_on = source(on_lost_offsets="take_earliest")
    found = compute_new_offset_ranges(goes_on, standing({A0: 20}, ids="two"), known("a/0/0-5"), NOW)
    assert [(one.file, one.event, one.topic_id) for one in found.batches[0]] == [
        ("a/0/5-5", VANISHED, "one"),
        ("a/0/0-20", "delivered", "two"),
    ]
    after = find_last_offset_ranges((one.file, one.event, one.topic_id) for one in found.batches[0])
    assert files(compute_new_offset_ranges(source(), standing({A0: 20}, ids="two"), after, NOW)) == []


def test_a_topic_that_is_gone_is_told_once() -> None:
    found = compute_new_offset_ranges(
        source(on_lost_offsets="take_earliest"), standing({("b", 0): 0}), known("a/0/0-5", "b/0/0-0"), NOW
    )
    assert [(one.file, one.event) for one in found.batches[0]] == [("a/0/5-5", VANISHED)]
    assert (
        compute_new_offset_ranges(
            source(), standing({("b", 0): 0}), known("b/0/0-0") | known("a/0/5-5", event=VANISHED), NOW
        ).batches
        == []
    )


def test_a_topic_that_was_only_out_of_sight_is_read_on_where_it_was() -> None:
    """A broker that has just started may not know all topics yet."""
    assert files(
        compute_new_offset_ranges(source(), standing({A0: 8}), known("a/0/0-5") | known("a/0/5-5", event=VANISHED), NOW)
    ) == [["a/0/5-8"]]


def test_a_topic_that_the_source_reads_no_more_is_not_missed() -> None:
    assert compute_new_offset_ranges(source(topics="b"), standing({("b", 0): 0}), known("a/0/0-5", "b/0/0-0"), NOW).batches == []


def test_a_micro_batch_takes_its_limit_exactly_and_of_each_partition_its_share() -> None:
    found = split_offset_ranges([OffsetRange("a", 0, 0, 60), OffsetRange("a", 1, 10, 40), OffsetRange("b", 0, 5, 15)], 50)
    assert [[one.file for one in batch] for batch in found] == [
        ["a/0/0-30", "a/1/10-25", "b/0/5-10"],
        ["a/0/30-60", "a/1/25-40", "b/0/10-15"],
    ]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=8), st.integers(1, 100))
def test_cutting_leaves_nothing_out_and_takes_nothing_twice(sizes: list[tuple[int, int]], most: int) -> None:
    ranges = [OffsetRange("a", number, start, start + size) for number, (start, size) in enumerate(sizes)]
    found = split_offset_ranges(ranges, most)
    assert all(sum(one.offsets for one in batch) == most for batch in found[:-1])
    assert all(0 < sum(one.offsets for one in batch) <= most for batch in found)
    taken = [(one.partition, offset) for batch in found for one in batch for offset in range(one.start, one.until)]
    assert sorted(taken) == [(one.partition, offset) for one in ranges for offset in range(one.start, one.until)]
    assert len({one.partition for batch in found for one in batch}) == sum(size > 0 for _, size in sizes)


def test_the_ledger_commits_the_ranges_of_a_micro_batch_together() -> None:
    few = source(max_offsets_per_trigger=50)
    found = compute_new_offset_ranges(few, standing({A0: 60, A1: 40, ("b", 0): 0}), {}, NOW)
    rows = [one.row for batch in found.batches for one in batch]
    grouped = discovery.group_into_micro_batches(few, rows)
    assert [[row["file"] for row in group] for group in grouped] == files(found)
    assert files(found) == [["b/0/0-0", "a/0/0-30", "a/1/0-20"], ["a/0/30-60", "a/1/20-40"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topics": ()}, "topics= or topic_pattern="),
        ({"topic_pattern": "a.*"}, "one of the two"),
        ({"topics": (), "topic_pattern": "["}, "no regular expression"),
        ({"topics": "a b"}, "no topic's name"),
        ({"servers": "localhost"}, "host:port"),
        ({"format": "csv"}, "format is an option of files"),
        ({"clean_source": "delete"}, "clean_source is an option of files"),
        ({"starting_offsets": "erliest"}, "'earliest', 'latest', an instant"),
        ({"starting_offsets": {"c": {0: 1}}}, "names the topic 'c'"),
        ({"starting_offsets": {"a": {0: -1}}}, "whole numbers"),
        ({"max_offsets_per_trigger": 0}, "at least 1"),
        ({"on_lost_offsets": "take_latest"}, "Did you mean 'take_earliest'"),
        ({"options": {"isolation.level": "read_uncommitted"}}, "only what is committed"),
        ({"options": {"enable.auto.offset.store": "true"}}, "records how far it has read"),
        ({"options": {"sasl.password": "x"}}, "SLUICE_SECRETS"),
        ({"options": {"ssl.key.pem": "x"}}, "is a secret"),
        ({"options_file": "../kafka"}, "without a folder"),
    ],
)
def test_what_is_wrong_with_a_declaration_is_said_before_any_data(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        source(**options)


def test_a_copy_under_another_name_is_the_source_of_that_name() -> None:
    assert repr(replace(source(), name="another")) == repr(source(name="another"))


def test_a_pattern_matches_whole_names_and_nothing_that_kafka_keeps_for_itself() -> None:
    found = source(topics=(), topic_pattern=r"gym\..*|__consumer_offsets")
    subscribed = [topic for topic in ("gym.bpm", "a.gym.bpm", "gym", "__consumer_offsets") if found.subscribes(topic)]
    assert subscribed == ["gym.bpm"]


def test_passwords_come_from_a_file_of_the_secrets_that_nobody_else_can_read(tmp_path: Path) -> None:
    declared = source(options={"security.protocol": "SASL_SSL"}, options_file="kafka.properties")
    with pytest.raises(UsageError, match="is not there"):
        read_client_properties(declared, tmp_path)
    file = tmp_path / "kafka.properties"
    file.write_text("# of the reader\nsasl.username = sluice\n\nsasl.password=a=b\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read_client_properties(declared, tmp_path)
    file.chmod(0o600)
    assert read_client_properties(declared, tmp_path) == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.username": "sluice",
        "sasl.password": "a=b",
    }
    file.write_text("sasl.username=sluice\nhunter2\n")
    with pytest.raises(UsageError, match="line 2: a property is written name=value") as error:
        read_client_properties(declared, tmp_path)
    assert "hunter2" not in str(error.value)
    file.write_text("bootstrap.servers=elsewhere:9092\n")
    with pytest.raises(UsageError, match=r"line 1: 'bootstrap\.servers' is not for this file: servers= says it"):
        read_client_properties(declared, tmp_path)
