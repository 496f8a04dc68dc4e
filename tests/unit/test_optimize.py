"""When files are rewritten: once as many bytes came as the last rewrite left, so that many small additions cost little."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from sluice import optimize
from sluice.errors import SluiceError
from sluice.lake import file_rewrites, file_statistics, small_writes
from sluice.lake.commit_history import has_new_data
from sluice.lake.file_overlap import FileExtent, find_small_files_of_one_size
from sluice.lake.file_rewrites import rewrite_file_groups
from sluice.lake.file_statistics import PartitionFiles, list_data_files
from sluice.lake.layout import decide_by_partitions, decide_layout, has_grown_since_rewrite, measure_asked_questions

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("file_sizes", "grown"),
    [
        ([5 * MIB], False),
        ([100 * MIB, 1 * MIB], False),
        ([100 * MIB, *[10 * MIB] * 9], False),
        ([100 * MIB, *[10 * MIB] * 10], True),
        ([600 * MIB, 700 * MIB, 650 * MIB], False),
        ([600 * MIB, 700 * MIB, *[400 * MIB] * 3], False),
        ([600 * MIB, 700 * MIB, *[400 * MIB] * 4], True),
    ],
    ids=["one file", "a little", "nearly as much", "as much", "large files only", "large, and less", "large, and more"],
)
def test_a_rewrite_is_due_when_as_much_came_as_there_was(file_sizes: list[int], grown: bool) -> None:
    assert has_grown_since_rewrite(file_sizes) is grown


@pytest.mark.parametrize("good", [512 * MIB, 16 * MIB], ids=["in order", "in any order"])
def test_all_rewrites_of_a_life_cost_a_few_times_what_came(good: int) -> None:
    """A thousand days: what OPTIMIZE writes stays below a small multiple of what came, and files stay few."""
    chance = random.Random(7)
    files, came, rewritten, most = [], 0, 0, 0
    for _ in range(1000):
        size = chance.randint(MIB // 100, MIB)
        files.append(size)
        came += size
        if has_grown_since_rewrite(files, good):
            rewritten += sum(files)
            files = [sum(files)]
        most = max(most, len(files))
    assert rewritten < 3 * came
    assert most > 100, "a table that is rewritten each day would have few files, and cost a hundred times as much"


def test_without_an_order_of_rows_a_file_of_a_good_size_stays() -> None:
    """A first load writes a file for each task: as many bytes came as there were, and nothing is won by writing them again."""
    files = [20 * MIB, 25 * MIB, 20 * MIB]
    assert has_grown_since_rewrite(files)
    assert not has_grown_since_rewrite(files, good=16 * MIB)
    assert has_grown_since_rewrite([*files, *[7 * MIB] * 10], good=16 * MIB), "small ones are joined once they are as much"


@pytest.mark.parametrize("most", [MIB // 50, MIB, 12 * MIB], ids=["tiny", "small", "not so small"])
def test_in_a_year_of_daily_files_each_byte_is_joined_about_once_and_files_stay_few(most: int) -> None:
    """With the second rule alone: what it costs, and that it is enough to keep the number of files small."""
    chance = random.Random(11)
    files: list[int] = []
    came = rewritten = 0
    for _ in range(365):
        files.append(chance.randint(most // 4, most))
        came += files[-1]
        if group := [one.size for one in find_small_files_of_one_size([FileExtent("", size) for size in files])]:
            rewritten += sum(group)
            for size in group:
                files.remove(size)
            files.append(sum(group))
    assert len(files) < 60 and 0.8 * came < rewritten <= came


def test_what_is_good_is_neither_read_nor_written_again() -> None:
    """Through Spark, `integration/lake/test_upkeep.py`; here, by the sizes: only files below the largest of the small ones are taken."""
    partitions = [
        PartitionFiles({"city": "a"}, [100 * MIB] * 100 + [10 * MIB] * 60),
        PartitionFiles({"city": "b"}, [400 * MIB, *[MIB] * 50]),
    ]
    decision = decide_by_partitions(partitions, ordered=False)
    assert decision.join and 10 * MIB < decision.join.below <= 16 * MIB
    assert decision.join.into <= 1024 * MIB, "as large as OPTIMIZE makes files, and no larger"
    assert decision.partitions == partitions and "60 small files" in decision.why


STATISTICS = {"delta.dataSkippingStatsColumns": "id,day", "delta.enableChangeDataFeed": "true"}


def append_rows(path: str, ids: Sequence[int], day: int = 0, partitioned: bool = False) -> None:
    """A delivery as delta-rs commits it; each row has a text of its own."""
    rows = pa.table({
        "id": pa.array(ids, pa.int64()),
        "day": pa.array([date(2026, 1, 1) + timedelta(days=day)] * len(ids)),
        "text": [f"{day}-{number}" for number in ids],
    })
    write_deltalake(path, rows, mode="append", configuration=STATISTICS, partition_by=["day"] if partitioned else None)


def read_rows(path: str) -> list[dict[str, object]]:
    """The table's content, in one order whatever its files are."""
    return pa.table(
        QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t ORDER BY id, day, text").read_all()
    ).to_pylist()


