"""Commits of delta-rs to a table on a store: each is made once, or the caller is told that it was not made.

A PUT may be done and its answer lost. A client that then asks again is told that the name is taken, and delta-rs would take its own
commit for another's and commit the same rows a second time. So delta-rs does not try again; what the name holds says whose it is.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from sluice.errors import SluiceError
from sluice.stores.fences import require_open_fences
from sluice.stores.opening import is_store_url, open_store, split_store_url

Opened = TypeVar("Opened")
_LISTED_WITHIN = 30.0
COMMIT_ID = "sluice.commit"
"""The name in a commit's metadata of what tells it from any other."""


def store_commit_properties(
    path: str, metadata: Mapping[str, str] | None = None, transactions: Sequence[Transaction] | None = None
) -> CommitProperties:
    """The properties of a commit to a table. On a store it has an identity and is tried once; on a disk these change nothing."""
    said, given = dict(metadata or {}), list(transactions or [])
    if not is_store_url(path):
        return CommitProperties(custom_metadata=said or None, app_transactions=given or None)
    said[COMMIT_ID] = uuid.uuid4().hex
    return CommitProperties(custom_metadata=said, app_transactions=given or None, max_commit_retries=0)


@contextmanager
def settle_store_commit(path: str, table: DeltaTable, properties: CommitProperties) -> Iterator[None]:
    """The block makes one commit with the table and the properties of `store_commit_properties`. An error after the commit is taken back.

    table: opened before this is called, and as new as the commit afterwards. On a disk this changes nothing.

    Raises LeaseLost if this process may not commit there any more. What the block raises says that the commit was not made, unless the
    store cannot be asked either.
    """
    if not is_store_url(path):
        yield
        return
    root, key = split_store_url(path)
    require_open_fences(f"{root}/{key}")
    version = table.version() + 1
    try:
        yield
    except (DeltaError, OSError):
        if read_commit_id(path, version) != (properties.custom_metadata or {})[COMMIT_ID]:
            raise
        load_listed_version(path, version, lambda: table.load_as_version(version))


def load_listed_version(path: str, version: int, load: Callable[[], Opened]) -> Opened:
    """Returns what `load` returns, which opens a version that is there. A store may list it late: it is then tried again for a while.

    Raises SluiceError if the store does not list it in the end; on a disk, what `load` raises.
    """
    until = time.monotonic() + _LISTED_WITHIN
    while True:
        try:
            return load()
        except (DeltaError, OSError):
            if not is_store_url(path):
                raise
            if time.monotonic() >= until:
                # Not a failure of delta-rs, after which the rows would be written in another way: they are there.
                raise SluiceError(
                    f"The table {path} has the commit {version}, which its store does not list. Run it again."
                ) from None
            time.sleep(0.05)


def read_commit_id(path: str, version: int) -> str | None:
    """The identity of a commit that `store_commit_properties` gave it; None if it has none, or there is no such commit."""
    import obstore
    from obstore.exceptions import NotFoundError

    root, key = split_store_url(path)
    try:
        content = bytes(obstore.get(open_store(root, key), f"_delta_log/{version:020d}.json").bytes())
    except (NotFoundError, FileNotFoundError):
        return None
    for line in content.splitlines():
        if line.startswith(b'{"commitInfo"'):
            found = json.loads(line)["commitInfo"].get(COMMIT_ID)
            return str(found) if found else None
    return None
