"""autoload_to_table: four arguments, any Spark session, a name or a path, and everything that arrives is in the table once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests import few_rows
from tests.conftest import ROOT

from sluice import autoload_to_table, record_tables
from sluice.errors import LeaseHeld, SluiceError, UsageError
from sluice.flows.bronze import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEASE = ["lease.driver.lock", "lease.json", "lease.lock"]
TECHNICAL = ["_delivery", "_file", "_row", "_ingested_at", "_rescued_data"]


@pytest.fixture(autouse=True)
def active(spark: SparkSession) -> None:
    """Other tests of this process leave sessions of their own active in this thread; a caller's is the caller's."""
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that others deliver into, with one file of JSON lines."""
    lines = [{"id": 1, "visit": {"gym": "a", "minutes": 30}}, {"id": 2, "visit": {"gym": "b", "minutes": 45}}]
    return land(tmp_path / "in", "1.json", *lines).parent


@pytest.fixture
def database(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """A database of the session's catalog, in this test's folder."""
    name = f"d{uuid.uuid4().hex[:8]}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path}/a database'")
    yield name
    spark.sql(f"DROP DATABASE {name} CASCADE")


def land(folder: Path, file: str, *records: dict[str, Any] | str) -> Path:
    """Write a file of JSON lines, or of these texts, an hour ago."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in records))
    earlier = time.time() - 3600
    os.utime(path, (earlier, earlier))
    return path


def take(*given: Any, **options: Any) -> dict[str, Any]:
    """Call it and wait. Returns its last progress."""
    query = autoload_to_table(*given, **options)
    assert query.awaitTermination() is True
    assert query.exception() is None and not query.isActive
    return query.lastProgress


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    """What a query over the table `t` at this path gives, by delta-rs."""
    found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(query))
    return [tuple(row.values()) for row in found.to_pylist()]


def types(path: Path) -> dict[str, str]:
    """The columns of a table with their types, as Arrow names them."""
    return {field.name: str(field.type) for field in pa.schema(DeltaTable(path).schema().to_arrow())}


def ids(path: Path) -> list[int]:
    """The ids in the table, of whatever type, sorted."""
    return sorted(int(id) for (id,) in rows(path, "SELECT id FROM t"))


def test_four_arguments_ingest_what_is_there_grow_with_it_and_take_nothing_twice(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    arguments = (folder, "json", str(table), tmp_path / "checkpoint")
    first = take(*arguments)
    read = spark.read.format("delta").load(str(table))
    assert read.select("id", "visit.gym", "visit.minutes").orderBy("id").collect() == [(1, "a", 30), (2, "b", 45)]
    assert dict(read.dtypes)["id"] == "bigint"
    assert set(read.columns) == {"id", "visit", *TECHNICAL}
    assert (first["deliveries"], first["rows"], first["numInputRows"], first["rescued"], first["quarantined"]) == (1, 2, 2, 0, 0)
    land(folder, "later/2.json", {"id": 3, "visit": {"gym": "a", "minutes": 5, "coach": "x"}, "device": "y"}, {"id": "four"})
    second = take(*arguments)
    assert rows(table, "SELECT visit['coach'], device, _file FROM t WHERE id = 3") == [("x", "y", "later/2.json")]
    assert rows(table, "SELECT id, _rescued_data FROM t WHERE _rescued_data IS NOT NULL") == [(None, '{"id":"four"}')]
    assert (second["deliveries"], second["rows"], second["rescued"]) == (1, 2, 1)
    third = take(*arguments)
    assert (third["batch"], third["deliveries"], third["rows"]) == (None, 0, 0)
    assert rows(table, "SELECT count(*) FROM t") == [(4,)]


@pytest.mark.thorough
def test_however_often_it_is_called_its_records_are_few_files(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_tables, "MOST_SMALL_FILES", 1)
    monkeypatch.setattr(record_tables, "LEAST_GROWTH", 0.0)
    take(folder, "json", str(tmp_path / "visits"), tmp_path / "checkpoint")
    land(folder, "2.json", {"id": 20})
    take(folder, "json", str(tmp_path / "visits"), tmp_path / "checkpoint")
    assert ids(tmp_path / "visits") == [1, 2, 20]
    logs = [path.parent for path in tmp_path.rglob("_delta_log") if path.parent.name in ("deliveries", "outcomes")]
    assert len(logs) == 2 and {len(DeltaTable(path).file_uris()) for path in logs} == {1}


def test_a_table_by_name_is_in_the_callers_database_and_its_history_names_the_run(
    spark: SparkSession, folder: Path, database: str, tmp_path: Path
) -> None:
    before = spark.catalog.currentDatabase()
    try:
        spark.catalog.setCurrentDatabase(database)
        query = autoload_to_table(str(folder), "json", "visits", tmp_path / "checkpoint")
        query.awaitTermination()
    finally:
        spark.catalog.setCurrentDatabase(before)
    assert spark.table(f"{database}.visits").count() == 2
    notes = [commit["userMetadata"] for commit in DeltaTable(tmp_path / "a database" / "visits").history()]
    assert notes and all(json.loads(note)["run"] == query.runId for note in notes)
    land(folder, "2.json", {"id": 3, "visit": None})
    take(f"file:{folder}", "json", f"{database}.visits", f"file:{tmp_path}/checkpoint")
    assert ids(tmp_path / "a database" / "visits") == [1, 2, 3]


@pytest.mark.thorough
def test_a_table_that_somebody_else_made_is_appended_to_in_its_own_types(
    spark: SparkSession, folder: Path, database: str, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE {database}.visits (Id INT, note STRING, day DATE) USING delta PARTITIONED BY (day)")
    path = tmp_path / "a database" / "visits"
    few_rows.append_rows(str(path), "Id INT, note STRING, day DATE", [(0, "ours", date(2026, 11, 20))])
    land(folder, "2.json", {"Id": 3, "day": "2026-11-21"}, {"Id": 5_000_000_000, "day": "2026-11-21"})
    take(folder, "json", f"{database}.visits", tmp_path / "checkpoint")
    assert types(path)["Id"] == "int32"
    assert types(path)["visit"] == "struct<gym: string, minutes: int64>"
    assert DeltaTable(path).metadata().partition_columns == ["day"]
    own = rows(path, f'SELECT "Id", note, {", ".join(TECHNICAL)} FROM t WHERE _delivery IS NULL')
    assert own == [(0, "ours", *[None] * 5)]
    assert rows(path, """SELECT "Id" FROM t WHERE day = '2026-11-21' AND "Id" IS NOT NULL""") == [(3,)]
    too_large = rows(path, """SELECT _rescued_data FROM t WHERE day = '2026-11-21' AND "Id" IS NULL""")
    assert [json.loads(rescued) for (rescued,) in too_large] == [{"Id": 5_000_000_000}]
    assert rows(path, "SELECT count(*) FROM t") == [(5,)]


@pytest.mark.thorough
def test_a_foreign_table_with_another_idea_of_our_columns_is_refused(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/table` (id BIGINT, _row STRING) USING delta")
    with pytest.raises(UsageError, match="has a column _row of type string, which Sluice needs as bigint"):
        autoload_to_table(folder, "json", f"{tmp_path}/table", tmp_path / "checkpoint")
    with pytest.raises(UsageError, match="has the column id as bigint, schema says string"):
        autoload_to_table(folder, "json", f"{tmp_path}/table", tmp_path / "checkpoint", schema="id STRING")


@pytest.mark.thorough
def test_two_folders_into_one_table_lose_nothing(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    land(tmp_path / "other", "1.json", {"id": 11}, {"id": 12})
    take(folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    take(tmp_path / "other", "json", f"delta.`{tmp_path}/table`", tmp_path / "checkpoint of the other")
    take(folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    assert ids(tmp_path / "table") == [1, 2, 11, 12]


@pytest.mark.thorough
def test_csv_with_options_in_sparks_spelling(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path / "in", "1.csv", "id;name", '1;"a;b"', "2;c")
    land(tmp_path / "in", "1.txt", "no CSV")
    options = {"sep": ";", "header": "true", "pathGlobFilter": "*.csv"}
    assert take(tmp_path / "in", "csv", str(tmp_path / "table"), tmp_path / "checkpoint", **options)["rows"] == 2
    assert rows(tmp_path / "table", "SELECT id, name FROM t ORDER BY id") == [(1, "a;b"), (2, "c")]


def test_a_declared_schema_rescues_what_it_does_not_know(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    progress = take(folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint", schema="id BIGINT")
    rescued = rows(tmp_path / "table", "SELECT _rescued_data FROM t ORDER BY id")
    assert [json.loads(text) for (text,) in rescued] == [
        {"visit": {"gym": "a", "minutes": 30}},
        {"visit": {"gym": "b", "minutes": 45}},
    ]
    assert (progress["rows"], progress["rescued"]) == (2, 2)


def test_a_broken_file_blocks_nobody_and_is_kept_as_it_came(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    broken = b'{"id": 3, "name": "\xe9"}\n'
    land(folder, "0.json").write_bytes(broken)
    land(folder, "2.json", {"id": 4}, "no object")
    progress = take(folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    assert ids(tmp_path / "table") == [1, 2, 4]
    assert progress["states"] == {"ingested": 2, "quarantined": 1}
    aside = rows(tmp_path / "checkpoint" / "quarantine", "SELECT _file, content, record FROM t ORDER BY _file")
    assert aside == [
        ("0.json", broken, None),
        ("2.json", None, "no object"),
    ]


def test_a_mistake_in_an_argument_is_an_error_before_anything_is_made(folder: Path, tmp_path: Path, spark: SparkSession) -> None:
    table, checkpoint = str(tmp_path / "table"), tmp_path / "checkpoint"
    land(tmp_path / "full", "somebody's.txt", "no table")
    for wrong, told in {
        (folder, "json", "no_such_database.visits", checkpoint): "CREATE DATABASE no_such_database",
        (tmp_path / "missing", "json", table, checkpoint): "there is no folder",
        ("s3://bucket/in", "json", table, checkpoint): "a folder on a local disk",
        (folder, "jsonl", table, checkpoint): "Did you mean 'json'",
        (folder, "json", table, folder / "checkpoint"): "lies in .* whose files are read",
        (folder, "json", f"{folder}/table", checkpoint): "lies in .* whose files are read",
        (folder, "json", f"{tmp_path}", checkpoint): "whose VACUUM would remove it",
        (folder, "json", "not a name", checkpoint): "is no table that rows can be added to",
        (folder, "json", f"{tmp_path}/full", checkpoint): "cannot be made: .* is not a Delta table",
    }.items():
        with pytest.raises(UsageError, match=told):
            autoload_to_table(*wrong)
    with pytest.raises(UsageError, match="Did you mean 'schema_hints'"):
        autoload_to_table(folder, "json", table, checkpoint, schema_hint="id BIGINT")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["1.json", "checkpoint", "full", "in", *LEASE, "somebody's.txt"]


def test_a_checkpoint_directory_of_something_else_is_refused_with_the_remedy(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    take(folder, "json", str(table), checkpoint)
    land(tmp_path / "other", "1.json", {"id": 9})
    for other in ((tmp_path / "other", "json", str(table)), (folder, "csv", str(table)), (folder, "json", f"{tmp_path}/table2")):
        with pytest.raises(UsageError, match="Give another checkpoint directory"):
            autoload_to_table(*other, checkpoint)
    (tmp_path / "sparks" / "offsets").mkdir(parents=True)
    with pytest.raises(UsageError, match="holds something other than"):
        autoload_to_table(folder, "json", str(table), tmp_path / "sparks")
    assert [path.name for path in (tmp_path / "sparks").iterdir()] == ["offsets"]
    spark.sql(f"CREATE TABLE delta.`{tmp_path}/again` (id BIGINT) USING delta")
    table.rename(tmp_path / "moved away")
    (tmp_path / "again").rename(table)
    with pytest.raises(UsageError, match="Give a new checkpoint directory"):
        autoload_to_table(folder, "json", str(table), checkpoint)


def test_it_stops_between_batches_and_the_next_call_takes_the_rest(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        land(tmp_path / "in", f"{number}.json", {"id": number})
    arguments = (tmp_path / "in", "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    begun: list[int] = []
    ingest = append.ingest_together_or_singly

    def ingest_the_second_once_it_is_to_stop(*given: Any) -> None:
        begun.append(len(begun) + 1)
        if len(begun) == 2:
            until(lambda: any((tmp_path / "checkpoint").glob("stop_requests/*")))
        ingest(*given)

    with monkeypatch.context() as patched:
        patched.setattr(append, "ingest_together_or_singly", ingest_the_second_once_it_is_to_stop)
        query = autoload_to_table(*arguments, **{"cloudFiles.maxFilesPerTrigger": "1"})
        assert query.isActive and query.awaitTermination(0.0) is False
        with pytest.raises(LeaseHeld, match=rf"written by run {query.runId} .* Wait for it \(awaitTermination\)"):
            autoload_to_table(*arguments)
        until(lambda: begun == [1, 2])
        assert query.lastProgress["batch"] is not None
        query.stop()
    assert not query.isActive and query.awaitTermination() is True and query.exception() is None
    assert begun == [1, 2] and [progress["deliveries"] for progress in query.recentProgress] == [1, 1]
    rest = autoload_to_table(*arguments)
    assert rest.awaitTermination(600.0) is True
    assert sum(progress["deliveries"] for progress in rest.recentProgress) == 2
    assert ids(tmp_path / "table") == list(range(4))
    assert list((tmp_path / "checkpoint" / "stop_requests").iterdir()) == []


def test_files_that_were_taken_are_archived_beside_the_folder_and_it_says_so(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    arguments = (folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    query = autoload_to_table(*arguments, **{"cloudFiles.cleanSource": "MOVE", "clean_after_days": 0})
    query.awaitTermination()
    assert (tmp_path / "_archive" / "in" / "1.json").exists() and not (folder / "1.json").exists()
    assert "1 file archived" in query.notes
    assert take(*arguments)["deliveries"] == 0
    assert ids(tmp_path / "table") == [1, 2]


def test_a_failure_is_raised_where_it_is_waited_for_and_shows_no_data(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a value")

    arguments = (folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    with monkeypatch.context() as patched:
        patched.setattr("sluice.flows.bronze.append.run_bronze_flow", fails)
        query = autoload_to_table(*arguments)
        with pytest.raises(SluiceError, match="ValueError in Sluice itself") as raised:
            query.awaitTermination()
    assert query.exception() is raised.value and "a value" not in str(raised.value)
    assert take(*arguments)["rows"] == 2


def test_the_callers_session_stays_the_active_one_and_is_set_as_it_was(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    before = (SparkSession.getActiveSession(), spark.conf.getAll)
    take(folder, "json", str(tmp_path / "table"), tmp_path / "checkpoint")
    assert (SparkSession.getActiveSession(), spark.conf.getAll) == before


def test_importing_sluice_loads_no_spark() -> None:
    code = """
        import sys
        import sluice
        loaded = {"pyspark", "delta", "py4j", "deltalake", "pyarrow", "pandas"} & set(sys.modules)
        assert not loaded, loaded
        from sluice import autoload_to_table
        assert callable(autoload_to_table) and "pyspark" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, cwd="/", env=_bare())


