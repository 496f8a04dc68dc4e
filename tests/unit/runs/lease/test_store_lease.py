"""The lease of a lake on a store: one holder at a time, even if one dies, is stopped or cannot reach the store; no commit after a takeover."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.s3_proxy import Faults, FaultyProxy, running_faulty_proxy
from tests.waiting import until

from demonstrations.store_server import S3Server
from sluice.durable_files import write_json_durably
from sluice.errors import LeaseHeld, LeaseLost, SluiceError, StopRequested
from sluice.locations import Location, locate, remove_folder
from sluice.open_tables import open_delta_table
from sluice.pipeline_records import PipelineRecords
from sluice.runs.lease import holder, lease_object, lock, store_lease
from sluice.runs.lease.holder import LeaseHolder
from sluice.runs.lease.lease_object import read_lease_state
from sluice.runs.lease.store_lease import hold_store_lease
from sluice.runs.lease.takeover import commit_epoch_to_tables
from sluice.settings import Settings
from sluice.stores import fences
from sluice.stores.fences import remove_fence, require_open_fences
from sluice.stores.opening import delta_rs_storage_options
from sluice.stores.store_location import StoreLocation
from sluice.table_properties import EPOCH

SECONDS = 4
"""A duration that a slow machine keeps: the holder must renew within it."""
ELSEWHERE = LeaseHolder("r0", 4711, "another-host", "2026-11-01T00:00:00+00:00")


@pytest.fixture
def folder(bucket_url: str) -> StoreLocation:
    found = locate(f"{bucket_url}/lake/gym/_sluice")
    assert isinstance(found, StoreLocation)
    return found


@pytest.fixture
def proxy(folder: StoreLocation, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    """A proxy through which this process reaches the store, without faults until a test says some."""
    with running_faulty_proxy(s3_server.address, Faults()) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.address)
        yield found


@contextmanager
def held(folder: StoreLocation, run: str = "r1", wait: float = 0, seconds: float = SECONDS, **given: Any) -> Iterator[list[int]]:
    """The lease, and the epochs under which tables were taken over."""
    taken_over: list[int] = []
    given = {"take_over": taken_over.append, **given}
    mine = holder.describe_this_holder(run)
    with hold_store_lease(folder, mine, wait, describe=lambda found: f"is being written by {found}", seconds=seconds, **given):
        yield taken_over


def state_of(folder: StoreLocation) -> lease_object.LeaseState:
    found = read_lease_state(folder)
    assert found is not None
    return found


def write_state(folder: StoreLocation, who: LeaseHolder, epoch: int = 7, **changed: Any) -> None:
    """The object as a holder left it that is not this process."""
    said = json.loads(lease_object.format_lease(who, epoch, "of another", SECONDS, taken=True))
    (folder / "lease.json").write_text(json.dumps({**said, "machine": "another", **changed}))


def make_table(path: str) -> DeltaTable:
    write_deltalake(path, pa.table({"id": [0]}), storage_options=delta_rs_storage_options(path))
    return open_delta_table(path)


def ids_in(path: str) -> list[int]:
    found: list[int] = open_delta_table(path).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def test_a_free_lease_is_taken_and_given_up_and_the_next_epoch_follows(folder: StoreLocation) -> None:
    with held(folder) as taken_over:
        assert (state_of(folder).epoch, state_of(folder).holder.pid, state_of(folder).ended) == (1, os.getpid(), False)
        assert holder.find_living_holder(folder) == state_of(folder).holder
    assert state_of(folder).ended and holder.find_living_holder(folder) is None
    with held(folder, "r2") as again:
        assert (state_of(folder).epoch, state_of(folder).holder.run) == (2, "r2")
    assert taken_over == again == []


def test_a_holder_renews_its_lease_and_others_are_told_who_it_is(folder: StoreLocation) -> None:
    with held(folder, "r1", seconds=6):
        first = state_of(folder).tag
        until(lambda: state_of(folder).tag != first, 10, "the renewal")
        write_json_durably(folder / "something.json", {})  # the fence is open
        with pytest.raises(LeaseHeld, match="run r1"), held(folder, "r2"):
            pass


def test_of_many_that_wait_each_has_the_lease_alone(folder: StoreLocation) -> None:
    alone = threading.Lock()

    def take(number: int) -> None:
        with held(folder, f"r{number}", wait=60, seconds=30):
            assert alone.acquire(blocking=False), "two have the lease"
            time.sleep(0.01)
            alone.release()

    with ThreadPoolExecutor(4) as takers:
        list(takers.map(take, range(8)))
    assert state_of(folder).epoch == 8


def test_a_holder_that_is_silent_is_taken_over_after_its_duration_and_not_before(folder: StoreLocation) -> None:
    write_state(folder, ELSEWHERE, seconds=1.0)
    began = time.monotonic()
    with held(folder, wait=10) as taken_over:
        assert time.monotonic() - began >= 1.0
        assert state_of(folder).epoch == 8
    assert taken_over == [8]


def test_a_silent_holder_that_is_renewed_after_all_keeps_its_lease(folder: StoreLocation) -> None:
    write_state(folder, ELSEWHERE, seconds=3)
    ending = threading.Event()

    def renew() -> None:
        number = 0
        while not ending.wait(0.3):
            number += 1
            write_state(folder, ELSEWHERE, seconds=3, renewals=number)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(LeaseHeld), held(folder, wait=5):
            pass
    finally:
        ending.set()
        thread.join()
    assert state_of(folder).holder == ELSEWHERE


def test_a_holder_that_has_ended_on_this_machine_is_not_waited_for(folder: StoreLocation) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    write_state(
        folder,
        LeaseHolder("r0", ended.pid, holder.describe_this_holder("").host, holder.current_instant_text()),
        seconds=600,
        machine=holder.name_this_machine(),
    )
    with held(folder) as taken_over:
        pass
    assert taken_over == [8]


def test_the_same_process_number_on_another_machine_says_nothing(folder: StoreLocation) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    here = holder.describe_this_holder("").host
    write_state(folder, LeaseHolder("r0", ended.pid, here, holder.current_instant_text()), seconds=600)
    with pytest.raises(LeaseHeld), held(folder):
        pass


def test_a_takeover_that_was_not_finished_is_done_again_by_the_next(folder: StoreLocation) -> None:
    write_state(folder, ELSEWHERE, seconds=0.2)

    def fail(epoch: int) -> None:
        raise SluiceError("a table cannot be written")

    with pytest.raises(SluiceError, match="cannot be written"), held(folder, wait=10, take_over=fail):
        pass
    with held(folder, wait=10) as taken_over:
        pass
    with held(folder) as done:
        pass
    assert (taken_over, done) == ([9], [])


def test_lost_answers_and_refusals_of_the_store_cost_nobody_the_lease(folder: StoreLocation, proxy: FaultyProxy) -> None:
    proxy.faults.keys, proxy.faults.lost = store_lease_key(), 0.5
    for number in range(2):
        with held(folder, f"r{number}", wait=30, seconds=2):
            until(lambda lost=number + 1: proxy.counts["lost"] >= lost, 60)
    assert state_of(folder).epoch == 2


def test_a_holder_that_hears_no_answer_for_a_while_keeps_what_nobody_else_took(folder: StoreLocation, proxy: FaultyProxy) -> None:
    proxy.faults.keys = store_lease_key()
    with held(folder, seconds=2):
        proxy.faults.lost = 1
        until(lambda: proxy.counts["lost"] > 2, 10)
        proxy.faults.lost = 0
        until(lambda: not is_fenced(folder), 10)
        write_json_durably(folder / "something.json", {})
    assert (state_of(folder).epoch, state_of(folder).ended) == (1, True)


def test_who_finds_another_in_its_place_may_write_nothing_more(folder: StoreLocation) -> None:
    with pytest.raises(LeaseLost, match="was lost"), held(folder):
        write_state(folder, ELSEWHERE)
        until(lambda: is_fenced(folder), 10)
        for write in (
            lambda: write_json_durably(folder / "something.json", {}),
            (folder / "something.json").unlink,
            lambda: remove_folder(folder.parent / "silver"),
        ):
            with pytest.raises(LeaseLost):
                write()
    assert state_of(folder).holder == ELSEWHERE


def test_who_lost_the_lease_writes_nothing_though_its_duration_is_not_over(folder: StoreLocation) -> None:
    mine = holder.describe_this_holder("r1")
    released = "s3://bucket/released/gym"
    lease = store_lease._acquire_lease(folder, mine, 0, lambda found: "", lambda found: False, None, 3600, (released,))
    try:
        require_open_fences(f"{folder}/x")
        require_open_fences(f"{released}/1")
        write_state(folder, ELSEWHERE)
        assert lease._renew() is False
        for url in (f"{folder}/x", f"{released}/1"):
            with pytest.raises(LeaseLost):
                require_open_fences(url)
    finally:
        remove_fence(lease.root)
        remove_fence(released)


def test_the_lease_of_a_lake_on_a_store_guards_releases_there_and_that_of_restricted_tables_does_not(
    settings: Settings, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    places: dict[str, Any] = {name: locate(f"{bucket_url}/{name}") for name in ("restricted", "released")}
    records = PipelineRecords(replace(settings, lake=f"{bucket_url}/lake", **places), "gym")
    taken, take = [], store_lease._take_lease

    def note_taken(*given: Any) -> Any:
        taken.append(take(*given))
        return taken[-1]

    monkeypatch.setattr(store_lease, "_take_lease", note_taken)
    with lock.hold_lease_without_spark(records, "r1", "Later."):
        guarded = {f"{bucket_url}/{name}/gym/" for name in ("lake", "restricted", "released")}
        assert guarded <= set(fences._OPEN_UNTIL)
    assert [one.also_guarded for one in taken if one] == [(f"{bucket_url}/released/gym",), ()], "one that is lost stays so"
    assert not [root for root in fences._OPEN_UNTIL if root.startswith(bucket_url)], "nothing is guarded afterwards"


def test_a_lake_that_was_copied_from_a_disk_has_no_holder_here(folder: StoreLocation) -> None:
    (folder / "lease.json").write_text(json.dumps(asdict(ELSEWHERE)))
    with held(folder) as taken_over:
        assert state_of(folder).epoch == 1
    assert taken_over == [] and state_of(folder).ended
    (folder / "lease.json").write_text("{}")
    with pytest.raises(SluiceError, match="is no lease that this Sluice knows"), held(folder):
        pass


def test_a_holder_on_another_machine_of_this_name_is_not_looked_for_here(folder: StoreLocation) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    who = LeaseHolder("r0", ended.pid, holder.describe_this_holder("").host, holder.current_instant_text())
    write_state(folder, who)
    found = holder.find_living_holder(folder)
    assert found == who and not found.here
    write_state(folder, who, machine=holder.name_this_machine())
    assert holder.find_living_holder(folder) is None


def test_a_run_that_waits_for_a_silent_holder_stops_when_it_is_asked(folder: StoreLocation) -> None:
    write_state(folder, ELSEWHERE, seconds=0.5)
    time.sleep(0.6)  # it does not look fresh any more

    def stop(found: LeaseHolder) -> bool:
        raise StopRequested("asked")

    with pytest.raises(StopRequested), held(folder, wait=600, in_vain=stop):
        pass


def test_who_cannot_reach_the_store_stops_by_itself_before_another_begins(
    folder: StoreLocation, proxy: FaultyProxy, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(str(folder.parent / "silver" / "t"))
    with pytest.raises(LeaseLost, match="was lost"), held(folder, "partitioned"):
        time.sleep(SECONDS / 2)  # its fence was opened anew by a renewal
        proxy.faults.partitioned = True
        with held_elsewhere(folder, s3_server, monkeypatch) as began:
            assert is_fenced(folder, at=began), "the first holder could still commit when the second began"
        proxy.faults.partitioned = False
        with pytest.raises(LeaseLost):
            append(table, 1)
        time.sleep(SECONDS / 2)  # it tries to renew it several times
    assert ids_in(str(folder.parent / "silver" / "t")) == [0]


def test_a_writer_that_was_stopped_commits_nothing_after_a_takeover(
    folder: StoreLocation, proxy: FaultyProxy, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its PUT is on the way, and collides with the takeover's commit. One that had not asked finds its fence closed, as below."""
    path = str(folder.parent / "silver" / "t")
    make_table(path)
    on_its_way, goes_on = threading.Event(), threading.Event()

    def hold(key: str) -> None:
        if "/silver/t/_delta_log/" in key:
            on_its_way.set()
            goes_on.wait(300)

    proxy.faults.hold = hold
    code = STOPPED_WRITER.format(folder=str(folder), path=path, seconds=SECONDS)
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdin and writer.stdout and writer.stdout.readline() == "open\n"
        writer.stdin.write("append\n")
        writer.stdin.flush()
        assert on_its_way.wait(300)
        writer.send_signal(signal.SIGSTOP)
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.address)
        # It is a process of this machine that lives, so that only its silence tells.
        with held(folder, "second", wait=60, take_over=lambda epoch: commit_epoch_to_tables(folder.parent, epoch)):
            append(open_delta_table(path), 2)
            goes_on.set()
            writer.send_signal(signal.SIGCONT)
            answer = writer.communicate(timeout=60)[0]
        assert answer.splitlines()[0] in ("LeaseLost", "CommitFailedError"), answer
        assert "LeaseLost at the end" in answer
    assert ids_in(path) == [0, 2]
    assert open_delta_table(path).metadata().configuration[EPOCH] == "2"


