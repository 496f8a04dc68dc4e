"""Histories of a lake, each followed by an erasure: nothing of the person is left, and everybody else's rows are as if nothing was erased."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from tests.conftest import Lakehouse, settings_at

from sluice.declare import (
    F,
    Link,
    Pipeline,
    Source,
    Watermark,
    auto_cdc,
    expect_or_quarantine,
    materialized_view,
    table,
    windowed,
)
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import erasure_ledger, physical, propagation, request_events, request_record, requests
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.proof import certificate
from sluice.erasure.steps import written_forms
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError
from sluice.flows.copies import restoration
from sluice.flows.gold import view
from sluice.flows.silver import fold
from sluice.lake.flow_report import FlowReport
from sluice.pipeline_records import PipelineRecords
from sluice.runs.copies import releasing
from sluice.runs.execution import layers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

HER, OTHER = "anna-schmidt-4711", "bert-meier-0815"
BADGE = "badge-00a7f3"

notes = Source(name="notes", schema="who STRING, number BIGINT, text STRING", subject="who", comment="Notes.", may_refresh=True)
badges = Source(
    name="badges",
    format="csv",
    pattern="*.csv",
    schema="badge STRING, who STRING, since TIMESTAMP",
    subject="who",
    personal="badge",
    comment="Whose badge it is from when on.",
)
swipes = Source(
    name="swipes",
    pattern="*.jsonl*",
    schema="badge STRING, at TIMESTAMP, door STRING",
    subject="badge",
    subject_at="at",
    comment="Doors.",
)


@table(reads="notes", keys=("who", "number"), subject="who", personal="text")
@expect_or_quarantine("said", "text <> ''")
def note(notes: DataFrame) -> DataFrame:
    """A note."""
    return notes.select("who", "number", "text")


profile = auto_cdc(
    "profile",
    reads="notes",
    keys="who",
    sequence_by="number",
    apply_as_deletes="text = 'left'",
    stored_as_scd_type=2,
    subject="who",
    personal="text",
)


@table(reads="badges", keys=("badge", "since"), subject="who", personal="badge", restricted=True)
def badge_of(badges: DataFrame) -> DataFrame:
    """Whose a badge is."""
    return badges.select("badge", "since", "who")


@table(reads="swipes", keys=("badge", "at"), subject="badge", subject_at="at")
@expect_or_quarantine("at_a_door", "door <> ''")
def swipe(swipes: DataFrame) -> DataFrame:
    """A door was opened."""
    return swipes.select("badge", "at", "door")


@materialized_view(reads="note", keys="who", subject="who")
def by_person(note: DataFrame) -> DataFrame:
    """Notes of each."""
    return note.groupBy("who").agg(F.count(F.lit(1)).alias("notes"))


@materialized_view(reads="swipe", keys="door")
def by_door(swipe: DataFrame) -> DataFrame:
    """How often a door was opened."""
    return swipe.groupBy("door").agg(F.count(F.lit(1)).alias("swipes"))


@windowed(reads="swipe", keys=("badge", "begin"), watermark=Watermark("at", "10 minutes"), subject="badge")
def hourly(swipe: DataFrame) -> DataFrame:
    """Doors an hour."""
    counted = swipe.groupBy("badge", F.window("at", "1 hour").alias("hour")).agg(F.count(F.lit(1)).alias("swipes"))
    return counted.select("badge", F.col("hour.start").alias("begin"), "swipes")


LINK = Link(table="badge_of", person=("who", "who"), identifier=("badge", "badge"), since="since")
ITEMS = (notes, badges, swipes, note, profile, badge_of, swipe, by_person, by_door, hourly)


SMALL = (notes, note, by_person)


def lake_at(settings: Settings, spark: SparkSession, items: Sequence[Any] = ITEMS, retain: str = "0 seconds") -> Lakehouse:
    """With no retention by default, so that the bytes can go at once."""
    layers = ("pipelines.house.bronze", __name__)
    pipeline = Pipeline(name="house", description="h", owner="t", layers=layers, retain=retain)
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, items, links=[LINK] if badge_of in items else []))


@pytest.fixture
def small(settings: Settings, spark: SparkSession) -> Lakehouse:
    """Notes alone, with a view of them."""
    return lake_at(settings, spark, SMALL)


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def said(who: str, number: int, text: str = "hello") -> dict[str, Any]:
    return {"who": who, "number": number, "text": text}


def first_day(lake: Lakehouse, her: bool = True) -> None:
    """her: whether she is in it; the others are in any case."""
    mine = [said(HER, 1), said(HER, 2, ""), {**said(HER, 3), "number": "three"}] if her else []
    lake.land("notes/1.jsonl", lines(*mine, said(OTHER, 1), said(OTHER, 2, "")))
    if badges.name not in lake.graph.sources:
        return
    owned = [f"{BADGE},{HER},2026-01-01 00:00:00\n"] if her else []
    ragged = [f"{BADGE},{HER}\n"] if her else []
    lake.land("badges/1.csv", "".join(["badge,who,since\n", *owned, *ragged, f"{BADGE},{OTHER},2026-02-01 00:00:00\n"]))
    opened = [swiped("2026-01-02 08:00:00", "a"), swiped("2026-01-03 08:00:00", "")] if her else []
    others = [swiped("2026-02-02 08:00:00", "a"), swiped("2026-02-03 09:00:00", "")]
    lake.land("swipes/1.jsonl.gz", gzip.compress(lines(*opened, *others).encode()))


def second_day(lake: Lakehouse, her: bool = True) -> None:
    """Changes, deletions, what comes late for the stream, and a file that nobody can read."""
    mine = [said(HER, 2, "again"), said(HER, 4, "left")] if her else []
    lake.land("notes/2.jsonl", lines(*mine, said(OTHER, 1, "changed"), said(OTHER, 3)))
    if badges.name not in lake.graph.sources:
        return
    late = [swiped("2026-01-02 09:00:00", "b")] if her else []
    lake.land("swipes/2.jsonl", lines(*late, swiped("2026-02-02 09:00:00", "b"), swiped("2026-02-05 09:00:00", "b")))
    if her:
        lake.land("swipes/3.jsonl.gz", gzip.compress(f"{HER} was here".encode())[:-4])


def swiped(at: str, door: str) -> dict[str, Any]:
    return {"badge": BADGE, "at": at, "door": door}


def ask(lake: Lakehouse) -> str:
    return requests.receive_erasure_request(lake.lake, [Identifier("who", HER)]).request


def finish(lake: Lakehouse, after: timedelta = timedelta(minutes=1)) -> None:
    physical.finish_physical_erasure(lake.workspace(), datetime.now(UTC) + after)


def erase(lake: Lakehouse) -> None:
    """The stage, then the bytes."""
    propagation.propagate_deletions(lake.workspace(), lambda: layers.run_layers_above_bronze(lake.workspace()))
    finish(lake)


HER_DAYS = ("2026-01-02", "2026-01-03", "datetime.datetime(2026, 1, 2", "datetime.datetime(2026, 1, 3")
"""Of the badge, which is another's later, only what is of her time is hers. Logs have the least and the greatest time of what was there."""