@pytest.mark.slow
def test_it_works_in_a_session_that_sluice_did_not_start_in_another_zone_and_folder(folder: Path, tmp_path: Path) -> None:
    land(tmp_path / "other", "1.json", {"id": 3, "visit": {"minutes": 5}})
    code = f"""
        from pyspark.sql import SparkSession
        from sluice import autoload_to_table
        from sluice.ingest.reading import amounts
        amounts.MOST_BYTES_IN_PROCESS = 0  # as if there were more: Python workers read
        spark = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.extraClassPath", "{ROOT}/.sluice/jars/*")
            .config("spark.ui.enabled", "false")
            .config("spark.sql.warehouse.dir", "{tmp_path}/warehouse")
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .config("spark.sql.sources.partitionOverwriteMode", "dynamic")
            .getOrCreate()
        )
        spark.conf.set("spark.sql.ansi.enabled", "false")
        spark.sql("CREATE DATABASE gym")
        query = autoload_to_table("{folder}", "json", "gym.visits", "checkpoint")
        assert query.awaitTermination(600)
        assert query.lastProgress["states"] == {{"ingested": 1}}, query.lastProgress
        assert spark.table("gym.visits").count() == 2
        amounts.MOST_BYTES_IN_PROCESS = 32_000_000
        query = autoload_to_table("{tmp_path}/other", "json", "gym.visits", "checkpoint of the other")
        assert query.awaitTermination(600)
        assert spark.table("gym.visits").where("id = 3").select("visit.minutes").collect() == [(5,)]
        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
        assert spark.conf.get("spark.sql.ansi.enabled") == "false"
        spark.stop()
    """
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ended = subprocess.run(command, cwd=elsewhere, env=_bare() | {"TZ": "America/New_York"}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]


def until(happened: Callable[[], bool], seconds: float = 600.0) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def _bare() -> dict[str, str]:
    """An environment without any settings of Sluice or Spark; the code is this checkout's."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "JAVA_HOME", "LANG")}
    return kept | {"PYTHONPATH": str(ROOT / "include"), "SPARK_LOCAL_IP": "127.0.0.1"}
