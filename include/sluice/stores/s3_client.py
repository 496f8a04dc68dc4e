"""Clients of boto3, for what obstore cannot ask for.

Of S3 that is versions of objects, uploads that nobody completed, Hadoop's marks of folders, and objects whose names are no paths; and
there are queues of events.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from itertools import islice
from typing import Any

from sluice.stores.opening import find_store_kind, raise_boto3_as_disk
from sluice.stores.store_path import StorePath

_CONNECTIONS = 16
"""The most requests that are under way in parallel."""


def open_s3_client() -> Any:
    """The client of the store that the environment names. Its errors are those of botocore."""
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    return _make_client("s3", *(os.environ.get(name) for name in names))


def open_sqs_client() -> Any:
    """The client of the queues that the environment names: AWS_ENDPOINT_URL_SQS, where they are not beside the store."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
    names = ("AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    return _make_client("sqs", endpoint, *(os.environ.get(name) for name in names))


@cache
def _make_client(service: str, endpoint: str | None, region: str | None, *_who: str | None) -> Any:
    """One client for each service, region and user: making one takes a tenth of a second."""
    import boto3  # type: ignore[import-untyped]  # it has no types
    import botocore.session  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]

    # Other stores than Amazon's have neither a host for each bucket nor the newer checksums.
    config = Config(
        s3={"addressing_style": "path"} if endpoint else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        max_pool_connections=_CONNECTIONS,
    )
    session = botocore.session.Session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_parse_instant)
    return boto3.Session(botocore_session=session).client(service, endpoint_url=endpoint, region_name=region, config=config)


def _parse_instant(text: Any) -> datetime:
    """The instant that a store says. Three quarters of the time of a listing went into botocore's own parser, which knows more forms."""
    from botocore.utils import parse_timestamp  # type: ignore[import-untyped]

    try:
        return datetime.fromisoformat(text)
    except (TypeError, ValueError):
        found: datetime = parse_timestamp(text)
        return found


# Finds objects of S3 by key, whatever the key looks like. obstore cannot address a key that is no path, such as "a//b".

_MOST_REMOVED = 1000
"""The most objects that S3 removes by one request."""


def is_on_s3(location: StorePath) -> bool:
    """Whether keys can be asked for: other kinds of stores have no client here beside obstore."""
    return find_store_kind(location.bucket_url).scheme == "s3"


def list_keys_below(location: StorePath, after: str = "") -> Iterator[dict[str, Any]]:
    """What S3 says of each object below a folder, in the order of their keys. after: only those whose name below it comes after this one."""
    prefix = f"{location.object_key}/"
    asked = {"Bucket": _name_bucket(location), "Prefix": prefix, **({"StartAfter": f"{prefix}{after}"} if after else {})}
    with raise_boto3_as_disk(location):
        for page in open_s3_client().get_paginator("list_objects_v2").paginate(**asked):
            yield from page.get("Contents", ())


def find_key_below(location: StorePath, name: str) -> dict[str, Any] | None:
    """What S3 says of an object, by its name below a folder; None if there is none."""
    from botocore.exceptions import ClientError  # type: ignore[import-untyped]  # it has no types

    with raise_boto3_as_disk(location):
        try:
            found: dict[str, Any] = open_s3_client().head_object(
                Bucket=_name_bucket(location), Key=f"{location.object_key}/{name}"
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in ("404", "NoSuchKey"):
                return None
            raise
    return found


def remove_key_with_tag(location: StorePath, tag: str) -> bool | None:
    """Remove an object if its ETag is this one, by one request. Returns whether it was; None if the store knows no such request."""
    from botocore.exceptions import ClientError

    with raise_boto3_as_disk(location):
        try:
            open_s3_client().delete_object(Bucket=_name_bucket(location), Key=location.object_key, IfMatch=tag)
        except ClientError as error:
            if error.response["Error"]["Code"] in ("412", "PreconditionFailed", "404", "NoSuchKey"):
                return False
            if error.response["Error"]["Code"] in ("501", "NotImplemented"):
                return None
            raise
    return True


def is_folder_mark(listed: dict[str, Any]) -> bool:
    """Whether a listed object is Hadoop's mark of a folder: empty, with a slash at its end."""
    return not listed["Size"] and str(listed["Key"]).endswith("/")


def remove_folder_marks(location: StorePath) -> None:
    """Remove Hadoop's marks of folders, here and below. obstore neither lists nor removes them."""
    marks = ({"Key": one["Key"]} for one in list_keys_below(location) if is_folder_mark(one))
    while together := list(islice(marks, _MOST_REMOVED)):
        with raise_boto3_as_disk(location):
            answer = open_s3_client().delete_objects(Bucket=_name_bucket(location), Delete={"Objects": together, "Quiet": True})
        if refused := answer.get("Errors"):
            code = str(refused[0].get("Code", ""))
            raise PermissionError(errno.EACCES, f"The store refuses to remove marks of folders ({code})", str(location))


def _name_bucket(location: StorePath) -> str:
    return location.bucket_url.partition("://")[2]
