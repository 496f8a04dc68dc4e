"""One Spark session for the whole test process, and a lakehouse of its own for each test."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from tests import slow_rotation, time_left
from tests.checkout import checkout  # noqa: F401  # a fixture, of tests/airflow and tests/system alike
from tests.commands import call, root_folders, use_roots_of  # noqa: F401  # fixtures
from tests.uncontrolled_erasures import uncontrolled  # noqa: F401  # a fixture

from demonstrations.store_server import S3Server, running_s3_server
from sluice.declare.assembly.graph import Graph
from sluice.declare.interval import Interval
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import locate, walk_folders
from sluice.open_tables import open_delta_table
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.runs.execution import stages
from sluice.runs.execution.stages import StageOptions
from sluice.settings import Settings, build_root_settings
from sluice.spark_process import LATE_COMPILER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.broker import Broker

    from sluice.lake.workspace import Workspace

# A machine that does other things besides is no counterexample, neither where a test is slow nor where its examples are.
# Where CI is set, Hypothesis draws the same examples each time.
hypothesis.settings.register_profile("sluice", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("sluice")

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent

# At exit py4j logs that its connections are closed, after pytest has closed the stream it logs to.
logging.getLogger("py4j").setLevel(logging.WARNING)

LIVES_LONG = {
    "spark.driver.memory": "4g",
    "spark.driver.extraJavaOptions": f"-XX:+UseSerialGC -XX:ReservedCodeCacheSize=512m {LATE_COMPILER}",
}
"""All compilers, more memory, room for the code of a thousand queries: a full cache is swept without end.

The quick compiler alone takes a fifth less in a process of five minutes, and more in one of forty. With Java's own thresholds the slow one
took a third of the first minutes, mostly for code that was not called again (362 and 308 CPU seconds for the same 23 tests).
"""

FEW_ROWS = {
    # Of a run over a few rows nearly all is planning, starting jobs and compiling. One task does what there is to do, planned once and
    # without code for whole stages: half of the jobs.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # What sorts or groups takes memory by the page, of 64 MB with this heap. Half of all collections were for such pages.
    "spark.buffer.pageSize": "1m",
    # Each query's plan goes to Spark's listeners as text, which nobody reads here.
    "spark.sql.ui.explainMode": "simple",
}


LONG_FIRST = ("properties", "integration", "crash")
"""Folders whose files take long: begun first, what two processes have left at the end is small."""


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first; the order within a file stays. What takes the fixture `spark` starts a JVM, whether or not it is marked."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    first = {name: position for position, name in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: first.get(item.path.relative_to(TESTS).parts[0], len(first)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of all tests."""
    slow_rotation.pytest_addoption(parser)
    time_left.pytest_addoption(parser)
    parser.addoption(
        "--lake-on-store", action="store_true", help="Lakes lie on an object store: what is marked on_store runs there, too."
    )


def pytest_configure(config: pytest.Config) -> None:
    """Slow tests in turns, and a check that ends in time."""
    slow_rotation.pytest_configure(config)
    time_left.pytest_configure(config)


@pytest.fixture(scope="session", autouse=True)
def store_of_lakes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """With --lake-on-store, an S3 server of this test process that all lakes lie on. Its variables are there before a JVM starts."""
    if not request.config.getoption("--lake-on-store"):
        yield
        return
    with running_s3_server(tmp_path_factory.mktemp("lakes") / "server.log") as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.variables().items():
            patch.setenv(name, value)
        LAKES.append(f"s3://{server.make_bucket()}")
        yield
        LAKES.clear()


LAKES: list[str] = []
"""The bucket of all lakes, as s3://NAME, if they lie on a store."""


def lake_at(folder: Path) -> str:
    """Where the lake of a test's folder lies."""
    return f"{LAKES[0]}{folder}/lake" if LAKES else str(folder / "lake")


def settings_at(folder: Path) -> Settings:
    """Settings of this checkout's code over a lake of its own."""
    on_store: dict[str, Any] = {"lake": lake_at(folder), "released": locate(f"{LAKES[0]}{folder}/released")} if LAKES else {}
    return Settings(root=ROOT, **{**build_root_settings(folder), **on_store})


