"""A search on a store: each version of an object, names of removed ones, and what nobody can read. It never says clean of what it did not see."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest

from residue import ScanResult, ScanRoot, listing, needles, scan_roots, stored_files, walk
from residue.command import CLEAN, FOUND, INCONCLUSIVE, MISUSED, main
from residue.stored_files import StoredFile

WHO = "anna-schmidt-4711"
PREFIX = "lake/gym"


class Bucket:
    """A bucket as another program than the scan writes to it."""

    def __init__(self, url: str) -> None:
        self.name = url.removeprefix("s3://")
        self.client: Any = boto3.client("s3", region_name="us-east-1")

    def versioned(self) -> Bucket:
        self.client.put_bucket_versioning(Bucket=self.name, VersioningConfiguration={"Status": "Enabled"})
        return self

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"{PREFIX}/{key}", Body=content)

    def remove(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"{PREFIX}/{key}")

    def remove_versions(self, key: str) -> None:
        for one in self.client.list_object_versions(Bucket=self.name, Prefix=f"{PREFIX}/{key}")["Versions"]:
            self.client.delete_object(Bucket=self.name, Key=one["Key"], VersionId=one["VersionId"])

    def begin_upload(self, key: str) -> None:
        self.client.create_multipart_upload(Bucket=self.name, Key=key)


@pytest.fixture
def bucket(bucket_url: str) -> Bucket:
    return Bucket(bucket_url)


def scanned(bucket: Bucket, prefix: str = PREFIX, processes: int = 1, without: tuple[str, ...] = ()) -> ScanResult:
    root = ScanRoot("lake", f"s3://{bucket.name}/{prefix}", without)
    return scan_roots([root], needles.build_needles([("who", WHO)]), processes=processes)


def locations(result: ScanResult) -> set[str]:
    return {hit.path for hit in result.hits}


@pytest.mark.parametrize("processes", [1, 2])
def test_objects_and_their_names_are_searched_below_the_root_and_nowhere_else(
    processes: int, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "_SMALL", 0)
    bucket.put("bronze/a.txt", WHO.encode())
    bucket.put("bronze/a.json.gz", gzip.compress(f'{{"of": "{WHO}"}}'.encode()))
    bucket.put(f"silver/who={WHO}/part-0", b"nothing")
    bucket.put(f"silver/who={WHO}/part-1", b"nothing")
    bucket.put("clean.txt", b"nobody")
    bucket.put("folder/", b"")  # as Hadoop marks folders
    bucket.client.put_object(Bucket=bucket.name, Key=f"{PREFIX}2/a.txt", Body=WHO.encode())
    result = scanned(bucket, processes=processes)
    assert locations(result) == {"bronze/a.txt", "bronze/a.json.gz", f"silver/who={WHO}"}, "a folder's name counts once"
    assert not result.unread and not result.missing and result.files == 6
    assert locations(scanned(bucket, f"{PREFIX}/bronze/a.txt")) == {"a.txt"}, "the root may be an object"
    without = (f"s3://{bucket.name}/{PREFIX}/bronze", f"s3://{bucket.name}/{PREFIX}/silver")
    assert not locations(scanned(bucket, without=without))


def test_what_was_replaced_or_removed_is_found_as_long_as_the_store_keeps_it(bucket: Bucket) -> None:
    bucket.versioned()
    bucket.put("replaced.txt", WHO.encode())
    bucket.put("replaced.txt", b"nobody")
    bucket.put("removed.txt", WHO.encode())
    bucket.remove("removed.txt")
    bucket.put(f"{WHO}.txt", b"nobody")
    bucket.remove(f"{WHO}.txt")
    bucket.remove_versions(f"{WHO}.txt")  # the mark alone has the name
    found = sorted(path.partition(" ")[0] for path in locations(scanned(bucket)))
    assert found == [f"{WHO}.txt", "removed.txt", "replaced.txt"]
    assert all("(version " in path for path in locations(scanned(bucket)) if not path.startswith(WHO))


def test_an_upload_that_was_never_completed_is_unread(bucket: Bucket) -> None:
    bucket.put("a.txt", b"nobody")
    bucket.begin_upload(f"{PREFIX}/b.parquet")
    bucket.begin_upload(f"{PREFIX}2/b.parquet")
    assert [(one.path, "never completed" in one.reason) for one in scanned(bucket).unread] == [("b.parquet", True)]


def test_what_is_not_there_is_missing_and_what_cannot_be_asked_is_unread(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    assert scanned(bucket).missing == ("lake",)
    bucket.name = "there-is-no-such-bucket"
    assert scanned(bucket).missing == ("lake",)
    other = scan_roots([ScanRoot("lake", "gs://bucket/lake")], needles.build_needles([("who", WHO)]))
    assert "gs://" in other.unread[0].reason
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    result = scanned(bucket)
    assert not result.missing and "does not answer" in result.unread[0].reason


def test_an_object_that_the_store_does_not_give_is_unread_and_one_that_is_gone_is_not(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("refused.txt", b"nobody")
    bucket.put("gone.txt", b"nobody")
    found = stored_files.list_stored_versions

    def then_refused(root: StoredFile) -> Any:
        yield from found(root)
        bucket.remove("gone.txt")
        monkeypatch.setattr(StoredFile, "open", refusing)

    def refusing(file: StoredFile, mode: str = "rb") -> Any:
        if file.name == "refused.txt":
            raise OSError(5, "the store refused it (AccessDenied)", file.key)
        return real(file, mode)

    real = StoredFile.open
    monkeypatch.setattr(listing, "list_stored_versions", then_refused)
    assert [(one.path, "AccessDenied" in one.reason) for one in scanned(bucket).unread] == [("refused.txt", True)]


def test_the_command_searches_a_store_and_refuses_a_root_that_is_not_there(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    who = tmp_path / "who"
    who.write_text(WHO)
    given = ["--domain", "who", "--identifiers", str(who)]
    bucket.put("a.txt", b"nobody")
    root = f"s3://{bucket.name}/{PREFIX}"
    assert main([*given, root]) == CLEAN
    bucket.begin_upload(f"{PREFIX}/b")
    assert main([*given, root]) == INCONCLUSIVE
    bucket.put("a.txt", WHO.encode())
    assert main([*given, root]) == FOUND
    assert main([*given, f"{root}2"]) == MISUSED
    assert WHO not in "".join(capsys.readouterr())
