"""Finds objects of S3 by key, whatever the key looks like. obstore cannot address a key that is no path, such as "a//b"."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from itertools import islice
from typing import Any

from sluice.stores.opening import find_store_kind
from sluice.stores.s3_client import open_s3_client
from sluice.stores.store_errors import raise_boto3_as_disk
from sluice.stores.store_path import StorePath

_MOST_REMOVED = 1000
"""The most objects that S3 removes by one request."""


def is_on_s3(place: StorePath) -> bool:
    """Whether keys can be asked for: other kinds of stores have no client here beside obstore."""
    return find_store_kind(place.bucket_url).scheme == "s3"


def list_keys_below(place: StorePath, after: str = "") -> Iterator[dict[str, Any]]:
    """What S3 says of each object below a folder, in the order of their keys. after: only those whose name below it comes after this one."""
    prefix = f"{place.object_key}/"
    asked = {"Bucket": _name_bucket(place), "Prefix": prefix, **({"StartAfter": f"{prefix}{after}"} if after else {})}
    with raise_boto3_as_disk(place):
        for page in open_s3_client().get_paginator("list_objects_v2").paginate(**asked):
            yield from page.get("Contents", ())


def find_key_below(place: StorePath, name: str) -> dict[str, Any] | None:
    """What S3 says of an object, by its name below a folder; None if there is none."""
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has no types

    with raise_boto3_as_disk(place):
        try:
            found: dict[str, Any] = open_s3_client().head_object(Bucket=_name_bucket(place), Key=f"{place.object_key}/{name}")
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                return None
            raise
    return found


def is_folder_mark(listed: dict[str, Any]) -> bool:
    """Whether a listed object is Hadoop's mark of a folder: empty, with a slash at its end."""
    return not listed["Size"] and str(listed["Key"]).endswith("/")


def remove_folder_marks(place: StorePath) -> None:
    """Remove Hadoop's marks of folders, here and below. obstore neither lists nor removes them."""
    marks = ({"Key": one["Key"]} for one in list_keys_below(place) if is_folder_mark(one))
    while together := list(islice(marks, _MOST_REMOVED)):
        with raise_boto3_as_disk(place):
            answer = open_s3_client().delete_objects(Bucket=_name_bucket(place), Delete={"Objects": together, "Quiet": True})
        if refused := answer.get("Errors"):
            code = str(refused[0].get("Code", ""))
            raise PermissionError(errno.EACCES, f"The store refuses to remove marks of folders ({code})", str(place))


def _name_bucket(place: StorePath) -> str:
    return place.bucket_url.partition("://")[2]