@pytest.fixture(scope="session")
def spark(store_of_lakes: None) -> SparkSession:
    """The process's session, configured as every job's but for a process that lives long and takes a few rows a thousand times."""
    from sluice import session

    with variables_kept():
        return session.start_spark_session(settings_at(ROOT), "tests", {**LIVES_LONG, **FEW_ROWS})


@contextmanager
def variables_kept() -> Iterator[None]:
    """A session that starts tells the process's children where the lake is: the next test's must not be told."""
    before = {name: value for name, value in os.environ.items() if name.startswith("SLUICE_")}
    try:
        yield
    finally:
        for name in [name for name in os.environ if name.startswith("SLUICE_")]:
            del os.environ[name]
        os.environ.update(before)


@pytest.fixture(autouse=True)
def variables_are_kept() -> Iterator[None]:
    with variables_kept():
        yield


@pytest.fixture(autouse=True)
def tables_are_forgotten(request: pytest.FixtureRequest) -> Iterator[None]:
    """Delta keeps the state of each table for an hour, and with it the session it was read in: of thousands of tables, gigabytes."""
    yield
    if "spark" in request.fixturenames:
        jvm: Any = request.getfixturevalue("spark")._jvm
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings over this test's folder."""
    return settings_at(tmp_path)


@dataclass
class Lakehouse:
    """A pipeline's lake in a test: land files, run stages, look at rows."""

    settings: Settings
    spark: SparkSession
    graph: Graph
    landed: int = field(default=0)

    @property
    def name(self) -> str:
        return self.graph.pipeline.name

    @property
    def lake(self) -> PipelineLake:
        return PipelineLake(self.settings, self.graph)

    @property
    def records(self) -> PipelineRecords:
        return self.lake.records

    def land(self, file: str, content: str | bytes, at: float | None = None) -> Path:
        """Write a file below the landing folder. at: its modification time in seconds; later than any before unless given."""
        self.landed += 1
        path = self.settings.landing / self.name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        at = 1_600_000_000 + self.landed if at is None else at
        os.utime(path, (at, at))
        return path

    def workspace(self, mode: str = "increment", run: str = "", interval: Interval | None = None) -> Workspace:
        from sluice.lake.workspace import Workspace

        return Workspace(self.settings, self.graph, self.spark, run or uuid.uuid4().hex[:12], mode, interval)

    def replay(self, first: str, last: str, tables: Sequence[str] = ()) -> dict[str, FlowReport]:
        """Take an interval again, as a backfill does."""
        return self.run(mode="replay", tables=tables, interval=Interval.of(first, last))

    def run(
        self, *wanted: str, mode: str = "increment", tables: Sequence[str] = (), interval: Interval | None = None
    ) -> dict[str, FlowReport]:
        """Run stages, by default the layers. Returns the reports by table. Raises the error of a flow that failed."""
        layers = wanted or tuple(layer.rsplit(".", 1)[-1] for layer in self.graph.pipeline.layers)
        reports: dict[str, FlowReport] = {}
        for stage in layers:
            try:
                found = stages.run_pipeline_stage(self.workspace(mode, interval=interval), stage, StageOptions(tables))
            except FlowsFailed as failed:
                raise next(iter(failed.errors.values())) from None
            reports |= {report.flow: report for report in found}
        return reports

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """A table's rows as Spark gives them, sorted; of these columns, or of all.

        Read without Spark where that gives the same: Delta's reader takes two jobs a table, and tests look at thousands.
        `integration/lake/test_readers.py` and `unit/lake/test_small_writes.py` compare what Spark reads with it.
        """
        from pyspark.sql.conversion import ArrowTableToRowsConversion
        from pyspark.sql.types import StructType

        path = self.workspace().lake.record_tables()[table]
        opened = open_delta_table(path)
        fields = StructType.fromJson(json.loads(opened.schema().to_json()))
        names = columns or tuple(fields.names)
        if opened.protocol().min_reader_version > 1 or not {*names} <= {*fields.names}:
            chosen = self.spark.read.format("delta").load(path).select(*names)
            return sorted((tuple(row) for row in chosen.collect()), key=repr)
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        found = pa.table(QueryBuilder().register("t", opened).execute(f"SELECT {quoted} FROM t"))
        rows = ArrowTableToRowsConversion.convert(found, StructType([fields[name] for name in names]))
        return sorted((tuple(row) for row in rows), key=repr)

    def outcomes(self) -> list[Mapping[str, Any]]:
        """The delivery ledger."""
        return run_ledger.read_delivery_ledger(self.records)

    def versions(self) -> dict[str, int | None]:
        """The version of every table."""
        from sluice.lake import log

        return {name: log.latest_table_version(path) for name, path in self.workspace().lake.record_tables().items()}

    def files(self, layers: Sequence[str] = ("silver", "gold")) -> set[str]:
        """The data files of layers on disk."""
        root = locate(self.settings.lake, self.name)
        return {str(path) for layer in layers for path in (root / layer).rglob("*.parquet")}


