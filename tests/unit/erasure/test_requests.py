"""Requests to erase people, as they are asked for: by command, as JSON or CSV; their states; and the vault. No Spark."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.commands import Call

from sluice.declare import Link, Pipeline, Source, erasure_requests, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.assembly.subjects import SUPPRESSION_KEY
from sluice.erasure import asking, prevention, request_events, request_record, request_reversal, requests, searched_tables, vault
from sluice.erasure.subjects import subject_files
from sluice.erasure.vault import Identifier
from sluice.errors import UsageError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import key_check_values
from sluice.runs import due_requests, erasure_jobs
from sluice.runs.lease import lock
from sluice.settings import Settings

NOW = datetime.now(UTC)

PEOPLE = Source(name="people", subject="user_id", personal=("email",))
CLUB = Pipeline(name="club", description="d", owner="o", layers=("club.bronze", __name__), erase_within="10 days")


@table(reads="people", keys="user_id", subject="user_id", personal="email")
def known(people: Any) -> Any:
    """People."""
    return people


LINK = Link("known", person=("user_id", "user_id"), identifier=("email", "email"))


@pytest.fixture
def club() -> Graph:
    return build_declaration_graph(CLUB, [PEOPLE, known], [LINK])


def _receive(settings: Settings, made: Graph, *people: Identifier, **more: Any) -> request_record.ErasureRequest:
    return requests.receive_erasure_request(PipelineLake(settings, made), people or [Identifier("user_id", "ada")], **more)


def test_a_request_has_a_deadline_and_a_history(settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")
    asked = NOW - timedelta(days=3)
    made = _receive(settings, club, received_at=asked, said="by letter")
    assert datetime.fromisoformat(made.due_at) - datetime.fromisoformat(made.received_at) == timedelta(days=10)
    assert (made.state, made.rows_left_at, [event.note for event in made.history]) == ("received", None, ["by letter"])
    assert request_record.list_waiting_requests(records) == [made]
    requests.advance_request_state(
        records, made, request_events.LOGICALLY, "12 rows", physical_due_at="2026-12-01T00:00:00+00:00"
    )
    done = requests.advance_request_state(records, made.request, request_events.LOGICALLY, "12 rows")
    assert [event.state for event in done.history] == ["received", "logically erased"], "said once"
    assert done.rows_left_at is not None and done.physical_due_at == "2026-12-01T00:00:00+00:00"
    assert (
        request_record.list_waiting_requests(records) == [] and request_record.read_erasure_request(records, made.request) == done
    )
    with pytest.raises(UsageError, match=r"There is no state 'certifed' of a request\. Did you mean 'certified'"):
        requests.advance_request_state(records, made, "certifed")  # type: ignore[arg-type]


def test_an_unknown_request_is_told_without_guessing_people(settings: Settings, club: Graph) -> None:
    made = _receive(settings, club)
    with pytest.raises(UsageError, match=f"has no erasure request '{made.request[:-1]}x'. Did you mean '{made.request}'"):
        request_record.read_erasure_request(PipelineRecords(settings, "club"), f"{made.request[:-1]}x")


def test_the_vault_is_for_its_owner_alone_and_says_until_when(settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")
    os.umask(0o022)
    made = _receive(settings, club)
    path = settings.vault / "club" / f"{made.request}.json"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (settings.vault, path.parent, path)] == [0o700, 0o700, 0o600]
    assert vault.read_vault_identifiers(records, made.request) == [Identifier("user_id", "ada")]
    expires = datetime.fromisoformat(vault.read_vault_expiry(records, made.request) or "")
    assert expires - datetime.fromisoformat(made.due_at) == timedelta(days=30)
    vault.remove_vault_entry(records, made.request)
    assert not vault.has_vault_entry(records, made.request) and vault.read_vault_expiry(records, made.request) is None
    with pytest.raises(UsageError, match="are not in the vault"):
        vault.read_vault_identifiers(records, made.request)


def test_an_open_vault_or_one_that_would_be_scanned_is_refused(settings: Settings, club: Graph) -> None:
    made = _receive(settings, club)
    path = settings.vault / "club" / f"{made.request}.json"
    path.chmod(0o640)
    with pytest.raises(UsageError, match="can be read by others"):
        vault.read_vault_identifiers(PipelineRecords(settings, "club"), made.request)
    settings.vault.chmod(0o755)
    with pytest.raises(UsageError, match="is open to others"):
        _receive(settings, club)
    for root, why in (
        (settings.landing, "which is searched"),
        (settings.released, "which is"),
        (settings.secrets, "of which copies"),
        (settings.truth, "which is removed by hand"),
    ):
        object.__setattr__(settings, "vault", root / "vault")
        with pytest.raises(UsageError, match=why):
            _receive(settings, club)
    assert len(request_record.list_erasure_requests(PipelineRecords(settings, "club"))) == 1, (
        "a request whose identifiers are nowhere is none"
    )


def test_nothing_that_is_printed_of_an_identifier_shows_it() -> None:
    assert "ada" not in repr(Identifier("user_id", "ada")) and "ada" not in str([Identifier("user_id", "ada")])


def test_a_lost_key_is_not_made_anew_while_anybody_is_on_a_list(settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")

    def a_list(pipeline: str, key: bytes) -> None:
        (check,) = key_check_values({SUPPRESSION_KEY: key})
        path = PipelineRecords(settings, pipeline).suppression_list
        write_deltalake(path, pa.table({"domain": ["user_id"]}))
        DeltaTable(path).alter.set_table_properties({secrets.KEY_PROPERTY: check}, raise_if_not_exists=False)

    _receive(settings, club)
    first = (settings.secrets / SUPPRESSION_KEY).read_bytes()
    assert Path(records.bookkeeping()).stat().st_mode & 0o777 == 0o700
    a_list("gym", first)
    (settings.secrets / SUPPRESSION_KEY).unlink()
    with pytest.raises(UsageError, match=r"'suppression\.key' is not in .* any more\. Put it back"):
        _receive(settings, club)
    assert not (settings.secrets / SUPPRESSION_KEY).exists() and len(request_record.list_erasure_requests(records)) == 1
    a_list("club", first)
    secrets.store_secret(settings, SUPPRESSION_KEY, hashlib.sha256(b"another key").hexdigest().encode())
    with pytest.raises(
        UsageError, match=r"is not the one that the list of erased people was made with\. Put that one back: sluice"
    ):
        _receive(settings, club)
    secrets.store_secret(settings, SUPPRESSION_KEY, first, replace=True)
    assert _receive(settings, club).pseudonyms == request_record.list_erasure_requests(records)[0].pseudonyms


def test_whoever_was_refused_may_be_asked_for_by_data_again(settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")
    workspace: Any = SimpleNamespace(records=records, settings=settings, pipeline="club")
    refused, scanned, lifted = (_receive(settings, club, Identifier("user_id", name)) for name in ("ada", "bo", "cem"))
    assert len(asking._compute_request_watermarks(workspace)) == 3
    requests.advance_request_state(records, refused, request_events.FAILED, "several people's")
    requests.advance_request_state(records, scanned, request_events.LOGICALLY)
    requests.advance_request_state(records, scanned, request_events.FAILED, "found")
    requests.add_request_event(records, lifted.request, request_events.LIFTED)
    assert {one for one, rows in asking._compute_request_watermarks(workspace).items() if rows} == set(scanned.pseudonyms)


def test_rows_whose_request_was_taken_back_ask_no_more_and_further_rows_do(settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")
    workspace: Any = SimpleNamespace(records=records, settings=settings, pipeline="club")
    by_hand = _receive(settings, club, Identifier("user_id", "ada"))
    said = {"bo": "asked by rows of 'people', up to delivery 2", "cem": "asked by rows of 'people'"}
    by_rows, before = (
        requests.receive_erasure_request(PipelineLake(settings, club), [Identifier("user_id", who)], said=note)
        for who, note in said.items()
    )
    requests.advance_request_state(records, by_rows, request_events.FAILED, "several people's")
    requests.advance_request_state(records, by_rows, request_events.RECEIVED, "asked again, up to delivery 7")
    for one in (by_hand, by_rows, before):
        request_reversal.withdraw_erasure_request(records, one.request)
    assert asking._compute_request_watermarks(workspace) == {
        by_hand.pseudonyms[0]: 0,
        by_rows.pseudonyms[0]: 7,
        before.pseudonyms[0]: math.inf,
    }
    again = _receive(settings, club, Identifier("user_id", "bo"))
    assert asking._compute_request_watermarks(workspace)[again.pseudonyms[0]] == math.inf


def test_rows_that_may_ask_are_told_of_without_the_declarations(
    settings: Settings, club: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = PipelineRecords(settings, "club")
    said = [erasure_requests(reads="people", where=f"gone = {n}", identifier=("user_id", "user_id")) for n in (1, 2)]
    asking_graph = build_declaration_graph(CLUB, [PEOPLE, known], [LINK], said)
    lake = PipelineLake(settings, asking_graph)
    workspace: Any = SimpleNamespace(records=records, settings=settings, pipeline="club", graph=asking_graph, lake=lake)
    found = [[Identifier("user_id", "ada"), Identifier("user_id", "bo")], []]
    monkeypatch.setattr(asking, "_find_new_requesters", lambda *_: found.pop(0))
    monkeypatch.setattr(asking, "_find_latest_request_delivery", lambda _: 7)
    assert not searched_tables.has_unseen_request_rows(lake) and not due_requests.may_hold_unseen_requests(records), (
        "there is no bronze"
    )
    path = PipelineLake(settings, asking_graph).path("people")
    write_deltalake(path, pa.table({"user_id": ["ada", "bo"]}))
    assert searched_tables.has_unseen_request_rows(lake)
    assert [len(one.pseudonyms) for one in asking.create_requests_from_rows(workspace)] == [1, 1], "a request a person"
    assert (
        not searched_tables.has_unseen_request_rows(lake)
        and not due_requests.may_hold_unseen_requests(records)
        and asking.create_requests_from_rows(workspace) == []
    )
    write_deltalake(path, pa.table({"user_id": ["cem"]}), mode="append")
    assert searched_tables.has_unseen_request_rows(lake) and due_requests.may_hold_unseen_requests(records)
    # One who was refused is tried again when there is more, by the same request.
    refused = request_record.list_erasure_requests(records)[0]
    requests.advance_request_state(records, refused, request_events.FAILED, "several people's")
    found += [vault.read_asked_identifiers(records, refused.request), []]
    (again,) = asking.create_requests_from_rows(workspace)
    assert (again.request, again.state, again.due_at) == (refused.request, request_events.RECEIVED, refused.due_at)
    assert len(request_record.list_erasure_requests(records)) == 2
    write_deltalake(path, pa.table({"user_id": ["dan"]}), mode="append")
    # What is not declared any more asks no more.
    workspace.graph = club
    assert asking.create_requests_from_rows(workspace) == [] and not due_requests.may_hold_unseen_requests(records)


def test_identifiers_as_json_or_one_a_line(club: Graph) -> None:
    given = '[{"user_id": 12140}, {"email": "a@b.c", "user_id": "7", "at": "2026-11-20"}]'
    assert subject_files.parse_identifier_text(club, given, None) == [
        Identifier("user_id", "12140"),
        Identifier("email", "a@b.c", at="2026-11-20T00:00:00+00:00"),
        Identifier("user_id", "7", at="2026-11-20T00:00:00+00:00"),
    ]
    assert subject_files.parse_identifier_text(club, "a@b.c\n\n d@e.f \n", "email") == [
        Identifier("email", "a@b.c"),
        Identifier("email", "d@e.f"),
    ]
    for wrong in (
        '[{"user_id": ',
        '[{"user_id": true}]',
        '["secret"]',
        "[{}]",
        '[{"at": "2026-11-20"}]',
        '[{"user_id": "secret", "at": "x"}]',
    ):
        with pytest.raises(UsageError) as refused:
            subject_files.parse_identifier_text(club, wrong, None)
        assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match=r"Say with --identifier which kind of identifier is meant. There are: email, user_id"):
        subject_files.parse_identifier_text(club, "secret", None)


@pytest.mark.parametrize("text", ["12140\n12141\n", '[{"user_id": "12140"}, {"user_id": "12141"}]'])
def test_the_mark_at_the_beginning_of_a_file_belongs_to_nobody(club: Graph, text: str) -> None:
    assert [one.value for one in subject_files.parse_identifier_text(club, f"\ufeff{text}", "user_id")] == ["12140", "12141"]


@pytest.mark.parametrize(("unseen", "code"), [("\u200b", "200B"), ("\ufeff", "FEFF"), ("\0", "0000")])
def test_a_character_that_nobody_sees_is_refused_and_can_be_written_as_json(club: Graph, unseen: str, code: str) -> None:
    secret = f"sec{unseen}ret"
    for text in (f"7\n{secret}\n", f'[\n{{"user_id": "{secret}"}}]'):
        with pytest.raises(UsageError, match=rf"Line 2: it has the character U\+{code}.*\\u{code.lower()} for it") as refused:
            subject_files.parse_identifier_text(club, text, "user_id")
        assert "sec" not in str(refused.value)
    good, bad = subject_files.parse_identifier_csv(club, f"user_id\n{secret}\n7\n")
    assert [one.line for one in bad] == [2] and f"U+{code}" in bad[0].why and [one.line for one in good] == [3]
    (asked,) = subject_files.parse_identifier_text(club, json.dumps([{"user_id": secret}]), None)
    assert asked.value == secret


def test_a_csv_file_sets_bad_lines_aside_by_number(club: Graph) -> None:
    text = (
        "user_id,email,received_at\r\n"
        "1,a@b.c,2026-11-01\r\n"
        ",,2026-11-01\r\n"
        '2,"x\ny@z",\r\n'
        "3\r\n"
        "\r\n"
        f"4,,{(NOW + timedelta(days=2)).date()}\r\n"
        "5,,yesterday\r\n"
        "6,,2026-11-01T02:00:00+02:00\r\n"
    )
    good, bad = subject_files.parse_identifier_csv(club, text)
    assert [(one.line, len(one.identifiers), one.received_at) for one in good] == [
        (2, 2, datetime(2026, 11, 1, tzinfo=UTC)),
        (4, 2, None),
        (10, 1, datetime(2026, 11, 1, tzinfo=UTC)),
    ]
    assert [(one.line, one.why) for one in bad] == [
        (3, "no identifier"),
        (6, "1 fields; the header has 3"),
        (8, "received_at is in the future"),
        (9, "received_at is no date or instant such as 2026-11-20 or 2026-11-20T09:30:00Z"),
    ]
    with pytest.raises(
        UsageError, match=r"The first line: column 2 is no kind of identifier\. There are: email, user_id"
    ) as refused:
        subject_files.parse_identifier_csv(club, "email,a@b.c\nd@e.f,\n")
    assert "a@b.c" not in str(refused.value), "without a header, it is somebody's"
    with pytest.raises(UsageError, match="Entry 2: what it names is no kind of identifier") as refused:
        subject_files.parse_identifier_text(club, '[{"user_id": 1}, {"a@b.c": "email"}]', None)
    assert "a@b.c" not in str(refused.value)
    with pytest.raises(UsageError, match="The first line names the columns"):
        subject_files.parse_identifier_csv(club, "received_at\n2026-11-01\n")


def test_by_command(call: Call, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('[{"user_id": "7000000001"}, {"mac_address": "02:aa"}]')
    code, out, err = call("erase", "request", "--pipeline", "gym", "--subject-file", str(tmp_path / "people.json"), "--json")
    made = json.loads(out.splitlines()[-1])
    assert (code, err, made["domain"], made["identifiers"]) == (0, "", "several", 2)
    (tmp_path / "people.csv").write_text("device_id,received_at\n17,2026-10-01\n18,2026-10-01\n,2026-10-01\n19,\n")
    code, out, _ = call("erase", "import", "gym", str(tmp_path / "people.csv"), "--json")
    imported = json.loads(out.splitlines()[-1])
    assert (code, len(imported["requests"]), imported["people"]) == (1, 3, 3), "a request a line"
    assert imported["set_aside"] == [{"line": 4, "why": "no identifier"}]
    counts = json.loads(call("erase", "status", "--json")[1].splitlines()[-1])["pipelines"][0]
    assert (counts["waiting"], counts["overdue"], counts["next_due_at"][:10]) == (4, 2, "2026-10-31")
    code, out, _ = call("erase", "status", made["request"])
    assert code == 0 and "received" in out and "asked by command" in out and "7000000001" not in out
    assert "several" in call("erase", "list", "gym")[1]
    rows = json.loads(call("erase", "list", "gym", "--json")[1].splitlines()[-1])["requests"]
    assert sorted(row["identifiers"] for row in rows) == [1, 1, 1, 2]
    assert call("erase", "request")[0] == call("erase", "request", "gym", "--pipeline", "gym")[0] == 2
    assert call("erase", "status", "0")[0] == 2


def test_lifting_is_recorded_and_says_what_had_come(call: Call, settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")
    made, other = _receive(settings, club), _receive(settings, club)
    path = records.suppression_list
    listed = {"domain": ["user_id"] * 2, "pseudonym": ["a", "b"], "request": [made.request, other.request]}
    lifted = {"lifted_at": pa.nulls(2, pa.timestamp("us", tz="UTC")), "lifted_delivery": pa.nulls(2, pa.int64())}
    write_deltalake(path, pa.table({**listed, **lifted}))
    with pytest.raises(UsageError, match="is 'received': nobody was erased by it"):
        request_reversal.lift_suppression(records, made.request)
    requests.advance_request_state(records, made, request_events.LOGICALLY)
    requests.advance_request_state(records, made, request_events.FAILED, "a scan found something")
    assert [request_reversal.lift_suppression(records, made.request) for _ in range(2)] == [1, 0]
    rows = {row["request"]: row for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert (
        rows[made.request]["lifted_at"]
        and rows[made.request]["lifted_delivery"] == 0
        and rows[other.request]["lifted_at"] is None
    )
    assert not [one for one in prevention.inspect_table_log(path, "list", frozenset({"pseudonym"})) if "note" in one.what]
    assert (Path(path) / "_delta_log" / f"{1:020}.crc").exists(), "its commit is on the disk"
    said = DeltaTable(path).history(1)[0]
    assert said["operation"] == "MERGE" and made.request not in json.dumps(said["operationParameters"]), "which holds no value"
    kept = request_record.read_erasure_request(records, made.request)
    assert kept.lifted_at and kept.state == request_events.FAILED and kept.history[-1].note == "1 entry of the suppression list"


def test_lifting_waits_for_whoever_else_writes_the_list(call: Call, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "people.json").write_text('[{"user_id": "7000000001"}]')
    _, out, _ = call("erase", "request", "--pipeline", "gym", "--subject-file", str(tmp_path / "people.json"), "--json")
    request = json.loads(out.splitlines()[-1])["request"]
    assert "there is nothing to lift" in call("erase", "lift", request)[2]
    with lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "r1", "Later."):
        code, _, error = call("erase", "lift", request)
    assert code != 0 and "r1" in error, "an erasure that puts people on the list could lose them to the other commit"


def test_what_is_not_begun_can_be_taken_back_and_what_is_cannot(call: Call, settings: Settings, club: Graph) -> None:
    records = PipelineRecords(settings, "club")
    made, begun, done = (_receive(settings, club) for _ in range(3))
    write_deltalake(records.suppression_list, pa.table({"domain": ["user_id"], "request": [begun.request]}))
    requests.advance_request_state(records, done, request_events.LOGICALLY)
    taken = [request_reversal.withdraw_erasure_request(records, made.request) for _ in range(2)]
    assert taken[0] == taken[1] and taken[0].withdrawn_at and taken[0].state == request_events.RECEIVED
    assert not vault.has_vault_entry(records, made.request) and vault.has_vault_entry(records, begun.request)
    vault.store_vault_entry(records, made.request, [Identifier("user_id", "ada")], NOW.isoformat())  # as if killed before that
    request_reversal.withdraw_erasure_request(records, made.request)
    assert not vault.has_vault_entry(records, made.request)
    assert [one.request for one in request_record.list_waiting_requests(records)] == [begun.request]
    assert made.request not in due_requests.find_due_requests(records, datetime.now(UTC)).now
    assert not taken[0].is_open and taken[0].shown_state == request_events.WITHDRAWN
    assert erasure_jobs.approve_requests(records, [made.request, begun.request]) == [made.request]
    assert [one.is_approved for one in request_record.list_erasure_requests(records)].count(True) == 1, (
        "the other one is approved"
    )
    with pytest.raises(UsageError, match="is 'withdrawn'"):
        request_reversal.lift_suppression(records, made.request)
    with pytest.raises(UsageError, match="is being carried out"):
        request_reversal.withdraw_erasure_request(records, begun.request)
    with pytest.raises(UsageError, match=f"sluice erase lift {done.request}"):
        request_reversal.withdraw_erasure_request(records, done.request)


def test_a_lake_on_a_store_that_nobody_can_search_takes_no_request(settings: Settings, club: Graph) -> None:
    on_store = replace(settings, lake="gs://bucket/lake")
    with pytest.raises(UsageError, match="whose objects and former versions the scan cannot search"):
        requests.receive_erasure_request(PipelineLake(on_store, club), ["4711"])
    assert not Path(settings.vault).exists(), "nothing was written down"
