"""Objects below a root on an S3 store: each version of each of them, the marks of removed ones, and uploads that nobody completed.

Read with boto3, which is not what Sluice writes with. Where the store is and who asks come from the environment, as for the AWS tools.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit

_SCHEMES = ("s3", "s3a")
_GONE = frozenset({"404", "NoSuchKey", "NoSuchVersion", "NoSuchBucket"})
_CHUNK = 1 << 20


def is_on_store(path: str) -> bool:
    """Whether a root is a URL of a store, and no path of this machine."""
    return "://" in path


class StoredVersion(NamedTuple):
    """One version of an object. version: "" for the latest. size: in bytes; None for the mark that it was removed."""

    key: str
    version: str
    size: int | None


class StoredStatus(NamedTuple):
    """What a store says of an object. st_size: in bytes, called as for a file."""

    st_size: int


@dataclass(frozen=True)
class StoredFile:
    """An object, with as much of a path's interface as decoders ask for. version: "" for the latest."""

    bucket: str
    key: str
    version: str = ""

    @classmethod
    def from_url(cls, url: str, version: str = "") -> StoredFile:
        """The object of a URL. Raises OSError for a store that is not read here."""
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise OSError(errno.ENOTSUP, f"stores of the kind {parts.scheme}:// are not read", url)
        return cls(parts.netloc, parts.path.strip("/"), version)

    @property
    def name(self) -> str:
        """The last part of its key."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> StoredFile:
        """The folder that it is in; the bucket is in itself."""
        return StoredFile(self.bucket, self.key.rpartition("/")[0])

    @property
    def parents(self) -> tuple[StoredFile, ...]:
        """The folders around it, the bucket last."""
        return (self.parent, *self.parent.parents) if self.key else ()

    def __truediv__(self, name: str) -> StoredFile:
        """What has this name in this folder."""
        return StoredFile(self.bucket, f"{self.key}/{name}".strip("/"))

    def with_name(self, name: str) -> StoredFile:
        """What has this name beside it."""
        return self.parent / name

    def is_file(self) -> bool:
        """Whether the object is there."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def stat(self) -> StoredStatus:
        """What the store says of it. Raises FileNotFoundError, and OSError if the store does not answer."""
        with _errors_of_files(self.key):
            return StoredStatus(
                int(_open_client().head_object(Bucket=self.bucket, Key=self.key, **self._which())["ContentLength"])
            )

    def open(self, mode: str = "rb") -> IO[bytes]:
        """Its content, in a file of this machine that has no name, so that nothing of it stays, whatever ends this process.

        Raises FileNotFoundError, and OSError if the store does not answer.
        """
        if mode != "rb":
            raise ValueError(f"objects are only read, not opened by '{mode}'")
        with ExitStack() as unless_whole, _errors_of_files(self.key):
            found = _open_client().get_object(Bucket=self.bucket, Key=self.key, **self._which())
            content = unless_whole.enter_context(tempfile.TemporaryFile())
            for part in found["Body"].iter_chunks(_CHUNK):
                content.write(part)
            content.seek(0)
            unless_whole.pop_all()
            return content

    def read_bytes(self) -> bytes:
        """Its content. Raises as `open`."""
        with self.open() as content:
            return content.read()

    def _which(self) -> dict[str, str]:
        return {"VersionId": self.version} if self.version else {}


FilePath = Path | StoredFile
"""Where a file is that is searched."""


def list_stored_versions(root: StoredFile) -> Iterator[StoredVersion]:
    """Lists every version of the objects below a root, or of the object that it is, with the marks of removed ones. Raises OSError."""
    if root.key:
        yield from (one for one in _list_versions(root.bucket, root.key) if one.key == root.key)
    yield from _list_versions(root.bucket, f"{root.key}/" if root.key else "")


def list_unfinished_uploads(root: StoredFile) -> Iterator[str]:
    """Lists the keys below a root that somebody began to upload in parts and never completed: nobody can read those parts. Raises OSError."""
    with _errors_of_files(root.key):
        for page in _open_client().get_paginator("list_multipart_uploads").paginate(Bucket=root.bucket, Prefix=root.key):
            found = (str(one["Key"]) for one in page.get("Uploads", ()))
            yield from (key for key in found if not root.key or key == root.key or key.startswith(f"{root.key}/"))


def _list_versions(bucket: str, prefix: str) -> Iterator[StoredVersion]:
    with _errors_of_files(prefix):
        for page in _open_client().get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
            for one in page.get("Versions", ()):
                yield StoredVersion(str(one["Key"]), "" if one["IsLatest"] else str(one["VersionId"]), int(one["Size"]))
            for one in page.get("DeleteMarkers", ()):
                yield StoredVersion(str(one["Key"]), str(one["VersionId"]), None)


@contextmanager
def _errors_of_files(key: str) -> Iterator[None]:
    """Errors of the store in the block are raised as those of files, without the store's own text."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # it has no types

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        if code in _GONE:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), key) from None
        raise OSError(errno.EIO, f"the store refused it ({code})", key) from None
    except BotoCoreError as error:
        raise OSError(errno.EIO, f"the store does not answer ({type(error).__name__})", key) from None


def _open_client() -> Any:
    names = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_PROFILE")
    return _make_client(*(os.environ.get(name) for name in names))


@cache
def _make_client(endpoint: str | None, region: str | None, *_who: str | None) -> Any:
    """One client for each store and user that the environment names: making one takes a tenth of a second."""
    import boto3  # type: ignore[import-untyped]  # it has no types
    from botocore.config import Config  # type: ignore[import-untyped]  # it has no types

    # Other stores than Amazon's have neither a host for each bucket nor the newer checksums.
    config = Config(
        s3={"addressing_style": "path"} if endpoint else None,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.Session().client("s3", endpoint_url=endpoint, region_name=region, config=config)
