"""The lease of a lake on an object store: one object, `lease.json`, which its holder rewrites three times within its duration.

It is written only by conditional PUTs, so of two processes that want it one gets it. A holder may commit for the duration counted from
before its last PUT, by its own clock (`sluice.stores.fences`, and the log store of its JVM). A waiter takes the lease over when the object
has not changed for longer than that by the waiter's own clock: no two clocks are compared. If a commit is still under way, it fails because
of what a takeover writes into each table (`sluice.runs.lease.takeover`).
"""

from __future__ import annotations

import errno
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sluice.errors import LeaseHeld, LeaseLost, SluiceError
from sluice.own_records import LEASE_DESCRIPTION
from sluice.runs.lease.holder import LeaseHolder
from sluice.runs.lease.lease_object import LeaseState, format_lease, read_lease_state
from sluice.stores import fences
from sluice.stores.opening import ObjectChanged
from sluice.stores.store_location import StoreLocation

DURATION = 30.0
"""How many seconds a holder that does not renew its lease may still commit. It renews three times within this time."""
_WAITED = 1.25
"""How many durations a waiter waits: clocks do not run at quite the same speed."""
_LOOK_AGAIN = 0.5
_ATTEMPTS = 5
"""How many times a PUT is repeated if its answer is lost."""
_ATTEMPTS_TO_END = 3
"""How many times a holder tries to release its lease, each time for a third of the duration."""

TakeOver = Callable[[int], None]
"""Ensures, given the epoch, that no commit of an earlier holder that is under way can succeed any more."""


@contextmanager
def hold_store_lease(
    folder: StoreLocation,
    mine: LeaseHolder,
    wait: float,
    take_over: TakeOver,
    describe: Callable[[LeaseHolder], str],
    in_vain: Callable[[LeaseHolder], bool] = lambda found: False,
    jvm: Any = None,
    seconds: float = DURATION,
    also_guarded: Sequence[str] = (),
) -> Iterator[None]:
    """Holds the lease whose object lies in the folder. It guards all tables below the folder's parent.

    mine: describes this process. wait: how many seconds to wait for a holder that renews its lease; for a silent one it waits until it can
    take over. describe: makes the message for a process that does not get it. in_vain: as of `LeaseRequest`. jvm: py4j's view of the JVM that commits
    for this process, if there is one. also_guarded: URLs below which this process writes only while it holds the lease; a takeover commits
    nothing there.

    Raises LeaseHeld; LeaseLost at the end if the lease was lost meanwhile, which then is why commits failed; OSError if the store does not answer.
    """
    lease = _acquire_lease(folder, mine, wait, describe, in_vain, jvm, seconds, tuple(also_guarded))
    with lease.renewed_by_a_thread():
        if not lease.taken:
            take_over(lease.epoch)
            lease.note_takeover()
        yield


