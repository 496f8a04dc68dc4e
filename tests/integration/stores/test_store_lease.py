"""A Spark driver is stopped in the middle of a commit and continues after another took over its lease: only one writer's rows are there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.s3_proxy import Faults, running_faulty_proxy

from demonstrations.store_server import S3Server
from sluice.locations import locate
from sluice.open_tables import open_delta_table, read_snapshot_rows
from sluice.runs.lease.lease_object import read_lease_state
from sluice.stores.store_location import StoreLocation
from sluice.table_properties import EPOCH

DRIVER = Path(__file__).resolve().parents[2] / "lease_driver.py"
SECONDS = 10


class Driver:
    """A driver in a process of its own. jvm: the number of its JVM."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        said = self.hear().split()
        assert said[0] == "ready", said
        self.jvm = int(said[1])

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, line: str) -> str:
        self.say(line)
        return self.hear()

    def send_signal(self, number: int) -> None:
        """To the driver's Python and its JVM."""
        for process in (self.process.pid, self.jvm):
            os.kill(process, number)


@contextmanager
def started_drivers(folder: StoreLocation, variables: dict[str, dict[str, str]]) -> Iterator[list[Driver]]:
    """A driver for each name, with the variables of its own, side by side."""
    processes = [
        subprocess.Popen(
            [sys.executable, str(DRIVER), str(folder), name, str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **own, "PYTHONPATH": str(DRIVER.parents[1])},
        )
        for name, own in variables.items()
    ]
    drivers: list[Driver] = []
    try:
        drivers += [Driver(one) for one in processes]
        yield drivers
    finally:
        for driver in drivers:
            driver.send_signal(signal.SIGCONT)
        for process in processes:
            process.kill()  # its JVM ends with it
            process.communicate(timeout=60)


@pytest.mark.system
@pytest.mark.spark
@pytest.mark.crash
def test_a_spark_driver_that_was_stopped_at_its_commit_commits_nothing_after_a_takeover(
    s3_server: S3Server, bucket_url: str
) -> None:
    folder = locate(f"{bucket_url}/lake/gym/_sluice")
    assert isinstance(folder, StoreLocation)
    plain, clustered, marked = (str(folder.parent / "silver" / name) for name in ("plain", "clustered", "marked"))
    on_its_way, goes_on = threading.Event(), threading.Event()
    armed = False

    def hold(key: str) -> None:
        if armed and "/silver/plain/_delta_log/" in key and key.endswith(".json") and not on_its_way.is_set():
            on_its_way.set()
            goes_on.wait(300)

    with (
        running_faulty_proxy(s3_server.address, Faults(hold=hold)) as proxy,
        started_drivers(folder, {"first": s3_server.variables(proxy.address), "second": s3_server.variables()}) as (
            first,
            second,
        ),
    ):
        try:
            assert first.ask("take") == "done"
            for path, how in (
                (plain, ""),
                (clustered, "CLUSTER BY (id)"),
                (marked, "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"),
            ):
                made = f"CREATE TABLE delta.`{path}` USING delta {how} AS SELECT 0 AS id, 'first' AS who"
                assert first.ask(made) == "done"
            before = {path: describe_protocol(path) for path in (plain, clustered, marked)}
            armed = True
            first.say(
                f"MERGE INTO delta.`{plain}` t USING (SELECT 0 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET who = 'first again'"
            )
            assert on_its_way.wait(600)
            first.send_signal(signal.SIGSTOP)
            assert second.ask("take") == "done"
            for path in (plain, clustered, marked):
                assert second.ask(f"INSERT INTO delta.`{path}` VALUES (1, 'second')") == "done"
            goes_on.set()
            first.send_signal(signal.SIGCONT)
            merged = first.hear()
            assert "METADATA_CHANGED" in merged or "MetadataChanged" in merged, merged
            assert "The lease on" in first.ask(f"INSERT INTO delta.`{clustered}` VALUES (2, 'first')")
            assert first.ask("end") == "LeaseLost"
            assert second.ask("end") == "done"
        finally:
            goes_on.set()
    for path in (plain, clustered, marked):
        assert sorted((row["id"], row["who"]) for row in read_rows(path)) == [(0, "first"), (1, "second")]
        assert open_delta_table(path).metadata().configuration[EPOCH] == "2"
    assert {path: describe_protocol(path) for path in (plain, clustered, marked)} == before, "a takeover changes no protocol"
    state = read_lease_state(folder)
    assert state is not None and (state.epoch, state.ended, state.holder.run) == (2, True, "second")


def describe_protocol(path: str) -> tuple[Any, ...]:
    found = open_delta_table(path).protocol()
    features = (sorted(found.reader_features or ()), sorted(found.writer_features or ()))
    return found.min_reader_version, found.min_writer_version, *features


def read_rows(path: str) -> list[dict[str, Any]]:
    return read_snapshot_rows(path)
