"""Verdicts: which expectations a row does not meet. Never NULL, whatever the condition gives."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sluice.declare.quality.expectations import Action, Expectation
from sluice.errors import SluiceError
from sluice.quality import verdicts

pytestmark = pytest.mark.spark


def rule(name: str, condition: str, action: Action, null_ok: bool = False) -> Expectation:
    return Expectation(name=name, condition=condition, action=action, null_ok=null_ok)


RULES = (
    rule("plausible", "v < 230", Action.WARN),
    rule("positive", "v > 0", Action.QUARANTINE),
    rule("no_nine", "v != 9", Action.DROP, null_ok=True),
    rule("not_minus_nine", "v != -9", Action.DROP, null_ok=True),
    rule("no_666", "v != 666", Action.FAIL, null_ok=True),
)
VALUES = {
    1: [],
    300: ["plausible"],
    0: ["positive"],
    9: ["no_nine"],
    -9: ["positive", "not_minus_nine"],
    None: ["plausible", "positive"],
    666: ["plausible", "no_666"],
}


def judged(spark: SparkSession, rules: tuple[Expectation, ...] = RULES):
    return verdicts.add_verdict_column(spark.createDataFrame([(value,) for value in VALUES], "v INT"), rules)


def test_a_verdict_names_the_rules_that_are_not_met_in_order_and_is_never_null(spark: SparkSession) -> None:
    assert {row.v: row[verdicts.FAILED_RULES] for row in judged(spark).collect()} == VALUES


def test_a_condition_that_is_null_is_not_met_unless_it_may_be(spark: SparkSession) -> None:
    rules = (rule("strict", "v > 0 AND NULL", Action.DROP), rule("lenient", "CAST(NULL AS BOOLEAN)", Action.DROP, null_ok=True))
    found = {(tuple(row[verdicts.FAILED_RULES]), tuple(row[verdicts.NULL_RULES])) for row in judged(spark, rules).collect()}
    assert found == {(("strict",), ("strict",)), (("strict",), ())}, "NULL AND false is false"


def test_f2_a_null_is_in_neither_half_of_a_rule_and_its_negation_but_has_a_verdict(spark: SparkSession) -> None:
    rows = judged(spark, (RULES[1],))
    lost = [row.v for row in rows.where("NOT (v > 0 OR NOT (v > 0)) OR v > 0 IS NULL").collect()]
    assert lost == [None], "split by `v > 0` and `NOT (v > 0)`, this row would be gone"
    aside = rows.where(verdicts.is_row_set_aside((RULES[1],)))
    assert sorted(((row.v, row[verdicts.NULL_RULES]) for row in aside.collect()), key=repr) == [
        (-9, []),
        (0, []),
        (None, ["positive"]),
    ]
    assert rows.where(verdicts.is_row_accepted((RULES[1],))).count() == len(VALUES) - 3


def test_without_rules_every_row_is_accepted(spark: SparkSession) -> None:
    frame = judged(spark, ())
    assert frame.where(verdicts.is_row_accepted(())).count() == len(VALUES)
    assert {tuple(row[verdicts.FAILED_RULES]) for row in frame.collect()} == {()}
    assert {name: dict(frame.dtypes)[name] for name in verdicts.VERDICT} == dict.fromkeys(verdicts.VERDICT, "array<string>")


def test_every_row_is_accepted_or_quarantined_or_dropped(spark: SparkSession) -> None:
    accepted, quarantined = verdicts.is_row_accepted(RULES), verdicts.is_row_set_aside(RULES)
    frame = judged(spark).select("v", accepted.alias("accepted"), quarantined.alias("quarantined"))
    found = {row.v: (row.accepted, row.quarantined) for row in frame.collect()}
    assert found == {
        1: (True, False),
        300: (True, False),
        0: (False, True),
        9: (False, False),
        -9: (False, True),
        None: (False, True),
        666: (True, False),
    }


def test_counts_add_up_and_a_row_that_is_quarantined_is_not_counted_as_dropped(spark: SparkSession) -> None:
    row = judged(spark).agg(*(column.alias(name) for name, column in verdicts.verdict_count_aggregates(RULES).items())).first()
    assert row is not None
    assert row.asDict() == {
        "rule:plausible": 3,
        "rule:positive": 3,
        "rule:no_nine": 1,
        "rule:not_minus_nine": 1,
        "rule:no_666": 1,
        "null:plausible": 1,
        "null:positive": 1,
        "null:no_nine": 0,
        "null:not_minus_nine": 0,
        "null:no_666": 0,
        "rows": 7,
        "quarantined": 3,
        "dropped": 1,
    }


def test_a_rule_that_must_not_fail_fails_with_its_name_and_count_and_no_value() -> None:
    with pytest.raises(SluiceError, match=r"'heart_rate': 2 rows do not meet 'no_666'") as caught:
        verdicts.raise_on_failed_expectations("heart_rate", RULES, {"rule:no_666": 2, "rule:positive": 5})
    assert "666 " not in str(caught.value).replace("'no_666'", "")
    verdicts.raise_on_failed_expectations("heart_rate", RULES, {"rule:no_666": 0, "rule:positive": 5})


@pytest.mark.parametrize(
    ("at_most", "failed", "of", "said"),
    [
        (0.02, 2, 100, ""),
        (0.02, 3, 100, "3 of 100 rows do not meet 'positive'; at most 2 % of a batch may"),
        (0.29, 29, 100, ""),
        (0, 1, 10**9, "1 of 1,000,000,000 rows does not meet 'positive'; at most 0 % of a batch may"),
        (0, 0, 1, ""),
        (0.5, 1, 1, "1 of 1 row does not meet 'positive'; at most 50 % of a batch may"),
    ],
)
def test_a_threshold_lets_so_many_rows_of_a_batch_fail_and_not_one_more(at_most: float, failed: int, of: int, said: str) -> None:
    rules = (Expectation(name="positive", condition="v > 0", action=Action.QUARANTINE, at_most=at_most),)
    counted = {"rule:positive": failed, "rows": of}
    if not said:
        verdicts.raise_on_failed_expectations("heart_rate", rules, counted)
        return
    with pytest.raises(SluiceError, match=f"'heart_rate': {said}"):
        verdicts.raise_on_failed_expectations("heart_rate", rules, counted)


def test_the_version_of_rules_is_of_what_they_decide_and_of_nothing_else() -> None:
    base = rule("positive", "v > 0", Action.DROP)
    same = Expectation(name="positive", condition=" v > 0 ", action=Action.DROP, tags=frozenset({"validity"}))
    version = verdicts.expectations_version([base, RULES[0]])
    assert version == verdicts.expectations_version([RULES[0], same])
    assert len(version) == 12
    assert int(version, 16) >= 0
    others = [
        [base],
        [RULES[0], rule("above", "v > 0", Action.DROP)],
        [RULES[0], rule("positive", "v >= 0", Action.DROP)],
        [RULES[0], rule("positive", "v > 0", Action.QUARANTINE)],
        [RULES[0], rule("positive", "v > 0", Action.DROP, null_ok=True)],
        [RULES[0], Expectation(name="positive", condition="v > 0", action=Action.DROP, at_most=0.1)],
    ]
    assert len({version, *(verdicts.expectations_version(other) for other in others)}) == len(others) + 1


def test_two_rules_that_read_a_column_of_text_do_not_turn_a_verdict_into_null(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("x",), (None,), ("1",)], "v STRING")
    rules = (rule("number", "try_cast(v AS INT) > 0", Action.QUARANTINE), rule("short", "length(v) < 9", Action.WARN))
    found = verdicts.add_verdict_column(frame, rules)
    assert found.where(F.col(verdicts.FAILED_RULES).isNull() | F.array_contains(verdicts.FAILED_RULES, F.lit(""))).count() == 0
    assert found.where(verdicts.is_row_accepted(rules)).count() + found.where(~verdicts.is_row_accepted(rules)).count() == 3
