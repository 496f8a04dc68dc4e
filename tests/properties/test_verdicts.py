"""For random rows and rules: valid + quarantined + dropped = input, each row has one verdict, and no verdict is ever NULL."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.declare.quality.expectations import Action, Expectation
from sluice.lake import table_creation
from sluice.quality import verdicts

pytestmark = pytest.mark.spark

Row = tuple[int | None, int | None, str | None]
Truth = bool | None
"""NULL is None, as SQL has it."""

NAMES = ("a", "b", "s")
numbers = st.one_of(st.none(), st.integers(-2, 2))
rows = st.lists(st.tuples(numbers, numbers, st.sampled_from([None, "", "x", "y"])), max_size=25)


@dataclass(frozen=True)
class Condition:
    """SQL, and what it says of a row by the rules of three-valued logic."""

    sql: str
    of: Callable[[Row], Truth]


def below(column: int, limit: int) -> Condition:
    return Condition(f"{NAMES[column]} < {limit}", lambda row: None if row[column] is None else row[column] < limit)  # type: ignore[operator]


def among(wanted: tuple[str, ...], null: bool) -> Condition:
    listed = ", ".join([*(f"'{one}'" for one in wanted), *(["NULL"] if null else [])])

    def of(row: Row) -> Truth:
        return None if row[2] is None else (row[2] in wanted or (None if null else False))

    return Condition(f"s IN ({listed})", of)


def negated(one: Condition) -> Condition:
    def of(row: Row) -> Truth:
        found = one.of(row)
        return None if found is None else not found

    return Condition(f"NOT ({one.sql})", of)


def both(one: Condition, other: Condition) -> Condition:
    def of(row: Row) -> Truth:
        found = {one.of(row), other.of(row)}
        return False if False in found else None if None in found else True

    return Condition(f"({one.sql}) AND ({other.sql})", of)


def either(one: Condition, other: Condition) -> Condition:
    def of(row: Row) -> Truth:
        found = {one.of(row), other.of(row)}
        return True if True in found else None if None in found else False

    return Condition(f"({one.sql}) OR ({other.sql})", of)


atoms = st.one_of(
    st.builds(below, st.integers(0, 1), st.integers(-2, 3)),
    st.builds(among, st.sampled_from([("x",), ("x", "y"), ("",)]), st.booleans()),
    st.just(Condition("a = b", lambda row: None if None in row[:2] else row[0] == row[1])),
    st.just(Condition("a IS NULL", lambda row: row[0] is None)),
    st.just(Condition("CAST(NULL AS BOOLEAN)", lambda row: None)),
)
conditions = st.recursive(
    atoms, lambda inner: st.one_of(st.builds(negated, inner), st.builds(both, inner, inner), st.builds(either, inner, inner))
)


@st.composite
def rule_sets(draw: st.DrawFn) -> list[tuple[Expectation, Condition]]:
    found = []
    for number, condition in enumerate(draw(st.lists(conditions, max_size=5))):
        action, null_ok = draw(st.sampled_from(Action)), draw(st.booleans())
        found.append((Expectation(name=f"r{number}", condition=condition.sql, action=action, null_ok=null_ok), condition))
    return found


def expected(row: Row, rules: list[tuple[Expectation, Condition]]) -> tuple[list[str], list[str], str]:
    """The failed rules, which of them were NULL, and what happens to the row."""
    truths = [(rule, condition.of(row)) for rule, condition in rules]
    failed = [rule for rule, truth in truths if truth is False or (truth is None and not rule.null_ok)]
    unknown = [rule.name for rule, truth in truths if truth is None and not rule.null_ok]
    actions = {rule.action for rule in failed}
    fate = "quarantined" if Action.QUARANTINE in actions else "dropped" if Action.DROP in actions else "valid"
    return [rule.name for rule in failed], unknown, fate


def judged(frame: DataFrame, number: int, rules: list[Expectation]) -> DataFrame:
    """The rows of one rule set as the flows split them; a fate is the text of those parts that a row is in."""
    parts = {"valid": verdicts.is_row_accepted(rules), **verdicts.action_count_conditions(rules)}
    fates = F.concat_ws(" ", *(F.when(part, F.lit(name)) for name, part in parts.items()))
    with_verdict = verdicts.add_verdict_column(frame, rules)
    return with_verdict.select(F.lit(number).alias("set"), "n", *verdicts.VERDICT, fates.alias("fate"))


def counted(frame: DataFrame, number: int, rules: list[Expectation]) -> DataFrame:
    counts = [column.cast("bigint") for column in verdicts.verdict_count_aggregates(rules).values()]
    return verdicts.add_verdict_column(frame, rules).agg(F.array(*counts).alias("counts")).withColumn("set", F.lit(number))


@given(rows=rows, sets=st.lists(rule_sets(), min_size=12, max_size=12))
@examples(max_examples=4, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_valid_and_quarantined_and_dropped_are_the_input(
    spark: SparkSession, rows: list[Row], sets: list[list[tuple[Expectation, Condition]]]
) -> None:
    frame = table_creation.make_inline_frame(spark, [(n, *row) for n, row in enumerate(rows)], "n INT, a INT, b INT, s STRING")
    declared = [[rule for rule, _ in rules] for rules in sets]
    every = functools.reduce(DataFrame.unionByName, (judged(frame, number, rules) for number, rules in enumerate(declared)))
    found = {(row.set, row.n): (row[verdicts.FAILED_RULES], row[verdicts.NULL_RULES], row.fate) for row in every.collect()}
    wanted = {(number, n): expected(row, rules) for number, rules in enumerate(sets) for n, row in enumerate(rows)}
    assert found == wanted
    tallies = functools.reduce(DataFrame.unionByName, (counted(frame, number, rules) for number, rules in enumerate(declared)))
    for tally in tallies.collect():
        names, mine = (
            list(verdicts.verdict_count_aggregates(declared[tally.set])),
            [one for (number, _), one in wanted.items() if number == tally.set],
        )
        counts = dict(zip(names, tally.counts, strict=True))
        fates = Counter(fate for _, _, fate in mine)
        assert (counts["rows"], counts["quarantined"], counts["dropped"]) == (len(rows), fates["quarantined"], fates["dropped"])
        for rule in declared[tally.set]:
            assert counts[f"rule:{rule.name}"] == sum(rule.name in failed for failed, _, _ in mine)
            assert counts[f"null:{rule.name}"] == sum(rule.name in unknown for _, unknown, _ in mine)
