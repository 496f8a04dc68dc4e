"""Sources on a store that a run does not list in full: what it finds, what only a full listing finds, and what events announce."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest

from sluice.declare import Source
from sluice.declare.interval import Interval
from sluice.errors import DeclarationError, UsageError
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import discovery, event_queue, folder_part, object_events
from sluice.ingest.deliveries.arrivals import Look, find_source_changes
from sluice.ingest.deliveries.discovery import DiscoveryOptions
from sluice.ingest.deliveries.folder_part import may_have_news
from sluice.ingest.deliveries.known_files import read_known_files
from sluice.ingest.deliveries.object_events import read_object_names
from sluice.locations import Location, locate
from sluice.own_records import FULL_LISTINGS
from sluice.record_states import DELIVERED, MISSED, UNOPENED, VANISHED
from sluice.record_tables import create_record_table
from sluice.stores.store_location import StoreLocation

GROWING = Source(name="a", names_grow=True, full_listing_every="6 hours")
TOLD = Source(name="a", events="sqs://visits", full_listing_every="6 hours")


@dataclass
class Folder:
    """A pipeline's landing folder on a store, and its ledger on a disk. listed: from which name on each listing began."""

    landing: Location
    root: Path
    listed: list[str] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=dict)

    @property
    def deliveries(self) -> str:
        return str(self.root / "deliveries")

    def put(self, *files: str, content: bytes = b"{}\n") -> None:
        client = boto3.client("s3", region_name="us-east-1")
        location = self.landing
        assert isinstance(location, StoreLocation)
        for file in files:  # not by the engine, which cannot write "a//b"
            client.put_object(Bucket=location.parts[1], Key=f"{location.object_key}/a/{file}", Body=content)

    def remove(self, file: str) -> None:
        (self.landing / "a" / file).unlink()

    def discover(self, source: Source, **how: Any) -> list[tuple[str, str]]:
        """What a discovery records, and from which name on it lists."""
        before = {row["delivery"] for row in self.rows()}
        self.listed.clear()
        found = discovery.discover_deliveries([source], self.landing, self.deliveries, "run", DiscoveryOptions(**how))
        found.raise_first_refusal()
        self.warnings = {name: [*told] for name, told in found.warnings.items()}
        return sorted((row["event"], row["file"]) for row in self.rows() if row["delivery"] not in before)

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = delivery_tables.read_delivery_ledger_rows(self.deliveries)
        return found

    def age_listing(self, **ago: float) -> None:
        """The last full listing was so long ago."""
        path = self.root / FULL_LISTINGS.name / "a.json"
        said = json.loads(path.read_text())
        path.write_text(json.dumps({**said, "began": (datetime.now(UTC) - timedelta(**ago)).isoformat()}))


