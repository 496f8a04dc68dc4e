"""Tables declared by a SQL text: the same rows as by a function, of nothing but what they read, and refused before anything runs."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice.declare import Pipeline, Source, expect, materialized_view, table, temporary_view
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import DeclarationError
from sluice.flows.silver.judged_rows import carry_provenance
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.planning import transforms
from sluice.settings import Settings

PIPELINE = Pipeline(name="gyms", description="Gyms.", owner="t", layers=("gyms.bronze", __name__))
EVENTS = Source(name="events", schema="user STRING, kind STRING, at DOUBLE, tags ARRAY<STRING>")
BRONZE = "user STRING, kind STRING, at DOUBLE, tags ARRAY<STRING>, _delivery BIGINT, _row BIGINT"
ROWS = [("a", "start", 1.0, ["x", "y"], 1, 0), ("a", "stop", 2.0, [], 1, 1), ("b", "start", None, None, 2, 0)]


def text(sql: str, name: str = "starts", **options: Any) -> Any:
    return table(**{"name": name, "reads": "events", "keys": "user", "sql": sql, **options})


@table(reads="events", keys="user")
def by_function(events: DataFrame) -> DataFrame:
    starts = events.where("kind = 'start'").select("user", F.explode_outer("tags").alias("tag"))
    return starts.union(events.where("kind = 'stop'").select("user", F.lit("none")))


SAME = [
    """SELECT user, tag FROM events LATERAL VIEW OUTER explode(tags) AS tag WHERE kind = 'start'
       UNION ALL SELECT user, 'none' FROM events WHERE kind = 'stop';  -- the end; really""",
    """WITH starts AS (SELECT user, explode_outer(tags) AS tag FROM events WHERE kind = 'start'),
            both AS (SELECT * FROM starts UNION ALL SELECT user, 'none' FROM events WHERE kind = 'stop')
       SELECT user, tag FROM both""",
    """WITH e AS (SELECT * FROM events) SELECT user, explode_outer(tags) AS tag FROM e WHERE kind = 'start'
       UNION ALL SELECT user, 'none' FROM e AS f WHERE kind = 'stop'""",
]


@pytest.mark.spark
def test_the_same_table_as_text_and_as_function_gives_the_same_rows_with_provenance(spark: SparkSession) -> None:
    spark.createDataFrame([(9,)], "mine INT").createOrReplaceTempView("events")
    bronze = spark.createDataFrame(ROWS, BRONZE)
    expected = sorted(map(tuple, carry_provenance(by_function(bronze), "by_function").collect()), key=repr)
    assert len(expected) == 4
    for sql in SAME:
        declared = text(sql)
        assert sorted(map(tuple, carry_provenance(declared(bronze), "starts").collect()), key=repr) == expected
    assert spark.table("events").columns == ["mine"], "what a person has under that name is there again"
    spark.catalog.dropTempView("events")
    known = temporary_view(name="rows", reads="events", sql="SELECT user, kind FROM events WHERE at IS NOT NULL")
    assert {tuple(row) for row in known(bronze).collect()} == {("a", "start"), ("a", "stop")}


WRONG_TEXT = [
    ("", "its SQL text is empty"),
    ("-- nothing", "its SQL text is empty"),
    ("SELECT 1 AS a; SELECT user FROM events", "has several statements"),
    ("INSERT INTO events SELECT 1", "begins with INSERT; it is one query"),
    ("DROP TABLE events", "begins with DROP"),
    ("SELECT user FROM event", "reads 'events', but its SQL text does not name it"),
    ("SELECT 'events' AS user", "reads 'events', but its SQL text does not name it"),
]


@pytest.mark.parametrize(("sql", "said"), WRONG_TEXT)
def test_what_is_no_query_of_what_it_reads_is_refused_when_it_is_declared(sql: str, said: str) -> None:
    for declare, owner in ((text, "Table 'starts'"), (view, "View 'starts'"), (rows, "Temporary view 'starts'")):
        with pytest.raises(DeclarationError) as caught:
            declare(sql)
        if sql.strip():
            assert said in str(caught.value)
            assert str(caught.value).startswith(owner)


def view(sql: str, name: str = "starts", **options: Any) -> Any:
    return materialized_view(**{"name": name, "reads": "events", "keys": "user", "sql": sql, **options})


def rows(sql: str) -> Any:
    return temporary_view(name="starts", reads="events", sql=sql)


FOREIGN = {
    "t0": (
        "SELECT e.user FROM events e JOIN event x ON true",
        "reads 'event', which is not in its reads. Did you mean 'events'?",
    ),
    "t1": ("SELECT user FROM gyms.events", "reads 'gyms.events', which is not in its reads. Did you mean 'events'?"),
    "t2": ("SELECT user FROM events WHERE user IN (SELECT u FROM people)", "reads 'people'"),
    "t3": ("WITH people AS (SELECT * FROM persons) SELECT user FROM events", "reads 'persons'"),
    "t4": ("WITH people AS (SELECT * FROM people) SELECT user FROM events, people", "reads 'people'"),
    "t5": ("SELECT e.user FROM events e JOIN parquet.`/etc/x` ON true", "reads 'parquet./etc/x'"),
    "t6": ("SELECT user FROM table_changes('events', 1), events", "reads 'table_changes(...)'"),
    "t7": ("SELECT user FROM delta.`/x` VERSION AS OF 1, events", "reads 'delta./x'"),
    "t8": ("SELECT e.user FROM events e JOIN IDENTIFIER('secrets') ON true", "reads 'secrets'"),
    "t9": ("SELECT user FRM events", "is no query that Spark understands"),
    "t10": ("SELECT usr AS user FROM events", "usr"),
    "t11": ("SELECT user FROM events ORDER BY at", "uses ORDER BY"),
    "t12": ("WITH n AS (SELECT user, count(*) AS n FROM events GROUP BY user) SELECT user FROM n", "uses an aggregate"),
    "t13": ("SELECT user FROM events UNION ALL SELECT 'z'", "makes rows that come from no row of its source"),
    "t14": ("SELECT user FROM events WHERE user = (SELECT max(user) FROM events)", "uses a subquery"),
}


@pytest.mark.spark
def test_what_a_text_may_not_read_or_do_is_found_without_running_it(spark: SparkSession, settings: Settings) -> None:
    good = {
        "good": text("WITH e AS (SELECT user FROM events) SELECT user FROM E", "good"),
        "counted": view("SELECT user, count(*) AS n FROM good GROUP BY user", "counted", reads="good"),
    }
    declared = [EVENTS, *good.values(), *(text(sql, name) for name, (sql, _) in FOREIGN.items())]
    found = transforms.examine_transforms(spark, PipelineLake(settings, build_declaration_graph(PIPELINE, declared)))
    for name, (_, said) in FOREIGN.items():
        own = [mistake for mistake in found.mistakes if mistake.startswith(f"Table '{name}'")]
        assert len(own) == 1 and said in own[0], (name, own)
    assert len(found.mistakes) == len(FOREIGN)
    assert [bound["columns"].keys() for bound in found.bounds] == [{"user"}]


def test_a_text_has_expectations_and_its_layout_does_not_count() -> None:
    rule = expect("known", "user IS NOT NULL")
    one = text("SELECT user -- who\n  FROM events", expectations=(rule,))
    two = text("SELECT user FROM   events /* all */", expectations=(rule,))
    three = text("SELECT upper(user) AS user FROM events", expectations=(rule,))
    assert [one.name for one in one.expectations] == ["known"]
    assert compute_declaration_fingerprint(one) == compute_declaration_fingerprint(two) != compute_declaration_fingerprint(three)
    assert one.module == __name__
