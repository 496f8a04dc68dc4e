"""How an existing table gets its declared layout: which properties differ, who sets them, and what clustering means. Without a JVM."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.types import LongType, StringType, StructField, StructType

from sluice.delta_log import LOG
from sluice.lake import file_overlap, log, log_files, rowless_commits, small_writes
from sluice.lake.file_statistics import PartitionFiles
from sluice.lake.layout import decide_by_partitions, decide_layout
from sluice.lake.layout_properties import (
    LAYOUT_PROPERTIES,
    ONE_FILE,
    ORDERED_FILE,
    choose_file_size,
    choose_layout_properties,
    find_property_changes,
)
from sluice.lake.table_creation import TableShape
from sluice.lake.written_alike import is_written_alike
from sluice.table_properties import (
    CHANGE_FEED,
    DELETION_VECTORS,
    LOG_RETENTION,
    RETENTION,
    STATISTICS,
    TARGET_FILE_SIZE,
)

COLUMNS = StructType([StructField("id", LongType()), StructField("day", LongType()), StructField("email", StringType())])
SHAPE = TableShape(schema=COLUMNS, comment="c", statistics=("id", "day"))
USUAL = {
    CHANGE_FEED: "true",
    DELETION_VECTORS: "false",
    STATISTICS: "id,day",
    RETENTION: "interval 7 days",
    LOG_RETENTION: "interval 30 days",
}
MIB = 1024 * 1024


class FakeSession:
    """Records the statements that it gets, with the settings at that time."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.said: list[tuple[str, dict[str, str]]] = []
        self.conf = self

    def get(self, name: str, default: str | None = None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, value: str) -> None:
        self.values[name] = value

    def unset(self, name: str) -> None:
        self.values.pop(name, None)

    def sql(self, text: str) -> None:
        self.said.append((text, dict(self.values)))


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "table")
    for first in range(3):
        write_rows(made, first)
    return made


def write_rows(path: str, first: int) -> None:
    rows = pa.table({"id": pa.array(range(first, first + 10), pa.int64()), "day": pa.array([first] * 10, pa.int64())})
    write_deltalake(path, rows, mode="append", configuration=USUAL)


def commit_actions(path: str, *actions: dict[str, Any]) -> None:
    version = DeltaTable(path).version() + 1
    file = Path(path, LOG, f"{version:020d}.json")
    file.write_text("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions))


def cluster(path: str, *columns: str, protocol: bool = True) -> None:
    """What Delta on Spark commits at ALTER TABLE ... CLUSTER BY (4.4, as found in a log)."""
    features = {"minReaderVersion": 1, "minWriterVersion": 7}
    features |= {"writerFeatures": ["domainMetadata", "clustering", "changeDataFeed", "invariants", "appendOnly"]}  # type: ignore[dict-item]
    said = json.dumps({"clusteringColumns": [[column] for column in columns], "domainName": "delta.clustering"})
    info = {"timestamp": 1, "operation": "CLUSTER BY", "operationParameters": {"newClusteringColumns": ",".join(columns)}}
    commit_actions(
        path,
        {"commitInfo": info},
        *([{"protocol": features}] if protocol else []),
        {"domainMetadata": {"domain": "delta.clustering", "configuration": said, "removed": False}},
    )


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, {}),
        ({"retain": "14 days"}, {RETENTION: "interval 14 days"}),
        ({"retain": "23 days"}, {RETENTION: "interval 23 days"}),
        ({"retain": "40 days"}, {RETENTION: "interval 40 days", LOG_RETENTION: "interval 47 days"}),
        ({"retain": "40 days", "keep_log": "41 days"}, {RETENTION: "interval 40 days", LOG_RETENTION: "interval 41 days"}),
        ({"retain": "40 days", "keep_log": "2 days"}, {RETENTION: "interval 40 days", LOG_RETENTION: "interval 40 days"}),
        ({"keep_log": "60 days"}, {LOG_RETENTION: "interval 60 days"}),
        ({"change_feed": False}, {CHANGE_FEED: "false"}),
        ({"deletion_vectors": True}, {DELETION_VECTORS: "true"}),
        ({"file_bytes": 64_000_000}, {TARGET_FILE_SIZE: "64000000"}),
        ({"statistics": ("day",)}, {STATISTICS: "day"}),
        ({"statistics": ("day", "id", "email")}, {}),
        ({"statistics": ("day", "id"), "statistics_declared": True}, {STATISTICS: "day,id"}),
        ({"statistics": ("id", "late"), "statistics_declared": True}, {STATISTICS: "id"}),
        ({"statistics": ("email", "id", "day"), "cluster_by": ("email",)}, {STATISTICS: "id,day,email"}),
    ],
)
def test_what_differs_between_a_table_and_its_declaration_is_set_and_nothing_else(
    options: dict[str, Any], given: dict[str, str]
) -> None:
    shape = replace(SHAPE, **options)
    changes = find_property_changes(USUAL, shape)
    assert (changes.given, changes.taken) == (given, ())
    assert not find_property_changes({**USUAL, **given}, shape), "once"