@pytest.fixture
def folder(bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    found = Folder(locate(f"{bucket_url}/landing/shop"), tmp_path)
    real = StoreLocation.list_named_objects

    def list_named_objects(location: StoreLocation, after: str = "") -> Iterator[Any]:
        found.listed.append(after)
        return real(location, after)

    monkeypatch.setattr(StoreLocation, "list_named_objects", list_named_objects)
    return found


def test_only_names_after_the_greatest_known_one_are_listed_until_a_full_listing_is_due(folder: Folder) -> None:
    folder.put("2026-01-01/a.json", "2026-01-02/a.json")
    assert len(folder.discover(GROWING)) == 2 and folder.listed == [""]
    folder.put("2026-01-03/é.json")
    assert folder.discover(GROWING) == [(DELIVERED, "2026-01-03/é.json")] and folder.listed == ["2026-01-02/a.json"]
    folder.put("2026-01-02/b.json", "2026-01-01/a.json", content=b"another\n")
    folder.put("2026-01-03/ü.json")
    folder.remove("2026-01-02/a.json")
    assert folder.discover(GROWING) == [(DELIVERED, "2026-01-03/ü.json")] and folder.listed == ["2026-01-03/é.json"]
    assert folder.discover(GROWING) == [] and folder.warnings == {}
    folder.age_listing(hours=7)
    found = [(DELIVERED, "2026-01-01/a.json"), (DELIVERED, "2026-01-02/b.json"), (VANISHED, "2026-01-02/a.json")]
    assert folder.discover(GROWING) == sorted(found) and folder.listed == [""]
    assert folder.warnings["a"][0].startswith("2 objects of source 'a' that a full listing found are overwritten, or their names")
    assert folder.discover(GROWING) == [] and folder.listed == ["2026-01-03/ü.json"]


@pytest.mark.parametrize("how", [{"in_full": True}, {"within": Interval.of("2020-01-01", "2100-01-01")}])
def test_a_refresh_and_a_replay_list_in_full(folder: Folder, how: dict[str, Any]) -> None:
    folder.put("b.json")
    folder.discover(GROWING)
    folder.put("a.json")
    assert folder.discover(GROWING) == []
    assert folder.discover(GROWING, **how) == [(DELIVERED, "a.json")] and folder.listed == [""]


@pytest.mark.parametrize(
    "other",
    [
        Source(name="a", names_grow=True, pattern="*.json", full_listing_every="6 hours"),
        Source(name="a", names_grow=True, full_listing_every="1 hour"),
        Source(name="a"),
    ],
)
def test_who_asks_for_other_names_or_more_often_lists_in_full(folder: Folder, other: Source) -> None:
    folder.put("b.json")
    folder.discover(GROWING)
    folder.age_listing(hours=2)
    folder.put("a.json")
    assert folder.discover(other) == [(DELIVERED, "a.json")] and folder.listed == [""]


@pytest.mark.parametrize("damage", ["gone", "{", '{"began": "x", "asked": 1}', "[]", "in the future"])
def test_without_a_note_that_can_be_read_a_listing_is_full(folder: Folder, damage: str) -> None:
    folder.put("b.json")
    folder.discover(GROWING)
    folder.put("a.json")
    note = folder.root / FULL_LISTINGS.name / "a.json"
    if damage == "gone":
        note.unlink()
    elif damage == "in the future":
        folder.age_listing(hours=-3)
    else:
        note.write_text(damage)
    assert folder.discover(GROWING) == [(DELIVERED, "a.json")] and folder.listed == [""]


def test_what_a_killed_discovery_had_listed_is_listed_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("b.json")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(delivery_tables, "append_numbered_deliveries", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
        folder.discover(GROWING)
    assert not (folder.root / FULL_LISTINGS.name).exists(), "a listing is noted once all that it found is recorded"
    assert folder.discover(GROWING) == [(DELIVERED, "b.json")] and folder.listed == [""]


def test_what_was_missed_is_tried_again_without_a_full_listing(folder: Folder) -> None:
    folder.put("1.json", "2.json", "a//b", "z.json")
    assert (UNOPENED, "a//b") in folder.discover(GROWING)
    create_record_table(str(folder.root / "outcomes"), delivery_tables.OUTCOMES)
    numbers = {row["file"]: row["delivery"] for row in folder.rows()}
    missed = [
        {"delivery": numbers[file], "source": "a", "file": file, "state": MISSED, "recorded_at": datetime.now(UTC)}
        for file in ("1.json", "2.json")
    ]
    delivery_tables.append_delivery_ledger_rows(str(folder.root / "outcomes"), missed, delivery_tables.OUTCOMES, "run")
    folder.put("1.json", content=b"[]\n")
    folder.remove("2.json")
    assert folder.discover(GROWING) == [(DELIVERED, "1.json"), (VANISHED, "2.json")] and folder.listed == ["z.json"]
    assert read_known_files(folder.deliveries).unread_files("a") == ["a//b"]


def test_a_folder_that_has_lost_all_is_not_called_quiet(folder: Folder) -> None:
    folder.put("1.json", "2.json")
    folder.discover(GROWING)
    for file in ("1.json", "2.json"):
        folder.remove(file)
    folder.put("../other/x.json")
    with pytest.raises(UsageError, match="_MAY_BE_EMPTY"):
        folder.discover(GROWING)


def test_a_plan_says_what_it_leaves_out(folder: Folder) -> None:
    folder.put("1.json")
    folder.discover(GROWING)
    found = find_source_changes(GROWING, folder.landing, read_known_files(folder.deliveries), Look())
    assert found.left_out.startswith(f"of {folder.landing / 'a'} only names after those that are known are listed before 20")
    assert not found.is_new


def test_a_process_that_is_kept_running_takes_a_source_that_is_due(folder: Folder) -> None:
    def asked(source: Source) -> bool | None:
        return may_have_news(source, folder.landing, read_known_files(folder.deliveries))

    folder.put("1.json")
    assert (asked(GROWING), asked(Source(name="a"))) == (True, None)
    folder.discover(GROWING)
    assert asked(GROWING) is None, "a look at later names tells"
    folder.age_listing(hours=7)
    assert asked(GROWING) is True


def test_a_pipeline_is_quiet_at_most_until_a_full_listing_is_due_and_never_where_a_queue_is_asked(folder: Folder) -> None:
    def ends(source: Source, landing: Location = folder.landing) -> list[datetime]:
        return folder_part.find_ends_of_partial_listings(folder.deliveries, [source], landing, began)

    began = datetime.now(UTC)
    folder.put("1.json")
    assert ends(GROWING) == [began] and ends(Source(name="a")) == [] and ends(GROWING, folder.root) == []
    folder.discover(GROWING)
    (due,) = ends(GROWING)
    assert timedelta(hours=6) <= due - began < timedelta(hours=6, minutes=1)
    assert ends(TOLD) == [began]


def test_a_disk_is_always_listed_in_full(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "landing" / "shop", tmp_path / "lake")
    (folder.landing / "a").mkdir(parents=True)
    for name in ("b.json", "a.json"):
        (folder.landing / "a" / name).write_text("{}\n")
        assert folder.discover(GROWING) == [(DELIVERED, name)]
    assert not (folder.root / FULL_LISTINGS.name).exists()


# ------------------------------------------------------------------------------------------------------------------ events


@dataclass
class Queue:
    """The queue `visits`, which the bucket sends its events to."""

    client: Any
    url: str

    @property
    def waiting(self) -> int:
        """How many messages are there, shown or hidden."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        said = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(map(int, said.values()))

    def send(self, *messages: str) -> None:
        for message in messages:
            self.client.send_message(QueueUrl=self.url, MessageBody=message)


@pytest.fixture
def queue(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    monkeypatch.setattr(event_queue, "_WAIT", 0)  # there is one server, which knows all
    client = boto3.client("sqs", region_name="us-east-1")
    found = Queue(client, client.create_queue(QueueName="visits")["QueueUrl"])
    arn = client.get_queue_attributes(QueueUrl=found.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    told = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"]}]}
    boto3.client("s3").put_bucket_notification_configuration(Bucket=folder.landing.parts[1], NotificationConfiguration=told)
    yield found
    client.delete_queue(QueueUrl=found.url)


def event_of(folder: Folder, key: str, bucket: str = "") -> str:
    about = {"bucket": {"name": bucket or folder.landing.parts[1]}, "object": {"key": key}}
    return json.dumps({"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": about}]})


def test_events_of_the_store_say_what_to_look_at_and_nothing_is_listed(folder: Folder, queue: Queue) -> None:
    folder.put("1.json")
    assert folder.discover(TOLD) == [(DELIVERED, "1.json")] and folder.listed == [""]
    folder.put("0 [x] ü+é.json", "1.json", "_hidden.json", "a//b", content=b"another\n")
    folder.put("2.json")
    folder.remove("2.json")
    assert queue.waiting > 5
    found = folder.discover(TOLD)
    assert found == [(DELIVERED, "0 [x] ü+é.json"), (DELIVERED, "1.json"), (UNOPENED, "a//b")]
    assert folder.listed == [] and queue.waiting == 0, "acknowledged, the events of what is gone or not read, too"
    folder.remove("1.json")
    assert folder.discover(TOLD) == [(VANISHED, "1.json")] and folder.listed == []
    assert folder.discover(TOLD) == [] and folder.warnings == {}


def test_an_event_that_never_comes_is_made_good_by_a_full_listing(folder: Folder, queue: Queue) -> None:
    folder.put("1.json")
    folder.discover(TOLD)
    folder.put("2.json")
    queue.client.purge_queue(QueueUrl=queue.url)
    assert folder.discover(TOLD) == []
    folder.age_listing(hours=7)
    assert folder.discover(TOLD) == [(DELIVERED, "2.json")] and folder.listed == [""]


def test_events_that_come_twice_late_or_out_of_order_make_one_delivery(folder: Folder, queue: Queue) -> None:
    folder.put("1.json", "2.json")
    folder.discover(TOLD)
    folder.put("3.json")
    queue.send(*[event_of(folder, f"landing/shop/a/{name}.json") for name in (3, 2, 1, 3, 9)])
    assert folder.discover(TOLD) == [(DELIVERED, "3.json")]
    queue.send(event_of(folder, "landing/shop/a/3.json"))
    assert folder.discover(TOLD) == [] and queue.waiting == 0


def test_events_stay_until_what_they_name_is_in_the_ledger(folder: Folder, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.put("1.json")
    folder.discover(TOLD)
    folder.discover(TOLD)
    folder.put("2.json")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full disk"):
        patch.setattr(delivery_tables, "append_numbered_deliveries", lambda *_: (_ for _ in ()).throw(OSError("full disk")))
        folder.discover(TOLD)
    assert queue.waiting == 1
    assert folder.discover(TOLD) == [(DELIVERED, "2.json")] and queue.waiting == 0
    folder.put("3.json")
    with monkeypatch.context() as patch:
        patch.setattr(event_queue.QueuedEvents, "acknowledge", lambda _: (_ for _ in ()).throw(object_events.NoEvents("gone")))
        assert folder.discover(TOLD) == [(DELIVERED, "3.json")]
    assert folder.warnings == {"a": ["gone: events of source 'a' will come again"]} and queue.waiting == 1


def test_events_of_others_and_damaged_ones_are_counted_and_left(folder: Folder, queue: Queue) -> None:
    folder.put("1.json")
    folder.discover(TOLD)
    folder.discover(TOLD)
    strange = ("{", "[]", '"x"', '{"Records": [{"eventSource": "aws:ses"}]}', "[" * 5000, '{"Records": [1]}')
    queue.send(*strange, event_of(folder, "landing/shop/b/1.json"), event_of(folder, "landing/shop/a/1.json", "another-bucket"))
    folder.put("2.json")
    assert folder.discover(TOLD) == [(DELIVERED, "2.json")]
    assert folder.warnings["a"] == [
        "8 messages of sqs://visits about something else, or that cannot be read: nothing was taken of that"
    ]
    assert queue.waiting == 8
    other = Source(name="b", path="b", events="sqs://visits")
    (folder.landing / "b" / "1.json").write_bytes(b"{}\n")
    discovery.discover_deliveries([other], folder.landing, folder.deliveries, "run").raise_first_refusal()
    assert may_have_news(TOLD, folder.landing, read_known_files(folder.deliveries)) is True, "its own event and that of b"
    folder.discover(TOLD)
    assert may_have_news(TOLD, folder.landing, read_known_files(folder.deliveries)) is False, "those of others are no news"


def test_a_queue_that_does_not_answer_and_one_with_too_much_are_replaced_by_a_full_listing(
    folder: Folder, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.put("1.json")
    folder.discover(TOLD)
    folder.discover(TOLD)
    folder.put("2.json")
    lost = Source(name="a", events="sqs://nowhere", full_listing_every="6 hours")
    assert folder.discover(lost) == [(DELIVERED, "2.json")] and folder.listed == [""]
    (told,) = folder.warnings["a"]
    assert told.startswith("sqs://nowhere answers ") and told.endswith(f": all of {folder.landing / 'a'} was listed instead")
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:9")
        folder.put("3.json")
        assert folder.discover(TOLD) == [(DELIVERED, "3.json")]
        assert "sqs://visits gives no answer (EndpointConnectionError)" in folder.warnings["a"][0]
    monkeypatch.setattr(event_queue, "MOST_EVENTS", 2)
    monkeypatch.setattr(event_queue, "_TOGETHER", 1)
    folder.put("4.json", "5.json", "6.json")
    before = queue.waiting
    assert len(folder.discover(TOLD)) == 3 and folder.listed == [""] and 0 < queue.waiting < before


def test_a_plan_takes_no_events_and_looks_at_all(folder: Folder, queue: Queue) -> None:
    folder.put("1.json")
    folder.discover(TOLD)
    folder.put("2.json")
    before = queue.waiting
    known = read_known_files(folder.deliveries)
    found = find_source_changes(TOLD, folder.landing, known, Look())
    assert [file.file for file in found.came] == ["2.json"] and queue.waiting == before and found.left_out == ""


def test_events_in_files_of_a_folder_are_removed_and_strange_ones_moved_aside(folder: Folder) -> None:
    source = Source(name="a", events="folder://told", full_listing_every="6 hours")
    folder.put("1.json")
    assert folder.discover(source) == [(DELIVERED, "1.json")]
    told = folder.landing / "told"
    assert folder.discover(source) == []
    folder.put("2.json", "3.json", "4.json")
    (told / "x.json").write_text(event_of(folder, "landing/shop/a/2.json") + "\n" + event_of(folder, "landing/shop/a/3.json"))
    (told / "y.json").write_text("{")
    folder.listed.clear()
    assert folder.discover(source) == [(DELIVERED, "2.json"), (DELIVERED, "3.json")] and folder.listed == []
    assert [str(one.relative_to(told)) for one in told.rglob("*")] == ["_strange/y.json"]
    assert folder.discover(source) == []


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}, []),
        ({"source": "aws.s3", "detail-type": "Object Created", "detail": {"bucket": {"name": "b"}, "object": {"key": "f/x+y"}}}, ["x+y"]),
        ({"Type": "Notification", "Message": json.dumps({"Records": []})}, []),
        ({"Records": [{"eventSource": "aws:s3", "s3": {"bucket": {"name": "b"}, "object": {"key": "f/x%2By+z"}}}]}, ["x+y z"]),
        ({"Records": [{"eventSource": "aws:s3", "s3": {"bucket": {"name": "b"}, "object": {"key": "fx"}}}]}, None),
        ({"Records": [{"eventSource": "minio:s3", "s3": {"bucket": {"name": "b"}, "object": {"key": "f/d%2Fx"}}}]}, ["d/x"]),
        ({}, None),
        (7, None),
    ],
)  # fmt: skip
def test_what_a_message_is_about(body: Any, names: list[str] | None) -> None:
    assert read_object_names(json.dumps(body), StoreLocation.from_url("s3://b/f")) == names


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"names_grow": True, "events": "sqs://q"}, "names_grow or events says how new objects are found, not both"),
        ({"full_listing_every": "1 day"}, "full_listing_every needs names_grow or events"),
        ({"names_grow": True, "full_listing_every": "daily"}, "full_listing_every is an interval such as '1 day', not 'daily'"),
        ({"names_grow": True, "ready_marker": "_SUCCESS"}, "names_grow would miss a file that waits for its marker"),
        ({"events": "sqs://q", "ready_marker": "{name}.done"}, "events would miss a file that waits for its marker"),
        ({"events": "sq://q"}, "Did you mean 'sqs'"),
        ({"events": "sqs://q/1"}, "events is written sqs://QUEUE or sqs://ACCOUNT/QUEUE, not 'sqs://q/1'"),
        ({"events": "folder://../x"}, "events is written folder://FOLDER, below <landing>/<pipeline>/, not"),
        ({"events": "folder://a/told"}, "events lie in 'a/told', and the source reads 'a': neither may be in the other"),
    ],
)
def test_what_does_not_go_together_is_said_before_any_data(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match="Source 'a': ") as told:
        Source(name="a", **options)
    assert said in str(told.value)


def test_how_objects_are_found_is_no_part_of_a_fingerprint() -> None:
    assert repr(GROWING) == repr(TOLD) == repr(Source(name="a"))
