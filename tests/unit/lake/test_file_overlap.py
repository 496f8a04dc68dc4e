"""Which files are worth rewriting together: with lists of files, without a table."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.lake.file_overlap import (
    FEWEST_OVERLAPPING,
    FileExtent,
    choose_file_groups,
    count_budget,
    find_deepest_files,
    find_small_files_of_one_size,
    measure_point_questions,
)
from sluice.lake.layout import choose_partition_groups

MIB = 1024 * 1024


def a_file(name: object, size: int, *ends: tuple[int, int] | None, rows: int | None = None) -> FileExtent:
    return FileExtent(f"{name}", size, rows, ends)


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
    assert len(find_small_files_of_one_size([a_file("f", size) for size in file_sizes])) == joined


def test_only_files_that_lie_over_one_another_are_written_anew() -> None:
    good = [a_file(f"good-{n}", MIB, (n * 10, n * 10 + 10)) for n in range(100)]
    over = [a_file(f"over-{n}", MIB // 10, (400, 500 - n)) for n in range(9)]
    (group,), said = choose_file_groups([*good, *over], ordered=True, budget=10 * MIB)
    assert {one.path for one in group.files} == {one.path for one in over}
    assert said == "10 of 109 files overlap"
    assert group.why == "10 of 109 files overlap; merging 9 of them leaves 2"


def test_what_is_good_is_not_written_anew_with_a_few_small_ones_over_it() -> None:
    for few in range(1, 20):
        files = [a_file("good", 100 * MIB, (0, 100)), *(a_file(n, MIB, (0, 100)) for n in range(few))]
        for group in choose_file_groups(files, ordered=True, budget=1000 * MIB)[0]:
            assert "good" not in [one.path for one in group.files]


def test_a_few_small_files_over_many_large_ones_are_left_until_the_depth_would_halve() -> None:
    large = [a_file(f"large-{n}", 100 * MIB, (0, 100)) for n in range(20)]
    for few, needed in ((8, False), (22, False), (23, True)):
        groups, _ = choose_file_groups([*large, *(a_file(n, MIB, (0, 100)) for n in range(few))], ordered=True, budget=200 * MIB)
        assert bool(groups) is needed


def test_files_that_touch_do_not_lie_over_one_another() -> None:
    """Files like those of days in a declared order of instants, and files of one value each."""
    assert len(find_deepest_files([a_file(n, MIB, (n, n + 1)) for n in range(20)])) == 1
    assert len(find_deepest_files([a_file(n, MIB, (7, 7)) for n in range(20)])) == 20


def test_of_several_columns_files_lie_over_one_another_where_all_of_them_do() -> None:
    squares = [a_file((x, y), MIB, (10 * x, 10 * x + 9), (10 * y, 10 * y + 9)) for x in range(5) for y in range(5)]
    assert len(find_deepest_files(squares)) == 1
    assert len(find_deepest_files([replace(one, ends=one.ends[:1]) for one in squares])) == 5


def test_a_file_whose_ends_nobody_knows_can_hold_any_value() -> None:
    assert len(find_deepest_files([a_file("a", 1, (1, 2)), a_file("b", 1, (3, 4)), a_file("c", 1, None)])) == 2


def test_what_is_beyond_the_budget_stays_and_is_said() -> None:
    files = [a_file(n, MIB, (0, 100)) for n in range(20)]
    groups, said = choose_file_groups(files, ordered=True, budget=MIB)
    assert not groups
    assert said == "20 of 20 files overlap; rewriting 21 MB is more than the budget of 1.0 MB"
    done = [replace(one, path=f"day=1/rewritten-1.00-{one.path}") for one in files]
    assert count_budget(done) == 0 and count_budget(files) == 20 * MIB


def test_a_file_says_by_its_name_how_often_its_bytes_have_been_written_anew() -> None:
    (group,), _ = choose_file_groups([a_file(n, MIB, (0, 1)) for n in range(8)], ordered=True, budget=8 * MIB)
    once = a_file(group.name_rewritten_file("part-1.parquet"), 8 * MIB, (0, 1))
    assert once.times_rewritten == 1
    (group,), _ = choose_file_groups([once, *(a_file(n, 2 * MIB, (0, 1)) for n in range(8))], True, 1000 * MIB)
    assert 1.33 <= a_file(group.name_rewritten_file("part-2.parquet"), 1, (0, 1)).times_rewritten < 1.35


extents = st.lists(
    st.tuples(st.integers(1, 40 * MIB), st.integers(0, 50), st.integers(0, 50), st.sampled_from([0, 0, 1, 2])), max_size=60
).map(
    lambda given: [
        a_file(f"rewritten-{times}.00-{n}" if times else n, size, (min(a, b), max(a, b)))
        for n, (size, a, b, times) in enumerate(given)
    ]
)


@given(extents, st.booleans())
def test_a_decision_keeps_to_the_budget_and_takes_no_file_twice(files: list[FileExtent], ordered: bool) -> None:
    budget = count_budget(files)
    groups, _ = choose_partition_groups(files, ordered, ordered, budget)
    taken = [one.path for group in groups for one in group.files]
    assert len(taken) == len(set(taken)) and set(taken) <= {one.path for one in files}
    assert sum(group.size for group in groups) <= max(budget, 0)
    assert all(len(group.files) > 1 for group in groups)
    left = [one for one in files if one.path not in set(taken)]
    made = [FileExtent(group.name_rewritten_file("x"), group.size) for group in groups]
    assert count_budget([*left, *made]) <= budget, "what was spent is remembered"


@given(extents)
def test_nothing_is_won_where_no_files_lie_over_one_another(files: list[FileExtent]) -> None:
    apart = [replace(one, ends=((n, n),)) for n, one in enumerate(files)]
    groups, _ = choose_file_groups(apart, ordered=True, budget=count_budget(apart))
    assert all(len(group.files) >= 50 for group in groups), "but that small ones are joined"


@pytest.mark.parametrize("loaded", [0, 60, 365], ids=["from nothing", "after two months", "after a year"])
@pytest.mark.parametrize("all_over", [True, False], ids=["any value", "in order"])
def test_in_a_year_of_days_files_stay_few_over_one_another_and_upkeep_keeps_to_its_budget(loaded: int, all_over: bool) -> None:
    """By the decisions alone; with delta-rs, `test_upkeep`."""
    chance = random.Random(5)
    files = [a_file("first", loaded * MIB, (0, 1000))] if loaded else []
    came, rewritten, rewrites, most, deepest = loaded * MIB, 0, 0, 0, 0
    for day in range(365):
        size = chance.randint(MIB // 2, 3 * MIB // 2)
        came += size
        files.append(a_file(f"day-{day}", size, (0, 1000) if all_over else (1000 + 10 * day, 1010 + 10 * day)))
        groups, _ = choose_partition_groups(files, True, True, count_budget(files))
        for group in groups:
            rewrites, rewritten = rewrites + 1, rewritten + group.size
            taken = {one.path for one in group.files}
            ends = (
                min(one.ends[0][0] for one in group.files if one.ends[0]),
                max(one.ends[0][1] for one in group.files if one.ends[0]),
            )
            files = [one for one in files if one.path not in taken]
            files.append(a_file(group.name_rewritten_file(f"{rewrites}"), group.size, ends))
        most, deepest = max(most, len(files)), max(deepest, len(find_deepest_files(files)))
    assert rewritten <= came
    assert most <= 64 and deepest <= (56 if all_over else 1)
    assert rewrites < 60, "a commit each day would be more"


def test_a_question_opens_the_files_that_can_hold_its_value() -> None:
    files = [a_file(n, 1000, (10 * n, 10 * n + 9), (0, 99), rows=10) for n in range(4)]
    found = measure_point_questions(files, ("time", "device"))
    assert found["time"] and (found["time"].files, found["time"].bytes) == (1, 1000)
    assert found["device"] and (found["device"].files, found["device"].bytes) == (4, 4000)
    assert measure_point_questions([a_file(1, 1000, None)], ("email",)) == {"email": None}


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9)), st.none() | st.integers(1, 5)),
        min_size=1,
        max_size=12,
    )
)
def test_each_question_is_answered_by_the_files_around_its_value(
    drawn: list[tuple[int, tuple[int, int] | None, int | None]],
) -> None:
    files = [a_file(n, size, (min(ends), max(ends)) if ends else None, rows=rows) for n, (size, ends, rows) in enumerate(drawn)]
    known = [one for one in files if one.ends[0] is not None]
    found = measure_point_questions(files, ("k",))["k"]
    if not known:
        assert found is None
        return
    # The middle is one in the order of all ends.
    ranks = {value: position for position, value in enumerate(sorted({end for one in known for end in one.ends[0] or ()}))}
    asked = []
    for one in known:
        low, high = (ranks[end] for end in one.ends[0] or ())
        middle = (low + high) // 2
        opened = [
            other for other in files if other.ends[0] is None or ranks[other.ends[0][0]] <= middle <= ranks[other.ends[0][1]]
        ]
        asked.append((one.rows or 1, len(opened), sum(other.size for other in opened)))
    total = sum(weight for weight, _, _ in asked)
    assert found and found.files == pytest.approx(sum(weight * number for weight, number, _ in asked) / total)
    assert found.bytes == pytest.approx(sum(weight * size for weight, _, size in asked) / total)


def test_a_file_of_more_rows_is_asked_more_often() -> None:
    apart, over = a_file("a", 100, (0, 1), rows=10), [a_file(n, 10, (5, 9), rows=90) for n in range(2)]
    found = measure_point_questions([apart, *over], ("k",))["k"]
    assert found and found.files == pytest.approx((10 + 180 * 2) / 190)


def test_so_few_files_are_left_that_are_over_one_another() -> None:
    files = [a_file(n, MIB * (1 + n), (0, 9)) for n in range(FEWEST_OVERLAPPING - 1)]
    assert choose_file_groups(files, ordered=True, budget=count_budget(files))[0] == []
