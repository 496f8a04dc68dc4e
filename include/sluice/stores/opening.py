"""Opens an object store by its URL, for Sluice's own files and for delta-rs, and says what it answers as the errors of a disk.

Where the store is and who asks come from the environment, by the variables that the AWS tools know: AWS_ENDPOINT_URL, AWS_REGION,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_ALLOW_HTTP, and the role of the machine or container.
Credentials are in no URL, argument, log or error.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sluice.errors import UsageError, nearest_name_hint

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig


@dataclass(frozen=True)
class StoreKind:
    """A kind of store. scheme: how Python and delta-rs call it; hadoop: how Spark does. tried: whether Sluice's tests run on one."""

    scheme: str
    hadoop: str
    tried: bool


_S3, _AZURE, _GOOGLE, _HDFS = (
    StoreKind("s3", "s3a", tried=True),
    StoreKind("abfss", "abfss", tried=False),
    StoreKind("gs", "gs", tried=False),
    StoreKind("hdfs", "hdfs", tried=False),
)
STORE_KINDS = {"s3": _S3, "s3a": _S3, "abfss": _AZURE, "gs": _GOOGLE, "hdfs": _HDFS}
"""By the scheme of a URL. One location has one kind, whichever of its names the URL uses."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""A single letter before the colon is no scheme, but part of a folder's name."""


def is_store_url(location: str) -> bool:
    """Whether the location is on a store, and no path of this machine."""
    return "://" in location


def find_url_scheme(location: str) -> str | None:
    """The beginning of a URL up to its colon, of a store that is known or not: "s3" of "s3://bucket", "dbfs" of "dbfs:/x"; else None."""
    found = _SCHEME.match(location)
    return found[1] if found else None


def is_searchable_location(url: str) -> bool:
    """Whether the scan of an erasure can search what lies there: a disk, or a store on which Sluice's tests run."""
    return not is_store_url(url) or find_store_kind(url).tried


def find_store_kind(url: str) -> StoreKind:
    """The kind of store of a URL. Raises UsageError if there is none of its scheme."""
    scheme = url.partition("://")[0]
    if scheme not in STORE_KINDS:
        raise UsageError(f"There is no store '{scheme}://'.{nearest_name_hint(scheme, STORE_KINDS)}")
    return STORE_KINDS[scheme]


def split_store_url(url: str) -> tuple[str, str]:
    """The root and the key of a URL: ("s3://bucket", "lake/gym") of "s3a://bucket/lake/gym/".

    Two names of one location give the same root and key. Each letter after the bucket belongs to the key, also those that begin a query or a
    fragment elsewhere: others name their objects as they like. Raises UsageError for an unknown scheme, for a URL that names no bucket, and
    for one with a user or a password, where credentials do not belong. The error does not repeat those.
    """
    kind = find_store_kind(url)
    bucket, _, below = url.partition("://")[2].partition("/")
    # abfss://container@account.dfs.core.windows.net names its container before the @; no other store has anything there.
    user, has_user, _ = bucket.rpartition("@")
    if has_user and (kind is not _AZURE or ":" in user):
        raise _refuse_credentials(kind)
    if not bucket:
        raise UsageError(f"'{url}' names no bucket; expected {kind.scheme}://BUCKET/FOLDER.")
    key = "/".join(part for part in below.split("/") if part)
    if any(part in (".", "..") for part in key.split("/")):
        raise UsageError(f"'{url}' has '.' or '..' in it; a store has no such folders.")
    return f"{kind.scheme}://{bucket}", key


def require_known_location(location: str) -> str:
    """Returns a location that somebody has given: a path, or the URL of a store.

    Raises UsageError if there is no such store, and if the URL has a query or a fragment, which may be credentials.
    """
    if not is_store_url(location):
        if scheme := find_url_scheme(location):
            raise UsageError(f"There is no store '{scheme}:'. Write a folder, or s3://BUCKET/FOLDER.")
        return location
    kind = find_store_kind(location)
    if "?" in location or "#" in location:
        raise _refuse_credentials(kind)
    return location


