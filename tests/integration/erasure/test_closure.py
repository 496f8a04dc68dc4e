"""From any identifier of a person to all of them, and the list that keeps the person out: with times where identifiers change hands."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from tests.conftest import Lakehouse, settings_at

from sluice.declare import F, Link, Pipeline, Source, erasure_requests, table, treat
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import asking, request_events, request_record, request_reversal, requests, searched_tables, vault
from sluice.erasure.subjects import closure, identity_settling, link_rows
from sluice.erasure.subjects.closure import AmbiguousIdentifier
from sluice.erasure.subjects.link_rows import LinkRows
from sluice.erasure.vault import Identifier
from sluice.ingest.reading import records
from sluice.lake import log
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets, suppression, suppression_list
from sluice.runs import due_requests

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = Pipeline(name="club", description="d", owner="o", layers=("club.bronze", __name__))

handed_out = Source(
    name="handed_out",
    schema="user_id STRING, device_id BIGINT, email STRING, at TIMESTAMP",
    subject="user_id",
    redelivery="replace",
    personal=("device_id", "email"),
)
readings = Source(name="readings", schema="device_id BIGINT, time TIMESTAMP, rate INT", subject="device_id", subject_at="time")


@table(reads="handed_out", keys=("device_id", "at"), subject="user_id", personal=("device_id", "email"))
def worn(handed_out: DataFrame) -> DataFrame:
    """Who has which device from when on."""
    return handed_out.select("user_id", "device_id", "email", "at")


@table(
    reads="handed_out",
    keys=("device_id", "at"),
    subject="user_id",
    restricted=True,
    personal={"device_id": None, "pseudonym": treat.hmac("member")},
)
def keys(handed_out: DataFrame) -> DataFrame:
    """Who is behind a pseudonym."""
    return handed_out.select("user_id", F.col("user_id").alias("pseudonym"), "device_id", "at")


@table(reads="readings", keys=("device_id", "time"), subject="device_id", subject_at="time")
def rate(readings: DataFrame) -> DataFrame:
    """What devices told."""
    return readings.select("device_id", "time", "rate")


LINKS = (
    Link("worn", person=("user_id", "user_id"), identifier=("device_id", "device_id"), since="at"),
    Link("worn", person=("user_id", "user_id"), identifier=("email", "email")),
)
HANDED_OUT = (
    ("ada", 1, "ada@example.org", "2026-01-01"),
    ("bo", 1, "bo@example.org", "2026-02-01"),
    ("ada", 2, "ada@example.org", "2026-02-01"),
    ("ada", 1, "ada@example.org", "2026-03-01"),
    ("cem", 3, "cem@example.org", "2026-01-01"),
    ("eve", 4, "eve@example.org", "2026-01-01"),
)


@pytest.fixture(scope="module")
def club(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """Devices handed out. Silver no longer has the row about eve that bronze delivered."""
    settings = settings_at(tmp_path_factory.mktemp("club"))
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [handed_out, readings, worn, keys, rate], LINKS))
    _hand_out(lake, *HANDED_OUT)
    lake.run("bronze")
    _hand_out(lake, ("zoe", 4, "zoe@example.org", "2026-01-01"))  # the same key as eve's row, and comes last by its content
    lake.run()
    return lake


def _hand_out(lake: Lakehouse, *rows: tuple[str, int, str, str]) -> None:
    named = (dict(zip(("user_id", "device_id", "email", "at"), (*row[:3], f"{row[3]}T00:00:00Z"), strict=True)) for row in rows)
    lake.land(f"handed_out/{lake.landed}.json", "".join(f"{json.dumps(row)}\n" for row in named))


def _read(lake: Lakehouse, *rows: tuple[int, str | None]) -> None:
    told = ({"device_id": device, "rate": 60, **({"time": f"{at}T12:00:00Z"} if at else {})} for device, at in rows)
    lake.land(f"readings/{lake.landed}.json", "".join(f"{json.dumps(row)}\n" for row in told))


def _closed(lake: Lakehouse, *asked: Identifier, rows: LinkRows | None = None) -> set[tuple[str, str, str | None, str | None]]:
    """rows: those of the links, if several requests are closed over, as by the stage."""
    found = closure.close_over_identifiers(lake.workspace(), asked, rows)
    return {
        (one.domain, one.value, one.since and one.since[:10], one.until and one.until[:10])
        for one in found
        if one.domain != "pseudonym"
    }


ADA = {
    ("user_id", "ada", None, None),
    ("email", "ada@example.org", None, None),
    ("device_id", "1", None, "2026-02-01"),
    ("device_id", "1", "2026-03-01", None),
    ("device_id", "2", None, None),
}


def test_from_any_identifier_to_all_of_them(club: Lakehouse) -> None:
    bo = {("user_id", "bo", None, None), ("email", "bo@example.org", None, None), ("device_id", "1", "2026-02-01", "2026-03-01")}
    cem = {("user_id", "cem", None, None), ("email", "cem@example.org", None, None), ("device_id", "3", None, None)}
    with link_rows.open_link_rows(club.workspace()) as rows:
        for asked, theirs in (
            ([Identifier("user_id", "ada")], ADA),
            ([Identifier("email", "ada@example.org")], ADA),
            ([Identifier("device_id", "2")], ADA),
            ([Identifier("device_id", "1", at="2026-01-15T00:00:00+00:00")], ADA),
            ([Identifier("device_id", "1", at="2026-02-15T00:00:00Z")], bo),
            ([Identifier("user_id", "bo"), Identifier("user_id", "cem")], bo | cem),
        ):
            assert _closed(club, *asked, rows=rows) == theirs, asked


def test_a_device_of_several_people_is_refused_and_one_of_nobody_is_its_own(club: Lakehouse) -> None:
    with pytest.raises(
        AmbiguousIdentifier, match="Identifier 1, a 'device_id', was several people's; ask again with \"at\""
    ) as refused:
        _closed(club, Identifier("device_id", "1"))
    assert "'1'" not in str(refused.value)
    assert _closed(club, Identifier("device_id", "99")) == {("device_id", "99", None, None)}


def test_the_pseudonym_leads_to_the_person_and_back(club: Lakehouse) -> None:
    hidden = dict(club.rows("keys", "user_id", "pseudonym"))
    found = closure.close_over_identifiers(club.workspace(), [Identifier("pseudonym", hidden["cem"])])
    assert {(one.domain, one.value) for one in found} == {
        ("user_id", "cem"),
        ("device_id", "3"),
        ("email", "cem@example.org"),
        ("pseudonym", hidden["cem"]),
    }
    assert {
        one.value
        for one in closure.close_over_identifiers(club.workspace(), [Identifier("user_id", "bo")])
        if one.domain == "pseudonym"
    } == {hidden["bo"]}


@pytest.mark.thorough
def test_what_bronze_told_once_counts_though_silver_has_another_row_now(club: Lakehouse) -> None:
    kept = {user for user, device in club.rows("worn", "user_id", "device_id") if device == 4}
    assert len(kept) == 1
    for who in ("eve", "zoe"):
        assert ("email", f"{who}@example.org", None, None) in _closed(club, Identifier("user_id", who))


def test_a_request_is_settled_once_and_only_the_vault_has_identifiers(club: Lakehouse) -> None:
    asked = requests.receive_erasure_request(club.lake, [Identifier("email", "ada@example.org")])
    made = identity_settling.settle_erasure_request(club.workspace(), asked)
    assert {(one.domain, one.since and one.since[:10]) for one in made.subjects} >= {
        ("device_id", "2026-03-01"),
        ("user_id", None),
    }
    kept = vault.read_vault_identifiers(club.records, asked.request)
    assert {(one.domain, one.value) for one in kept} >= {("email", "ada@example.org"), ("user_id", "ada"), ("device_id", "1")}
    path = club.settings.vault / "club" / f"{asked.request}.json"
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert json.loads(path.read_text())["identifiers"][0] == ["email", "ada@example.org"]
    for text in Path(club.records.erasure_requests).iterdir():
        assert "ada@" not in text.read_text() and '"ada"' not in text.read_text()
    # Until its people are on the list it is closed again, from what was asked; killed between the vault and the request, too.
    assert identity_settling.settle_erasure_request(club.workspace(), made).subjects == made.subjects
    requests.write_request_subjects(club.records, asked.request, [])
    again = identity_settling.settle_erasure_request(
        club.workspace(), request_record.read_erasure_request(club.records, asked.request)
    )
    assert again.subjects == made.subjects and vault.read_vault_identifiers(club.records, asked.request) == kept


@pytest.mark.thorough
def test_one_that_cannot_be_settled_fails_and_the_others_go_on(club: Lakehouse) -> None:
    good = requests.receive_erasure_request(club.lake, [Identifier("user_id", "cem")])
    ambiguous = requests.receive_erasure_request(club.lake, [Identifier("device_id", "1")])
    lost = requests.receive_erasure_request(club.lake, [Identifier("user_id", "bo")])
    vault.remove_vault_entry(club.records, lost.request)
    settled = {one.request for one in identity_settling.settle_waiting_requests(club.workspace())}
    assert good.request in settled and not settled & {ambiguous.request, lost.request}
    failed = {
        one.request: one for one in request_record.list_erasure_requests(club.records) if one.state == request_events.FAILED
    }
    assert set(failed) == {ambiguous.request, lost.request}
    assert "several people's" in failed[ambiguous.request].history[-1].note
    assert "not in the vault" in failed[lost.request].history[-1].note


def _suppress(lake: Lakehouse, *asked: Identifier) -> str:
    made = identity_settling.settle_erasure_request(lake.workspace(), requests.receive_erasure_request(lake.lake, asked))
    assert suppression_list.suppress_subjects(lake.workspace(), {made.request: made.subjects}) == len(made.subjects)
    assert suppression_list.suppress_subjects(lake.workspace(), {made.request: made.subjects}) == 0
    assert identity_settling.settle_erasure_request(lake.workspace(), made) is made
    assert log.read_table_properties(lake.workspace().suppression)[secrets.KEY_PROPERTY].startswith("suppression.key=")
    return made.request


def test_requests_that_arrive_as_data_are_made_once(club: Lakehouse) -> None:
    said = erasure_requests(reads="handed_out", where="email = 'gone@example.org'", identifier=("user_id", "user_id"))
    asked = Lakehouse(
        club.settings, club.spark, build_declaration_graph(PIPELINE, [handed_out, readings, worn, keys, rate], LINKS, [said])
    )
    assert asking.create_requests_from_rows(asked.workspace()) == [] and not searched_tables.has_unseen_request_rows(asked.lake)
    _hand_out(club, ("fay", 9, "gone@example.org", "2026-01-01"), ("gus", 8, "gone@example.org", "2026-01-01"))
    club.run("bronze")
    assert searched_tables.has_unseen_request_rows(asked.lake)
    made, other = asking.create_requests_from_rows(asked.workspace())
    assert [one.value for of in (made, other) for one in vault.read_vault_identifiers(club.records, of.request)] == ["fay", "gus"]
    assert re.fullmatch(r"asked by rows of 'handed_out', up to delivery \d+", made.history[0].note)
    # Nothing new; then killed before it was noted what was seen.
    assert asking.create_requests_from_rows(asked.workspace()) == []
    (Path(club.records.erasure_requests) / ".asked").unlink()
    assert asking.create_requests_from_rows(asked.workspace()) == []
    _hand_out(club, ("gus", 8, "gone@example.org", "2026-02-01"), ("hal", 7, "gone@example.org", "2026-01-01"))
    club.run("bronze")
    (made,) = asking.create_requests_from_rows(asked.workspace())
    assert [one.value for one in vault.read_vault_identifiers(club.records, made.request)] == ["hal"]

    # Taken back: its rows ask no more, whatever else comes or leaves bronze; one that comes later does.
    request_reversal.withdraw_erasure_request(club.records, made.request)
    assert searched_tables.has_unseen_request_rows(asked.lake) and due_requests.may_hold_unseen_requests(
        PipelineRecords(asked.settings, "club")
    )
    assert asking.create_requests_from_rows(asked.workspace()) == [] and not searched_tables.has_unseen_request_rows(asked.lake)
    DeltaTable(club.workspace().path("handed_out")).delete("user_id = 'hal'")
    assert asking.create_requests_from_rows(asked.workspace()) == []
    _hand_out(club, ("hal", 6, "gone@example.org", "2026-03-01"))
    # What its file does not say any more does not ask.
    ivy = {"user_id": "ivy", "device_id": 6, "at": "2026-04-01T00:00:00Z"}
    for email in ("gone@example.org", "ivy@example.org"):
        club.land("handed_out/ivy.json", json.dumps(ivy | {"email": email}))
        club.run("bronze")
    (again,) = asking.create_requests_from_rows(asked.workspace())
    assert [one.value for one in vault.read_vault_identifiers(club.records, again.request)] == ["hal"]
    request_reversal.withdraw_erasure_request(club.records, again.request)
    assert asking.create_requests_from_rows(asked.workspace()) == []
    # As if it had been refused and was withdrawn by a process that was killed before the vault forgot it.
    vault.store_vault_entry(club.records, again.request, [Identifier("user_id", "hal")], "2030-01-01T00:00:00+00:00")
    requests.advance_request_state(club.records, again.request, request_events.FAILED, "several people's")
    _hand_out(club, ("hal", 6, "gone@example.org", "2026-05-01"))
    club.run("bronze")
    (last,) = asking.create_requests_from_rows(asked.workspace())
    assert last.request != again.request and last.withdrawn_at is None
    request_reversal.withdraw_erasure_request(club.records, last.request)


def test_only_what_a_device_told_while_it_was_the_persons_is_left_out(club: Lakehouse) -> None:
    assert suppression_list.is_suppression_list_empty(club.workspace())
    request = _suppress(club, Identifier("user_id", "ada"))
    _read(club, (1, "2026-01-15"), (1, "2026-02-15"), (1, "2026-03-15"), (2, "2026-01-01"), (3, "2026-01-15"), (1, None))
    report = club.run("bronze")["readings"]
    assert report.suppressed == 4  # of 1 in January and March and of no time, of 2
    assert [(device, at.month) for device, at in club.rows("readings", "device_id", "time")] == [(1, 2), (3, 1)]
    outcome = next(one for one in club.outcomes() if one["source"] == "readings")
    assert (outcome["rows"], outcome["suppressed"]) == (2, 4)
    # Cem was handed Ada's second device after she left: from then on it is Cem's, though both files come with the same run.
    _hand_out(club, ("cem", 2, "cem@example.org", "2026-05-01"))
    _read(club, (2, "2026-04-15"), (2, "2026-05-15"), (1, "2026-05-15"))
    assert club.run("bronze")["readings"].suppressed == 2
    assert (2, 5) in {(device, at.month) for device, at in club.rows("readings", "device_id", "time")}

    # Were her links gone by now, her device would pass for Cem's alone.
    with link_rows.open_link_rows(club.workspace()) as rows:
        for asked in (Identifier("device_id", "2"), Identifier("device_id", "2", at="2026-04-15T00:00:00Z")):
            with pytest.raises(AmbiguousIdentifier, match=f"was a person's who was erased by request {request}"):
                _closed(club, asked, rows=rows)
        assert ("user_id", "cem", None, None) in _closed(club, Identifier("device_id", "2", at="2026-05-02T00:00:00Z"), rows=rows)

    # What a domain was called before is found on the list, too.
    renamed = build_declaration_graph(
        PIPELINE, [Source(name="handed_out", subject="user_id", domain="member", personal=("device_id", "email"))]
    )
    named = club.spark.createDataFrame([("ada",), ("bo",)], "user_id STRING")
    kept = suppression.exclude_suppressed_rows(replace(club.workspace(), graph=renamed), named, F.col("user_id"), "member")
    assert [row.user_id for row in kept.collect()] == ["bo"]

    # Lifted: what was before stays out, however it comes; what is new comes in.
    requests.advance_request_state(club.records, request, request_events.LOGICALLY)
    assert request_reversal.lift_suppression(club.records, request) > 0
    _read(club, (1, "2026-03-20"), (1, "2126-01-01"))
    _hand_out(club, ("ada", 5, "ada@example.org", "2026-06-01"))
    reports = club.run("bronze")
    assert (reports["readings"].suppressed, reports["handed_out"].suppressed) == (1, 0)
    everything = club.spark.read.format("delta").load(club.workspace().path("handed_out"))
    at = suppression.select_suppressed_rows(club.workspace(), everything, F.col("user_id"), "user_id")
    assert {row.at.month for row in at.where("user_id = 'ada'").collect()} == {1, 2, 3}, "of before, by their deliveries"


def test_a_subject_in_a_payload_is_found_at_ingest_and_in_bronze(spark: SparkSession) -> None:
    told = "get_json_object(CAST(value AS STRING), '$.buyer.id')"
    topics = Source(name="topics", subject="value", subject_in=told, domain="user_id")
    rows = [(bytearray(text), None, None) for text in (b'{"buyer": {"id": 7}}', b'{"seller": 7}', b"no JSON")]
    frame = spark.createDataFrame(rows, "value BINARY, _rescued_data STRING, _record STRING")
    in_bronze = subjects.build_subject_expression(build_declaration_graph(PIPELINE, [topics]), topics, frame.columns)
    for whose in (records.subject_key_column(topics, frame.columns), F.expr(in_bronze or "")):
        assert [row.whose for row in frame.select(whose.alias("whose")).collect()] == ["7", None, None]