WAITS = "import sys; sys.stdin.readline()\n"
STOPPED_WRITER = """
import sys
from sluice.locations import locate
from sluice.open_tables import open_delta_table
from sluice.errors import LeaseLost
from tests.unit.runs.lease.test_store_lease import append, held
try:
    with held(locate("{folder}"), "first", wait=60, seconds={seconds}):
        table = open_delta_table("{path}")
        print("open", flush=True)
        sys.stdin.readline()
        try:
            append(table, 1)
            print("committed", flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)
except LeaseLost:
    print("LeaseLost at the end", flush=True)
"""


def test_a_takeover_writes_its_epoch_into_every_table_and_into_nothing_else(folder: StoreLocation) -> None:
    tables = [str(folder.parent / "silver" / "a"), str(folder.parent / "quarantine" / "b"), str(folder / "runs")]
    for path in tables:
        make_table(path)
    (folder.parent / "silver" / "begun" / "_delta_log" / "00000000000000000000.crc").write_text("{}")
    outside = make_table(str(folder.parent.parent / "other" / "silver" / "c"))
    commit_epoch_to_tables(folder.parent, 5)
    assert {open_delta_table(path).metadata().configuration.get(EPOCH) for path in tables} == {"5"}
    assert EPOCH not in open_delta_table(outside.table_uri.rstrip("/")).metadata().configuration


