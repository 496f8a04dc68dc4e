"""Tries an object store before anybody trusts it with commits: what it answers to conditional writes, listings, reads and deletions.

Everything happens below a folder of its own, which is removed afterwards. Only names of errors are shown: their texts may hold addresses.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sluice.errors import UsageError
from sluice.stores.opening import StoreKind, find_store_kind, open_store, require_known_location, split_store_url

if TYPE_CHECKING:
    from obstore.store import ObjectStore

FOLDER = "_sluice_trial"
"""The folder below the location that the trial writes into."""
RACING = 8
"""How many writers want one key at the same moment."""
RACES = 5
MOST_SKEW = timedelta(minutes=5)
"""The clocks may differ by this much. VACUUM allows for an hour, but a difference of minutes says that one clock is not kept."""


UNTRIED = "untried"
"""The name of the finding about a store on which no test runs. It is no failure: this trial itself says what the store does."""


@dataclass(frozen=True)
class StoreFinding:
    """What one look at a store found. remedy: says what to do and is empty if `ok`."""

    name: str
    ok: bool
    found: str
    remedy: str = ""


def try_store(url: str, patience: timedelta = timedelta(seconds=20)) -> list[StoreFinding]:
    """Tries the store of a location, such as s3://bucket/lake. patience: how long an answer may take.

    Raises UsageError if the URL is not that of a store. Whatever the store answers is a finding.
    """
    root, key = split_store_url(require_known_location(url))
    folder = "/".join(part for part in (key, FOLDER, uuid.uuid4().hex) if part)
    store = open_store(root, folder, patience)
    findings = [] if (kind := find_store_kind(root)).tried else [_describe_untried_kind(kind)]
    try:
        for name, look in LOOKS.items():
            findings.append(_take_look(name, look, store))
            if name == REACHED and not findings[-1].ok:
                break
    finally:
        _remove_trial(store)
    return findings


def _describe_untried_kind(kind: StoreKind) -> StoreFinding:
    said = f"Sluice's own tests never ran on {kind.scheme}://: what Spark does there is not known, and erasures are refused (docs/stores.md)"
    return StoreFinding(UNTRIED, True, said)


def require_able_store(url: str) -> None:
    """Tries the store of a location that nobody has written to. Raises UsageError if commits or the lease are not safe there."""
    failed = [one for one in try_store(url) if not one.ok]
    if failed:
        said = " ".join(f"{one.name}: {one.found}. {one.remedy}." for one in failed)
        raise UsageError(f"{url} can hold no lake. {said} Nothing was written. sluice doctor --lake {url} tries it again.")


def _take_look(name: str, look: Callable[[ObjectStore], StoreFinding], store: ObjectStore) -> StoreFinding:
    from obstore.exceptions import BaseError

    try:
        return look(store)
    except (BaseError, OSError) as error:
        remedy = "Check the bucket, AWS_ENDPOINT_URL, the credentials and the rights to read, write, list and delete"
        return StoreFinding(name, False, f"failed with {type(error).__name__}", remedy)


def _look_at_rights(store: ObjectStore) -> StoreFinding:
    import obstore

    obstore.put(store, "reached", b"1")
    obstore.put(store, "reached", b"22")
    same = bytes(obstore.get(store, "reached").bytes()) == b"22"
    obstore.delete(store, "reached")
    gone = "reached" not in set(_list_names(store))
    if same and gone:
        return StoreFinding(REACHED, True, "an object can be written, read, replaced and deleted, and each shows at once")
    found = "a replaced object is read as it was" if not same else "a deleted object is still listed"
    return StoreFinding(REACHED, False, found, "Sluice needs a store that is consistent after each write")


def _look_at_put_if_absent(store: ObjectStore) -> StoreFinding:
    """One winner for each key, also if several writers want it at the same moment: that is what a commit is."""
    import obstore
    from obstore.exceptions import AlreadyExistsError

    def write(key: str) -> bool:
        try:
            obstore.put(store, key, b"1", mode="create")
        except AlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(RACING) as writers:
        winners = [sum(writers.map(write, [f"race-{number}"] * RACING)) for number in range(RACES)]
    if set(winners) == {1}:
        return StoreFinding(COMMITS, True, f"{RACES} races of {RACING} writers for one key had one winner each")
    remedy = (
        "Two drivers would lose each other's commits here. Use a store with conditional writes (If-None-Match), such as Amazon S3"
    )
    return StoreFinding(COMMITS, False, f"{RACES} races of {RACING} writers for one key had {winners} winners", remedy)


def _look_at_put_if_match(store: ObjectStore) -> StoreFinding:
    """A write that holds only if the object is still the one that was read: that is how a lease is renewed."""
    import obstore
    from obstore.exceptions import PreconditionError

    first = obstore.put(store, "lease", b"1")
    obstore.put(store, "lease", b"2")
    try:
        obstore.put(
            store,
            "lease",
            b"3",
            mode={"e_tag": first["e_tag"], "version": first["version"]} if first["version"] else {"e_tag": first["e_tag"]},
        )
    except PreconditionError:
        return StoreFinding(LEASE, True, "a write that names a state which is gone is refused")
    return StoreFinding(LEASE, False, "a write that names a state which is gone is done", "Use a store that honours If-Match")


def _look_at_listing(store: ObjectStore) -> StoreFinding:
    import obstore

    names = [f"listed-{number:02d}" for number in range(12)]
    for name in names:
        obstore.put(store, name, b"1")
    found = [name for name in _list_names(store) if name.startswith("listed-")]
    rest = [name for name in _list_names(store, after=names[6]) if name.startswith("listed-")]
    if found == names and rest == names[7:]:
        return StoreFinding(LISTING, True, "new objects are listed at once, in order, and from any name on")
    remedy = "Delta reads its log by listing: use a store that lists in order and shows what was written"
    return StoreFinding(
        LISTING, False, f"{len(found)} of {len(names)} were listed, and {len(rest)} of 5 after the seventh", remedy
    )


def _look_at_clock(store: ObjectStore) -> StoreFinding:
    import obstore

    before = datetime.now(UTC)
    obstore.put(store, "clock", b"1")
    at = obstore.head(store, "clock")["last_modified"]
    skew = max(before - at, at - datetime.now(UTC), timedelta())
    found = f"the store's clock differs from this machine's by {int(skew.total_seconds())} s"
    return StoreFinding(CLOCK, skew <= MOST_SKEW, found, "" if skew <= MOST_SKEW else "Set this machine's clock by NTP")


REACHED, COMMITS, LEASE, LISTING, CLOCK = "store", "commits", "lease", "listing", "clock"
LOOKS: dict[str, Callable[[ObjectStore], StoreFinding]] = {
    REACHED: _look_at_rights,
    COMMITS: _look_at_put_if_absent,
    LEASE: _look_at_put_if_match,
    LISTING: _look_at_listing,
    CLOCK: _look_at_clock,
}
"""Each look by its name. After the first one fails, the others would only repeat it."""


def _list_names(store: ObjectStore, after: str | None = None) -> Iterator[str]:
    import obstore

    for page in obstore.list(store, offset=after):
        yield from (entry["path"] for entry in page)


def _remove_trial(store: ObjectStore) -> None:
    import obstore
    from obstore.exceptions import BaseError

    try:
        obstore.delete(store, list(_list_names(store)))
    except (BaseError, OSError):  # the findings say that the store does not answer; what is left lies in the trial's folder
        return
