"""What a certificate says about the findings, and how it is checked. Without Spark: delta-rs writes the tables and erases from them."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.vault_entries import add_vault_identifiers

import residue
from residue import needles, opening
from sluice import record_states
from sluice.cli.erasure import certificates
from sluice.declare import Link, Pipeline, Source, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import canary, request_events, request_record, requests, vault
from sluice.erasure.personal_places import registry
from sluice.erasure.proof import certificate, chain, checking, search_scope, signatures, sought, stamps
from sluice.erasure.vault import Identifier
from sluice.errors import DeclarationError, SluiceError, UsageError
from sluice.ingest import delivery_tables
from sluice.lake import releases
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import compute_pseudonym
from sluice.runs.lease import lock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.settings import Settings

HER = "anna-schmidt-4711"
BERT = "bert-meier-0815"
notes = Source(name="notes", schema="who STRING, text STRING", subject="who", comment="Notes.")


@table(reads="notes", keys="who", subject="who", personal="text")
def note(notes: DataFrame) -> DataFrame:
    """A note."""
    return notes.select("who", "text")


def _leave_state_of_checkout_out(settings: Settings, tmp_path: Path) -> None:
    """What other runs of this checkout leave below .sluice is not a test's."""
    settings.__dict__["state"] = tmp_path / "state"


@pytest.fixture
def house(settings: Settings, tmp_path: Path) -> Graph:
    _leave_state_of_checkout_out(settings, tmp_path)
    made = build_declaration_graph(
        Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze", __name__)), (notes, note)
    )
    write_deltalake(PipelineLake(settings, made).path("note"), pa.table({"who": ["bert"], "text": ["x"]}))
    return made


NO_SPARK = SimpleNamespace(sql=lambda text: None)
"""Turns no deletion vectors on: nothing here erases by Spark."""


@pytest.fixture
def request_of_her(settings: Settings, house: Graph) -> str:
    """A request whose rows are gone, its canary planted and not yet erased."""
    made = requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", HER)])
    workspace: Any = SimpleNamespace(
        records=PipelineRecords(settings, "house"), settings=settings, pipeline="house", graph=house, session=NO_SPARK
    )
    canary.plant_canary(workspace, [made])
    requests.advance_request_state(PipelineRecords(settings, "house"), made, request_events.PHYSICALLY)
    return made.request


def _erase(settings: Settings, request: str, *kept: str) -> None:
    """Remove the canary, as the steps do, except from these folders."""
    for folder in _canary(settings, request).iterdir():
        if folder.is_dir() and folder.name not in kept:
            shutil.rmtree(folder)


def _canary(settings: Settings, request: str) -> Path:
    return canary.locate_canary_folder(
        PipelineRecords(settings, "house"),
        request_record.read_erasure_request(PipelineRecords(settings, "house"), request).control,
    )


def _issue(settings: Settings, house: Graph, request: str) -> certificate.Certificate:
    return certificate.issue_certificates(
        PipelineLake(settings, house), [request_record.read_erasure_request(PipelineRecords(settings, "house"), request)]
    )[request]


def test_pass_a_rescan_and_a_chain_that_shows_who_changes_it(settings: Settings, house: Graph, request_of_her: str) -> None:
    records = PipelineRecords(settings, "house")
    _erase(settings, request_of_her)
    made = _issue(settings, house, request_of_her)
    assert (made.verdict, made.record["control"]["why"]) == ("PASS", "found in every kind of store before, and in none after")
    stores = {one.title for store in registry.list_control_stores() for one in store.findings}
    assert set(made.record["control"]["before"]) == stores == set(made.record["control"]["now"])
    assert request_record.read_erasure_request(records, request_of_her).state == request_events.CERTIFIED
    assert not _canary(settings, request_of_her).exists()
    page = made.path.with_suffix(".html").read_text()
    assert "<script" not in page and request_of_her in page
    assert "holds, one of the identifiers looked for, in the forms listed below" in page, "and no more than that is proved"
    for text in (page, made.path.read_text()):
        assert HER not in text and canary.read_canary_identifiers(records, request_of_her)[0].value not in text

    again = _issue(settings, house, request_of_her)
    assert again.verdict == "PASS" and again.record["previous"] == made.record["hash"]
    assert checking.verify_certificate(settings, made.path, house) == {
        "certificate": made.path.name, "hash": True, "seal": True, "page": True, "chain": True, "head": True, "kept": None,
        "issued": "PASS", "verdict": "PASS", "differs": [],
    }  # fmt: skip
    late = settings.landing / "house" / "notes" / "late.jsonl.gz"
    late.parent.mkdir(parents=True)
    late.write_bytes(gzip.compress(json.dumps({"who": HER}).encode()))
    report = checking.verify_certificate(settings, made.path, house)
    assert report["verdict"] == "FAIL" and report["differs"][0] == "physical: PASS then, FAIL now"
    failed = _issue(settings, house, request_of_her)
    assert (
        failed.verdict == "FAIL" and request_record.read_erasure_request(records, request_of_her).state == request_events.FAILED
    )
    assert {hit["root"] for hit in failed.record["stamps"]["physical"]["hits"]} == {"landing"}

    made.path.write_text(json.dumps({**json.loads(made.path.read_text()), "verdict": "FAIL"}))
    assert checking.verify_certificate(settings, made.path)["hash"] is False
    assert checking.verify_certificate(settings, again.path)["chain"] is False


