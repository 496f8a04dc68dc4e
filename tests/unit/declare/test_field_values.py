"""A value of the wrong type is refused where it is declared: Python would take "false" for true, and a table for a name."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DecimalType, IntegerType, MapType, StringType, StructField, StructType, TimestampNTZType
from tests.unit.declare.conftest import LoadShop

from sluice.declare import Source, auto_cdc, expect, expect_row_count, table, view
from sluice.declare.lazy_spark import write_schema_text
from sluice.declare.quality.expectations import Action, Expectation
from sluice.errors import DeclarationError, RuleNotMet
from sluice.quality import verdicts

BOOLEANS = ("header", "infer_types", "include_existing_files", "allow_overwrites", "widen_types", "may_refresh", "multi_line")
OF_A_TABLE = "table(name='a', reads='orders', keys='id', sql='SELECT * FROM orders', {})"
OF_A_VIEW = "materialized_view(name='a', reads='orders', keys='id', sql='SELECT * FROM orders', {})"
OF_CHANGES = "auto_cdc('a', reads='orders', keys='id', sequence_by='at', {})"
OF_A_SOURCE = "Source(name='a', {})"
OF_A_TOPIC = "KafkaSource(name='a', servers='broker:9092', topics='t', starting_offsets={})"
OF_THE_PIPELINE = "Pipeline(name='shop', description='d', owner='o', layers=('a', 'b'), {})"


@pytest.mark.parametrize("option", BOOLEANS)
def test_a_text_is_no_truth_value(option: str) -> None:
    with pytest.raises(DeclarationError, match=f"^Source 'a': {option} is True or False, not the text 'false'.$"):
        Source(name="a", format="csv" if option == "header" else "json", **{option: "false"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "option", "said"),
    [
        (OF_A_TABLE, "restricted='yes'", "restricted is True or False, not the text 'yes'"),
        (OF_A_VIEW, "restricted='yes'", "restricted is True or False, not the text 'yes'"),
        (OF_CHANGES, "ignore_null_updates='no'", "ignore_null_updates is True or False, not the text 'no'"),
        (OF_A_SOURCE, "layout=Layout(change_feed='yes')", "change_feed is True or False, not the text 'yes'"),
        (
            OF_A_SOURCE,
            "max_files_per_trigger='10'",
            "max_files_per_trigger is a whole number, as in max_files_per_trigger=1000, not",
        ),
        (
            OF_A_SOURCE,
            "max_files_per_trigger=True",
            "max_files_per_trigger is a whole number, as in max_files_per_trigger=1000, not True",
        ),
        (OF_A_SOURCE, "clean_after_days='3'", "clean_after_days is a number, as in clean_after_days=30.0, not the text '3'"),
        (OF_A_SOURCE, "dated_by=3", "dated_by is a text, not the number 3"),
        (OF_A_SOURCE, "schema={'a': 'INT'}", "schema is a text, not a dict"),
        (OF_A_SOURCE, "schema_hints={'a': 'INT'}", "schema_hints is a text, not a dict"),
        (OF_A_SOURCE, "also_subjects=5", "also_subjects is a text or a tuple of texts, not the number 5"),
        (OF_A_TABLE, "schema={'a': 'INT'}", "schema is a text, not a dict"),
        (OF_A_TABLE, "sequence_by=('a', 'b')", "sequence_by is a text, not a tuple"),
        (OF_A_TABLE, "partition_by=True", "partition_by is a text or a tuple of texts, not True"),
        (OF_A_TABLE, "layout={'retain': '7 days'}", "layout is a Layout(...), not a dict"),
        (OF_A_TABLE, "expectations=expect('a', 'b')", "expectations is a tuple of expectations, as in expectations=(expect("),
        (OF_A_TABLE, "personal={'a': 'hash'}", "treatments is a dict with a Treatment(...) for each name, not the text 'hash'"),
        (OF_A_VIEW, "reach={'orders': '6 days'}", "reach is a dict with a TimeReach(...) for each name, not the text '6 days'"),
        (OF_A_VIEW, "expectations=(expect('a', 5),)", 'condition is a text, as in condition="heartrate > 0", not the number 5'),
        (
            OF_A_VIEW,
            "expectations=(expect('a', 'b', at_most='2%'),)",
            "at_most is a number, as in at_most=0.02, not the text '2%'",
        ),
        (OF_A_VIEW, "expectations=(expect_row_count('a', at_least='3'),)", "at_least is a whole number, not the text '3'"),
        (OF_CHANGES, "expectations=expect('a', 'b')", "expectations is a tuple of expectations"),
        (OF_CHANGES, "column_list=3", "column_list is a text or a tuple of texts, not the number 3"),
        (OF_THE_PIPELINE, "freshness=3", "freshness is a text, as in freshness='6 hours', not the number 3"),
        (OF_THE_PIPELINE, "roles=('analyst',)", "roles is a dict with a text for each name, not a tuple"),
        (OF_A_TABLE, "asked_by={'id': 1}", "asked_by is a text or a tuple of texts, not a dict"),
        (OF_A_TABLE, "asked_by=b'id'", "asked_by is a text or a tuple of texts, not a bytes"),
        (OF_A_TABLE, "asked_by=(n for n in (1,))", "asked_by is a text or a tuple of texts, not the number 1"),
        (OF_A_TABLE, "expectations=(n for n in 'ab')", "expectations is a tuple of expectations"),
        (OF_A_VIEW, "expectations=(expect_row_count('a', at_least=1.5),)", "at_least is a whole number, not the number 1.5"),
        (OF_A_TOPIC, "{'t': 5}", "starting_offsets of 't' are partitions and offsets, whole numbers from 0, as in {0: 23, 1: 0}"),
        (OF_A_TOPIC, "{'t': {'0': 5}}", "starting_offsets of 't' are partitions and offsets, whole numbers from 0, as in {0: 23"),
        (OF_A_TOPIC, "5", "starting_offsets is 'earliest', 'latest', an instant or {'topic': {0: 23}}, not the number 5"),
        (
            OF_A_TOPIC,
            "'first'",
            "starting_offsets is 'earliest', 'latest', an instant or {'topic': {0: 23}}, not the text 'first'",
        ),
        ("{}", "Watermark('at', 10)", "delay is a text, as in delay='10 minutes', not the number 10"),
        ("{}", "Link('a', person=('id', 'id'), identifier=('e', 'e'), since=3)", "since is a text, not the number 3"),
        (
            "{}",
            "table(name='a', reads='orders', keys=None, sql='SELECT * FROM orders')",
            "keys is a text or a tuple of texts, not None",
        ),
        (
            "o = Source(name='orders'); {}",
            "table(name='a', reads=o, keys='id', sql='SELECT 1')",
            "reads takes a name or a tuple of names, not the declaration itself: write its name, 'orders'",
        ),
        (
            "o = Source(name='orders'); {}",
            "table(name='a', reads=o, keys='id')(lambda orders: orders)",
            "reads is a text or a tuple of texts, not the declaration itself: write its name, 'orders'",
        ),
        ("o = Source(name='orders'); {}", "auto_cdc('a', reads=o, keys='id', sequence_by='at')", "write its name, 'orders'"),
        ("o = Source(name='orders'); {}", "temporary_view(name='a', reads=o)(lambda orders: orders)", "write its name, 'orders'"),
        ("o = Source(name='orders'); {}", "view(name='a', reads=o)(lambda orders: orders)", "write its name, 'orders'"),
        ("o = Source(name='orders'); {}", "role_view('a', reads=o, role='b', columns='c')", "write its name, 'orders'"),
    ],
)
def test_a_wrong_type_says_where_what_was_expected_and_what_to_write(
    load_shop: LoadShop, call: str, option: str, said: str
) -> None:
    with pytest.raises(DeclarationError) as failure:
        load_shop(silver=call.format(option))
    assert "silver.py, line 2: " in str(failure.value)
    assert said in str(failure.value)


def test_names_and_expectations_may_be_gone_through_once_only() -> None:
    checked = expect("known", "id IS NOT NULL")

    def kept(**options: Any) -> Any:
        return table(name="a", reads="orders", sql="SELECT * FROM orders", **options)

    one = kept(keys=(name for name in ("id", "at")), personal=map(str.lower, ("EMAIL",)), expectations=iter((checked,)))
    assert (one.keys, one.personal, one.own_personal, one.expectations) == (
        ("id", "at"),
        ("email",),
        ("email",),
        checked.expectations,
    )
    assert replace(one, comment="again").keys == ("id", "at")
    seen: Any = view(name="v", reads=iter(("a",)), sql="SELECT * FROM a")  # type: ignore[arg-type]
    assert seen.reads == ("a",)
    source = Source(name="orders", subject="id", also_subjects=iter(("by",)))  # type: ignore[arg-type]
    assert source.also_subjects == (("by", "id"),)


def test_a_number_counts_however_python_writes_it() -> None:
    assert expect_row_count("many", at_least=1e6).expectations[0].at_least == 1_000_000  # type: ignore[arg-type,union-attr]
    assert Source(name="orders", max_files_per_trigger=1e3).max_files_per_trigger == 1000  # type: ignore[arg-type]
    (rule,) = expect("known", "id IS NOT NULL", at_most=Decimal("0.02")).expectations
    with pytest.raises(RuleNotMet, match=r"at most 2.00 % of a batch may"):
        verdicts.raise_on_failed_expectations("a", [rule], {"rows": 100, "rule:known": 3})  # type: ignore[list-item]


def test_tags_may_be_any_set() -> None:
    rule = Expectation(name="known", condition="id > 0", action=Action.WARN, tags={"all"})  # type: ignore[arg-type]
    assert rule.tags == {"all"}


def test_one_published_table_may_stand_alone(load_shop: LoadShop) -> None:
    from sluice.declare import Pipeline

    assert Pipeline(name="shop", description="d", owner="o", layers=("a", "b"), publishes="orders").publishes == ("orders",)  # type: ignore[arg-type]


SCHEMA = StructType([
    StructField("id", IntegerType(), nullable=False),
    StructField("a name", DecimalType(10, 2), metadata={"comment": "it's"}),
    StructField("tags", ArrayType(MapType(StringType(), TimestampNTZType()))),
    StructField("inner", StructType([StructField("x-y", StringType(), nullable=False), StructField("z", StringType())])),
])


def test_a_schema_may_be_a_struct_type_wherever_there_is_no_spark() -> None:
    written = write_schema_text(SCHEMA)
    one = table(name="a", reads="orders", keys="id", sql="SELECT * FROM orders", schema=SCHEMA)
    assert written == Source(name="orders", schema=SCHEMA).schema == one.schema
    assert auto_cdc("a", reads="orders", keys="id", sequence_by="at", schema=SCHEMA).schema == written


@pytest.mark.spark
def test_a_struct_type_is_written_as_spark_writes_it(spark: SparkSession) -> None:
    assert write_schema_text(SCHEMA) == SCHEMA.toDDL()