class RecordingSession:
    """Stands for Spark: keeps the statements. collides: how many of them fail by a commit that came first."""

    def __init__(self, collides: int = 0) -> None:
        self.said: list[str] = []
        self.collides = collides

    def sql(self, statement: str) -> None:
        from pyspark.errors import PySparkException

        self.said.append(statement)
        if len(self.said) <= self.collides:
            raise PySparkException("[DELTA_CONCURRENT_APPEND] another was first")


def make_table_for_spark_alone(path: str, protocol: dict[str, Any]) -> None:
    """A table with this protocol, as Spark makes it."""
    make_table(path)
    commit = locate(path) / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    commit.write_text("\n".join(json.dumps({"protocol": protocol} if "protocol" in one else one) for one in actions))


def test_a_process_of_the_same_number_is_not_the_holder_and_one_that_lives_is_waited_for(folder: StoreLocation) -> None:
    mine = holder.describe_this_holder("r0")
    here = {"machine": holder.name_this_machine(), "seconds": 600}
    # By the clock it began after the lease was taken, as it seems when a clock was set forward. Nothing hangs on that.
    write_state(folder, LeaseHolder("r0", mine.pid, mine.host, "2001-01-01T00:00:00+00:00"), **here)
    with pytest.raises(LeaseHeld), held(folder):
        pass
    write_state(folder, mine, **here, starts={str(mine.pid): "1"})
    with held(folder) as taken_over:
        pass
    assert taken_over == [8]


