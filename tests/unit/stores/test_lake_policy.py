"""deploy/aws/lake-policy.json allows what Sluice asks of Amazon S3, and no more. What Spark asks is compared by tests/system/test_topology.py."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.s3_proxy import Faults, running_faulty_proxy
from tests.store_actions import EVERYDAY, POLICY, actions_of_request

from demonstrations.store_server import CREDENTIALS, S3Server
from residue.stored_files import StoredFile, list_stored_versions, list_unfinished_uploads
from sluice.locations import locate
from sluice.open_tables import open_delta_table
from sluice.stores.former_versions import remove_former_versions
from sluice.stores.opening import delta_rs_storage_options
from sluice.stores.store_location import StoreLocation
from sluice.stores.trial import try_store

OF_BUCKETS = {"s3:ListBucket", "s3:ListBucketVersions", "s3:ListBucketMultipartUploads"}
FOR_ERASURES = {"ListWhatIsKeptOfFormerObjects", "SearchAndRemoveFormerObjects"}
"""The statements that only a user who carries out erasures needs."""


@dataclass
class Observer:
    """What was asked of the store through a proxy."""

    requests: list[tuple[str, str, bytes, bool]] = field(default_factory=list)

    @property
    def actions(self) -> set[str]:
        return set().union(*(actions_of_request(*request) for request in self.requests))

    def note(self, method: str, target: str, body: bytes, copied: bool) -> None:
        self.requests.append((method, target, body if method == "POST" else b"", copied))


@pytest.fixture
def asked(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Observer]:
    observer = Observer()
    with running_faulty_proxy(s3_server.address, Faults(observe=observer.note)) as proxy:
        for name, value in s3_server.variables(proxy.address).items():
            monkeypatch.setenv(name, value)
        yield observer


@pytest.fixture
def folder(asked: Observer, s3_server: S3Server) -> StoreLocation:
    """A pipeline's folder in a bucket that keeps versions."""
    bucket = s3_server.make_bucket()
    owner(s3_server).put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    found = locate(f"s3://{bucket}/lake/gym")
    assert isinstance(found, StoreLocation)
    return found


def owner(server: S3Server, service: str = "s3") -> Any:
    """The owner of the store, who does not go by the proxy."""
    key, secret = CREDENTIALS.values()
    return boto3.client(
        service, region_name="us-east-1", endpoint_url=server.address, aws_access_key_id=key, aws_secret_access_key=secret
    )


def statements() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(POLICY.read_text())["Statement"]
    return [{**one, "Action": [one["Action"]] if isinstance(one["Action"], str) else one["Action"]} for one in found]


def test_a_run_and_an_erasure_ask_what_the_policy_allows_and_nothing_else(
    asked: Observer, folder: StoreLocation, s3_server: S3Server
) -> None:
    assert [one for one in try_store(str(folder)) if not one.ok] == []
    large = folder / "large"
    large.write_bytes(b"." * (20 << 20))
    assert large.read_range(0, 2) == b".." and large.stat().st_size == 20 << 20
    large.copy_to(locate(folder, "copied"))  # type: ignore[arg-type]
    large.unlink()
    assert [path.name for path in folder.rglob("*")] == ["copied"]
    table = str(folder / "table")
    for number in (1, 2):
        rows = pa.table({"number": [number]})
        write_deltalake(table, rows, mode="overwrite", storage_options=delta_rs_storage_options(table))
    assert open_delta_table(table).to_pyarrow_table().to_pylist() == [{"number": 2}]
    folder.joinpath("table").remove_below()
    everyday = {action for one in statements() if one["Sid"] not in FOR_ERASURES for action in one["Action"]}
    assert asked.actions == everyday == EVERYDAY

    bucket = folder.bucket_url.partition("://")[2]
    owner(s3_server).create_multipart_upload(Bucket=bucket, Key="lake/gym/left")
    root = StoredFile.from_url(str(folder))
    former = [one for one in list_stored_versions(root) if one.version and one.size]
    assert StoredFile(bucket, former[0].key, former[0].version).read_bytes()
    assert list(list_unfinished_uploads(root)) == ["lake/gym/left"]
    assert remove_former_versions(folder, datetime.now(UTC)) > len(former)
    assert asked.actions == {action for one in statements() for action in one["Action"]}


def test_the_policy_is_one_of_iam_and_says_each_right_once_of_what_it_is_a_right_of(s3_server: S3Server) -> None:
    made = owner(s3_server, "iam").create_policy(PolicyName="lake", PolicyDocument=POLICY.read_text())
    assert made["Policy"]["Arn"]
    said = [action for one in statements() for action in one["Action"]]
    assert len(said) == len(set(said))
    for one in statements():
        is_of_bucket = not one["Resource"].endswith("/*")
        assert {action in OF_BUCKETS for action in one["Action"]} == {is_of_bucket}, one["Sid"]


@pytest.mark.parametrize(
    ("method", "target", "body", "actions"),
    [
        ("GET", "/b/k?versionId=1", b"", {"s3:GetObjectVersion"}),
        ("GET", "/b?versions&prefix=lake%2F", b"", {"s3:ListBucketVersions"}),
        ("POST", "/b?delete", b"<Delete><Object><Key>k</Key></Object></Delete>", {"s3:DeleteObject"}),
        ("POST", "/b?delete=", b"<Object><Key>k</Key><VersionId>1</VersionId></Object>", {"s3:DeleteObjectVersion"}),
        ("POST", "/b/k?uploads", b"", {"s3:PutObject"}),
        ("DELETE", "/b/k?uploadId=1", b"", {"s3:AbortMultipartUpload"}),
    ],
)
def test_a_request_needs_rights(method: str, target: str, body: bytes, actions: set[str]) -> None:
    assert actions_of_request(method, target, body) == actions


@pytest.mark.parametrize("target", ["/b?acl", "/b/k?tagging", "/b/k?acl"])
def test_a_request_whose_rights_are_not_known_is_not_passed_over(target: str) -> None:
    with pytest.raises(ValueError, match="no action is known of PUT"):
        actions_of_request("PUT", target)