def test_what_is_no_longer_declared_is_as_for_every_table_and_what_is_somebody_elses_stays() -> None:
    declared = replace(SHAPE, file_bytes=64_000_000, deletion_vectors=True, change_feed=False)
    there = choose_layout_properties(declared)
    assert set(there) == {one.name for one in LAYOUT_PROPERTIES}
    back = find_property_changes({**there, "their.own": "1"}, SHAPE)
    assert (back.given, back.taken) == ({DELETION_VECTORS: "false", CHANGE_FEED: "true"}, (TARGET_FILE_SIZE,))
    assert not find_property_changes({CHANGE_FEED: "false"}, declared), "its statistics are not ours: neither is the table"
    assert choose_layout_properties(replace(SHAPE, partition_by=("day",)))[STATISTICS] == "id"


@pytest.mark.parametrize(
    ("options", "fit"),
    [
        ({"retain": "14 days", "keep_log": "60 days", "statistics": ("id",), "file_bytes": 2_000_000}, True),
        ({"change_feed": False}, False),
        ({"deletion_vectors": True}, False),
    ],
)
def test_delta_rs_sets_what_needs_no_other_protocol(path: str, options: dict[str, Any], fit: bool) -> None:
    changes = find_property_changes(log.read_table_properties(path), replace(SHAPE, **options))
    session, before = FakeSession(), log.latest_table_version(path)
    rowless_commits.change_table_properties(session, path, changes)  # type: ignore[arg-type]
    assert changes.fit_delta_rs is fit
    if fit:
        assert not session.said and log.latest_table_version(path) == (before or 0) + 1, "one commit"
        assert {name: log.read_table_properties(path)[name] for name in changes.given} == changes.given
        assert Path(path, LOG, f"{log.latest_table_version(path):020d}.crc").exists()
        assert is_written_alike(DeltaTable(path)), "and it stays a table that delta-rs writes"
    else:
        assert [text.partition("SET ")[2] for text, _ in session.said] == [
            f"TBLPROPERTIES ('{next(iter(changes.given))}' = '{next(iter(changes.given.values()))}')"
        ]


def test_of_a_clustered_table_spark_sets_properties_also_those_that_it_does_not_know(path: str) -> None:
    cluster(path, "day")
    session, shape = FakeSession(), replace(SHAPE, retain="14 days", file_bytes=2_000_000)
    changes = find_property_changes(log.read_table_properties(path), shape)
    rowless_commits.change_table_properties(session, path, changes)  # type: ignore[arg-type]
    ((text, settings),) = session.said
    assert RETENTION in text and TARGET_FILE_SIZE in text and list(settings.values()) == ["true"]
    assert session.values == {}, "for this statement only"
    session.said.clear()
    back = find_property_changes({**USUAL, TARGET_FILE_SIZE: "2000000"}, SHAPE)
    rowless_commits.change_table_properties(session, path, back)  # type: ignore[arg-type]
    assert [text.partition("UNSET ")[2] for text, _ in session.said] == [f"TBLPROPERTIES IF EXISTS ('{TARGET_FILE_SIZE}')"]


