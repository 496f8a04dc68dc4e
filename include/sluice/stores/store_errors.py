"""What a store answers instead of what was asked, as the errors of a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePath


class ObjectChanged(OSError):
    """Another has written the object since it was read."""


def make_disk_error(place: PurePath, number: int) -> OSError:
    """The error of a disk with this number: FileNotFoundError for ENOENT."""
    return OSError(number, os.strerror(number), str(place))


@contextmanager
def raise_as_disk(place: PurePath) -> Iterator[None]:
    """Errors of obstore in the block, which asks about the place, are raised as a disk's would be."""
    from obstore import exceptions

    try:
        yield
    except (FileNotFoundError, exceptions.NotFoundError):
        raise make_disk_error(place, errno.ENOENT) from None
    except exceptions.AlreadyExistsError:
        raise make_disk_error(place, errno.EEXIST) from None
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raise OSError(errno.EACCES, "The store refuses this user", str(place)) from error
    except (exceptions.InvalidPathError, ValueError) as error:  # of a name that is listed, and of one that is given
        why = "An object here or below has a name that is no path, such as one with '//': rename or remove it"
        raise OSError(errno.EINVAL, why, str(place)) from error
    except exceptions.BaseError as error:
        raise _make_unusable_answer_error(place, error) from error


@contextmanager
def raise_boto3_as_disk(place: PurePath) -> Iterator[None]:
    """As `raise_as_disk`, of the client that is used where obstore cannot ask."""
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]  # it has no types

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise _make_unusable_answer_error(place, error) from error


def _make_unusable_answer_error(place: PurePath, error: Exception) -> OSError:
    return OSError(errno.EIO, f"The store gave no answer that can be used ({type(error).__name__})", str(place))