@dataclass
class StoreLease:
    """A lease that this process holds. epoch, nonce, taken: as in `LeaseState`. tag: the object's ETag after the last PUT.

    also_guarded: as of `hold_store_lease`.
    """

    location: StoreLocation
    mine: LeaseHolder
    epoch: int
    nonce: str
    seconds: float
    taken: bool
    tag: str
    also_guarded: tuple[str, ...] = ()
    jvm: Any = None
    lost: bool = False
    _renewals: int = 0
    _answered: bool = True
    _ending: threading.Event = field(default_factory=threading.Event)
    _writing: threading.Lock = field(default_factory=threading.Lock)

    @property
    def root(self) -> str:
        """The URL below which the tables are that the lease guards."""
        return str(self.location.parent.parent)

    @property
    def _guarded_roots(self) -> tuple[str, ...]:
        return (self.root, *self.also_guarded)

    def open_fences(self, until: float) -> None:
        """Let this process and its JVM commit until an instant of the fences' clock."""
        left = max(until - fences.read_fence_clock(), 0.0)
        for root in self._guarded_roots:
            fences.open_fence(root, left)
        self._tell_jvm("openFence", round(left * 1000))

    @contextmanager
    def renewed_by_a_thread(self) -> Iterator[None]:
        """Renews the lease while the block lasts, then releases it. Raises LeaseLost if it was lost, instead of what the block raises."""
        thread = threading.Thread(target=self._renew_until_ended, name="lease of the lake", daemon=True)
        thread.start()
        try:
            yield
        except BaseException as error:
            self._end(thread)
            if self.lost and isinstance(error, Exception):
                raise LeaseLost(self._describe_loss()) from error
            raise
        self._end(thread)
        if self.lost:
            raise LeaseLost(self._describe_loss())

    def note_takeover(self) -> None:
        """Record that the takeover is done. Raises LeaseLost if the lease is lost."""
        self.taken = True
        if not self._renew():
            raise LeaseLost(self._describe_loss())

    def _renew_until_ended(self) -> None:
        pause = self.seconds / 3
        while not self._ending.wait(pause):
            if not self._renew():
                return
            pause = self.seconds / (3 if self._answered else 15)  # one lost answer must not cost the lease

    def _renew(self) -> bool:
        """Rewrite the object. Returns False if the lease is lost. If the store does not answer, the fences close by themselves."""
        with self._writing:
            before = fences.read_fence_clock()
            self._renewals += 1
            try:
                kept, self._answered = self._put(self._content()), True
            except OSError:
                self._answered = False
                return True
            except SluiceError:  # somebody has put something else there
                kept = False
            if kept:
                self.open_fences(before + self.seconds)
            else:
                self._close_for_ever()
            return kept

    def _put(self, content: bytes) -> bool:
        """Returns whether the object is this holding's. Raises OSError if the store does not answer."""
        for _ in range(_ATTEMPTS):
            try:
                self.tag = self.location.replace_tagged(content, self.tag, self._patience)
                return True
            except ObjectChanged:
                found = read_lease_state(self.location.parent, self._patience)
            if found is None or found.nonce != self.nonce:
                return False
            self.tag = found.tag  # an earlier PUT succeeded and its answer was lost; perhaps this one's too
        raise OSError(errno.EIO, "The store's answers were lost", str(self.location))

    @property
    def _patience(self) -> timedelta:
        return timedelta(seconds=self.seconds / 3)

    def _content(self, ended: bool = False) -> bytes:
        return format_lease(self.mine, self.epoch, self.nonce, self.seconds, self.taken, self._renewals, ended)

    def _close_for_ever(self) -> None:
        self.lost = True
        self._close_fences()
        self._tell_jvm("closeFence")

    def _close_fences(self) -> None:
        for root in self._guarded_roots:
            fences.close_fence(root)

    def _end(self, thread: threading.Thread) -> None:
        self._ending.set()
        thread.join(self.seconds)
        with self._writing:
            if self.lost:
                return
            # First of all, so that no thread of the block still writes when another process has the lease.
            self._close_fences()
            if not self._tell_jvm("closeFence"):
                # It may be about to commit, and so may threads that it had called. The next holder takes the lease over.
                return
            self._renewals += 1
            for _ in range(_ATTEMPTS_TO_END):
                try:
                    if not self._put(self._content(ended=True)):
                        self._close_for_ever()
                        return
                except OSError:  # if no attempt is answered, the next holder waits until the lease has expired
                    continue
                for root in self._guarded_roots:
                    fences.remove_fence(root)
                self._tell_jvm("removeFence")
                return

    def _tell_jvm(self, what: str, *arguments: int) -> bool:
        """Returns whether the JVM was told, if there is one."""
        if self.jvm is None:
            return True
        from py4j.protocol import Py4JError

        try:
            for root in self._guarded_roots:
                getattr(self.jvm.sluice.ConditionalPutLogStore, what)(root, *arguments)
        except (Py4JError, OSError):
            return False
        return True

    def _describe_loss(self) -> str:
        return (
            f"The lease on {self.root} was lost: it was not renewed for {self.seconds:g} s, and another run took it. What this run had committed "
            "by then stands, and nothing after it. Run again."
        )


def _acquire_lease(
    folder: StoreLocation,
    mine: LeaseHolder,
    wait: float,
    describe: Callable[[LeaseHolder], str],
    in_vain: Callable[[LeaseHolder], bool],
    jvm: Any,
    seconds: float,
    also_guarded: tuple[str, ...],
) -> StoreLease:
    until = time.monotonic() + wait
    watched, since, renewed = "", time.monotonic(), False
    while True:
        found = read_lease_state(folder)
        now = time.monotonic()
        if found is not None and found.tag != watched:
            renewed = bool(watched) and not found.ended
            watched, since = found.tag, now
        if found is None or found.ended or found.surely_dead or now - since >= found.seconds * _WAITED:
            lease = _take_lease(folder / LEASE_DESCRIPTION.name, found, mine, jvm, seconds, also_guarded)
            if lease is not None:
                return lease
            continue
        # It takes a while to know whether a holder is dead, so it is watched however short the wait is.
        vain = in_vain(found.holder)  # it raises, too, if this run is to stop
        if (renewed or found.looks_fresh) and (vain or now >= until):
            raise LeaseHeld(describe(found.holder))
        time.sleep(min(_LOOK_AGAIN, found.seconds / 10))


def _take_lease(
    location: StoreLocation, found: LeaseState | None, mine: LeaseHolder, jvm: Any, seconds: float, also_guarded: tuple[str, ...]
) -> StoreLease | None:
    """Returns the lease; None if another process was faster."""
    epoch, nonce = (found.epoch if found else 0) + 1, uuid.uuid4().hex
    taken = found is None or (found.ended and found.taken)
    before = fences.read_fence_clock()
    try:
        tag = location.replace_tagged(format_lease(mine, epoch, nonce, seconds, taken), found.tag if found else None)
    except ObjectChanged:
        there = read_lease_state(location.parent)
        if there is None or there.nonce != nonce:
            return None
        tag = there.tag  # the PUT succeeded, and its answer was lost
    lease = StoreLease(location, mine, epoch, nonce, seconds, taken, tag, also_guarded, jvm)
    lease.open_fences(before + seconds)
    return lease