def rewrite_as_decided(path: str, zorder: Sequence[str]) -> int:
    """Do what is decided, as the stage does it, without Spark. Returns the bytes that were written."""
    decision = decide_layout(path, zorder)
    rewrite_file_groups(
        path, decision.groups, zorder, None, lambda staged: (small_writes.lay_out_small_table(staged, zorder, None), None)[1]
    )
    return sum(group.size for group in decision.groups)


def cases_of_days() -> list[Any]:
    """As many days as it takes until something is rewritten; more are slow."""
    cases = {"over one another": (("id",), True), "in order": (("day",), True), "in no order": ((), True)}
    cases |= {"nothing but appends": (("id",), False)}
    first = {name: 60 if name == "in order" else 30 for name in cases}
    return [
        pytest.param(*case, days, id=f"{name}-{days}", marks=() if days == first[name] else pytest.mark.slow)
        for name, case in cases.items()
        for days in sorted({first[name], 60, 365})
    ]


@pytest.mark.parametrize(("zorder", "merges", "days"), cases_of_days())
def test_daily_increments_are_well_laid_out_and_upkeep_writes_no_more_than_came(
    tmp_path: Path, zorder: tuple[str, ...], merges: bool, days: int
) -> None:
    """Commits of delta-rs: an append a day; with merges, each seventh day corrects rows of the day before, which copies files.

    By the decisions alone, a year is in `lake/test_file_overlap.py`.
    """
    path, chance = str(tmp_path / "t"), random.Random(3)
    came = rewritten = merged = rewrites = 0
    for day in range(days):
        known = {one.path for one in file_statistics.list_data_files(path)} if day else set[str]()
        append_rows(path, chance.sample(range(10**6), 50), day)
        came += next(one.size for one in file_statistics.list_data_files(path) if one.path not in known)
        if merges and day % 7 == 6:
            before = {one.path for one in file_statistics.list_data_files(path)}
            small_merge(path, date(2026, 1, 1) + timedelta(days=day - 1))
            merged += sum(one.size for one in file_statistics.list_data_files(path) if one.path not in before)
        content = hash_content(path) if decide_layout(path, zorder).needed else ""
        if written := rewrite_as_decided(path, zorder):
            rewritten, rewrites = rewritten + written, rewrites + 1
            assert hash_content(path) == content
            assert decide_layout(path, zorder).why == "no data came since the last rewrite", "a second run has nothing to do"
    files = file_statistics.list_data_files(path, zorder)
    assert 0 < rewritten <= came + merged and rewritten + merged <= 3 * came
    assert bool(merged) == merges, "without merges it is what came, and no more"
    assert len(files) < min(days, 70) and rewrites < 60
    assert len(read_rows(path)) == days * 50
    if zorder == ("day",):
        question = measure_asked_questions(path, zorder)["day"]
        assert question and question.files < 2


def hash_content(path: str) -> str:
    """Of all rows, whatever their files are."""
    return hashlib.sha256(repr(read_rows(path)).encode()).hexdigest()


def small_merge(path: str, day: date) -> None:
    """Correct some rows of a day."""
    DeltaTable(path).update(updates={"text": "'corrected'"}, predicate=f"day = '{day}' AND id % 10 = 0")


