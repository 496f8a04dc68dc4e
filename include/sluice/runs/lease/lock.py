"""The lease: one writer per pipeline at a time.

Two drivers that commit to one Delta table on a local disk can silently lose commits. A driver commits from two processes: Spark's JVM,
and its Python through delta-rs. Either may outlive the other, so each holds an operating system lock for as long as it lives, and the lease
is free only when both locks are. POSIX locks belong to a process and a file: opening and closing the file again would drop the lock. So a
lock file is opened once and is empty; a file beside it says who holds it. A command that changes Sluice's records without Spark holds both
locks itself. An older Sluice does not write into a lake with a newer inner layout.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from sluice.durable_files import load_kept_json, write_json_durably
from sluice.errors import LakeTooNew, LeaseHeld, StopRequested
from sluice.locations import Location, is_on_disk, locate
from sluice.own_records import DRIVER_LOCK, JVM_LOCK, LAKE_DESCRIPTION, LEASE_DESCRIPTION
from sluice.pipeline_records import LAKE_FORMAT, PipelineRecords
from sluice.private_files import make_private_folder
from sluice.runs.lease import holder
from sluice.runs.lease.holder import LeaseHolder
from sluice.runs.lease.store_lease import hold_store_lease
from sluice.stores.store_location import StoreLocation
from sluice.stores.trial import require_able_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_AGAIN = 0.5
_LOCKED_TO_THE_END: list[IO[bytes]] = []
_REMEDY = "Put a copy of it back. If no newer Sluice has written this lake, you may also remove it: the next run writes it again."


@dataclass(frozen=True)
class LeaseRequest:
    """What a process that wants a lease is called, and what it does while another one has it.

    run, kept_running, stage: as of `LeaseHolder`. what: whose lease it is, such as "Pipeline 'gym'". remedy: what to do while it is held.
    pipeline: its name, if it has one. wait: how many seconds to wait for it. in_vain: whether waiting for a holder is useless.
    """

    run: str
    what: str
    remedy: str
    pipeline: str | None = None
    wait: float = 0.0
    kept_running: bool = False
    stage: str | None = None
    in_vain: Callable[[LeaseHolder], bool] = lambda found: False

    def describe_holder(self, folder: Location, found: LeaseHolder | None) -> str:
        """The message for this process if it does not get the lease. found: the holder, if it has described itself."""
        if found is None:
            process = holder.find_locking_process(folder)
            return f"{self.what} is being written by another job{f' (process {process} of this host)' if process else ''}. {self.remedy}"
        return found.held(self.what, self.pipeline) if found.kept_running else f"{found.held(self.what)} {self.remedy}"


@contextmanager
def hold_writer_lease(
    records: PipelineRecords, session: SparkSession, run: str, wait: float, kept_running: bool = False, stage: str | None = None
) -> Iterator[None]:
    """Holds a pipeline's lease. wait: how many seconds to wait for it. kept_running: tells others that they need not wait for this holder.

    stage: the only stage that a kept-running holder takes, which others are told too.

    Raises LeaseHeld, which says who holds it, and StopRequested if somebody asks this run to stop while it waits.
    """

    def in_vain(found: LeaseHolder) -> bool:
        if records.stop_request(run).exists():
            raise StopRequested("stopped on request, before the lease was free; nothing was done")
        return found.kept_running and not records.stop_request(found.run).exists()

    remedy = "Run again when it has ended, or give --wait SECONDS."
    what = f"Pipeline '{records.pipeline}'"
    with _hold_lease_of_pipeline(
        records, session, LeaseRequest(run, what, remedy, records.pipeline, wait, kept_running, stage, in_vain)
    ):
        yield


@contextmanager
def hold_lease_without_spark(records: PipelineRecords, run: str, remedy: str) -> Iterator[None]:
    """Holds a pipeline's lease with the same operating system locks as a job. run: what others see as its holder.

    Raises LeaseHeld at once if it is held, with the remedy.
    """
    with _hold_lease_of_pipeline(records, None, LeaseRequest(run, f"Pipeline '{records.pipeline}'", remedy, records.pipeline)):
        yield


@contextmanager
def _hold_lease_of_pipeline(records: PipelineRecords, session: SparkSession | None, request: LeaseRequest) -> Iterator[None]:
    with ExitStack() as held:
        for folder, also_guarded in _prepare_lease_folders(records).items():
            held.enter_context(hold_lease_in_folder(folder, session, request, also_guarded))
        yield


def _prepare_lease_folders(records: PipelineRecords) -> dict[Location, tuple[str, ...]]:
    """Makes the folders of a pipeline's leases: for a lake on a store also one for its restricted tables. Returns what each lease guards.

    A lease on a store guards what is below its own root there; the lake's also guards the releases, which have none. A lease on a disk guards
    everything that this machine's processes write. Raises UsageError for a store on which commits are not safe, before writing anything of
    the pipeline to it.
    """
    folders = [locate(records.bookkeeping())]
    if not is_on_disk(folders[0]):
        folders.append(locate(records.bookkeeping(restricted=True)))
        if is_on_disk(records.settings.restricted):
            records.settings.restricted.mkdir(parents=True, exist_ok=True, mode=0o700)
    for folder in folders:
        if isinstance(folder, StoreLocation) and not (folder / LEASE_DESCRIPTION.name).exists():
            require_able_store(str(folder.parent.parent))
        make_private_folder(folder)
    releases = records.settings.released / records.pipeline
    guarded_besides = () if is_on_disk(releases) else (str(releases),)
    return {folder: guarded_besides if folder == folders[0] else () for folder in folders}


@contextmanager
def hold_lease_in_folder(
    folder: Location, session: SparkSession | None, request: LeaseRequest, also_guarded: Sequence[str] = ()
) -> Iterator[None]:
    """Holds the lease whose lock files lie in the folder. session: of the JVM that commits for this process; None if none does.

    also_guarded: as for `hold_store_lease`.

    Raises LeaseHeld, and what `in_vain` raises.
    """
    jvm: Any = session._jvm if session is not None else None
    number = int(jvm.java.lang.ProcessHandle.current().pid()) if jvm is not None else None
    describe_holder = partial(request.describe_holder, folder)
    if isinstance(folder, StoreLocation):
        mine = holder.describe_this_holder(request.run, request.kept_running, request.stage, number)
        take_over = partial(_take_over_tables, folder.parent, session=session)
        with hold_store_lease(
            folder, mine, request.wait, take_over, describe_holder, request.in_vain, jvm, also_guarded=also_guarded
        ):
            yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with _open_lock_files(folder, jvm) as try_locks:
        until = time.monotonic() + request.wait
        while not try_locks():
            found = holder.find_living_holder(folder)
            if time.monotonic() >= until or (found is not None and request.in_vain(found)):
                raise LeaseHeld(describe_holder(found))
            time.sleep(_LOOK_AGAIN)
        mine = holder.write_lease_description(folder, request.run, request.kept_running, request.stage, number)
        try:
            yield
        finally:
            holder.write_lease_end(folder, mine)


@contextmanager
def _open_lock_files(folder: Location, jvm: Any) -> Iterator[Callable[[], bool]]:
    """Opens both lock files. Yields what tries to take both locks; without a JVM this process takes both itself.

    This process's own lock comes first: its holder waits only for the other lock, so two waiting processes do not block each other.
    """
    if jvm is None:
        with (folder / DRIVER_LOCK.name).open("a+b") as of_driver, (folder / JVM_LOCK.name).open("a+b") as of_both:
            yield lambda: _try_lock_of_this_process(of_driver) and _try_lock_of_this_process(of_both)
        return
    with (
        _open_driver_lock(folder, jvm) as of_driver,
        closing(jvm.java.io.RandomAccessFile(str(folder / JVM_LOCK.name), "rw")) as of_jvm,
    ):
        yield lambda: _try_lock_of_this_process(of_driver) and _try_jvm_lock(of_jvm)


@contextmanager
def _open_driver_lock(folder: Location, jvm: Any) -> Iterator[IO[bytes]]:
    """Opens the file whose lock belongs to this Python. If the JVM is gone, it stays locked until this process ends.

    All threads learn at once that the JVM is gone, and threads that it had called may be about to commit.
    """
    file = (folder / DRIVER_LOCK.name).open("a+b")
    try:
        yield file
    finally:
        try:
            jvm.java.lang.System.nanoTime()
            file.close()
        except Exception:
            _LOCKED_TO_THE_END.append(file)
            os.dup(file.fileno())  # Python closes its files before the process ends; nobody closes this one


def _take_over_tables(root: Location, epoch: int, session: SparkSession | None) -> None:
    from sluice.runs.lease.takeover import commit_epoch_to_tables  # only a few runs need it

    commit_epoch_to_tables(root, epoch, session)


def _try_jvm_lock(file: Any) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        return file.getChannel().tryLock() is not None
    except Py4JJavaError as error:
        if "OverlappingFileLockException" in str(error.java_exception.getClass().getName()):
            return False
        raise


def _try_lock_of_this_process(file: IO[bytes]) -> bool:
    """Locks the whole file for as long as it is open, if nobody else has it. Locking it again changes nothing."""
    try:
        _lock_whole_file(file)
    except OSError:
        return False
    return True


def _lock_whole_file(file: IO[bytes]) -> None:
    """Locks the whole file for as long as it is open. Raises OSError if another process has it.

    Uses a lock of the open file if the system has them: a lock of the process would go when the scan reads this file and closes it.
    """
    if sys.platform == "linux":  # other systems describe the lock differently
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, struct.pack("@hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0))
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_lake_format(records: PipelineRecords) -> None:
    """Raises LakeTooNew for a lake that a newer Sluice wrote."""
    location = locate(records.bookkeeping(LAKE_DESCRIPTION.name))
    try:
        found = load_kept_json(location, "the format of the lake", _REMEDY, lambda said: int(said["format"]))
    except FileNotFoundError:
        return
    if found > LAKE_FORMAT:
        raise LakeTooNew(
            f"The lake {records.settings.lake} has format {found} for pipeline '{records.pipeline}'; "
            f"this Sluice knows up to {LAKE_FORMAT}. Use the newer Sluice."
        )


def write_lake_format(records: PipelineRecords) -> None:
    """Writes the format into a new lake."""
    location = locate(records.bookkeeping(LAKE_DESCRIPTION.name))
    if not location.exists():
        write_json_durably(location, {"format": LAKE_FORMAT})