class JvmThatIsGone:
    """Answers until it is gone, and then fails as py4j does."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.gone = False

    @property
    def sluice(self) -> Any:
        return self

    ConditionalPutLogStore = sluice

    def __getattr__(self, name: str) -> Any:
        def answer(root: str, *arguments: int) -> None:
            from py4j.protocol import Py4JNetworkError

            if self.gone:
                raise Py4JNetworkError("it does not answer")
            self.told.append(name)

        return answer


def test_the_fences_are_closed_before_the_lease_is_given_up_and_taken_away_after(
    folder: StoreLocation, proxy: FaultyProxy
) -> None:
    jvm = JvmThatIsGone()
    with held(folder, jvm=jvm, seconds=600):  # so long that it need not be renewed meanwhile
        assert jvm.told == ["openFence"]
        proxy.faults.hold = lambda key: jvm.told.append("PUT")
    assert jvm.told == ["openFence", "closeFence", "PUT", "removeFence"]
    write_json_durably(folder / "something.json", {})


def test_a_lease_whose_jvm_does_not_answer_is_not_given_up(folder: StoreLocation) -> None:
    jvm = JvmThatIsGone()
    with held(folder, jvm=jvm, seconds=2):
        jvm.gone = True
    assert not state_of(folder).ended
    with pytest.raises(LeaseLost):
        write_json_durably(folder / "something.json", {})
    with held(folder, wait=10) as taken_over:
        pass
    assert taken_over == [2]


def test_two_holders_that_were_stopped_one_after_the_other_commit_nothing(folder: StoreLocation, s3_server: S3Server) -> None:
    path = str(folder.parent / "silver" / "t")
    make_table(path)
    code = STOPPED_WRITER.format(folder=str(folder), path=path, seconds=2)
    with (
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first,
        subprocess.Popen(
            [sys.executable, "-c", WAITS + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as second,
    ):
        for number, writer in ((1, first), (2, second)):
            assert writer.stdin and writer.stdout
            if number == 2:
                writer.stdin.write("go\n")
                writer.stdin.flush()
            assert writer.stdout.readline() == "open\n"
            assert state_of(folder).epoch == number
            writer.send_signal(signal.SIGSTOP)
        with held(folder, "third", wait=60, take_over=lambda epoch: commit_epoch_to_tables(folder.parent, epoch)):
            for writer in (second, first):
                writer.send_signal(signal.SIGCONT)
                assert writer.communicate("append\n", timeout=60)[0].splitlines() == ["LeaseLost", "LeaseLost at the end"]
            append(open_delta_table(path), 3)
    assert ids_in(path) == [0, 3]
    assert open_delta_table(path).metadata().configuration[EPOCH] == "3"


@pytest.mark.parametrize("feature", ["clustering", "deletionVectors"])
def test_a_table_that_delta_rs_may_not_write_is_taken_over_by_spark_alone(folder: StoreLocation, feature: str) -> None:
    path = str(folder.parent / "silver" / "t")
    named = {"writerFeatures": [feature]} | ({"readerFeatures": [feature]} if feature == "deletionVectors" else {})
    protocol = {"minReaderVersion": 3 if feature == "deletionVectors" else 1, "minWriterVersion": 7, **named}
    make_table_for_spark_alone(path, protocol)
    with pytest.raises(SluiceError, match=r"silver/t cannot be taken over .* only Spark can write it"):
        commit_epoch_to_tables(folder.parent, 5)
    session: Any = RecordingSession(collides=2)
    commit_epoch_to_tables(folder.parent, 5, session)
    assert session.said == [f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{EPOCH}' = '5')"] * 3
    assert open_delta_table(path).version() == 0, "delta-rs commits nothing to it"


def append(table: DeltaTable, number: int) -> None:
    """Appends as Sluice does: one commit, tried once, behind the fence."""
    from sluice.stores.commit_settling import settle_store_commit, store_commit_properties

    path = table.table_uri.rstrip("/")
    properties = store_commit_properties(path)
    with settle_store_commit(path, table, properties):
        write_deltalake(table, pa.table({"id": [number]}), mode="append", commit_properties=properties)


def store_lease_key() -> Any:
    import re

    return re.compile(r"lease\.json\Z")


def is_fenced(folder: Location, at: float | None = None) -> bool:
    """Whether this process may write nothing below the pipeline's folder. at: at an instant of the fences' clock."""
    from sluice.stores import fences

    until = fences._OPEN_UNTIL[f"{folder.parent}/"]
    return until <= (fences.read_fence_clock() if at is None else at)


@contextmanager
def held_elsewhere(folder: StoreLocation, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    """The lease as another process takes it that reaches the store directly, and when it had it."""
    code = "import sys; from sluice.stores.fences import read_fence_clock; from sluice.locations import locate\n"
    code += "from tests.unit.runs.lease.test_store_lease import held\n"
    code += f"with held(locate({str(folder)!r}), 'elsewhere', wait=60):\n    print(read_fence_clock(), flush=True); sys.stdin.readline()"
    variables = {**os.environ, **server.variables()}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
    ) as other:
        assert other.stdout
        yield float(other.stdout.readline())
        other.communicate("\n", timeout=60)
