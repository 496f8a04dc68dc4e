"""When files are rewritten: once as many bytes came as the last rewrite left, so that little by little costs little."""

from __future__ import annotations

import random

import pytest

from sluice.upkeep import has_grown_since_rewrite

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