def test_who_is_certified_late_is_looked_for_again_all_the_same(settings: Settings, house: Graph, request_of_her: str) -> None:
    records = PipelineRecords(settings, "house")
    _erase(settings, request_of_her)
    soon = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    vault.store_vault_entry(records, request_of_her, vault.read_vault_identifiers(records, request_of_her), soon)
    made = _issue(settings, house, request_of_her)
    until = str(vault.read_vault_expiry(records, request_of_her))
    assert made.verdict == "PASS" and datetime.fromisoformat(until) > datetime.now(UTC) + timedelta(days=40)
    assert made.record["exceptions"][0]["until"] == until, "the certificate says so"
    vault.store_vault_entry(records, request_of_her, vault.read_vault_identifiers(records, request_of_her), soon)
    _issue(settings, house, request_of_her)
    assert vault.read_vault_expiry(records, request_of_her) == soon, "only the first one is followed by a second look"


def test_whoever_is_left_in_a_release_by_its_own_pseudonym_is_found(
    settings: Settings, house: Graph, request_of_her: str
) -> None:
    _erase(settings, request_of_her)
    key = secrets.read_secret_key(settings)
    told = {"tables": {"note": {"pseudonyms": {"who": "who"}}}}
    for person, verdict in (("bert-meier-0815", "PASS"), (HER, "FAIL")):
        begun = releases.begin_release(PipelineRecords(settings, "house"), told)
        release = replace(begun, said=told)
        releases.write_release_manifest(release)
        listed = str(compute_pseudonym(key, "who", person))
        write_deltalake(str(release.folder / "note"), pa.table({"who": [compute_pseudonym(key, release.domain, listed)]}))
        made = _issue(settings, house, request_of_her)
        assert made.verdict == verdict
    assert {(hit["root"], hit["kind"]) for hit in made.record["stamps"]["physical"]["hits"]} == {("released", "of a release")}


def test_a_certificate_that_is_forged_or_left_out_is_found_out(settings: Settings, house: Graph, request_of_her: str) -> None:
    _erase(settings, request_of_her)
    late = settings.landing / "house" / "notes" / "late.jsonl"
    late.parent.mkdir(parents=True)
    late.write_text(json.dumps({"who": HER}))
    first, last = (_issue(settings, house, request_of_her) for _ in range(2))
    assert (last.verdict, last.path.stem) == ("FAIL", f"{request_of_her}-2")
    fine = checking.verify_certificate(settings, last.path)
    assert [fine[name] for name in ("hash", "seal", "page", "chain", "head")] == [True] * 5

    # Whoever changes the last one can make its hash anew, but not its seal; a copy beside the chain is not in it.
    forged = {**last.record, "verdict": "PASS"}
    forged["hash"] = chain.compute_record_hash(forged)
    copied = first.path.parent.parent / "copy.json"
    copied.write_text(json.dumps(forged))
    report = checking.verify_certificate(settings, copied)
    assert (report["hash"], report["seal"], report["page"], report["chain"]) == (True, False, False, False)

    page = last.path.with_suffix(".html")
    page.write_text(page.read_text().replace("FAIL", "PASS"))
    assert checking.verify_certificate(settings, last.path)["page"] is False
    last.path.unlink()
    report = checking.verify_certificate(settings, first.path)
    assert (report["seal"], report["chain"], report["head"]) == (True, True, False)
    assert _issue(settings, house, request_of_her).path.name == last.path.name
    secrets.find_secret(settings, "certificate.key").unlink()  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"The secret 'certificate\.key' is not in"):
        checking.verify_certificate(settings, first.path)


def _first_format(record: dict[str, Any], key: bytes | None) -> dict[str, Any]:
    """A record as it was issued before there were signatures: sealed by an HMAC with a key; without one, forged."""
    old = {name: value for name, value in record.items() if name not in ("page", "signature")} | {"format": 1}
    old["hash"] = chain.compute_record_hash(old)
    if key is not None:
        page = record["page"]
        old |= {"page": page, "seal": hmac.new(key, f"{old['hash']}\n{page}".encode(), hashlib.sha256).hexdigest()}
    return old


