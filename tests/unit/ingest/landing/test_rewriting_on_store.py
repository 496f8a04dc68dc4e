"""A landed object is replaced only while it is the one that was rewritten: what its producer wrote meanwhile stays, and is new."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.declare import Source
from sluice.errors import SluiceError
from sluice.ingest.landing import rewriting
from sluice.ingest.landing.rewriting import prepare_rewritten_file, replace_rewritten_files
from sluice.locations import Location, locate
from sluice.stores import store_location

LINES = b'{"id": 1}\n{"id": 2}\n'


@pytest.fixture
def location(bucket_url: str) -> Location:
    found = locate(f"{bucket_url}/landed/shop/a/1.json")
    found.write_bytes(LINES)
    return found


def test_what_a_producer_writes_before_the_replacement_or_beside_it_stays(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[str] = []
    monkeypatch.setattr(rewriting, "_record_rewritten_files", lambda path, files, run: recorded.extend(one.file for one in files))
    source = Source(name="a", schema="id BIGINT")

    def replaced() -> int:
        prepared = prepare_rewritten_file(source, "1.json", location, {0}, True)
        if newer_before:
            location.write_bytes(b'{"id": 3}\n{"id": 4}\n')
        return replace_rewritten_files(tmp_path / "journals", str(tmp_path / "deliveries"), [prepared], "r1")

    for newer_before in (True, False):
        location.write_bytes(LINES)
        recorded.clear()
        done = replaced()
        assert (done, recorded) == ((0, []) if newer_before else (1, ["1.json"]))
        assert location.read_bytes() == (b'{"id": 3}\n{"id": 4}\n' if newer_before else b'{"id": 2}\n')
        assert [one.name for one in location.parent.iterdir()] == ["1.json"]

    location.write_bytes(LINES)
    still = rewriting._is_still_replaceable

    def then_another(one: rewriting.RewrittenFile) -> bool:
        found = still(one)
        location.write_bytes(b'{"id": 5}\n{"id": 6}\n')
        return found

    monkeypatch.setattr(rewriting, "_is_still_replaceable", then_another)
    newer_before = False
    recorded.clear()
    assert replaced() == 0 and recorded == [] and location.read_bytes() == b'{"id": 5}\n{"id": 6}\n'


@pytest.mark.parametrize("late", ["while the ledger is told", "after the last look"])
def test_what_a_producer_writes_before_a_whole_object_goes_stays(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: str
) -> None:
    prepared = prepare_rewritten_file(Source(name="a", schema="id BIGINT"), "1.json", location, None, True)
    newer = b'{"id": 5}\n{"id": 6}\n'
    if late == "after the last look":
        real = store_location.remove_key_with_tag
        monkeypatch.setattr(store_location, "remove_key_with_tag", lambda *it: (location.write_bytes(newer), real(*it))[1])
        monkeypatch.setattr(rewriting, "_record_rewritten_files", lambda *it: None)
    else:
        monkeypatch.setattr(rewriting, "_record_rewritten_files", lambda *it: location.write_bytes(newer))
    assert replace_rewritten_files(tmp_path / "journals", str(tmp_path / "deliveries"), [prepared], "r1") == 0
    assert location.read_bytes() == newer


@pytest.mark.parametrize("gone", [{0}, None], ids=["records", "the whole file"])
@pytest.mark.parametrize("killed", [False, True])
def test_a_bucket_with_versions_keeps_no_former_one_of_a_file_that_is_replaced(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: set[int] | None, killed: bool
) -> None:
    client, bucket = _client(), str(location).removeprefix("s3://").partition("/")[0]
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    other = location.with_name("1.json.other")
    for one in (other, location):
        one.write_bytes(b"before")
        one.write_bytes(LINES)
    journals, deliveries = tmp_path / "journals", str(tmp_path / "deliveries")
    prepared = prepare_rewritten_file(Source(name="a", schema="id BIGINT"), "1.json", location, gone, False)
    replace_rewritten_files(journals, deliveries, [prepared], "r1")
    if killed:

        def kill(at: Location) -> int:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(rewriting, "remove_replaced_versions", kill)
            rewriting.remove_versions_of_rewritten_files(journals)
    assert rewriting.remove_versions_of_rewritten_files(journals)
    found = client.list_object_versions(Bucket=bucket)
    kept = [
        one["Key"] for one in (*found.get("Versions", ()), *found.get("DeleteMarkers", ())) if ".rewritten.part" not in one["Key"]
    ]
    assert kept == ([] if gone is None else ["landed/shop/a/1.json"]) + ["landed/shop/a/1.json.other"] * 2
    assert gone is None or location.read_bytes() == b'{"id": 2}\n'
    assert not list(journals.glob("*"))


def test_a_bucket_that_lets_no_version_go_holds_up_no_ingest_and_the_erasure_says_why(location: Location, tmp_path: Path) -> None:
    client, bucket = _client(), f"locked-{tmp_path.name.replace('_', '-')[-40:]}"
    client.create_bucket(Bucket=bucket, ObjectLockEnabledForBucket=True)
    locked = locate(f"s3://{bucket}/landed/shop/a/1.json")
    locked.write_bytes(LINES)
    until = datetime.now(UTC) + timedelta(days=1)
    client.put_object_retention(
        Bucket=bucket, Key="landed/shop/a/1.json", Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until}
    )
    journals, deliveries = tmp_path / "journals", str(tmp_path / "deliveries")
    prepared = prepare_rewritten_file(Source(name="a", schema="id BIGINT"), "1.json", locked, {0}, False)
    assert replace_rewritten_files(journals, deliveries, [prepared], "r1") == 1
    assert rewriting.finish_rewriting_journals(journals, deliveries, "r2") == 0 and locked.read_bytes() == b'{"id": 2}\n'
    for _ in range(2):
        with pytest.raises(SluiceError, match=r"AccessDenied.* needs s3:ListBucketVersions, s3:DeleteObjectVersion"):
            rewriting.remove_versions_of_rewritten_files(journals)


def _client() -> Any:
    import boto3  # type: ignore[import-untyped]  # it has no types

    return boto3.client("s3", region_name="us-east-1")
