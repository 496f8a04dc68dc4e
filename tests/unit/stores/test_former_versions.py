"""What a store keeps of former objects goes with an erasure, and nothing else goes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest

from sluice.errors import LeaseLost, SluiceError, StopRequested
from sluice.locations import locate
from sluice.stores import fences, former_versions
from sluice.stores.former_versions import remove_former_versions
from sluice.stores.store_location import StoreLocation


@pytest.fixture
def folder(bucket_url: str) -> StoreLocation:
    """A pipeline's folder in a bucket that keeps versions."""
    client().put_bucket_versioning(Bucket=bucket_url.removeprefix("s3://"), VersioningConfiguration={"Status": "Enabled"})
    found = locate(f"{bucket_url}/lake/gym")
    assert isinstance(found, StoreLocation)
    return found


def client() -> Any:
    return boto3.client("s3", region_name="us-east-1")


def kept(folder: StoreLocation) -> list[tuple[str, bool]]:
    """The versions and the marks of the whole bucket: the key, and whether it is the latest."""
    found = client().list_object_versions(Bucket=folder.bucket_url.removeprefix("s3://"))
    return sorted((one["Key"], one["IsLatest"]) for one in (*found.get("Versions", ()), *found.get("DeleteMarkers", ())))


def now() -> datetime:
    return datetime.now(UTC)


def write(folder: StoreLocation) -> None:
    for content in (b"1", b"2", b"3"):
        (folder / "replaced").write_bytes(content)
    (folder / "removed").write_bytes(b"1")
    (folder / "removed").unlink()
    for _ in range(2):
        folder.with_name("gym2").joinpath("other").write_bytes(b"another pipeline's")


@pytest.mark.parametrize("at_once", [1, 1000])
def test_former_versions_and_marks_of_removed_objects_go_and_the_latest_stay(
    folder: StoreLocation, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(former_versions, "_AT_ONCE", at_once)
    write(folder)
    assert remove_former_versions(folder, now()) == 4
    assert kept(folder) == [("lake/gym/replaced", True), ("lake/gym2/other", False), ("lake/gym2/other", True)]
    assert (folder / "replaced").read_bytes() == b"3"
    assert remove_former_versions(folder, now()) == 0


def test_what_was_written_after_the_people_had_left_stays_with_its_mark(folder: StoreLocation) -> None:
    write(folder)
    before = kept(folder)
    assert remove_former_versions(folder, now() - timedelta(days=1)) == 0 and kept(folder) == before


def test_versions_of_one_object_over_several_pages_are_counted_together(folder: StoreLocation) -> None:
    def pages(*found: list[tuple[str, bool]]) -> Any:
        return [
            {
                "Versions": [{"Key": key, "VersionId": str(n)} for n, (key, mark) in enumerate(page) if not mark],
                "DeleteMarkers": [{"Key": key, "VersionId": str(n)} for n, (key, mark) in enumerate(page) if mark],
            }
            for page in found
        ]

    class Paged:
        def get_paginator(self, name: str) -> Paged:
            return self

        def paginate(self, **given: str) -> Iterator[Any]:
            yield from pages([("a", False), ("b", True)], [("b", False)], [("b", False), ("c", False)])

    grouped = list(former_versions._group_by_object(Paged(), "bucket", "lake/"))
    assert [(len(versions), len(marks)) for versions, marks in grouped] == [(0, 0), (1, 0), (2, 1), (1, 0)]


def test_uploads_that_nobody_completed_are_aborted(folder: StoreLocation) -> None:
    bucket = folder.bucket_url.removeprefix("s3://")
    for key in ("lake/gym/a", "lake/gym2/a"):
        client().create_multipart_upload(Bucket=bucket, Key=key)
    assert remove_former_versions(folder, now()) == 1
    assert [one["Key"] for one in client().list_multipart_uploads(Bucket=bucket)["Uploads"]] == ["lake/gym2/a"]


def test_who_may_not_write_there_any_more_or_is_asked_to_stop_removes_nothing(folder: StoreLocation) -> None:
    write(folder)
    before = kept(folder)

    def stop() -> None:
        raise StopRequested("stop")

    with pytest.raises(StopRequested):
        remove_former_versions(folder, now(), stop)
    fences.close_fence(str(folder))
    try:
        with pytest.raises(LeaseLost):
            remove_former_versions(folder, now())
    finally:
        fences.remove_fence(str(folder))
    assert kept(folder) == before


def test_a_store_without_versions_has_none_and_one_that_refuses_is_named(
    folder: StoreLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has no types

    def answering(code: str) -> Any:
        def ask(*given: Any) -> Any:
            raise ClientError({"Error": {"Code": code}}, "ListObjectVersions")

        return ask

    monkeypatch.setattr(former_versions, "_remove_versions", answering("NotImplemented"))
    assert remove_former_versions(folder, now()) == 0
    monkeypatch.setattr(former_versions, "_remove_versions", answering("AccessDenied"))
    with pytest.raises(SluiceError, match=r"AccessDenied.*s3:DeleteObjectVersion"):
        remove_former_versions(folder, now())
    monkeypatch.undo()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(SluiceError, match="does not answer"):
        remove_former_versions(folder, now())