def _note_of_certificate_cut(settings: Settings, request: str) -> None:
    file = Path(PipelineRecords(settings, "house").erasure_requests) / f"{request}.json"
    file.write_text(re.sub(r", number \d+, hash [0-9a-f]+", "", file.read_text()))


def test_no_certificate_without_its_seal_holds_and_none_is_shown(
    settings: Settings, house: Graph, request_of_her: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    records = PipelineRecords(settings, "house")
    late = settings.landing / "house" / "notes" / "late.jsonl"
    late.parent.mkdir(parents=True)
    late.write_text(json.dumps({"who": HER}))
    made = _issue(settings, house, request_of_her)
    assert made.verdict == "FAIL"
    shown = checking.read_verified_certificate(records, request_of_her)
    assert shown is not None and shown.record["hash"] == made.record["hash"]
    page, parts = made.path.with_suffix(".html").read_text(), ("hash", "seal", "page", "chain", "head")

    # The seal is dropped, the hash is made anew, and the history of the request tells of no certificate any more.
    _note_of_certificate_cut(settings, request_of_her)
    better = {**made.record, "verdict": "PASS", "control": {**made.record["control"], "before": {"table": 1}}}
    forged = [
        _first_format(better, None),
        _first_format(better, b"another key, which somebody made up"),
        {name: value for name, value in better.items() if name not in ("signature", "page")},
        {**better, "signature": "00" * 64},
        {**better, "format": True},
    ]
    for record in forged:
        record["hash"] = chain.compute_record_hash(record)
        made.path.write_text(json.dumps(record))
        report = checking.verify_certificate(settings, made.path, house)
        assert report["seal"] is False and report["issued"] is None and report["verdict"] is None, (
            "nothing of it is told, nor scanned for"
        )
        with pytest.raises(SluiceError, match=r"is not shown.*seal"):
            checking.read_verified_certificate(records, request_of_her)
        # What a forged record tells of the control is not believed either.
        assert certificate._find_earlier_control_counts(records, request_of_her) is None

    # Of before there were signatures: sealed with the key it holds, and without its seal it was issued by nobody.
    key = secrets.read_secret_key(settings, "certificate.key")
    made.path.write_text(json.dumps(_first_format(made.record, key)))
    made.path.with_suffix(".html").write_text(page)
    assert [checking.verify_certificate(settings, made.path)[part] for part in parts] == [True] * 5
    made.path.write_text(json.dumps(_first_format(made.record, None)))
    assert [checking.verify_certificate(settings, made.path)[part] for part in parts] == [True, False, False, True, True]
    with pytest.raises(SluiceError, match=r"is not shown.*\(seal, page\)"):
        checking.read_verified_certificate(records, request_of_her)
    secrets.find_secret(settings, "certificate.key").unlink()  # type: ignore[union-attr]
    with pytest.raises(UsageError, match=r"The secret 'certificate\.key' is not in"):
        checking.verify_certificate(settings, made.path)


def test_an_auditor_checks_certificates_and_can_make_none(
    settings: Settings, house: Graph, request_of_her: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, last = (_issue(settings, house, request_of_her) for _ in range(2))
    pem = tmp_path / "certificate.pem"
    pem.write_text(signatures.export_public_key(settings))
    copies = tmp_path / "copies"
    shutil.copytree(first.path.parent, copies)
    public, head = signatures.read_public_key(pem), chain.parse_chain_head(chain.format_chain_head(last.record))
    elsewhere = replace(settings, lake=str(tmp_path / "none"), secrets=tmp_path / "no secrets")
    report = checking.verify_certificate(elsewhere, copies / first.path.name, None, public, head)
    assert checking.is_as_issued(report) and (report["seal"], report["head"], report["kept"]) == (True, None, True)
    assert not (tmp_path / "no secrets").exists(), "no key is made by looking"

    # By hand, as docs/erasure.md says.
    text = (Path(__file__).parents[4] / "docs" / "erasure.md").read_text()
    (code,) = re.findall(r"```python\n(# check\.py.*?)```", text, re.DOTALL)
    (tmp_path / "check.py").write_text(code)
    by_hand = [sys.executable, str(tmp_path / "check.py"), str(copies / last.path.name), str(pem)]
    assert subprocess.run(by_hand, capture_output=True, check=False).returncode == 0

    # A chain that is cut at its end: only who has kept its head can tell, or whose requests tell of it.
    (copies / last.path.name).unlink()
    assert checking.is_as_issued(checking.verify_certificate(elsewhere, copies / first.path.name, None, public))
    report = checking.verify_certificate(elsewhere, copies / first.path.name, None, public, head)
    assert report["kept"] is False and not checking.is_as_issued(report)

    # A later one that was changed is found out from an earlier one, too.
    changed = {**last.record, "verdict": "PASS"} | {"hash": last.record["hash"]}
    (copies / last.path.name).write_text(json.dumps({**changed, "hash": chain.compute_record_hash(changed)}))
    assert checking.verify_certificate(elsewhere, copies / first.path.name, None, public)["head"] is False
    assert subprocess.run(by_hand, capture_output=True, check=False).returncode == 1
    last.path.write_text((copies / last.path.name).read_text())
    _note_of_certificate_cut(settings, request_of_her)
    assert checking.verify_certificate(settings, first.path)["head"] is False

    pem.write_text("no key")
    with pytest.raises(UsageError, match=r"no public key in PEM.*sluice erase public-key"):
        signatures.read_public_key(pem)
    with pytest.raises(UsageError, match="--head takes what was printed"):
        chain.parse_chain_head("7:abc")


def test_the_commands_exit_with_1_where_a_certificate_does_not_hold_or_a_new_one_is_no_pass(
    settings: Settings, house: Graph, request_of_her: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(certificates.Settings, "current", lambda: settings)
    monkeypatch.setattr(certificates, "list_pipeline_records", lambda of: [PipelineRecords(of, "house")])
    monkeypatch.setattr(certificates, "load_pipeline_lake", lambda *_: PipelineLake(settings, house))
    monkeypatch.setattr(lock, "hold_lease_without_spark", lambda *_: contextlib.nullcontext())
    with pytest.raises(SluiceError, match="says FAIL") as failed:
        certificates.show_certificate(request_of_her, new=True)  # the control is there still
    assert failed.value.exit_code == 1
    (made,) = certificate.read_certificates(PipelineRecords(settings, "house"), request_of_her)
    printed = capsys.readouterr().out
    assert "FAIL" in printed and f"Head of the chain; keep it elsewhere: 1:{made.record['hash']}" in printed.replace("\n", "")
    certificates.show_certificate(request_of_her)
    certificates.verify_certificate(made.path, rescan=False, head=f"1:{made.record['hash']}")
    certificates.public_key()
    assert "BEGIN PUBLIC KEY" in capsys.readouterr().out
    made.path.write_text(json.dumps({**made.record, "verdict": "PASS"}))
    for command in (lambda: certificates.show_certificate(request_of_her), lambda: certificates.verify_certificate(made.path)):
        with pytest.raises(SluiceError) as failed:
            command()
        assert failed.value.exit_code == 1 and "PASS" not in capsys.readouterr().out


@pytest.mark.parametrize("state", [request_events.RECEIVED, request_events.LOGICALLY])
def test_a_scan_before_the_erasure_is_over_does_not_end_it(
    settings: Settings, house: Graph, request_of_her: str, state: request_events.State
) -> None:
    requests.advance_request_state(PipelineRecords(settings, "house"), request_of_her, state)
    made = _issue(settings, house, request_of_her)
    now = request_record.read_erasure_request(PipelineRecords(settings, "house"), request_of_her)
    assert (made.verdict, now.state, now.history[-1].state) == ("FAIL", state, "scanned")


def test_a_scan_by_hand_takes_the_lease_and_keeps_it_while_it_reads_the_lock(settings: Settings) -> None:
    folder = Path(PipelineRecords(settings, "gym").bookkeeping())
    folder.mkdir(parents=True, exist_ok=True)
    text = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'a+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    other = [sys.executable, "-c", text, str(folder / "lease.lock")]
    with lock.hold_lease_without_spark(PipelineRecords(settings, "gym"), "certificate", "Wait."):
        (folder / "lease.lock").read_bytes()
        assert subprocess.run(other, capture_output=True, check=False).returncode == 1
    assert subprocess.run(other, capture_output=True, check=False).returncode == 0


def test_no_path_that_is_a_hit_is_printed() -> None:
    hit = residue.Hit("lake", f"of/{HER}", "names", "", "who", "raw", False, 1)
    result = residue.ScanResult([hit], [residue.Unread("lake", f"of/{HER}/a.bin", "why"), residue.Unread("lake", "b.bin", "why")])
    told = certificates._scan_as_json(result, 1, [])
    assert HER not in repr(told) and [one["file"] for one in told["unread"]] == ["(its name is a hit)", "b.bin"]


def test_a_row_that_a_query_returns_fails_both_stamps(settings: Settings, house: Graph, request_of_her: str) -> None:
    _erase(settings, request_of_her)
    write_deltalake(PipelineLake(settings, house).path("note"), pa.table({"who": [HER], "text": ["x"]}), mode="append")
    made = _issue(settings, house, request_of_her)
    assert (made.verdict, made.logical, made.physical) == ("FAIL", "FAIL", "FAIL")
    assert made.record["stamps"]["logical"]["hits"][0]["column"] == "who"


@pytest.mark.parametrize("kept", ["table", "vectors", "quarantine", "landing", "archive", "state", "temporary"])
def test_a_control_that_is_still_there_fails(settings: Settings, house: Graph, request_of_her: str, kept: str) -> None:
    _erase(settings, request_of_her, kept)
    made = _issue(settings, house, request_of_her)
    assert made.verdict == "FAIL" and made.record["control"]["why"] == "the control was found after it had been erased"


def test_a_scanner_that_finds_no_control_proves_nothing(
    settings: Settings, house: Graph, request_of_her: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _erase(settings, request_of_her)
    monkeypatch.setitem(opening._STREAMS, "gzip", lambda stream: iter(()))
    blind = _issue(settings, house, request_of_her)
    assert blind.verdict == "INCONCLUSIVE" and "archive, gzip" in blind.record["control"]["why"]
    assert (
        request_record.read_erasure_request(PipelineRecords(settings, "house"), request_of_her).state == request_events.PHYSICALLY
    )


def test_without_a_control_or_with_an_unreadable_file_it_is_inconclusive(settings: Settings, house: Graph) -> None:
    request = requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", HER)]).request
    unplanted = _issue(settings, house, request)
    assert (unplanted.verdict, unplanted.record["control"]["why"]) == (
        "INCONCLUSIVE",
        "no control was planted before the erasure",
    )
    odd = Path(settings.lake) / "house" / "left" / "odd.bin"
    odd.parent.mkdir()
    odd.write_bytes(bytes(range(256)))
    unread = _issue(settings, house, request)
    assert [one["reason"] for one in unread.record["stamps"]["physical"]["unread"]] == ["no decoder knows this kind of file"]
    assert unread.record["undeclared"] == [
        {"root": "lake", "path": stamps.make_path_hasher(PipelineRecords(settings, "house"))("left/odd.bin")}
    ]


def test_with_something_that_nobody_declared_there_is_no_pass_unless_it_is_said_to_be_there(
    settings: Settings, house: Graph, request_of_her: str
) -> None:
    _erase(settings, request_of_her)
    write_deltalake(Path(settings.lake) / "house" / "by_hand", pa.table({"x": ["bert"]}))
    made = _issue(settings, house, request_of_her)
    assert (
        made.verdict == "INCONCLUSIVE" and made.record["stamps"]["physical"]["undeclared"] == len(made.record["undeclared"]) > 1
    )
    assert "2 not declared" in made.path.with_suffix(".html").read_text()
    said = replace(house, pipeline=replace(house.pipeline, also_here=("lake/by_hand",)))
    passed = _issue(settings, said, request_of_her)
    assert passed.verdict == "PASS" and passed.record["undeclared"] == []
    assert "'lake/by_hand', which is no table of the pipeline but is listed in also_here" in repr(passed.record["exceptions"])
    assert checking.verify_certificate(settings, passed.path, house)["verdict"] == "INCONCLUSIVE"
    with pytest.raises(DeclarationError, match="also_here takes paths below its folders"):
        replace(house.pipeline, also_here="vault/x")


def test_landed_and_released_files_that_nobody_declared_are_counted(
    settings: Settings, house: Graph, request_of_her: str
) -> None:
    _erase(settings, request_of_her)
    landing, released = settings.landing / "house", settings.released / "house"
    picky = replace(notes, pattern="*.jsonl", ready_marker="{name}.done")
    made = replace(house, stored={**house.stored, "notes": picky})
    theirs = [
        landing / "notes" / name
        for name in ("1.jsonl", "2.jsonl.part", ".3.jsonl.tmp", "1.jsonl.done", "d/.4.jsonl.0a.rewritten.part")
    ]
    theirs += [landing / "_archive/notes" / name for name in ("1.jsonl", "7.1.jsonl")]
    strange = {"landing": ["notes/readme.txt", "others/1.jsonl", "_archive/old/1.jsonl"], "released": ["by_hand/x", "1/extra/x"]}
    releases.begin_release(PipelineRecords(settings, "house"), {})
    roots = {"landing": landing, "released": released}
    for path in (*theirs, *(roots[root] / name for root, names in strange.items() for name in names)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")
    (landing / "notes" / "_SUCCESS").touch()
    long_ago = time.time() - 16 * 60
    os.utime(landing / "notes" / "1.jsonl", (long_ago, long_ago))
    found = {(one.root, one.path) for one in search_scope.find_undeclared_paths(PipelineLake(settings, made))}
    assert found == {("landing", name) for name in ("notes/readme.txt", "others", "_archive/old")} | {
        ("released", "by_hand"),
        ("released", "1/extra"),
    }
    assert _issue(settings, made, request_of_her).verdict == "INCONCLUSIVE"
    said = replace(made, pipeline=replace(house.pipeline, also_here=tuple(f"{root}/{path}" for root, path in found)))
    assert _issue(settings, said, request_of_her).verdict == "PASS"
    # Nobody goes on writing a part of a file that has not grown for long.
    os.utime(landing / "notes" / "2.jsonl.part", (long_ago, long_ago))
    assert [one.path for one in search_scope.find_undeclared_paths(PipelineLake(settings, said))] == ["notes/2.jsonl.part"]


def test_landed_files_that_are_nowhere_are_not_proved_to_be_without_anybody(
    settings: Settings, house: Graph, request_of_her: str
) -> None:
    _erase(settings, request_of_her)
    deliveries = PipelineRecords(settings, "house").delivery_ledger
    delivery_tables.append_numbered_deliveries(
        deliveries, [[{"source": "notes", "file": "a.jsonl", "event": record_states.DELIVERED}]], 0, "run"
    )
    made = _issue(settings, house, request_of_her)
    unread = made.record["stamps"]["physical"]["unread"]
    assert made.verdict == "INCONCLUSIVE" and [one["root"] for one in unread] == ["landing"]
    # Of two sources one has its folder; then there is the folder where a disk is mounted at other times.
    for folder in ("others", "notes"):
        (settings.landing / "house" / folder).mkdir(parents=True)
        assert _issue(settings, house, request_of_her).verdict == "INCONCLUSIVE"
    delivery_tables.append_numbered_deliveries(
        deliveries, [[{"source": "notes", "file": "a.jsonl", "event": record_states.VANISHED}]], 1, "run"
    )
    also = replace(house.pipeline, also_here=("landing/others",))
    assert _issue(settings, replace(house, pipeline=also), request_of_her).verdict == "PASS"


def test_one_whose_certificate_cannot_be_made_costs_nobody_else_theirs(
    settings: Settings, house: Graph, request_of_her: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _erase(settings, request_of_her)
    others = [
        requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", name)])
        for name in ("cleo-meier-77", "dora-meier-78")
    ]
    note = requests.add_request_event

    def broken(*of: Any) -> None:
        if of[1] == others[0].request:
            raise SluiceError("its file is broken")
        note(*of)

    # Her certificate is written already when noting that fails: the next one must follow it in the chain.
    monkeypatch.setattr(certificate.requests, "add_request_event", broken)
    asked = [others[0], others[1], request_record.read_erasure_request(PipelineRecords(settings, "house"), request_of_her)]
    with pytest.raises(certificate.CertificatesNotIssued, match="its file is broken") as some:
        certificate.issue_certificates(PipelineLake(settings, house), asked)
    assert set(some.value.made) == {others[1].request, request_of_her} and set(some.value.errors) == {others[0].request}
    assert some.value.made[request_of_her].verdict == "PASS"
    assert checking.verify_certificate(settings, some.value.made[request_of_her].path, house)["chain"] is True
    assert [one.record["number"] for one in some.value.made.values()] == [2, 3]


def test_until_the_retention_is_over_the_physical_stamp_is_due(settings: Settings, house: Graph, request_of_her: str) -> None:
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    requests.advance_request_state(
        PipelineRecords(settings, "house"), request_of_her, request_events.LOGICALLY, physical_due_at=later
    )
    made = _issue(settings, house, request_of_her)
    assert (made.verdict, made.logical, made.physical) == ("INCONCLUSIVE", "PASS", "DUE")
    assert (
        request_record.read_erasure_request(PipelineRecords(settings, "house"), request_of_her).state == request_events.LOGICALLY
    )


def test_an_identifier_that_was_others_too_is_no_needle(settings: Settings, house: Graph) -> None:
    request = requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", HER)]).request
    add_vault_identifiers(
        PipelineRecords(settings, "house"), request, [Identifier("who", "badge-00a7f3", None, "2026-02-01T00:00:00+00:00")]
    )
    write_deltalake(
        PipelineLake(settings, house).path("note"), pa.table({"who": ["badge-00a7f3"], "text": ["the next one's"]}), mode="append"
    )
    made = _issue(settings, house, request)
    assert (made.logical, made.record["shared_identifiers"]) == ("PASS", 1)


def test_whoever_looks_for_nothing_proves_nothing(settings: Settings, house: Graph, request_of_her: str) -> None:
    _erase(settings, request_of_her)
    made_up = [
        one for one in vault.read_vault_identifiers(PipelineRecords(settings, "house"), request_of_her) if one.domain != "who"
    ]
    vault.replace_vault_identifiers(
        PipelineRecords(settings, "house"), request_of_her, [Identifier("who", HER, None, "2026-02-01T00:00:00+00:00"), *made_up]
    )
    made = _issue(settings, house, request_of_her)
    assert (made.verdict, made.logical, made.physical) == ("INCONCLUSIVE", "INCONCLUSIVE", "INCONCLUSIVE")
    assert (
        set(made.record["needles"]) == {needles.TIMED}
        and "nothing could be looked for" in made.path.with_suffix(".html").read_text()
    )


def test_an_identifier_that_the_next_owner_got_after_the_erasure_is_shared_from_then_on(settings: Settings, house: Graph) -> None:
    request = requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", HER)])
    since = "2026-02-01T00:00:00+00:00"
    add_vault_identifiers(
        PipelineRecords(settings, "house"), request.request, [Identifier("who", "badge-00a7f3", known_until=since)]
    )
    assert (sought.collect_sought_needles(PipelineLake(settings, house), [request])).shared == {request.request: 0}
    (entry,) = requests.pseudonymise_subjects(PipelineLake(settings, house), [Identifier("who", "badge-00a7f3")])
    row = {
        "domain": ["who"],
        "pseudonym": [entry.pseudonym],
        "request": [request.request],
        **{name: pa.nulls(1, pa.timestamp("us")) for name in ("valid_from", "lifted_at")},
    }
    path = PipelineRecords(settings, "house").suppression_list
    write_deltalake(path, pa.table({**row, "valid_to": pa.nulls(1, pa.timestamp("us"))}))
    assert (sought.collect_sought_needles(PipelineLake(settings, house), [request])).shared == {request.request: 0}
    write_deltalake(path, pa.table({**row, "valid_to": [datetime(2026, 3, 1)]}), mode="overwrite")
    found = sought.collect_sought_needles(PipelineLake(settings, house), [request])
    assert found.shared == {request.request: 1}
    march = round(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1e6)
    assert [one.times for one in found.person if one.times] == [((None, march),)]


def test_short_identifiers_are_found_in_rows_of_a_file_that_only_its_source_knows_as_such(
    settings: Settings, tmp_path: Path
) -> None:
    _leave_state_of_checkout_out(settings, tmp_path)
    coded = Source(
        name="coded", format="csv", path="in/coded", delimiter="|", header=False, schema="n STRING, who STRING", subject="who"
    )
    made = build_declaration_graph(
        Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze", __name__)), (coded,)
    )
    archived = settings.landing / "house" / "_archive" / "in" / "coded" / "b"
    archived.parent.mkdir(parents=True)
    archived.write_text("1|4711\n")
    wanted = sought.SoughtNeedles(needles.build_needles([("who", "4711")], {"who": {"who"}}), [], 0)
    assert [hit.path for hit in sought.scan_all_roots(PipelineLake(settings, made), wanted).hits] == ["_archive/in/coded/b"]


@pytest.mark.parametrize("kind", ["instant", "date", "text"])
def test_rows_of_an_identifier_that_changed_hands_count_by_the_time_that_their_table_tells(
    settings: Settings, house: Graph, request_of_her: str, kind: str
) -> None:
    _erase(settings, request_of_her)
    seen = Source(name="seen", schema="badge STRING, at TIMESTAMP", subject="badge", subject_at="at")
    who = Link("note", person=("who", "who"), identifier=("who", "badge"), since="text")
    made = build_declaration_graph(house.pipeline, (notes, note, seen), links=(who,))
    until = datetime(2026, 2, 1, tzinfo=UTC)
    add_vault_identifiers(
        PipelineRecords(settings, "house"), request_of_her, [Identifier("badge", "17", None, until.isoformat())]
    )
    path = PipelineLake(settings, made).path("seen")
    for late, verdict in ((True, "PASS"), (False, "FAIL")):
        told = until if late else until - timedelta(days=1)
        at = {
            "instant": pa.array([told], pa.timestamp("us", "UTC")),
            "date": pa.array([told.date()], pa.date32()),
            "text": [told.isoformat()],
        }[kind]
        write_deltalake(path, pa.table({"badge": ["17"], "at": at}), mode="overwrite", schema_mode="overwrite")
        issued = certificate.issue_certificates(
            PipelineLake(settings, made),
            [request_record.read_erasure_request(PipelineRecords(settings, "house"), request_of_her)],
        )[request_of_her]
        assert (issued.verdict, issued.logical, issued.record["shared_identifiers"]) == (verdict, verdict, 1)
        assert issued.record["shared_found"] > 0, "counted, whoever's it is"


def test_requests_that_are_scanned_for_at_once_have_each_its_own_verdict(
    settings: Settings, house: Graph, request_of_her: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = PipelineRecords(settings, "house")
    bert = requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", BERT)])
    workspace: Any = SimpleNamespace(records=records, settings=settings, pipeline="house", graph=house, session=NO_SPARK)
    both = [request_record.read_erasure_request(records, one) for one in (request_of_her, bert.request)]
    theirs = canary.plant_canary(workspace, both)
    assert [one.control for one in canary.plant_canary(workspace, theirs)] == [one.control for one in theirs]
    requests.advance_request_state(records, bert, request_events.PHYSICALLY)
    for request in theirs:
        _erase(settings, request.request)
    write_deltalake(PipelineLake(settings, house).path("note"), pa.table({"who": [BERT], "text": ["x"]}), mode="append")
    asked = [request_record.read_erasure_request(records, one.request) for one in theirs]
    scans = []
    run = residue.scan_roots
    monkeypatch.setattr(residue, "scan_roots", lambda *args, **how: scans.append(args[0][0].name) or run(*args, **how))
    hers, his = certificate.issue_certificates(PipelineLake(settings, house), asked).values()
    assert [name for name in scans if name != "canary"] == ["lake"]
    assert (hers.verdict, his.verdict, his.logical) == ("PASS", "FAIL", "FAIL")
    assert his.record["previous"] == hers.record["hash"]
    assert sum(hers.record["needles"].values()) < 100 > sum(his.record["needles"].values())
    assert not _canary(settings, request_of_her).exists() and _canary(settings, bert.request).exists()


def test_requests_that_are_carried_out_together_have_one_canary(settings: Settings, house: Graph) -> None:
    records = PipelineRecords(settings, "house")
    workspace: Any = SimpleNamespace(records=records, settings=settings, pipeline="house", graph=house, session=NO_SPARK)
    asked = [requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", name)]) for name in (HER, BERT)]
    planted = canary.plant_canary(workspace, asked)
    assert len({one.control for one in planted}) == 1 and len(list(canary.locate_canary_folder(records, "").iterdir())) == 1
    assert len({tuple(canary.read_canary_identifiers(records, one.request)) for one in asked}) == 1
    # One of them was erased alone meanwhile: the other does not inherit what was erased before it.
    requests.advance_request_state(records, asked[0], request_events.LOGICALLY)
    (alone,) = canary.plant_canary(workspace, [request_record.read_erasure_request(records, asked[1].request)])
    assert alone.control != planted[1].control and _canary(settings, asked[0].request).exists()
    requests.advance_request_state(records, asked[0], request_events.RECEIVED)
    planted = canary.plant_canary(
        workspace, [requests.write_request_canary(records, one.request, alone.control) for one in asked]
    )
    assert {one.control for one in planted} == {alone.control}
    # Killed while it planted: what is not whole goes, and another is planted.
    (_canary(settings, asked[0].request) / canary.PLANTED).unlink()
    again = canary.plant_canary(workspace, planted)
    assert again[0].control != planted[0].control and len(list(canary.locate_canary_folder(records, "").iterdir())) == 1
    for request in asked:
        requests.advance_request_state(records, request, request_events.PHYSICALLY)
    _erase(settings, asked[0].request)
    made = _issue(settings, house, asked[0].request)
    assert made.verdict == "PASS" and _canary(settings, asked[0].request).exists()
    left = canary.locate_canary_folder(records, "now-0")
    left.mkdir()
    assert _issue(settings, house, asked[1].request).verdict == "PASS"
    assert not _canary(settings, asked[1].request).exists() and left.exists(), "somebody may be looking for it just now"
    os.utime(left, (0, 0))
    canary.remove_stale_canaries(records)
    assert not left.exists()


def test_times_that_cannot_be_read_matter_to_whom_they_are_about(settings: Settings, house: Graph, request_of_her: str) -> None:
    bert = requests.receive_erasure_request(PipelineLake(settings, house), [Identifier("who", BERT)])
    seen = Source(name="seen", schema="badge STRING, at STRING", subject="badge", subject_at="try_to_timestamp(at, 'dd.MM.yyyy')")
    who = Link("note", person=("who", "who"), identifier=("who", "badge"), since="text")
    made = build_declaration_graph(house.pipeline, (notes, note, seen), links=(who,))
    add_vault_identifiers(
        PipelineRecords(settings, "house"), request_of_her, [Identifier("badge", "17", None, "2026-02-01T00:00:00+00:00")]
    )
    write_deltalake(PipelineLake(settings, made).path("seen"), pa.table({"badge": ["17"], "at": ["01.03.2026"]}))
    asked = [
        request_record.read_erasure_request(PipelineRecords(settings, "house"), one) for one in (request_of_her, bert.request)
    ]
    hers, his = certificate.issue_certificates(PipelineLake(settings, made), asked).values()
    assert (hers.logical, his.logical) == ("INCONCLUSIVE", "PASS")
