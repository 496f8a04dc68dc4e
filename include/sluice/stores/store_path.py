"""The name of an object or a folder on a store as a pathlib.Path: its URL, parts, parents and comparisons. Nothing is asked of the store.

Not universal-pathlib: its class for a scheme is one for the whole process, Airflow's DAGs included, and its `rmdir` removes what is
below. What needs a path of this machine asks `__fspath__`, which raises TypeError.
"""

from __future__ import annotations

from pathlib import PosixPath, PurePosixPath
from typing import Any, NoReturn, Self

from sluice.stores.opening import split_store_url

_BUCKET = 2
"""How many parts name the bucket: "s3:" and its name."""


class StorePath(PosixPath):
    """The name of a location on a store. str() gives the URL, by which Spark and delta-rs know it, too."""

    @classmethod
    def from_url(cls, url: str) -> Self:
        """The location of a URL. Raises UsageError for one that names no location on a store."""
        return cls("/".join(part for part in split_store_url(url) if part))

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __fspath__(self) -> NoReturn:
        raise TypeError(f"{self} is on a store; it is no path of this machine.")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_url, (str(self),)

    def as_posix(self) -> str:
        """The URL."""
        return str(self)

    def absolute(self) -> Self:
        """The location itself: a URL has no relative form."""
        return self

    def resolve(self, strict: bool = False) -> Self:
        """The location itself: a store has no links."""
        return self

    def relative_to(self, *other: Any, **kwargs: Any) -> PurePosixPath:  # type: ignore[override]  # it is no location on a store
        """The name of this location below the other. Raises ValueError if it is not below."""
        return PurePosixPath(*super().relative_to(*other).parts)

    @property
    def bucket_url(self) -> str:
        """The store and the bucket, such as "s3://bucket"."""
        return "://".join((self.parts[0].rstrip(":"), self.parts[1]))

    @property
    def object_key(self) -> str:
        """The name of the object in its bucket; "" for the bucket."""
        return "/".join(self.parts[2:])

    @property
    def parent(self) -> Self:
        """The folder that this is in; the bucket is in itself."""
        return self if len(self.parts) <= _BUCKET else super().parent

    @property
    def parents(self) -> tuple[Self, ...]:
        """The folders around this, up to the bucket."""
        return tuple(super().parents)[: max(len(self.parts) - _BUCKET, 0)]

    def samefile(self, other_path: Any) -> bool:
        """Whether the other is this location: a store has no links."""
        return bool(self == other_path)