def residue(lake: Lakehouse) -> list[str]:
    """The files that hold something of her, each decoded; the request itself speaks of her by pseudonyms."""
    roots = [Path(lake.settings.lake), lake.settings.landing, lake.settings.restricted]
    files = [path for root in roots for path in root.rglob("*") if path.is_file()]
    return sorted(str(path) for path in files if any(mark.encode() in _decoded(path) for mark in _marks(path)))


def _marks(path: Path) -> tuple[str, ...]:
    return (HER, BADGE) if "_delta_log" in path.parts else (HER, *HER_DAYS)


def _decoded(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".parquet":
        return repr(pq.read_table(path).to_pylist()).encode()
    return bytes(written_forms.decompress_readable_part(content)) if path.suffix == ".gz" else content


def content(lake: Lakehouse) -> dict[str, list[tuple[Any, ...]]]:
    """Every table's rows but for what is only of their way here; what was made of a record has that within it."""
    found = {}
    for name, path in lake.workspace().lake.record_tables().items():
        frame = lake.spark.read.format("delta").load(path)
        columns = [column for column in frame.columns if not column.startswith("_") and column != "quarantined_at"]
        chosen = [F.regexp_replace(one, _OF_ITS_WAY, "").alias(one) if one == "made" else F.col(one) for one in columns]
        found[name] = sorted((tuple(row) for row in frame.select(*chosen).collect()), key=repr)
    return found


def is_she_in_a_table(lake: Lakehouse) -> bool:
    return HER in str([lake.rows(name) for name in lake.workspace().lake.record_tables()])


_OF_ITS_WAY = ',"_(delivery|row)":[0-9]+'


@pytest.mark.slow
def test_nothing_of_her_is_left_and_the_others_are_as_in_a_lake_without_her(
    settings: Settings, spark: SparkSession, tmp_path: Path
) -> None:
    records = PipelineRecords(settings, "house")
    lake, without = lake_at(settings, spark), lake_at(settings_at(tmp_path / "without"), spark)
    for day in (first_day, second_day):
        day(lake)
        day(without, her=False)
        lake.run()
        without.run()
    lake.run("optimize")
    before = residue(lake)
    assert {"landing", "lake", "restricted"} <= {Path(path).relative_to(tmp_path).parts[0] for path in before}
    request = ask(lake)
    lake.run("propagate_deletions")
    assert [one.state for one in request_record.list_erasure_requests(records)] == [request_events.LOGICALLY]
    finish(lake)
    assert residue(lake) == []
    assert request_record.read_erasure_request(records, request).state == request_events.PHYSICALLY
    assert content(lake) == content(without)
    # Flows go on, and a second time there is nothing to do.
    versions, rows = lake.versions(), len(erasure_ledger.read_erasure_ledger(records))
    lake.run("propagate_deletions")
    assert lake.versions() == versions and len(erasure_ledger.read_erasure_ledger(records)) == rows
    for one in (lake, without):
        one.land("notes/4.jsonl", lines(said(OTHER, 9)))
        one.run()
    assert content(lake) == content(without)


@pytest.mark.slow
def test_files_that_come_again_a_refresh_and_a_restore_bring_nobody_back(settings: Settings, spark: SparkSession) -> None:
    small = lake_at(settings, spark, SMALL, retain="1 hour")
    first_day(small)
    small.run()
    landed = (small.settings.landing / "house/notes/1.jsonl").read_bytes()
    ask(small)
    small.run("propagate_deletions")
    assert HER not in str(content(small)) and residue(small)  # the bytes of former versions are there until their time has come
    restoring(small, "note", 1)
    assert HER not in str(content(small))
    small.land("notes/1.jsonl", landed)
    small.land("notes/1-again.jsonl", landed)
    again = small.run()
    assert again["notes"].suppressed == 6
    assert HER not in str(content(small))
    assert HER.encode() in (small.settings.landing / "house/notes/1.jsonl").read_bytes()
    small.run("propagate_deletions")  # nobody has asked; the files that came again are seen to all the same
    small.run(mode="refresh")
    finish(small)
    assert residue(small)
    finish(small, after=timedelta(hours=2))
    assert residue(small) == [] and HER not in str(content(small))


def restoring(lake: Lakehouse, name: str, version: int) -> None:
    restoration.restore_table_version(lake.workspace(), lake.graph[name], version, FlowReport(flow=name, layer="restore"))  # type: ignore[arg-type]


@pytest.mark.thorough(beside="integration/erasure/test_erased_stays_erased.py")
@pytest.mark.usefixtures("uncontrolled")
@pytest.mark.parametrize("vacuumed", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("failed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_silver_that_is_behind_or_failed_does_not_bring_her_back(
    small: Lakehouse, monkeypatch: pytest.MonkeyPatch, failed: bool, vacuumed: bool
) -> None:
    """failed: its batch was begun and is pending; else it never saw two commits of bronze."""
    first_day(small)
    small.run()
    for number in (2, 3):
        small.land(f"notes/{number}.jsonl", lines(said(HER, 10 + number), said(OTHER, 10 + number)))
        if number == 3 or not failed:
            small.run("bronze")

    def broken(*arguments: object, **options: object) -> None:
        raise SluiceError("the flow fails")

    if failed:
        monkeypatch.setattr(fold, "apply_merge_operations", broken)
        with pytest.raises(SluiceError, match="the flow fails"):
            small.run("test_erasure_histories")
    ask(small)
    # Its failure does not keep her in the lake.
    small.run("propagate_deletions")
    assert not is_she_in_a_table(small)
    if vacuumed:
        finish(small)
        assert residue(small) == []
    monkeypatch.undo()
    small.run()
    finish(small)
    assert not is_she_in_a_table(small) and residue(small) == []
    assert [row for row in small.rows("note", "who", "number") if row[1] > 10] == [(OTHER, 12), (OTHER, 13)]
    assert small.rows("by_person") == [(OTHER, 3)]


@pytest.mark.slow
def test_a_view_that_fails_keeps_the_request_open(small: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    first_day(small)
    small.land("notes/broken.jsonl", f"{HER} is no JSON\nnobody is neither\n")
    small.run()
    request = ask(small)

    def broken(*arguments: object, **options: object) -> None:
        raise SluiceError("the flow fails")

    monkeypatch.setattr(view, "_stream_view_changes", broken)
    with pytest.raises(SluiceError, match=r"by_person.*the flow fails"):
        small.run("propagate_deletions")
    assert request_record.read_erasure_request(small.records, request).state == request_events.RECEIVED
    monkeypatch.undo()
    small.run("propagate_deletions")
    assert request_record.read_erasure_request(small.records, request).state == request_events.LOGICALLY
    assert HER not in str(content(small))
    # What nobody could read says of nobody whose it is, and names her: it went by that.
    finish(small)
    assert residue(small) == []
    assert [record for (record,) in small.rows("notes_quarantine", "record")] == ["nobody is neither"]
    assert (small.settings.landing / "house/notes/broken.jsonl").read_text() == "nobody is neither\n"


calls = Source(
    name="calls", pattern="*.jsonl*", schema="who STRING, at TIMESTAMP", subject="who", comment="Calls.", may_refresh=True
)


@windowed(reads="calls", keys=("who", "begin"), watermark=Watermark("at", "10 minutes"), subject="who")
def daily(calls: DataFrame) -> DataFrame:
    """Calls a day."""
    counted = calls.groupBy("who", F.window("at", "1 day").alias("day")).agg(F.count(F.lit(1)).alias("calls"))
    return counted.select("who", F.col("day.start").alias("begin"), "calls")


SEEDED = (notes, calls, note, profile, by_person, daily)
REMOVALS = {"vacuum": "_vacuum_due_tables", "sweep": "_sweep_leftover_files", "versions": "_remove_due_versions"}
"""The parts of the removal of bytes. What is swept twice is left out twice: either sweep does what the other left."""
LEFT_OUT = dict.fromkeys([*(place.name for place in PERSONAL_PLACES if place.erase), *REMOVALS])
NEEDS_NO_HISTORY = frozenset({"anonymise", "other_cells"})
"""Of tables that keep the facts: their tests are beside them."""
COVERED = frozenset({"late"})
"""A stream that starts over empties the table of what came late: without this step, rows are out only when `flows` and `views` are done."""


def called(who: str, at: str) -> dict[str, Any]:
    return {"who": who, "at": at}


def alone_at(folder: Path) -> Settings:
    """What other runs of this checkout leave below .sluice is not searched."""
    settings = settings_at(folder)
    settings.__dict__["state"] = folder / "state"
    return settings


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A lake with her in every kind of place, as it lies on the disk: in a window that is closed, in one that is open, and late."""
    folder = tmp_path_factory.mktemp("seeded")
    lake = lake_at(alone_at(folder), spark, SEEDED)
    first_day(lake)
    hers = [called(HER, at) for at in ("2026-01-02 08:00:00", "2026-02-02 08:00:00")]
    lake.land("calls/1.jsonl", lines(*hers, called(OTHER, "2026-02-02 08:00:00")))
    lake.run()
    second_day(lake)
    lake.land("calls/2.jsonl", lines(called(HER, "2026-01-02 09:00:00"), called(OTHER, "2026-02-02 09:00:00")))
    lake.land("calls/3.jsonl.gz", gzip.compress(f"{HER} was here".encode())[:-4])
    lake.run()
    releasing.release_tables(lake.lake, ["note"])
    for name in ("note", "notes"):
        path = lake.workspace().path(name)
        spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    house = Path(lake.settings.lake) / "house"
    for left in (
        house / "bronze/notes/_delta_log/.00000000000000000009.json.0a-1b.tmp",
        house / "bronze/notes/.hidden/part-orphan.txt",
        house / "_sluice/checkpoints/test_erasure_histories_daily/killed/state/0/0/1.delta",
        house / "_sluice/staging/0",
    ):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(HER)
        os.utime(left, (1_600_000_000, 1_600_000_000))
    os.utime(house / "_sluice/staging", (1_600_000_000, 1_600_000_000))
    lake.land("notes/5.jsonl", lines(said(HER, 50), said(OTHER, 50)))
    return folder


def copied(seeded: Path, folder: Path, spark: SparkSession) -> Lakehouse:
    for path in seeded.iterdir():
        shutil.copytree(path, folder / path.name, copy_function=shutil.copy2)
    return lake_at(alone_at(folder), spark, SEEDED)


def proven(lake: Lakehouse, request: str) -> certificate.Certificate:
    return certificate.issue_certificates(lake.lake, [request_record.read_erasure_request(lake.records, request)])[request]


@pytest.mark.slow
@pytest.mark.parametrize("left_out", [None, *(step for step in LEFT_OUT if step not in NEEDS_NO_HISTORY)])
def test_without_any_one_step_the_certificate_says_fail(
    seeded: Path, tmp_path: Path, spark: SparkSession, left_out: str | None
) -> None:
    lake = copied(seeded, tmp_path / "copy", spark)
    request = ask(lake)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(propagation, "PERSONAL_PLACES", tuple(place for place in PERSONAL_PLACES if place.name != left_out))
        if left_out in REMOVALS:
            patch.setattr(physical, REMOVALS[left_out], lambda *_: [])
        erase(lake)
    made = proven(lake, request)
    stamps = made.record["stamps"]
    if left_out is not None and left_out not in COVERED:
        # Of the person herself: the control would tell of some steps, too.
        assert made.verdict == "FAIL" and (stamps["physical"]["hits"] or stamps["logical"]["hits"]), stamps
        return
    assert made.verdict == "PASS", (stamps, made.record["control"], made.record["undeclared"])
    assert residue(lake) == []
    # What comes afterwards: what had been landed before is taken, and all flows run.
    lake.run()
    assert residue(lake) == [] and proven(lake, request).verdict == "PASS"
