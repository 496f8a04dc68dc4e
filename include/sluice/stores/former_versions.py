"""What an S3 store keeps of objects that were replaced or removed, where its bucket has versions; and parts of uploads that nobody completed.

obstore can ask for neither, so this is done with boto3. Nothing of Sluice reads a former version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from sluice.errors import SluiceError
from sluice.stores.fences import require_open_fences
from sluice.stores.s3_client import open_s3_client
from sluice.stores.store_location import StoreLocation

_AT_ONCE = 1000
"""The most versions that one request may remove."""
_CLOCKS_DIFFER = timedelta(hours=1)
"""The most by which the store's clock is expected to differ from this machine's."""
_UNKNOWN_TO_STORE = frozenset({"NotImplemented", "MethodNotAllowed"})


def remove_former_versions(folder: StoreLocation, before: datetime, stop: Callable[[], None] = lambda: None) -> int:
    """Removes the former versions below a folder that were written before an instant, and aborts uploads begun before it.

    The marks of removed objects go with the last of their versions: they have names. stop: is called between requests, and may raise.
    Returns how many were removed; 0 where the store keeps no versions. Raises SluiceError if the store refuses it, and LeaseLost.
    """
    prefix, until = f"{folder.object_key}/", before + _CLOCKS_DIFFER
    return _ask_store(
        folder,
        lambda client, bucket: (
            _remove_versions(client, folder, bucket, prefix, until, stop) + _abort_uploads(client, folder, bucket, prefix, until)
        ),
    )


def _ask_store(folder: StoreLocation, ask: Callable[[Any, str], int]) -> int:
    """Asks the store of a location for something that it may not know; 0 if so. ask: takes the client and the bucket."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # it has no types

    try:
        return ask(open_s3_client(), folder.bucket_url.partition("://")[2])
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _UNKNOWN_TO_STORE:
            return 0
        raise _refusal(folder, code) from None
    except BotoCoreError as error:
        raise SluiceError(f"The store of {folder} does not answer ({type(error).__name__}). Run it again.") from None


def remove_replaced_versions(location: StoreLocation) -> int:
    """Removes all versions of one object but its latest, however old. Returns how many; 0 where the store keeps no versions.

    The mark of a removed object goes with them. Raises as `remove_former_versions` does.
    """
    return _ask_store(
        location,
        lambda client, bucket: _remove_listed(
            client, location, bucket, _list_versions_of_object(client, bucket, location.object_key)
        ),
    )


def _list_versions_of_object(client: Any, bucket: str, key: str) -> Iterator[dict[str, str]]:
    for versions, marks in _group_by_object(client, bucket, key):
        old = [one for one in versions if not one["IsLatest"]]
        if versions and versions[0]["Key"] == key:
            yield from map(_name_version, [*old, *(marks if len(old) == len(versions) else ())])


def _remove_versions(
    client: Any, folder: StoreLocation, bucket: str, prefix: str, until: datetime, stop: Callable[[], None]
) -> int:
    return _remove_listed(client, folder, bucket, _list_removable_versions(client, bucket, prefix, until), stop)


def _remove_listed(
    client: Any, folder: StoreLocation, bucket: str, removable: Iterator[dict[str, str]], stop: Callable[[], None] = lambda: None
) -> int:
    count = 0
    while batch := list(islice(removable, _AT_ONCE)):
        stop()
        require_open_fences(str(folder))
        answer = client.delete_objects(Bucket=bucket, Delete={"Objects": batch, "Quiet": True})
        if answer.get("Errors"):
            raise _refusal(folder, str(answer["Errors"][0].get("Code", "")))
        count += len(batch)
    return count


def _list_removable_versions(client: Any, bucket: str, prefix: str, until: datetime) -> Iterator[dict[str, str]]:
    """Yields former versions written up to an instant, and the marks of removed objects of which no other version is left."""
    for versions, marks in _group_by_object(client, bucket, prefix):
        old = [one for one in versions if not one["IsLatest"] and one["LastModified"] <= until]
        whole = len(old) == len(versions)
        yield from map(_name_version, [*old, *(marks if whole else ())])


def _name_version(one: Any) -> dict[str, str]:
    return {"Key": str(one["Key"]), "VersionId": str(one["VersionId"])}


def _group_by_object(client: Any, bucket: str, prefix: str) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yields the versions and the marks of each object. The store lists them by key; one object's may go over several pages."""
    key, versions, marks = "", list[Any](), list[Any]()
    for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        listed = [(one, False) for one in page.get("Versions", ())] + [(one, True) for one in page.get("DeleteMarkers", ())]
        for one, is_mark in sorted(listed, key=lambda found: str(found[0]["Key"]).encode()):
            if one["Key"] != key:
                yield versions, marks
                key, versions, marks = str(one["Key"]), [], []
            (marks if is_mark else versions).append(one)
    yield versions, marks


def _abort_uploads(client: Any, folder: StoreLocation, bucket: str, prefix: str, until: datetime) -> int:
    count = 0
    for page in client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=prefix):
        for one in page.get("Uploads", ()):
            if one["Initiated"] <= until:
                require_open_fences(str(folder))
                client.abort_multipart_upload(Bucket=bucket, Key=one["Key"], UploadId=one["UploadId"])
                count += 1
    return count


def _refusal(folder: StoreLocation, code: str) -> SluiceError:
    return SluiceError(
        f"The store refuses to remove what it keeps of former objects below {folder} ({code}). An erasure needs s3:ListBucketVersions, "
        "s3:DeleteObjectVersion, s3:ListBucketMultipartUploads and s3:AbortMultipartUpload there, and no lock on the objects. Then run it again."
    )