def test_the_newest_word_of_the_log_says_by_what_a_table_is_clustered(path: str) -> None:
    assert log_files.read_cluster_columns(path) == () and not log_files.has_clustering_feature(path)
    cluster(path, "day")
    assert log_files.read_cluster_columns(path) == ("day",)
    cluster(path, "id", "day", protocol=False)
    commit_actions(path, {"commitInfo": {"timestamp": 2, "operation": "VACUUM END"}})
    assert log_files.read_cluster_columns(path) == ("id", "day")
    DeltaTable(path).create_checkpoint()
    for commit in Path(path, LOG).glob("*.json"):
        if int(commit.stem) < (log.latest_table_version(path) or 0):
            commit.unlink()
    assert log_files.read_cluster_columns(path) == ("id", "day"), "by the checkpoint"
    cluster(path, protocol=False)
    assert log_files.read_cluster_columns(path) == () and log_files.has_clustering_feature(path)


def test_files_lie_as_earlier_columns_had_it_until_all_are_written_anew(path: str) -> None:
    def say(operation: str, **parameters: Any) -> bool:
        commit_actions(path, {"commitInfo": {"timestamp": 1, "operation": operation, "operationParameters": parameters}})
        return log_files.was_clustered_otherwise(path)

    assert not log_files.was_clustered_otherwise(path)
    assert not say("CLUSTER BY", oldClusteringColumns="", newClusteringColumns="day"), "it was in no order"
    assert say("CLUSTER BY", oldClusteringColumns="day", newClusteringColumns="id")
    assert say("CLUSTER BY", oldClusteringColumns="id", newClusteringColumns="")
    assert say("CLUSTER BY", oldClusteringColumns="", newClusteringColumns="id"), "a purge, which changes nothing of it"
    assert say("OPTIMIZE", isFull=False), "it leaves what is clustered"
    assert not say("OPTIMIZE", isFull="true")


def test_a_clustered_table_is_laid_out_by_spark_alone_and_the_decision_says_what_that_costs(path: str) -> None:
    assert is_written_alike(DeltaTable(path)) and small_writes.is_laid_out_by_delta_rs(path, ("day",))
    cluster(path, "day")
    assert not is_written_alike(DeltaTable(path)) and not small_writes.is_laid_out_by_delta_rs(path, ("day",))
    assert not small_writes.is_merged_by_delta_rs(path, ("id",), 1, 100, True)
    found = decide_layout(path, ())
    assert found.needed and found.clustered and not found.groups and not found.in_full
    assert "clustered by day: OPTIMIZE is by Spark and writes all 3 files, " in found.why and found.why.endswith(" KB, anew")
    demanded = decide_layout(path, (), demanded=True)
    assert demanded.in_full and demanded.why.startswith("demanded; clustered by day: OPTIMIZE is by Spark and writes all 3 files")
    commit_actions(path, {"commitInfo": {"timestamp": 2, "operation": "OPTIMIZE"}})
    done = decide_layout(path, ())
    assert not done.needed and done.why.startswith("no data came since the last rewrite")


def test_what_was_clustered_takes_no_other_order(path: str) -> None:
    cluster(path, "day")
    cluster(path, protocol=False)
    found = decide_layout(path, ("id",), demanded=True)
    assert found.needed and found.clustered and not found.in_full and "clustered by" not in found.why


def test_a_file_of_half_the_declared_size_may_stay(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [PartitionFiles({}, [9 * MIB] * 20)]
    assert decide_by_partitions(files, ordered=True).needed, "half of 1 GiB is not there"
    assert not decide_by_partitions(files, ordered=True, file_bytes=16 * MIB).needed
    monkeypatch.setattr(file_overlap, "MANY_SMALL_FILES", 20)
    small = [PartitionFiles({}, [100 * MIB, *[2 * MIB] * 20])]
    found = decide_by_partitions(small, ordered=False, file_bytes=8 * MIB)
    assert found.join and found.join.into == 8 * MIB
    assert not decide_by_partitions(small, ordered=False, file_bytes=4 * MIB).needed


def test_optimize_makes_files_of_the_declared_size(path: str) -> None:
    assert (choose_file_size(path, True), choose_file_size(path, False)) == (ORDERED_FILE, ONE_FILE)
    DeltaTable(path).alter.set_table_properties({TARGET_FILE_SIZE: "64000000"})
    assert (choose_file_size(path, True), choose_file_size(path, False)) == (64_000_000, 64_000_000)
    DeltaTable(path).alter.set_table_properties({TARGET_FILE_SIZE: "128mb"})  # as Databricks lets people write it
    assert choose_file_size(path, True) == ORDERED_FILE
    assert is_written_alike(DeltaTable(path))
