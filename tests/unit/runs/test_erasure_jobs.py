"""Which erasures are due, as reported and as asked for: without Spark, and before one is started."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from sluice.declare.assembly import loading
from sluice.erasure import request_events, request_record, requests, searched_tables
from sluice.erasure.vault import Identifier
from sluice.errors import DeclarationError, UsageError
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.pipeline_stages import ERASE
from sluice.runs import due_requests, erasure_jobs, job, summary, vault_expiry
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment

NOW = datetime.now(UTC)


@pytest.fixture
def asked(settings: Settings) -> list[str]:
    """Two requests of the gym, by devices."""
    from sluice.erasure.vault import Identifier

    graph = loading.load_declaration_graph(settings, "gym")
    return [
        requests.receive_erasure_request(PipelineLake(settings, graph), [Identifier("device_id", number)]).request
        for number in ("4200000001", "4200000002")
    ]


def forbid_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the import of the module that starts Spark fail."""
    module = "sluice.session"
    assert importlib.util.find_spec(module), "a name of no module would forbid nothing"
    monkeypatch.setitem(sys.modules, module, None)


def test_where_nothing_is_due_no_spark_is_started(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_spark(monkeypatch)
    report = erasure_jobs.run_erase_stage(settings, job.JobRequest("gym", ERASE.name))
    assert (report["flows"], report["requests"], report["committed"]) == ([], [], False)


def test_rows_that_may_ask_are_looked_at_unless_a_request_is_asked_for(
    settings: Settings, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []

    def under_lease(*given: object) -> dict[str, object]:
        started.append(given)
        return job.empty_run_report(job.JobRequest("gym", ERASE.name))

    monkeypatch.setattr(job, "run_under_lease", under_lease)
    monkeypatch.setattr(searched_tables, "has_unseen_request_rows", lambda *_: True)
    for request in asked:
        soon = (NOW + timedelta(days=1)).isoformat()
        requests.advance_request_state(PipelineRecords(settings, "gym"), request, request_events.LOGICALLY, physical_due_at=soon)
    erasure_jobs.run_erase_stage(settings, job.JobRequest("gym", ERASE.name), asked[:1])
    assert not started
    erasure_jobs.run_erase_stage(settings, job.JobRequest("gym", ERASE.name))
    assert len(started) == 1


def test_a_request_that_is_not_there_is_refused_before_anything_is_done(settings: Settings, asked: list[str]) -> None:
    with pytest.raises(UsageError, match=f"Did you mean '{asked[0]}'"):
        erasure_jobs.run_erase_stage(settings, job.JobRequest("gym", ERASE.name), [asked[0][:-1] + "x"])


def test_a_clone_erases_nothing(settings: Settings, asked: list[str]) -> None:
    (Path(PipelineRecords(settings, "gym").bookkeeping()) / "clone.json").write_text('{"from": "/the/first"}')
    with pytest.raises(UsageError, match=r"is a clone of /the/first\. Erase people there"):
        erasure_jobs.run_erase_stage(settings, job.JobRequest("gym", ERASE.name))


def test_what_somebody_has_to_approve_waits_and_starts_no_spark(
    settings: Settings, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    strict = replace(settings, erasure_approval=True)
    records = PipelineRecords(strict, "gym")
    forbid_spark(monkeypatch)
    report = erasure_jobs.run_erase_stage(strict, job.JobRequest("gym", ERASE.name))
    assert [row["state"] for row in report["requests"]] == ["received", "received"]
    assert request_record.list_waiting_requests(records) == []
    erasure_jobs.approve_requests(records, asked[:1])
    erasure_jobs.approve_requests(records, asked[:1])
    assert [one.request for one in request_record.list_waiting_requests(records)] == asked[:1]
    assert [event.note for event in request_record.read_erasure_request(records, asked[0]).history].count(
        request_events.APPROVED
    ) == 1


def test_approved_must_say_of_which(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["erase.py", "--pipeline", "gym", "--approved"])
    with pytest.raises(SystemExit) as ended:
        erasure_jobs.run_erase_script()
    assert ended.value.code == 2 and "--requests ID,ID" in capsys.readouterr().err


def test_the_summary_says_when_the_bytes_go(settings: Settings, asked: list[str]) -> None:
    records = PipelineRecords(settings, "gym")
    on = NOW + timedelta(days=7)
    requests.advance_request_state(records, asked[0], request_events.LOGICALLY, physical_due_at=on.isoformat(timespec="seconds"))
    rows = due_requests.summarize_erasure_requests(records)
    shown = summary.format_run_summary({**job.empty_run_report(job.JobRequest("gym", "vacuum")), "requests": rows})
    assert f"request {asked[0]}: logically erased, physical due on {on:%Y-%m-%d}" in shown
    assert f"request {asked[1]}: received" in shown
    assert "4200000001" not in shown and "4200000002" not in shown
    assert not any(one.pseudonyms[0] in json.dumps(rows) for one in request_record.list_erasure_requests(records))


@pytest.mark.parametrize(
    ("state", "days", "expected"),
    [
        (request_events.RECEIVED, None, "erase"),
        (request_events.LOGICALLY, 1, "later"),
        (request_events.LOGICALLY, -1, "finish"),
        (request_events.PHYSICALLY, -1, "scan"),
        (request_events.FAILED, -1, "scan"),
        (request_events.CERTIFIED, -1, None),
    ],
)
def test_every_state_of_a_request_has_what_is_due_of_it(
    settings: Settings, asked: list[str], state: request_events.State, days: int | None, expected: str | None
) -> None:
    records = PipelineRecords(settings, "gym")
    when = None if days is None else (NOW + timedelta(days=days)).isoformat(timespec="seconds")
    if state == request_events.FAILED:
        requests.advance_request_state(records, asked[0], state, "ambiguous")
        assert due_requests.find_due_requests(records, NOW, asked[:1]) == due_requests.DueRequests(), (
            "it was never erased: it has to be asked anew"
        )
        requests.advance_request_state(records, asked[0], request_events.LOGICALLY)
    requests.advance_request_state(records, asked[0], state, physical_due_at=when)
    found = due_requests.find_due_requests(records, NOW, asked[:1])
    assert {name for name, ids in found.as_lists().items() if ids} == ({expected} if expected else set())
    later = due_requests.find_due_requests(records, NOW + timedelta(days=31), asked[:1])
    if state == request_events.CERTIFIED:
        assert later.again == (asked[0],)


def test_a_certificate_by_hand_is_not_the_second_look(settings: Settings, asked: list[str]) -> None:
    records = PipelineRecords(settings, "gym")
    requests.advance_request_state(records, asked[0], request_events.LOGICALLY)
    requests.advance_request_state(records, asked[0], request_events.CERTIFIED, "the first")
    requests.advance_request_state(records, asked[0], request_events.CERTIFIED, "by hand")
    later = NOW + timedelta(days=31)
    found = request_record.read_erasure_request(records, asked[0])
    assert len(found.certified_at) == 2 and due_requests.find_due_requests(records, later).again == (asked[0],)
    second = request_record.RequestEvent(later.isoformat(), request_events.CERTIFIED)
    requests.write_erasure_request(records, replace(found, history=(*found.history, second)))
    assert due_requests.find_due_requests(records, later).again == ()


def test_a_scan_that_decided_nothing_stands_for_a_week_unless_somebody_asks(settings: Settings, asked: list[str]) -> None:
    records = PipelineRecords(settings, "gym")
    requests.advance_request_state(records, asked[0], request_events.PHYSICALLY)
    requests.add_request_event(records, asked[0], request_events.SCANNED, "INCONCLUSIVE")
    assert due_requests.find_due_requests(records, NOW).scan == ()
    assert due_requests.find_due_requests(records, NOW, asked[:1]).scan == (asked[0],)
    assert due_requests.find_due_requests(records, NOW + timedelta(days=8)).scan == (asked[0],)


def test_identifiers_leave_the_vault_when_their_time_is_over_but_not_before_the_proof(
    settings: Settings, asked: list[str]
) -> None:
    records = PipelineRecords(settings, "gym")
    from sluice.erasure import vault
    from sluice.erasure.vault import Identifier

    done, late = asked
    for request in asked:
        vault.store_vault_entry(records, request, [Identifier("device_id", "1")], (NOW - timedelta(days=1)).isoformat())
    for days, kept in ((1, True), (45, False)):
        _certified_ago(settings, done, days)
        vault_expiry.forget_expired_identifiers(records)
        assert vault.has_vault_entry(records, done) is kept, "the second look needs them, and not for ever"
    assert vault.has_vault_entry(records, late), "nothing could prove it any more"


def test_what_no_request_owns_leaves_the_vault_when_its_time_is_over(settings: Settings, asked: list[str]) -> None:
    records = PipelineRecords(settings, "gym")
    from sluice.erasure import vault
    from sluice.erasure.vault import Identifier

    for name, days in (("0123456789ab", -1), ("0123456789cd", 1)):
        vault.store_vault_entry(records, name, [Identifier("device_id", "1")], (NOW + timedelta(days=days)).isoformat())
    folder = settings.vault / "gym"
    old, fresh = (folder / f".{name}.json.00ff.tmp" for name in ("0123456789ab", "0123456789cd"))
    for file in (old, fresh):
        file.write_text('{"identifiers"')
    at = (datetime.now(UTC) - timedelta(hours=2)).timestamp()
    os.utime(old, (at, at))
    vault_expiry.forget_expired_identifiers(records)
    left = {path.name for path in folder.iterdir()}
    assert left == {*(f"{one}.json" for one in asked), "0123456789cd.json", fresh.name}


def test_what_may_be_of_another_lake_stays_in_the_vault_and_ends_no_stage(settings: Settings, asked: list[str]) -> None:
    records, other = (PipelineRecords(one, "gym") for one in (settings, replace(settings, lake=f"{settings.lake}_of_a_trial")))
    from sluice.erasure import vault

    for owner, name in ((records, "0123456789ab"), (other, "0123456789cd"), (records, "0123456789ef")):
        vault.store_vault_entry(owner, name, [Identifier("device_id", "1")], (NOW - timedelta(days=1)).isoformat())
    folder = settings.vault / "gym"
    older = folder / "0123456789ef.json"
    older.write_text(json.dumps({key: said for key, said in json.loads(older.read_text()).items() if key != "lake"}))
    for number, damaged in enumerate(("{", "[]", "{}")):
        (folder / f"{number}.json").write_text(damaged)
        (folder / f"{number}.json").chmod(0o600)
    (folder / ".0.json.00ff.tmp").symlink_to("finished-meanwhile")
    before = {path.name for path in folder.iterdir()}
    copied = Path(records.bookkeeping()) / "clone.json"
    copied.write_text('{"from": "/the/first"}')
    vault_expiry.forget_expired_identifiers(records)
    assert {path.name for path in folder.iterdir()} == before, "a clone has no requests of its own"
    copied.unlink()
    vault_expiry.forget_expired_identifiers(records)
    assert {path.name for path in folder.iterdir()} == before - {"0123456789ab.json"}


def test_an_entry_that_cannot_be_read_keeps_no_other_in_the_vault(settings: Settings, asked: list[str]) -> None:
    records = PipelineRecords(settings, "gym")
    from sluice.erasure import vault

    for request in asked[:2]:
        _certified_ago(settings, request, 45)
        vault.store_vault_entry(records, request, [Identifier("device_id", "1")], (NOW - timedelta(days=1)).isoformat())
    first, last = sorted(asked[:2], key=[one.request for one in request_record.list_erasure_requests(records)].index)
    file = next(settings.vault.rglob(f"{first}.json"))
    file.write_text("{")
    with pytest.raises(UsageError, match=f"is damaged.*sluice erase withdraw {first}"):
        vault_expiry.forget_expired_identifiers(records)
    assert file.exists() and not vault.has_vault_entry(records, last)


def _certified_ago(settings: Settings, request: str, days: int) -> None:
    at = (NOW - timedelta(days=days)).isoformat(timespec="seconds")
    history = (
        request_record.RequestEvent(at, request_events.LOGICALLY),
        request_record.RequestEvent(at, request_events.CERTIFIED),
    )
    found = replace(
        request_record.read_erasure_request(PipelineRecords(settings, "gym"), request),
        state=request_events.CERTIFIED,
        history=history,
    )
    requests.write_erasure_request(PipelineRecords(settings, "gym"), found)


def test_a_second_look_that_cannot_be_is_passed_over_and_is_no_certificate(settings: Settings, asked: list[str]) -> None:
    records = PipelineRecords(settings, "gym")
    from sluice.erasure import vault

    _certified_ago(settings, asked[0], 50)
    vault.remove_vault_entry(records, asked[0])
    workspace: Any = SimpleNamespace(records=records, settings=settings, pipeline="gym")
    assert erasure_jobs.scan_and_certify_requests(workspace, asked[:1]) == []
    found = request_record.read_erasure_request(records, asked[0])
    assert [one.state for one in found.history] == [
        request_events.LOGICALLY,
        request_events.CERTIFIED,
        request_events.NOT_SCANNED,
    ]
    assert due_requests.find_due_requests(records, NOW + timedelta(days=90), asked[:1]) == due_requests.DueRequests()


def test_a_short_retention_takes_the_place_of_every_pipelines_but_never_in_prod(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLUICE_ENV", "SLUICE_RETAIN"):
        monkeypatch.delenv(name, raising=False)
    assert loading.load_pipeline_declaration(Settings.current(), "gym").retain == "7 days", "the default of production"
    monkeypatch.setenv("SLUICE_RETAIN", "1 minute")
    settings = Settings.current()
    assert loading.load_declaration_graph(settings, "gym").pipeline.retain == "1 minute"
    assert build_spark_environment(settings)["SLUICE_RETAIN"] == "1 minute", "jobs are told, too"
    monkeypatch.setenv("SLUICE_RETAIN", "soon")
    with pytest.raises(DeclarationError, match="not 'soon'"):
        loading.load_declaration_graph(Settings.current(), "gym")
    monkeypatch.setenv("SLUICE_ENV", "prod")
    with pytest.raises(UsageError, match="not for the environment 'prod'"):
        Settings.current()


def test_approval_is_yes_or_no(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, meant in (("yes", True), ("no", False), ("", False)):
        monkeypatch.setenv("SLUICE_ERASURE_APPROVAL", given)
        assert Settings.current().erasure_approval is meant
    monkeypatch.setenv("SLUICE_ERASURE_APPROVAL", "ja")
    with pytest.raises(UsageError, match="'yes' or 'no', not 'ja'"):
        Settings.current()


def test_the_command_line_has_run_and_approve() -> None:
    from sluice.cli import app

    shown = CliRunner().invoke(app, ["erase", "--help"]).output
    assert "run" in shown and "approve" in shown and "request" in shown


def test_the_demonstration_touches_nothing_outside_of_its_folder(settings: Settings, tmp_path: Path) -> None:
    from demonstrations import erasure as demo

    given = replace(settings, secrets_given=tmp_path)
    given.__dict__["state"] = tmp_path / ".sluice"
    told, folder = demo._make_demo_checkout(given), tmp_path / ".sluice" / "demo-erasure"
    places = {one.name: getattr(told, one.name) for one in fields(told)}
    found = {name: Path(value) for name, value in places.items() if isinstance(value, Path) or name == "lake"}
    assert set(found) >= {"lake", "released", "vault"} and told.secrets_given is None
    assert [name for name, path in found.items() if not path.is_relative_to(folder)] == []
    assert told.state == folder / ".sluice" and "SLUICE_SECRETS_GIVEN" not in demo._demo_environment(told)