@pytest.fixture(scope="session")
def gym_of_two_days(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """The folder of a gym of two days, landed and run by the command line: to be copied, with `gym_at`. One for all test processes."""
    from sluice.cli import main

    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "gym_of_two_days"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "made").exists():
            # What a process left that failed at it is not gone on with.
            shutil.rmtree(folder / "gym", ignore_errors=True)
            use_roots_of(patch, folder / "gym")
            for command in (("land", "gym", "--days", "2", "--scale", "0.2"), ("run", "gym")):
                with pytest.raises(SystemExit) as ended:
                    main(command)
                assert ended.value.code == 0, command
            (folder / "made").touch()
    return folder / "gym"


def gym_at(folder: Path, made: Path) -> Settings:
    """The settings of a copy of `gym_of_two_days`."""
    return copy_roots(replace(settings_at(made), lake=str(made / "lake")), folder)


def copy_roots(made: Settings, folder: Path) -> Settings:
    """The settings of a copy of all root folders of a test. Landed files keep their times, by which they are known."""
    shutil.copytree(made.landing.parent, folder, dirs_exist_ok=True)
    copy = settings_at(folder)
    if LAKES:
        shutil.rmtree(folder / "lake", ignore_errors=True)
        lake = locate(made.lake)
        for here, _, files in walk_folders(lake):
            for name in files:
                if not (name.startswith(".") and name.endswith(".crc")):  # as Hadoop writes on disks
                    locate(copy.lake, str((here / name).relative_to(lake))).write_bytes((here / name).read_bytes())
    return copy


def copied_lakehouse(made: Lakehouse, folder: Path) -> Lakehouse:
    """A lake that was made once, for a test to go on with in its own folder."""
    return Lakehouse(copy_roots(made.settings, folder), made.spark, made.graph, made.landed)


def lake_on_disk(settings: Settings, folder: Path) -> Path:
    """The folder of the lake, for tools that read files; of a lake on a store a copy, as it is now, in a new folder below `folder`."""
    if not LAKES:
        return Path(settings.lake)
    lake, made = locate(settings.lake), folder / uuid.uuid4().hex
    for here, _, files in walk_folders(lake):
        for name in files:
            copy = made / (here / name).relative_to(lake)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes((here / name).read_bytes())
    return made


@contextmanager
def versions_kept() -> Iterator[None]:
    """On a store, the bucket of the lakes keeps versions while the block lasts, as buckets of careful people do."""
    import boto3  # type: ignore[import-untyped]  # it has no types

    def say(status: str) -> None:
        for url in LAKES:
            bucket = url.removeprefix("s3://")
            boto3.client("s3").put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": status})

    say("Enabled")
    try:
        yield
    finally:
        say("Suspended")


@pytest.fixture(scope="session")
def deliveries_of_italy() -> Iterator[Path]:
    """The real deliveries. Skipped where they are missing, except in CI."""
    archive = Path(os.environ.get("SLUICE_SHARED", ROOT.parent / "shared")) / "data" / "italy_regions" / "deliveries.tar.xz"
    if not archive.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{archive} is missing; in CI it must be there")
        pytest.skip(f"{archive} is missing")
    yield archive


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of this test process, whose answers may take long. Skipped where its jars cannot be fetched, except in CI."""
    from tests import broker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sluice.ingest.topics.broker.PATIENCE", 60.0)
        yield from broker.running(tmp_path_factory.mktemp("kafka"))


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server of this test process."""
    with running_s3_server(tmp_path_factory.mktemp("s3") / "server.log") as server:
        yield server


@pytest.fixture
def bucket_url(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket on the S3 server, as s3://NAME. The environment says where the server is and who asks."""
    for name, value in s3_server.variables().items():
        monkeypatch.setenv(name, value)
    return f"s3://{s3_server.make_bucket()}"