def test_a_file_that_no_other_fits_beside_stays(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for day in range(3):
        append_rows(path, range(day * 10_000, (day + 1) * 10_000), day)
    size = file_statistics.list_data_files(path)[0].size
    DeltaTable(path).alter.set_table_properties({"delta.targetFileSize": str(round(2.5 * size))})
    rows, decision = read_rows(path), decide_layout(path, ())
    assert [len(group.files) for group in decision.groups] == [3], decision.why
    assert rewrite_as_decided(path, ()) and len(file_statistics.list_data_files(path)) == 2
    assert read_rows(path) == rows and not decide_layout(path, ()).needed
    metrics = DeltaTable(path).history(1)[0]["operationMetrics"]
    assert (int(metrics["numFilesRemoved"]), int(metrics["numFilesAdded"])) == (2, 1)


@pytest.mark.parametrize("partitioned", [False, True], ids=["one table", "partitions"])
def test_only_the_files_of_a_group_are_written_anew_and_no_row_changes(tmp_path: Path, partitioned: bool) -> None:
    path = str(tmp_path / "t")
    append_rows(path, range(2_000_000, 2_050_000), 1, partitioned)
    for day in range(9):
        append_rows(path, range(day, 9_000 + day, 9), 1, partitioned)
    good = max(file_statistics.list_data_files(path), key=lambda one: one.size).path
    before, rows = {one.path for one in file_statistics.list_data_files(path)}, read_rows(path)
    decision = decide_layout(path, ("id",))
    assert decision.why.startswith("9 files overlap; ") and "9 of 10 files" in decision.why, decision.why
    questions = measure_asked_questions(path, ("id", "text"))
    rewrite_as_decided(path, ("id",))
    after = {one.path for one in file_statistics.list_data_files(path)}
    assert good in after and len(before - after) == 9 and len(after - before) == 1
    assert read_rows(path) == rows
    now = measure_asked_questions(path, ("id", "text"))
    assert now["text"] is None and questions["id"] and now["id"] and now["id"].files < questions["id"].files
    text = (Path(path) / "_delta_log" / f"{DeltaTable(path).version():020d}.json").read_text()
    assert '"dataChange":true' not in text and text.count('"remove"') == 9
    assert not [*Path(path).glob(".spark-staging*")], "nothing is left beside the table"
    changes = DeltaTable(path).load_cdf(starting_version=DeltaTable(path).version()).read_all()
    assert changes.num_rows == 0, "who follows the table sees no change"


def test_files_of_few_rows_are_laid_out_without_spark(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for day in range(9):
        append_rows(path, range(day, 900 + day, 9), day)
    decision = decide_layout(path, ("id",))
    asked = []

    def lay_out(staged: str) -> None:
        asked.append(small_writes.is_laid_out_by_delta_rs(staged, ("id",)))
        small_writes.lay_out_small_table(staged, ("id",), None)

    rewrite_file_groups(path, decision.groups, ("id",), None, lay_out)
    assert asked == [True]


def test_of_a_table_beside_another_only_the_small_files_are_written_anew(tmp_path: Path) -> None:
    """A quarantine or a late table, as any other: with its reason, and no Spark for a few rows."""
    path = str(tmp_path / "t")
    append_rows(path, range(60_000))
    for day in range(50):
        append_rows(path, [day], day)
    good, rows = max(file_statistics.list_data_files(path), key=lambda one: one.size).path, read_rows(path)
    conf = SimpleNamespace(get=lambda name, other: None)
    workspace: Any = SimpleNamespace(session=SimpleNamespace(conf=conf), mark_next_commits=lambda *said: None)
    report = optimize.optimize_table_beside(workspace, "t_quarantine", path)
    assert report.decision and "50 of 51 files, " in report.decision, report.decision
    assert report.committed and report.notes == ["50 files > 1"] and read_rows(path) == rows
    assert good in {one.path for one in file_statistics.list_data_files(path)}
    again = optimize.optimize_table_beside(workspace, "t_quarantine", path)
    assert not again.committed and again.decision == "no: no data came since the last rewrite"


def test_somebody_elses_commit_ends_a_rewrite_and_the_table_is_theirs(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for day in range(9):
        append_rows(path, range(day, 900 + day, 9), day)
    decision = decide_layout(path, ("id",))

    def lay_out_while_somebody_writes(staged: str) -> None:
        small_writes.lay_out_small_table(staged, ("id",), None)
        append_rows(path, [7], 99)

    with pytest.raises(SluiceError, match="Somebody else wrote to the table"):
        rewrite_file_groups(path, decision.groups, ("id",), None, lay_out_while_somebody_writes)
    assert len(read_rows(path)) == 901 and len([*Path(path).glob("*.parquet")]) == 10
    assert not [*Path(path).glob(".spark-staging*")]


def test_rows_that_somebody_deletes_between_two_groups_do_not_come_back(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for day in range(2):
        for number in range(9):
            append_rows(path, range(number, 900 + number, 9), day, partitioned=True)
    decision = decide_layout(path, ("id",))
    assert len(decision.groups) == 2
    groups = iter(range(2))

    def lay_out_and_let_somebody_delete(staged: str) -> None:
        small_writes.lay_out_small_table(staged, ("id",), None)
        if next(groups) == 0:
            deleting.append(True)

    deleting: list[bool] = []
    real = file_rewrites.keep_written_table

    def keep_and_delete(of: str, table: DeltaTable) -> None:
        real(of, table)
        if deleting:
            deleting.clear()
            DeltaTable(path).delete("id < 300")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_rewrites, "keep_written_table", keep_and_delete)
        with pytest.raises(SluiceError, match="Somebody else has written to the table"):
            rewrite_file_groups(path, decision.groups, ("id",), None, lay_out_and_let_somebody_delete)
    rows = read_rows(path)
    assert len(rows) == 1200 and min(int(str(row["id"])) for row in rows) == 300


def test_a_table_that_was_replaced_has_new_data(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for day in range(2):
        append_rows(path, range(9), day)
    small_writes.lay_out_small_table(path, (), None)
    assert not has_new_data(path)
    for operation in ("CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT", "CREATE OR REPLACE TABLE"):
        last = DeltaTable(path).version()
        info = json.dumps({"commitInfo": {"timestamp": 0, "operation": operation, "operationParameters": {}}})
        (Path(path) / "_delta_log" / f"{last + 1:020d}.json").write_text(f"{info}\n")
        assert has_new_data(path), operation
        append_rows(path, [last])
        small_writes.lay_out_small_table(path, (), None)
        assert not has_new_data(path)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_the_last_instant_of_all_is_an_end_like_others(tmp_path: Path, zone: str | None) -> None:
    path = str(tmp_path / "t")
    last = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC if zone else None)
    for at in (last, last - timedelta(days=1)):
        write_deltalake(path, pa.table({"at": pa.array([at], pa.timestamp("us", zone))}), mode="append")
    ends = sorted(one.ends["at"] for one in list_data_files(path, ("at",)))
    assert [high for _, high in ends] == [ends[0][0] + timedelta(milliseconds=1), last]
    assert decide_layout(path, ("at",)).why.startswith("2 files; ")


def test_a_rewrite_that_lost_rows_is_not_committed(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for day in range(9):
        append_rows(path, range(day, 900 + day, 9), day)
    decision = decide_layout(path, ("id",))
    with pytest.raises(SluiceError, match="do not have the rows of the old"):
        rewrite_file_groups(path, decision.groups, ("id",), None, lambda staged: (DeltaTable(staged).delete("id = 5"), None)[1])
    assert DeltaTable(path).version() == 8
    assert rewrite_file_groups(path, decision.groups, ("id",), None, lambda staged: None) == (0, 0), "nothing was laid out"
    assert (
        len(file_statistics.list_data_files(path)) == 9
        and decide_layout(path, ("id",)).why == "no data came since the last rewrite"
    )


def test_a_decision_says_its_numbers_also_where_it_is_no(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append_rows(path, range(60_000))
    append_rows(path, [1])
    decision = decide_layout(path, ())
    assert not decision.needed
    assert re.fullmatch(r"2 files; [\d.]+ K?B of new data since the last rewrite, which left [\d.]+ KB", decision.why), (
        decision.why
    )
    assert decide_layout(path, ("id",)).why == "2 of 2 files overlap"
    assert decide_layout(path, ("text",)).why.endswith("; 'text' has no statistics")
    demanded = decide_layout(path, (), demanded=True)
    assert demanded.needed and demanded.join is None
    small_writes.lay_out_small_table(path, (), None)
    assert decide_layout(path, (), demanded=True).why == "demanded, but there is nothing to join"


def test_a_table_that_is_written_through_spark_alone_is_decided_by_partitions(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"id": [1, 2], "city": ["a", "b"]})
    for _ in range(2):
        write_deltalake(path, rows, mode="append", partition_by=["city"], configuration=STATISTICS)
    decision = decide_layout(path, ("id",))
    assert decision.needed and not decision.groups and (len(decision.partitions), decision.of) == (2, 2)
