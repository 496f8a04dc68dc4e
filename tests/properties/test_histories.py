"""SCD 1 and SCD 2 of any set of changes equal a plain model, in any order and with any duplicates (I3, I4, F16)."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.properties import plain_cdc
from tests.properties.plain_cdc import COLUMNS, Change, Extract, Interval, Key, Values

from sluice.declare.cdc import histories
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.flows.gold.probe import find_input_reaches
from sluice.lake.table_creation import make_inline_frame

pytestmark = pytest.mark.spark

KEYS = ("case_id", "k")
TARGET = (*KEYS, *COLUMNS)
PLAIN = "INT"
STRUCT = "STRUCT<major: INT, minor: INT>"
TRACKED = (COLUMNS, ("a",), ())


def log(spark: SparkSession, changes: Sequence[Change], sequence: str = PLAIN, b: str = PLAIN) -> DataFrame:
    """A change log in just this order."""
    rows = [(*change.key, *(change.values or (None, None)), change.sequence, change.kind, change.content) for change in changes]
    schema = f"case_id INT, k INT, a INT, b {b}, _sequence {sequence}, _change STRING, _content STRING"
    return make_inline_frame(spark, rows, schema)


def truncated(spark: SparkSession, truncates: Collection[object] | None, sequence: str = PLAIN) -> DataFrame | None:
    if truncates is None:
        return None
    return make_inline_frame(spark, [(one,) for one in truncates], f"_sequence {sequence}")


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    """A sequence of several columns as the tuple that the model has."""
    return [tuple(tuple(value) if isinstance(value, tuple) else value for value in row) for row in frame.collect()]


def states(frame: DataFrame) -> dict[Key, Values]:
    """SCD 1 by key; each key comes once."""
    assert frame.columns == [*TARGET]
    found = rows(frame)
    assert len(found) == len({row[:2] for row in found})
    return {row[:2]: row[2:] for row in found}


def intervals(frame: DataFrame) -> dict[Key, list[Interval]]:
    """SCD 2 by key, in order; no key has two intervals of one start."""
    assert frame.columns == [*TARGET, "__START_AT", "__END_AT"]
    found: dict[Key, list[Interval]] = defaultdict(list)
    for row in sorted(rows(frame), key=lambda row: row[4]):
        found[row[:2]].append((row[2:4], row[4], row[5]))
    assert all(len({start for _, start, _ in of_key}) == len(of_key) for of_key in found.values())
    return dict(found)


def compare(found: dict[Key, Any], expected: dict[Key, Any], changes: Iterable[Change], what: str) -> None:
    """Names the changes of the first key that differs."""
    different = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    if different:
        key = min(different, key=repr)
        own = [change for change in changes if change.key == key]
        pytest.fail(f"{what}: {len(different)} keys differ. Is {found.get(key)}, should be {expected.get(key)} of {own}")


def check(
    spark: SparkSession,
    changes: Sequence[Change],
    truncates: Collection[object] | None,
    ignoring: bool,
    sequence: str = PLAIN,
    tracking: Iterable[Collection[str]] = TRACKED,
    b: str = PLAIN,
) -> None:
    """Both kinds of histories of these changes against the model. b: the type of the column."""
    frame = log(spark, changes, sequence, b).localCheckpoint()
    when = truncated(spark, truncates, sequence)
    what = f"truncates {truncates}, ignore_null_updates {ignoring}"
    expected = plain_cdc.scd1(changes, truncates or (), ignoring)
    compare(states(histories.fold_changes_scd1(frame, when, KEYS, TARGET, ignoring)), expected, changes, f"scd1, {what}")
    for tracked in tracking:
        of_model = plain_cdc.scd2(changes, truncates or (), tracked, ignoring)
        found = intervals(histories.fold_changes_scd2(frame, when, KEYS, TARGET, tracked, ignoring))
        compare(found, of_model, changes, f"scd2, tracked {tracked}, {what}")
        sound(found, expected if tracked == COLUMNS else None)


def sound(found: dict[Key, list[Interval]], states_now: dict[Key, Values] | None) -> None:
    """I4: no interval is empty, none overlaps the next, one at most is current, and it is the last; it is what SCD 1 has."""
    for of_key in found.values():
        assert all(end is None or start < end for _, start, end in of_key)
        assert all(end is not None and end <= after for (_, _, end), (_, after, _) in itertools.pairwise(of_key))
    if states_now is not None:
        assert {key: of_key[-1][0] for key, of_key in found.items() if of_key[-1][2] is None} == states_now


@pytest.mark.parametrize(
    ("truncates", "ignoring"),
    [
        (None, False),
        pytest.param(None, True, marks=pytest.mark.thorough),
        pytest.param((2,), False, marks=pytest.mark.thorough),
        ((2,), True),
    ],
)
def test_every_small_feed_comes_to_what_the_model_says(
    spark: SparkSession, truncates: tuple[int, ...] | None, ignoring: bool
) -> None:
    feeds = [feed for length in (1, 2, 3, 4) for feed in plain_cdc.every_feed(length)]
    changes = [Change((case, 0), sequence, values) for case, feed in enumerate(feeds) for sequence, values in feed]
    check(spark, changes, truncates, ignoring, tracking=TRACKED if truncates is None and not ignoring else [("a",)])


@pytest.mark.parametrize("truncates", [None, (2,)])
def test_null_in_a_field_of_a_struct_keeps_what_the_field_had(spark: SparkSession, truncates: tuple[int, ...] | None) -> None:
    feeds = [feed for length in (1, 2, 3) for feed in plain_cdc.every_feed(length, plain_cdc.NESTED_KINDS)]
    changes = [Change((case, 0), sequence, values) for case, feed in enumerate(feeds) for sequence, values in feed]
    check(spark, changes, truncates, True, tracking=[("b",)], b=plain_cdc.NESTED_TYPE)


def test_a_struct_is_null_until_a_field_of_it_is_known(spark: SparkSession) -> None:
    """An array in it is one value, as everywhere; a field may have any name."""
    kind = "STRUCT<`a.b`: INT, tags: ARRAY<INT>, `y z`: STRUCT<`_values`: INT>>"
    said = [(1, None), (2, (None, None, None)), (3, (7, [1, None], None)), (4, None), (5, (None, [2], (8,)))]
    changes = [Change((0, 0), sequence, (None, b)) for sequence, b in said]
    frame = log(spark, changes, b=kind)
    assert states(histories.fold_changes_scd1(frame, None, KEYS, TARGET, True)) == {(0, 0): (None, (7, [2], (8,)))}
    found = histories.fold_changes_scd2(frame, None, KEYS, TARGET, COLUMNS, True)
    known = [(None, None), (None, (7, [1, None], None)), (None, (7, [2], (8,)))]
    assert intervals(found) == {(0, 0): list(zip(known, (1, 3, 5), (3, 5, None), strict=True))}
    assert found.schema["b"].dataType.simpleString() == frame.schema["b"].dataType.simpleString()


def histories_of(random: Random, cases: int, length: int, values_of: Sequence[Values] = plain_cdc.VALUES) -> list[Change]:
    return [
        change
        for case in range(cases)
        for change in plain_cdc.random_feed(random, [(case, 0), (case, None), (case, 1)], length, values_of=values_of)
    ]


def through_both(spark: SparkSession, random: Random, cases: int, length: int) -> None:
    """Random feeds, shuffled and doubled in two ways, against the model; each with a sequence of one and of two columns."""
    changes = histories_of(random, cases, length)
    truncates = random.sample(range(7), 2)
    for when, ignoring in ((None, False), (truncates, True), (truncates, False), (None, True)):
        again = random.sample(changes, len(changes)) + random.choices(changes, k=random.choice((0, 20)))
        check(spark, again, when, ignoring, tracking=[random.choice(TRACKED)])

    nested = histories_of(random, cases, length, plain_cdc.NESTED)
    for when, ignoring in ((truncates, True), (None, False)):
        check(spark, nested, when, ignoring, tracking=[random.choice(TRACKED)], b=plain_cdc.NESTED_TYPE)

    def of_two(sequence: object) -> tuple[int, int]:
        return divmod(int(str(sequence)), 3)

    two = [Change(change.key, of_two(change.sequence), change.values) for change in random.sample(changes, len(changes))]
    check(spark, two, [of_two(one) for one in truncates], random.choice((True, False)), STRUCT, [COLUMNS])


def through_snapshots(spark: SparkSession, random: Random, cases: int) -> None:
    """Random extracts against the model: what they say as changes."""
    extracts = [row for case in range(cases) for row in plain_cdc.random_extracts(random, [(case, 0), (case, 1)], 5)]
    random.shuffle(extracts)
    frame = taken(spark, extracts)
    changes = plain_cdc.from_snapshots(extracts)
    now = states(histories.fold_snapshots(frame, KEYS, TARGET, "taken"))
    compare(now, plain_cdc.scd1(changes), changes, "snapshots, scd1")
    for tracked in TRACKED:
        found = intervals(histories.fold_snapshots(frame, KEYS, TARGET, "taken", tracked, 2))
        compare(found, plain_cdc.scd2(changes, (), tracked), changes, f"snapshots, tracked {tracked}")
        sound(found, now if tracked == COLUMNS else None)


def taken(spark: SparkSession, extracts: Sequence[Extract]) -> DataFrame:
    rows_of = [
        (*row.key, *row.values, row.snapshot, plain_cdc.content(dict(zip(COLUMNS, row.values, strict=True)))) for row in extracts
    ]
    ddl = "case_id INT, k INT, a INT, b INT, taken INT, _content STRING"
    return make_inline_frame(spark, rows_of, ddl).localCheckpoint()


few = examples(max_examples=1, deadline=None, derandomize=True, phases=[Phase.generate], database=None)
many = examples(max_examples=3, deadline=None, phases=[Phase.generate], database=None, print_blob=True)


@few
@given(random=st.randoms(use_true_random=True))
def test_any_order_of_any_feed_comes_to_what_the_model_says(spark: SparkSession, random: Random) -> None:
    through_both(spark, random, cases=250, length=8)


@few
@given(random=st.randoms(use_true_random=True))
def test_full_extracts_come_to_what_their_changes_would(spark: SparkSession, random: Random) -> None:
    through_snapshots(spark, random, cases=200)


@pytest.mark.slow
@many
@given(random=st.randoms(use_true_random=True))
def test_any_order_of_many_feeds_and_extracts_comes_to_what_the_model_says(spark: SparkSession, random: Random) -> None:
    through_both(spark, random, cases=400, length=14)
    through_snapshots(spark, random, cases=300)


def test_an_old_update_after_a_delete_does_not_bring_the_member_back(spark: SparkSession) -> None:
    """F16. The delete stays in the log, so that it is not forgotten between an update before it and one that comes late."""
    joined, left, late = Change((0, 0), 1, (0, 0)), Change((0, 0), 5, None), Change((0, 0), 3, (1, 1))
    for arrived in ([joined, left, late], [left, late, joined], [late, left]):
        frame = log(spark, arrived).localCheckpoint()
        assert states(histories.fold_changes_scd1(frame, None, KEYS, TARGET)) == {}
        assert states(histories.fold_changes_scd1(frame, None, KEYS, TARGET, ignore_null_updates=True)) == {}
    found = intervals(histories.fold_changes_scd2(log(spark, [joined, left, late]), None, KEYS, TARGET, COLUMNS))
    assert found == {(0, 0): [((0, 0), 1, 3), ((1, 1), 3, 5)]}


def target_of(kind: str, truncates: bool, ignoring: bool) -> Callable[..., DataFrame]:
    def view(changes: DataFrame, when: DataFrame | None = None) -> DataFrame:
        if kind == "scd1":
            return histories.fold_changes_scd1(changes, when, KEYS, TARGET, ignoring)
        return histories.fold_changes_scd2(changes, when, KEYS, TARGET, COLUMNS, ignoring)

    return (lambda changes, when: view(changes, when)) if truncates else (lambda changes: view(changes))


@pytest.mark.parametrize("kind", ["scd1", "scd2"])
@pytest.mark.parametrize("ignoring", [False, True])
@pytest.mark.parametrize("truncates", [False, True])
def test_a_change_bears_on_its_key_and_a_truncate_on_all(spark: SparkSession, kind: str, truncates: bool, ignoring: bool) -> None:
    inputs = {"changes": log(spark, []).schema}
    if truncates:
        inputs["truncates"] = spark.createDataFrame([], "_sequence INT").schema
    keys = (*KEYS, "__START_AT") if kind == "scd2" else KEYS
    view = MaterializedView(name="target", function=target_of(kind, truncates, ignoring), reads=tuple(inputs), keys=keys)
    found = {name: dict(reach.columns) for name, reach in find_input_reaches(spark, view, inputs).items()}
    assert found["changes"] == {"case_id": "case_id", "k": "k"}
    assert found.get("truncates", {}) == {}


@pytest.mark.parametrize("kind", [1, 2])
def test_a_snapshot_bears_on_every_key(spark: SparkSession, kind: int) -> None:
    def target(rows: DataFrame) -> DataFrame:
        return histories.fold_snapshots(rows, KEYS, TARGET, "taken", COLUMNS, kind)

    keys = (*KEYS, "__START_AT") if kind == 2 else KEYS
    view = MaterializedView(name="target", function=target, reads=("rows",), keys=keys)
    assert find_input_reaches(spark, view, {"rows": taken(spark, []).schema})["rows"].columns == {}


def test_columns_keep_their_names_and_order_and_a_target_may_have_keys_only(spark: SparkSession) -> None:
    frame = log(spark, [Change((0, 0), 1, (0, 0)), Change((0, 1), 1, (0, 0)), Change((0, 1), 2, None)])
    odd = frame.withColumnsRenamed({"a": "a `b.c", "k": "k-y"})
    keys, columns = ("case_id", "k-y"), ("a `b.c", "k-y", "case_id", "b")
    for ignoring in (False, True):
        assert rows(histories.fold_changes_scd1(odd, None, keys, columns, ignoring)) == [(0, 0, 0, 0)]
        found = histories.fold_changes_scd2(odd, None, keys, columns, ["a `b.c"], ignoring)
        assert found.columns == [*columns, "__START_AT", "__END_AT"]
        assert sorted(rows(found), key=repr) == [(0, 0, 0, 0, 1, None), (0, 1, 0, 0, 1, 2)]
        assert rows(histories.fold_changes_scd1(odd, None, keys, (), ignoring).select(F.col("`k-y`"))) == [(0,)]
