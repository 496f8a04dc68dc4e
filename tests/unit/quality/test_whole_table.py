"""Expectations on whole tables: what may be declared, what a look finds, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession, types

from sluice.declare import (
    Pipeline,
    Source,
    expect_fresh,
    expect_references,
    expect_row_count,
    expect_unique,
    materialized_view,
    table,
)
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.quality.expectations import ExpectationDecorator
from sluice.declare.quality.table_expectations import Fresh, References, RowCount, TableExpectation, Unique
from sluice.errors import DeclarationError
from sluice.lake import file_statistics
from sluice.quality import whole_table
from sluice.quality.whole_table import TableRuleFinding, WholeTable

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
PIPELINE: dict[str, Any] = {"name": "gym", "description": "d", "owner": "o"}
LAYERS = ("pipelines.gym.bronze", __name__, "pipelines.gym.gold")


def one(adds: ExpectationDecorator) -> TableExpectation:
    (found,) = adds.expectations
    assert isinstance(found, TableExpectation)
    return found


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: expect_unique("u", ()), "Expectation 'u': columns names no column"),
        (lambda: expect_unique("u", ("a", "a")), "Expectation 'u': columns names something twice"),
        (lambda: expect_unique("", "a"), "needs a name first, as in @expect_unique"),
        (lambda: expect_unique("dropped", "a"), "may not be named 'dropped'"),
        (lambda: expect_row_count("n"), "say at_least, at_most, least_times or most_times"),
        (lambda: expect_row_count("n", at_least=5, at_most=4), "at_least=5 is more than at_most=4"),
        (lambda: expect_row_count("n", most_times=-1), "are not negative"),
        (lambda: expect_row_count("n", at_least=1, runs=0), "runs is how many runs to look back at, 1 or more, not 0"),
        (lambda: expect_fresh("f", "time", within="soon"), "within is an interval such as '2 days', not 'soon'"),
        (lambda: expect_fresh("f", "", within="2 days"), "Expectation 'f' names no column"),
        (lambda: expect_references("r", ("a", "b"), of="t", of_columns="a"), "are pairs; it has 2 and 1"),
        (lambda: expect_references("r", (), of="t"), "columns names no column"),
    ],
)
def test_it_says_what_is_wrong_with_a_declaration(declare: Callable[[], ExpectationDecorator], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declare()


def test_columns_of_a_reference_are_named_the_same_unless_said_otherwise() -> None:
    assert one(expect_references("r", "a", of="t")) == References(name="r", columns=("a",), of="t", of_columns=("a",))


def columns(**named: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in named.items()])


SCHEMAS = {
    "visits": columns(
        user_id=types.StringType(),
        device=types.LongType(),
        at=types.TimestampType(),
        day=types.DateType(),
        place=types.MapType(types.StringType(), types.IntegerType()),
        _delivery=types.LongType(),
    ),
    "members": columns(user_id=types.StringType(), id=types.IntegerType(), device=types.ArrayType(types.LongType())),
}


@pytest.mark.parametrize(
    ("adds", "mistake"),
    [
        (expect_unique("u", ("user_id", "at")), None),
        (expect_unique("u", ("user_id", "att")), "it names 'att', no column of 'visits'. Did you mean 'at'?"),
        (expect_unique("u", "place"), "'place' is a MAP"),
        (expect_row_count("n", at_least=1), None),
        (expect_fresh("f", "at", within="2 days"), None),
        (expect_fresh("f", "day", within="2 days"), None),
        (expect_fresh("f", "user_id", within="2 days"), "'user_id' is of type STRING; freshness needs a DATE or TIMESTAMP"),
        (expect_references("r", "user_id", of="members"), None),
        (expect_references("r", "device", of="members", of_columns="id"), None),
        (expect_references("r", "user_id", of="members", of_columns="user"), "it names 'user', no column of 'members'."),
        (expect_references("r", "user_id", of="members", of_columns="id"), "are of types STRING and INT, which are not compared"),
        (expect_references("r", "device", of="members"), "are of types BIGINT and ARRAY<BIGINT>"),
        (expect_references("r", "user", of="unseen"), "it names 'user', no column of 'visits'. Did you mean 'user_id'?"),
        (expect_references("r", "user_id", of="unseen", of_columns="whatever"), None),
    ],
)
def test_a_rule_that_cannot_work_on_its_columns_is_found(adds: ExpectationDecorator, mistake: str | None) -> None:
    found = whole_table.find_table_rule_mistake(one(adds), SCHEMAS, "visits")
    assert (found is None) if mistake is None else mistake in str(found)


def test_a_reference_is_to_a_table_that_is_declared_and_not_of_a_later_layer() -> None:
    @table(reads="visits_raw", keys="id")
    @expect_references("member", "user_id", of="membres")
    def visits(visits_raw: object) -> object:
        return visits_raw

    @table(reads="visits_raw", keys="id")
    def members(visits_raw: object) -> object:
        return visits_raw

    @table(reads="visits_raw", keys="id")
    @expect_references("late", "user_id", of="totals")
    def early(visits_raw: object) -> object:
        return visits_raw

    @materialized_view(reads="members", keys="id")
    @expect_references("early", "user_id", of="visits_raw")
    def totals(members: object) -> object:
        return members

    object.__setattr__(totals, "declared_in", "pipelines.gym.gold")
    sources = Source(name="visits_raw", schema="id BIGINT")
    with pytest.raises(DeclarationError) as caught:
        build_declaration_graph(
            Pipeline(**PIPELINE, layers=LAYERS, alert_when={"members.none": 1}), [sources, visits, members, early, totals]
        )
    text = str(caught.value)
    assert "table 'visits', expectation 'member' refers to 'membres', which is not declared. Did you mean 'members'?" in text
    assert "table 'early', expectation 'late' refers to 'totals', which is in a later layer" in text
    assert "'members' has no such rule" in text
    assert len(text.splitlines()) == 3


def test_an_alert_may_be_on_a_rule_of_the_whole_table() -> None:
    @table(reads="raw", keys="id")
    @expect_unique("one_id", "id")
    def members(raw: object) -> object:
        return raw

    source = Source(name="raw", schema="id BIGINT")
    assert build_declaration_graph(
        Pipeline(**PIPELINE, layers=LAYERS, alert_when={"members.one_id": 0}), [source, members]
    ).tables


def written(folder: Path, name: str, **columns: Any) -> str:
    path = str(folder / name)
    write_deltalake(path, pa.table(columns), mode="append")
    return path


def instant(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


def without_spark(path: str, rule: TableExpectation, *earlier: int) -> TableRuleFinding:
    """What a look finds from the log alone: it would fail if it asked Spark."""
    nobody: Any = SimpleNamespace()
    return whole_table.evaluate_table_rule(rule, WholeTable(nobody, path, None, earlier, NOW))


def test_counts_of_rows_come_from_the_log(tmp_path: Path) -> None:
    path = written(tmp_path, "t", id=pa.array(range(100)))
    assert without_spark(path, RowCount(name="n", at_least=100, at_most=100)) == TableRuleFinding(True, rows=100)
    low = without_spark(path, RowCount(name="n", at_least=130))
    assert low == TableRuleFinding(False, 30, "it has 100 rows, at least 130 are expected", 100)
    high = without_spark(path, RowCount(name="n", at_most=99))
    assert (high.met, high.count) == (False, 1)


@pytest.mark.parametrize(
    ("earlier", "met"),
    [
        ((), None),
        ((0, 0), None),
        ((100,), True),
        ((50, 50, 90), True),
        ((40, 49, 49), False),
        ((201, 300, 10**6), False),
        ((200,), True),
    ],
)
def test_counts_of_rows_are_compared_with_the_median_of_runs_before(
    tmp_path: Path, earlier: tuple[int, ...], met: bool | None
) -> None:
    path = written(tmp_path, "t", id=pa.array(range(100)))
    found = without_spark(path, RowCount(name="n", least_times=0.5, most_times=2), *earlier)
    assert (found.met, found.rows) == (met, 100), found


def test_freshness_comes_from_the_log_and_says_no_value(tmp_path: Path) -> None:
    path = written(tmp_path, "t", at=pa.array([instant(1), instant(19, 11)]), day=pa.array([instant(20).date(), None]))
    written(tmp_path, "t", at=pa.array([None, None], pa.timestamp("us", "UTC")), day=pa.array([instant(3).date()] * 2))
    assert without_spark(path, Fresh(name="f", column="at", within="3 days")) == TableRuleFinding(True)
    old = without_spark(path, Fresh(name="f", column="at", within="2 days"))
    assert old == TableRuleFinding(False, 1, "its latest 'at' is older than 2 days"), "by an hour"
    assert without_spark(path, Fresh(name="f", column="day", within="2 days")).met, "a date is as old as its midnight"
    assert without_spark(path, Fresh(name="f", column="day", within="36 hours")).met
    assert not without_spark(path, Fresh(name="f", column="day", within="35 hours")).met
    empty = written(tmp_path, "empty", at=pa.array([], pa.timestamp("us", "UTC")))
    assert without_spark(empty, Fresh(name="f", column="at", within="2 days")) == TableRuleFinding(
        False, 1, "it has no value in 'at'"
    )


def test_freshness_is_known_of_partitions_and_unknown_without_statistics(tmp_path: Path) -> None:
    parts = str(tmp_path / "parts")
    write_deltalake(
        parts, pa.table({"day": pa.array([instant(1).date(), instant(20).date()]), "x": [1, 2]}), partition_by=["day"]
    )
    assert file_statistics.read_highest_value(parts, "day") == (True, instant(20).date())
    plain = str(tmp_path / "plain")
    hidden = {"delta.dataSkippingStatsColumns": "x"}
    write_deltalake(plain, pa.table({"day": pa.array([instant(1).date()]), "x": [1]}), configuration=hidden)
    assert file_statistics.read_highest_value(plain, "day") == (False, None)


def test_every_expectation_on_a_whole_table_has_its_handler() -> None:
    assert set(whole_table.TABLE_RULE_HANDLERS) == set(TableExpectation.__subclasses__())


@pytest.mark.spark
def test_uniqueness_references_and_what_has_no_statistics_are_counted_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    path = written(tmp_path, "t", a=[1, 1, 2, None, None, 3], b=["x", "x", "x", "x", "x", None], c=[1, 2, 2, 3, 3, 3])
    other = written(tmp_path, "other", k=[1, None, 9, 1], d=["x", "x", "x", None])

    def look(rule: TableExpectation, there: str | None = other) -> tuple[bool | None, int, str]:
        found = whole_table.evaluate_table_rule(rule, WholeTable(spark, path, there, (), NOW))
        return found.met, found.count, found.text

    assert look(Unique(name="u", columns=("a", "b"))) == (False, 2, "2 rows share their a and b with another")
    assert look(Unique(name="u", columns=("a", "c"))) == (True, 0, ""), "rows with a NULL do not count"
    assert look(Unique(name="u", columns=("c",)))[:2] == (False, 5)
    orphans = look(References(name="r", columns=("a",), of="other", of_columns=("k",)))
    assert orphans == (False, 2, "2 rows have no row in 'other' by a"), "2 and 3; NULLs are no orphans"
    assert look(References(name="r", columns=("a", "b"), of="other", of_columns=("k", "d")))[1] == 1
    assert look(References(name="r", columns=("a",), of="other", of_columns=("k",)), str(tmp_path / "none"))[1] == 4
    odd = str(tmp_path / "odd")
    write_deltalake(odd, pa.table({"a.b": [1, 1, 2], "count": [math.nan, math.nan, None], "rows": [1, 1, 3], "key_0": [7, 8, 9]}))
    for columns, repeated in ((("a.b", "rows"), 2), (("count",), 2), (("rows", "count", "a.b"), 2), (("key_0", "rows"), 0)):
        found = whole_table.evaluate_table_rule(Unique(name="u", columns=columns), WholeTable(spark, odd, now=NOW))
        assert found.count == repeated, f"{columns}: NaN is NaN, and any name is one column's"
    orphans = look(References(name="r", columns=("a", "c"), of="odd", of_columns=("a.b", "rows")), odd)
    assert orphans[:2] == (False, 3), "only (1, 1) is there"
    assert look(References(name="r", columns=("a",), of="odd", of_columns=("count",)), odd)[1] == 4
    hidden = str(tmp_path / "hidden")
    rows = spark.createDataFrame([(1, instant(21)), (2, None)], "x INT, at TIMESTAMP")
    rows.write.format("delta").option("delta.dataSkippingStatsColumns", "x").save(hidden)
    assert file_statistics.read_highest_value(hidden, "at") == (False, None)
    assert whole_table.evaluate_table_rule(Fresh(name="f", column="at", within="1 day"), WholeTable(spark, hidden, now=NOW)).met
    visible = str(tmp_path / "visible")
    rows.write.format("delta").save(visible)
    assert file_statistics.read_highest_value(visible, "at") == (True, instant(21))
