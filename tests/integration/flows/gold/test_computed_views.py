"""Views that are computed when they are read: under their names in SQL, shown, and followed by what is stored above them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.commands import Call, call_command, use_roots_of
from tests.conftest import Lakehouse, settings_at

from sluice.cli import name_lookup
from sluice.declare import F, Pipeline, Source, materialized_view, table, view
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.lake.pipeline_lake import PipelineLake
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@table(reads="stays", keys="id", sequence_by="told")
def stay(stays: DataFrame) -> DataFrame:
    """Stays."""
    return stays.select("id", "ward", "beds", "told")


@view(reads="stay")
def many_beds(stays: DataFrame) -> DataFrame:
    """Stays of more than one bed."""
    return stays.where("beds > 1").drop("told").withColumn("parts", F.array("beds", F.lit(0)))


labelled = view(name="labelled", reads="many_beds", sql="SELECT *, concat(ward, '!') AS label FROM many_beds")


@materialized_view(reads="labelled", keys="label")
def beds_of_label(rows: DataFrame) -> DataFrame:
    """Beds by label."""
    return rows.groupBy("label").agg(F.sum("beds").alias("beds"))


SOURCE = Source(name="stays", schema="id INT, ward STRING, beds INT, told INT", format="csv")
# It bears the name of a pipeline that is there, by which the command line finds it.
GYM = Pipeline(name="gym", description="Wards.", owner="t", layers=("gym.bronze", __name__))
LAYER = __name__.rpartition(".")[2]


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    lake = Lakehouse(
        settings_at(tmp_path_factory.mktemp("wards")),
        spark,
        build_declaration_graph(GYM, [SOURCE, stay, many_beds, labelled, beds_of_label]),
    )
    lake.land("stays/1.csv", "id,ward,beds,told\n1,a,1,1\n2,a,2,1\n3,b,3,1\n")
    lake.run()
    return lake


@pytest.fixture
def call(wards: Lakehouse, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """A command over that lake, with its declarations in place of the gym's."""

    def load(settings: Settings, name: str) -> PipelineLake:
        computed = {} if name != "gym" else wards.graph.computed
        return PipelineLake(settings, replace(wards.graph, pipeline=replace(GYM, name=name), computed=computed))

    with pytest.MonkeyPatch.context() as patch:
        use_roots_of(patch, wards.settings)
        patch.setattr(name_lookup, "load_pipeline_lake", load)
        yield lambda *arguments: call_command(capsys, *arguments)


def rows(found: tuple[int, str, str]) -> list[tuple[Any, ...]]:
    code, out, err = found
    assert code == 0, err
    return sorted(tuple(row.values()) for row in json.loads(out.splitlines()[-1])["rows"])


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id, label FROM gym.labelled", [(2, "a!"), (3, "b!")]),
        ("SELECT labelled.id FROM GYM.Labelled WHERE gym.labelled.beds = 3", [(3,)]),
        (
            "WITH labelled AS (SELECT 9 AS id), o AS (SELECT id FROM gym.labelled) SELECT labelled.id AS a, o.id AS b FROM labelled, o",
            [(9, 2), (9, 3)],
        ),
        ("SELECT s.id, v.parts FROM gym.stay s LEFT JOIN `gym`.`many_beds` v USING (id) WHERE id < 3", [(1, None), (2, [2, 0])]),
        ("SELECT count(*) FROM gym.stay s WHERE EXISTS (SELECT 1 FROM gym.many_beds v WHERE v.id = s.id)", [(2,)]),
        ("SELECT 'gym.labelled' AS text", [("gym.labelled",)]),
    ],
)
def test_a_view_stands_under_its_name_beside_the_tables(call: Call, query: str, expected: Any) -> None:
    assert rows(call("sql", query, "--json")) == expected


def test_views_are_listed_and_described(call: Call) -> None:
    code, out, _ = call("sql", "SHOW TABLES IN gym", "--json")
    listed = {row["tableName"] for row in json.loads(out.splitlines()[-1])["rows"] if not row["isTemporary"]}
    assert code == 0 and {"stay", "many_beds", "labelled"} <= listed
    described = json.loads(call("sql", "DESCRIBE gym.labelled", "--json")[1].splitlines()[-1])["rows"]
    assert [(row["col_name"], row["data_type"]) for row in described][-2:] == [("parts", "array<int>"), ("label", "string")]


@pytest.mark.thorough
def test_a_view_of_another_version_is_made_of_the_tables_of_then(call: Call) -> None:
    assert rows(call("sql", "SELECT count(*) FROM gym.labelled", "--as-of", "0", "--json")) == [(0,)]
    assert rows(call("sql", "SELECT count(*) FROM gym.labelled", "--json")) == [(2,)]


def test_show_computes_a_view_and_has_nothing_of_its_history(call: Call) -> None:
    assert rows(call("show", "gym.labelled", "--json")) == [(2, "a", 2, [2, 0], "a!"), (3, "b", 3, [3, 0], "b!")]
    for command in ("history", "changes"):
        code, _, err = call(command, "gym.labelled", *(("--from-version", "0") if command == "changes" else ()))
        assert code == 2 and "'gym.labelled' is a @view: computed when it is read" in err
    code, _, err = call("sql", "SELECT * FROM gym.labeled")
    assert code == 2 and "Did you mean 'gym.labelled'?" in err


def test_what_is_stored_above_a_view_follows_what_the_view_is_made_of(wards: Lakehouse, call: Call) -> None:
    assert wards.rows("beds_of_label") == [("a!", 2), ("b!", 3)]
    wards.land("stays/2.csv", "id,ward,beds,told\n3,b,1,2\n4,a,5,2\n")
    report = wards.run()["beds_of_label"]
    assert wards.rows("beds_of_label") == [("a!", 7)], "a row that is no more in the view is no more counted"
    assert (report.updated, report.deleted) == (1, 1)
    assert rows(call("sql", "SELECT sum(beds) FROM gym.labelled", "--json")) == [(7,)], "and the view is as the tables are now"


def test_a_view_whose_tables_are_not_there_yet_says_so(call: Call, wards: Lakehouse, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SLUICE_LAKE", str(tmp_path / "empty"))
    for command in (("show", "gym.labelled"), ("sql", "SELECT * FROM gym.labelled")):
        code, _, err = call(*command)
        assert code == 1 and "The view 'gym.labelled' is made of 'stay', which has not been made yet. Run: sluice run gym" in err