def _refuse_credentials(kind: StoreKind) -> UsageError:
    return UsageError(
        f"A URL of {kind.scheme}:// holds more than a location: a user, a query or a fragment. Credentials come from the environment."
    )


def hadoop_url(url: str) -> str:
    """The location as Spark calls it: s3a://bucket/key."""
    root, key = split_store_url(url)
    return f"{find_store_kind(url).hadoop}{root[root.index('://') :]}{'/' + key if key else ''}"


def open_store(root: str, key: str = "", patience: timedelta | None = None) -> ObjectStore:
    """Opens the store of a root that `split_store_url` returned. Keys are below `key`. Nothing is asked of the store yet.

    patience: how long an answer may take, with the attempts before it; by default as long as obstore waits.
    """
    import obstore.store

    url = f"{root}/{key}" if key else root
    retries: RetryConfig | None = None if patience is None else {"max_retries": 2, "retry_timeout": patience}
    # Options given here replace what the environment says of the client, so that is repeated.
    http = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("true", "1")
    client: ClientConfig | None = None if patience is None else {"timeout": patience, "allow_http": http}
    if find_store_kind(root) is not _S3:
        return obstore.store.from_url(url, retry_config=retries, client_options=client)
    # A profile is a file of the AWS tools, which obstore does not read by itself; variables with keys win over it, as with those tools.
    if os.environ.get("AWS_PROFILE") and not os.environ.get("AWS_ACCESS_KEY_ID"):
        return obstore.store.from_url(
            url, credential_provider=_read_profile_credentials(), retry_config=retries, client_options=client
        )
    return obstore.store.from_url(url, retry_config=retries, client_options=client)


def delta_rs_storage_options(url: str) -> dict[str, str]:
    """What delta-rs is told beside the environment: that a commit is a conditional PUT. {} for a path of this machine.

    Raises UsageError if the environment asks for another way of commits, which would not see Spark's.
    """
    if not is_store_url(url) or find_store_kind(url) is not _S3:
        return {}
    for variable in ("AWS_S3_LOCKING_PROVIDER", "AWS_S3_ALLOW_UNSAFE_RENAME"):
        if os.environ.get(variable):
            raise UsageError(
                f"{variable} is set: delta-rs would commit in a way that Spark does not see. Unset it; commits are conditional PUTs."
            )
    return {"conditional_put": "etag"}


def _read_profile_credentials() -> Any:
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise UsageError(
            "AWS_PROFILE is set, and boto3 is not installed, which reads profiles. Install it or give keys."
        ) from None
    return Boto3CredentialProvider()


class ObjectChanged(OSError):
    """Another has written the object since it was read."""


def make_disk_error(location: PurePath, number: int) -> OSError:
    """The error of a disk with this number: FileNotFoundError for ENOENT."""
    return OSError(number, os.strerror(number), str(location))


@contextmanager
def raise_as_disk(location: PurePath) -> Iterator[None]:
    """Errors of obstore in the block, which asks about the location, are raised as a disk's would be."""
    from obstore import exceptions

    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError):
        raise make_disk_error(location, errno.ENOENT) from None
    except exceptions.AlreadyExistsError:
        raise make_disk_error(location, errno.EEXIST) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise OSError(errno.EACCES, "The store refuses this user", str(location)) from error
    except (exceptions.InvalidPathError, ValueError) as error:  # of a name that is listed, and of one that is given
        why = "An object here or below has a name that is no path, such as one with '//': rename or remove it"
        raise OSError(errno.EINVAL, why, str(location)) from error
    except exceptions.BaseError as error:
        raise _make_unusable_answer_error(location, error) from error


@contextmanager
def raise_boto3_as_disk(location: PurePath) -> Iterator[None]:
    """As `raise_as_disk`, of the client that is used where obstore cannot ask."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # it has no types

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise _make_unusable_answer_error(location, error) from error


def _make_unusable_answer_error(location: PurePath, error: Exception) -> OSError:
    return OSError(errno.EIO, f"The store gave no answer that can be used ({type(error).__name__})", str(location))
