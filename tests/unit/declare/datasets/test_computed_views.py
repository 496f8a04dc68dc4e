"""`@view`: computed when it is read, inlined by what is stored above it, and refused where nobody could compute it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sluice.declare import (
    Pipeline,
    Source,
    TimeReach,
    expect,
    mask,
    materialized_view,
    role_view,
    table,
    temporary_view,
    view,
)
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint, compute_view_fingerprint
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.datasets.computed import View
from sluice.errors import DeclarationError, UsageError
from sluice.flows.gold.probe import find_input_reaches
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.planning import transforms
from sluice.settings import Settings
from sluice.testing import run

PIPELINE = Pipeline(name="wards", description="Wards.", owner="t", layers=("wards.bronze", __name__))
STAYS = Source(name="stays", schema="ward STRING, day DATE, patient STRING, beds INT")
PEOPLE = Source(name="people", schema="patient STRING, name STRING", subject="patient")


@table(reads="stays", keys=("ward", "day", "patient"))
def stay(stays: DataFrame) -> DataFrame:
    """Stays."""
    return stays.select("ward", "day", "patient", "beds")


@table(reads="people", keys="patient", subject="patient", personal="name")
def person(people: DataFrame) -> DataFrame:
    """People."""
    return people.select("patient", "name")


@view(reads=("stay", "person"), personal="called")
def named_stay(stays: DataFrame, people: DataFrame) -> DataFrame:
    """Stays, with whose they are."""
    return stays.join(people.withColumnRenamed("name", "called"), "patient", "left")


@view(reads="named_stay")
def long_stay(named: DataFrame) -> DataFrame:
    """Those of more than one bed."""
    return named.where("beds > 1")


@materialized_view(reads=("long_stay", "stay"), keys=("ward", "day"))
def ward_day(long: DataFrame, stays: DataFrame) -> DataFrame:
    """Beds of long stays, of all stays."""
    return (
        stays
        .groupBy("ward", "day")
        .count()
        .join(long.groupBy("ward", "day").count().withColumnRenamed("count", "long"), ["ward", "day"], "left")
    )


ALL = (STAYS, PEOPLE, stay, person, named_stay, long_stay, ward_day)


def over(reads: Any, name: str = "another") -> Any:
    return view(name=name, reads=reads, sql=f"SELECT * FROM {reads if isinstance(reads, str) else ', '.join(reads)}")


def kept(reads: str, name: str = "stored") -> Any:
    return materialized_view(name=name, reads=reads, keys="ward", sql=f"SELECT * FROM {reads}")


def test_what_is_stored_above_a_view_reads_what_the_view_is_made_of() -> None:
    made = build_declaration_graph(PIPELINE, ALL)
    assert made.views["ward_day"].reads == ("stay", "person") and made.below("person") == {"ward_day"}
    assert list(made.computed) == ["named_stay", "long_stay"], "each after those that it reads"
    assert "long_stay" not in {declared.name for declared in made}, "it is no table"
    with pytest.raises(UsageError, match="'long_stay' of pipeline 'wards' is a @view"):
        made["long_stay"]


def test_personal_columns_of_a_view_are_those_of_what_it_reads_and_go_on_to_what_reads_it() -> None:
    made = build_declaration_graph(PIPELINE, ALL)
    assert set(made.computed["long_stay"].personal) == {"patient", "name", "called"}
    assert made.views["ward_day"].private == {"patient", "name", "called"}


WRONG = [
    ((over("stai"),), "@view 'another' reads 'stai', which is not declared. Did you mean 'stay'?"),
    ((kept("long_sty"),), "table 'stored' reads 'long_sty', which is not declared. Did you mean 'long_stay'?"),
    ((over("kept_too"), kept("another", "kept_too")), "read each other in a circle: "),
    ((over("other"), over("another", "other")), "read each other in a circle: "),
    ((over("stay", "person"),), "two declarations are named 'person' ("),
    ((replace(over("stay"), declared_in="elsewhere"),), "@view 'another' is declared in 'elsewhere', which is not a layer"),
    (
        (table(name="t", reads="long_stay", keys="ward", sql="SELECT * FROM long_stay"),),
        "table 't' reads the @view 'long_stay'; only a @materialized_view or another @view does.",
    ),
    (
        (temporary_view(name="passing", reads="stays", sql="SELECT * FROM stays"), over("passing")),
        "@view 'another' reads the temporary view 'passing'",
    ),
]


@pytest.mark.parametrize(("more", "said"), WRONG)
def test_a_view_that_nobody_could_compute_is_refused(more: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        build_declaration_graph(PIPELINE, (*ALL, *more))
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1, "and once"


def test_a_view_is_declared_once_without_expectations_and_publishes_nothing() -> None:
    with pytest.raises(DeclarationError, match="has no expectations"):
        view(reads="stay")(expect("some", "beds > 0")(lambda stays: stays))
    with pytest.raises(DeclarationError, match="is declared twice"):
        view(reads="stay")(stay)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="reads names 1 inputs, the function takes 2"):
        view(reads="stay", name="two")(lambda a, b: a)
    with pytest.raises(DeclarationError, match="publishes the @view 'long_stay', which has no versions"):
        build_declaration_graph(replace(PIPELINE, publishes=("long_stay",)), ALL)


def views_in_a_loop(limits: tuple[int, ...]) -> list[Any]:
    def one(number: int, limit: int) -> Any:
        @view(reads="stay", name=f"over_{number}")
        def over(stays: DataFrame) -> DataFrame:
            return stays.where(f"beds > {limit}")

        return over

    return [one(number, limit) for number, limit in enumerate(limits)]


@materialized_view(reads=("over_0", "over_1"), keys="ward")
def both(a: DataFrame, b: DataFrame) -> DataFrame:
    """Of both."""
    return a.union(b).groupBy("ward").count()


def test_what_reads_a_view_has_another_fingerprint_when_the_view_has_other_code() -> None:
    def of(*limits: int) -> str:
        return compute_declaration_fingerprint(
            build_declaration_graph(PIPELINE, (STAYS, stay, both, *views_in_a_loop(limits))).views["both"]
        )

    assert of(1, 2) == of(1, 2)
    assert len({of(1, 2), of(1, 3), of(3, 2), of(2, 1)}) == 4, "also of views that are made by one function"

    def of_text(text: str) -> str:
        read = view(name="another", reads="stay", sql=text)
        return compute_declaration_fingerprint(
            build_declaration_graph(PIPELINE, (STAYS, stay, read, kept("another"))).views["stored"]
        )

    assert of_text("SELECT * FROM stay") == of_text("SELECT *  FROM stay -- all")
    assert of_text("SELECT * FROM stay") != of_text("SELECT ward FROM stay")


def test_a_computed_view_has_another_fingerprint_with_other_code_inputs_or_masks() -> None:
    def masked(**masks: Any) -> View[Any]:
        return role_view("for_nurses", reads="person", role="nurse", columns=("patient", "name"), masks=masks)

    renamed = view(name="long_stay", reads="named_stay", sql="SELECT * FROM named_stay WHERE beds > 2")
    every = [named_stay, long_stay, renamed, masked(name=mask.first(1)), masked(name=None), replace(long_stay, reads=("stay",))]
    assert len({compute_view_fingerprint(one) for one in every}) == len(every)
    assert compute_view_fingerprint(masked(name=mask.first(1))) == compute_view_fingerprint(masked(name=mask.first(1)))
    assert compute_view_fingerprint(long_stay) == compute_view_fingerprint(replace(long_stay, comment="Other words."))


def test_the_reach_of_a_view_of_one_table_is_that_tables() -> None:
    days = TimeReach("day", after="6 days")
    week = replace(kept("another"), reach={"another": days})
    assert build_declaration_graph(PIPELINE, (STAYS, stay, over("stay"), week)).views["stored"].reach == {"stay": days}
    with pytest.raises(DeclarationError, match=r"'long_stay', a @view of several tables \(person, stay\)"):
        build_declaration_graph(PIPELINE, (*ALL, replace(kept("long_stay"), reach={"long_stay": days})))


@pytest.mark.spark
def test_the_optimiser_finds_how_far_a_change_reaches_through_a_view(spark: SparkSession) -> None:
    made = build_declaration_graph(PIPELINE, ALL)
    inputs = {"stay": "ward STRING, day DATE, patient STRING, beds INT", "person": "patient STRING, name STRING"}
    schemas = {name: spark.createDataFrame([], ddl).schema for name, ddl in inputs.items()}
    found = find_input_reaches(spark, made.views["ward_day"], schemas)
    assert set(found["stay"].columns) == {"ward", "day"} and not found["person"].columns


@pytest.mark.spark
def test_check_looks_into_views_and_finds_their_mistakes(spark: SparkSession, settings: Settings) -> None:
    assert transforms.examine_transforms(spark, PipelineLake(settings, build_declaration_graph(PIPELINE, ALL))).mistakes == []

    @view(reads="long_stay")
    def wrong(long: DataFrame) -> DataFrame:
        return long.select("bedz")

    text = view(name="text", reads="stay", sql="SELECT ward FROM stay, person")
    (first, second) = transforms.examine_transforms(
        spark, PipelineLake(settings, build_declaration_graph(PIPELINE, (*ALL, wrong, text)))
    ).mistakes
    assert first.startswith("View 'wrong': ") and "bedz" in first
    assert second.startswith("View 'text': its SQL text reads 'person', which is not in its reads.")


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_views_run_over_rows_of_a_test() -> None:
    stays = [("w", None, "a", 1), ("w", None, "b", 2)]
    found = run(long_stay, stays=stays, people=[("b", "Bo")]).rows
    assert found == [{"patient": "b", "ward": "w", "day": None, "beds": 2, "called": "Bo"}]
    given = run(
        ward_day,
        long_stay=[{"ward": "w", "day": None}],
        stay=[{"ward": "w", "day": None}],
        columns={"long_stay": "ward STRING, day DATE", "stay": "ward STRING, day DATE"},
    )
    assert [row["count"] for row in given.rows] == [1], "the rows of a view may be given as those of a table"
    assert run(over("stay"), stay=[{"ward": "w"}], using=(stay,)).rows == [{"ward": "w"}]
