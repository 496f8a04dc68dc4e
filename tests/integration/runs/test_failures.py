"""The commonest failures, each made for real: the last line says what happened, to what, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.conftest import ROOT

from sluice.lake.table_frames import read_table
from sluice.runs.failures import describe_error_without_values, explain_failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SECRET = "4711-0815"


def failed(work: Callable[[], Any]) -> str:
    """The last line of what fails."""
    with pytest.raises(Exception) as failure:
        work()
    return describe_error_without_values(failure.value)


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A lake on a disk of its own, of 8 MB. Skipped where this user may mount none."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    monkeypatch.setenv("SLUICE_LAKE", str(disk / "lake"))
    try:
        (disk / "lake").mkdir()
        yield disk / "lake"
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_full_disk_and_a_read_only_lake_are_said_so_with_the_folder(spark: SparkSession, lake: Path) -> None:
    rows = spark.range(100_000).selectExpr("id", "uuid() AS text")
    table = pa.table({"text": [os.urandom(1000).hex() for _ in range(8_000)]})

    def both(verb: str) -> list[str]:
        spark_s = failed(
            lambda: rows.write.format("delta").mode("append").save(str(lake / "gym" / "silver" / f"{verb}_by_spark"))
        )
        delta_rs_s = failed(lambda: write_deltalake(str(lake / "gym" / "silver" / f"{verb}_by_delta_rs"), table))
        return [spark_s, delta_rs_s]

    filler = lake / "filler"
    filler.write_bytes(os.urandom(6 << 20))
    for line in both("filled"):
        assert line.startswith("The disk of ") and str(lake) in line and "of 8 MB are free) is full" in line, line
        assert "Make room" in line and "run it again" in line
    # A second mount of the same disk: whoever has a file of the first one open still would keep that from being closed to writers.
    subprocess.run(["mount", "--bind", str(lake.parent), str(lake.parent)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(lake.parent)], check=True)
        closed = both("closed")
    finally:
        subprocess.run(["umount", "--lazy", str(lake.parent)], check=True)
    for line in closed:
        assert line.startswith(f"{lake} cannot be written by this process: its file system is read-only"), line
        assert "Mount it for writing" in line


def test_a_deleted_data_file_is_named_with_its_table_and_not_with_its_partition(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "lake" / "gym" / "silver" / "visits"
    write_deltalake(str(table), pa.table({"who": [SECRET], "n": [1]}), partition_by=["who"])
    (file,) = table.rglob("*.parquet")
    file.unlink()
    for reading in (
        lambda: spark.read.format("delta").load(str(table)).collect(),
        lambda: DeltaTable(str(table)).to_pyarrow_table(),
        file.read_bytes,
    ):
        line = failed(reading)
        assert line.startswith(f"The table {table} has lost its data file {file.name}: "), line
        assert f"move {table} away, then run it again: sluice run gym" in line and SECRET not in line


@pytest.mark.parametrize("gone", [1, 2])
def test_a_small_table_without_its_files_is_named_with_what_to_do(spark: SparkSession, tmp_path: Path, gone: int) -> None:
    table = tmp_path / "lake" / "gym" / "silver" / "visits"
    for number in (1, 2):
        write_deltalake(str(table), pa.table({"n": [number]}), mode="append")
    for file in sorted(table.glob("*.parquet"))[:gone]:
        file.unlink()
    line = failed(lambda: read_table(spark, str(table)).collect())
    assert line.startswith(f"The table {table} has lost its data file ") and f"move {table} away" in line, line


@pytest.mark.thorough
def test_a_landed_file_that_goes_while_it_is_read_is_told_by_its_source(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_LANDING", str(tmp_path / "landing"))
    source = tmp_path / "landing" / "gym" / "letters"
    line = failed(lambda: spark.read.format("binaryFile").load([str(source / f"who={SECRET}" / "1.pdf")]))
    assert line.startswith(f"A file below {source} went away while it was read.") and SECRET not in line, line


def test_a_killed_driver_is_one_line(tmp_path: Path) -> None:
    body = (
        "import os, signal\n"
        "from sluice.runs.script import build_job_parser, run_job_script\n"
        "def work(arguments):\n"
        "    from sluice import session\n"
        "    from sluice.settings import Settings\n"
        "    spark = session.start_spark_session(Settings.current(), 'killed')\n"
        "    os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)\n"
        "    spark.range(3).count()\n"
        "run_job_script('bronze', build_job_parser('bronze', ''), work)\n"
    )
    variables = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_")}
    variables |= {"SLUICE_LAKE": str(tmp_path / "lake"), "PYTHONPATH": str(ROOT / "include")}
    command = [sys.executable, "-c", body, "--pipeline", "gym"]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("sluice bronze: Spark's driver, the JVM of this job, ended in the middle of the work: "), (
        done.stderr
    )
    assert "Run it again" in lines[-1]
    assert len(lines) < 5, done.stderr


def test_what_is_no_such_failure_is_not_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain_failure(ValueError(SECRET)) is None
    assert explain_failure(ConnectionRefusedError("a receiver of alerts")) is None, "not Spark's"
    assert explain_failure(FileNotFoundError(2, "No such file", "/nowhere/part-1.parquet")) is None, "of no table"
    with pytest.raises(OSError) as full, Path("/dev/full").open("w") as disk:
        disk.write("x")
    line = explain_failure(full.value)
    assert line is not None and line.startswith("The disk ")
    monkeypatch.setenv("SLUICE_ENV", "nowhere")
    assert explain_failure(full.value) is not None, "wrong settings hide no failure"
