"""The content of a lease's object on a store, and how it is written and read."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta

from sluice.errors import SluiceError
from sluice.own_records import LEASE_DESCRIPTION
from sluice.runs.lease import holder
from sluice.runs.lease.holder import LeaseHolder, have_surely_ended, name_this_machine, read_process_starts
from sluice.stores.store_location import StoreLocation


@dataclass(frozen=True)
class LeaseState:
    """The content of the object. epoch: grows by one with each holder. nonce: of this holding. taken: whether its takeover, if any, is done.

    machine: where the holder's process ids are valid. starts: when these processes began, see `read_process_starts`. written: when the object was
    written, by the store's clock. tag: its ETag.
    """

    holder: LeaseHolder
    epoch: int
    nonce: str
    seconds: float
    machine: str
    starts: Mapping[int, str]
    taken: bool
    ended: bool
    written: float
    tag: str

    @property
    def surely_dead(self) -> bool:
        """Whether the holder was a process of this machine and has ended, together with its JVM."""
        return have_surely_ended(self.machine, self.starts)

    @property
    def looks_fresh(self) -> bool:
        """Whether it was renewed lately, as far as the clocks of the store and of this machine agree. Only the waiting time depends on this."""
        return time.time() - self.written < self.seconds


def read_lease_state(folder: StoreLocation, patience: timedelta | None = None) -> LeaseState | None:
    """Read the lease's object; None if there is none. patience: as for `open_store`. Raises SluiceError for an object that is no lease.

    The description of a lease on a disk, from which the lake was copied, counts as ended: its holder has locks there, and none here.
    """
    location = folder / LEASE_DESCRIPTION.name
    try:
        content, tag, written = location.read_with_tag(patience)
    except FileNotFoundError:
        return None
    try:
        said = json.loads(content)
        who = holder.parse_lease_holder(said)
        if "epoch" not in said:
            return LeaseState(who, 0, "", 0.0, "", {}, taken=True, ended=True, written=written, tag=tag)
        return LeaseState(
            who,
            int(said["epoch"]),
            str(said["nonce"]),
            float(said["seconds"]),
            str(said["machine"]),
            {int(pid): str(start) for pid, start in said["starts"].items()},
            bool(said["taken"]),
            bool(said.get("ended")),
            written,
            tag,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SluiceError(
            f"{location} is no lease that this Sluice knows. If no run of any version is under way, remove it."
        ) from None


def format_lease(
    mine: LeaseHolder, epoch: int, nonce: str, seconds: float, taken: bool, renewals: int = 0, ended: bool = False
) -> bytes:
    """The content of the object: who holds the lease, and what `LeaseState` reads."""
    said = {
        "epoch": epoch,
        "nonce": nonce,
        "seconds": seconds,
        "machine": name_this_machine(),
        "starts": read_process_starts(mine.pid, mine.jvm),
        "taken": taken,
        "renewals": renewals,
    }
    return json.dumps({**asdict(mine), **said, **({"ended": holder.current_instant_text()} if ended else {})}).encode()
