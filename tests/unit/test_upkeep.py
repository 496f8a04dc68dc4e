"""When files are rewritten: once as many bytes came as the last rewrite left, so that little by little costs little."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice.lake import layout, log, small_writes
from sluice.lake.layout import decide_layout, find_small_files_of_one_size, has_grown_since_rewrite
from sluice.lake.log import PartitionFiles

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


@pytest.mark.parametrize(
    ("file_sizes", "joined"),
    [
        ([MIB] * 49, 0),
        ([MIB] * 50, 50),
        ([20 * MIB] * 80, 0),
        ([*[MIB // 100] * 50, *[MIB // 2] * 7], 50),
        ([*[MIB // 100] * 20, *[MIB] * 40], 0),
        ([100, *[MIB // 100] * 500], 500),
        ([100] * 5 + [MIB] * 1000, 1000),
        ([], 0),
    ],
    ids=[
        "nearly many",
        "many",
        "large enough",
        "joined ones stay",
        "of two sizes, few of each",
        "a tiny one is no obstacle",
        "nor are a few",
        "no file",
    ],
)
def test_many_small_files_of_one_size_are_joined_and_no_other(file_sizes: list[int], joined: int) -> None:
    assert len(find_small_files_of_one_size(file_sizes)) == joined


@pytest.mark.parametrize("most", [MIB // 50, MIB, 12 * MIB], ids=["tiny", "small", "not so small"])
def test_in_a_year_of_daily_files_each_byte_is_joined_about_once_and_files_stay_few(most: int) -> None:
    """Only by the second rule: what it costs by itself, and that it alone keeps files few."""
    chance = random.Random(11)
    files: list[int] = []
    came = rewritten = 0
    for _ in range(365):
        files.append(chance.randint(most // 4, most))
        came += files[-1]
        if group := find_small_files_of_one_size(files):
            rewritten += sum(group)
            for size in group:
                files.remove(size)
            files.append(sum(group))
    assert len(files) < 60 and 0.8 * came < rewritten <= came


def append_rows(path: str, number: int) -> None:
    write_deltalake(path, pa.table({"id": [number], "text": ["x" * 200]}), mode="append")


def test_what_is_good_is_neither_read_nor_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through Spark, `integration/test_upkeep.py`; here, by the sizes: only files below the largest of the small ones are taken."""
    partitions = [
        PartitionFiles({"city": "a"}, [100 * MIB] * 100 + [10 * MIB] * 60),
        PartitionFiles({"city": "b"}, [400 * MIB, *[MIB] * 50]),
    ]
    monkeypatch.setattr(log, "list_partition_file_sizes", lambda path: partitions)
    monkeypatch.setattr(layout, "_has_new_data", lambda path: True)
    decision = decide_layout("somewhere", ())
    assert decision.join and 10 * MIB < decision.join.below <= 16 * MIB
    assert decision.join.into <= 1024 * MIB, "as large as OPTIMIZE makes files, and no larger"
    assert decision.partitions == partitions and "60 small files" in decision.why


def test_many_small_files_are_a_reason_and_after_a_rewrite_there_is_none(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": list(range(60_000)), "text": [f"{n * 7919 % 60_013}" for n in range(60_000)]}))
    for number in range(49):
        append_rows(path, number)
    assert not decide_layout(path, ()).needed
    append_rows(path, 49)
    decision = decide_layout(path, ())
    assert decision.needed and decision.join and "50 small files" in decision.why
    DeltaTable(path).optimize.compact()
    again = decide_layout(path, ())
    assert not again.needed and again.why == "no data came since the last rewrite", "a second run has nothing to do"


def test_a_decision_says_its_numbers_also_where_it_is_no(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, pa.table({"id": list(range(60_000)), "text": [f"{n * 7919 % 60_013}" for n in range(60_000)]}))
    append_rows(path, 1)
    decision = decide_layout(path, ())
    assert not decision.needed and re.fullmatch(r"2 files; [\d.]+ k?B came since the last rewrite left [\d.]+ kB", decision.why)
    demanded = decide_layout(path, (), demanded=True)
    assert demanded.needed and demanded.join is None
    small_writes.lay_out_small_table(path, (), None)
    assert decide_layout(path, (), demanded=True).why == "demanded, but there is nothing to join"
