"""A person in another person's record: the cell goes, everywhere and for good, and the record stays."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import F, Pipeline, Source, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import propagation, request_record, requests
from sluice.erasure.proof import sought
from sluice.erasure.vault import Identifier
from sluice.flows.copies import restoration
from sluice.lake import table_frames
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs.execution import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.slow  # minutes; unit/ingest/formats/test_emptied.py holds the parts
PIPELINE = Pipeline(
    name="code",
    description="c",
    owner="t",
    layers=("pipelines.code.bronze", __name__),
    retain="0 seconds",
    canonical={"mail": "lower"},
)
commits = Source(
    name="commits",
    schema="sha STRING, author STRING, committer STRING, reviewer INT, message STRING",
    free_text="message",
    subject="author",
    domain="mail",
    also_subjects=("committer", ("reviewer", "login")),
)


@table(reads="commits", keys="sha", subject="author")
@expect_or_quarantine("named", "sha <> 'bad'")
def commit(commits: DataFrame) -> DataFrame:
    """A commit; the committer is called otherwise here."""
    return commits.select("sha", "author", F.col("committer").alias("by"), "reviewer", "message")


@materialized_view(reads="commit", keys="by", personal="by")
def committers(commit: DataFrame) -> DataFrame:
    """How many of each."""
    return commit.where("by IS NOT NULL").groupBy("by").agg(F.count(F.lit(1)).alias("commits"))


def _line(sha: str, author: str, committer: object, reviewer: object, message: str | None = "fixed") -> str:
    told = {"sha": sha, "author": author, "committer": committer, "reviewer": reviewer, "message": message}
    return json.dumps(told) + "\n"


def _propagate(lake: Lakehouse) -> None:
    workspace = lake.workspace()
    propagation.propagate_deletions(workspace, lambda: stages.run_pipeline_stage(workspace, __name__.rsplit(".", 1)[-1]))


def test_the_cell_of_an_erased_person_goes_and_the_record_stays(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [commits, commit, committers]))
    lake.land(
        "commits/1.json",
        _line("1", "bo@example.org", "Ada@example.org", 7, "Thanks to ada@example.org!")
        + _line("2", "ada@example.org", "bo@example.org", 8)
        + _line("3", "bo@example.org", "bo@example.org", "login-of-ada")  # does not fit, and so is rescued
        + _line("bad", "bo@example.org", "ada@example.org", 8),
    )
    lake.run()
    before = table_frames.read_table(spark, lake.workspace().path("commit"))
    old = {row.sha for row in before.collect()}
    requests.receive_erasure_request(
        PipelineLake(settings, lake.graph), [Identifier("mail", "ADA@example.org"), Identifier("login", "login-of-ada")]
    )
    requests.receive_erasure_request(PipelineLake(settings, lake.graph), [Identifier("login", "8")])
    _propagate(lake)
    kept = [("1", "bo@example.org", None, 7), ("3", "bo@example.org", "bo@example.org", None)]
    assert old == {"1", "2", "3"} and lake.rows("commit", "sha", "author", "by", "reviewer") == kept
    assert lake.rows("committers", "by", "commits") == [("bo@example.org", 1)], "what is counted by her went"
    bronze = [*kept, ("bad", "bo@example.org", None, None)]
    assert lake.rows("commits", "sha", "author", "committer", "reviewer") == bronze
    assert {row[0] for row in lake.rows("commits", "_rescued_data")} == {None}
    assert lake.rows("commit", "sha", "message") == [("1", None), ("3", "fixed")], "a text that names her goes as a whole"
    aside = lake.rows("commit_quarantine", "record")
    assert len(aside) == 1 and "bo@example.org" in str(aside) and "ada" not in str(aside), "set aside again, without her"
    landed = (settings.landing / "code" / "commits" / "1.json").read_text()
    assert landed == (
        _line("1", "bo@example.org", None, 7, None)
        + _line("3", "bo@example.org", "bo@example.org", None)
        + _line("bad", "bo@example.org", None, None)
    )
    found = sought.collect_sought_needles(
        PipelineLake(settings, lake.graph), request_record.list_erasure_requests(PipelineRecords(settings, "code"))
    )
    assert not sought.query_sought_rows(PipelineLake(settings, lake.graph), found).of_person()

    # Delivered again, also as a record that nobody can read; read again from its file; and as an earlier state had it.
    cut = '{"sha": "5", "author": "bo@example.org", "committer": "ada@example.org", "reviewer": \n'
    again = lake.land("commits/2.json", _line("4", "cem@example.org", " ADA@example.org", 9) + cut)
    lake.run()
    assert ("4", None, 9) in lake.rows("commit", "sha", "by", "reviewer")
    _propagate(lake)
    assert again.read_text() == _line("4", "cem@example.org", None, 9), "what was left out left the file, too"
    told = spark.createDataFrame(
        [("9", "bo@example.org", "ada@example.org", 1)], "sha STRING, author STRING, committer STRING, reviewer INT"
    )
    assert [
        row.committer for row in restoration.drop_rows_of_erased(lake.workspace(), lake.graph.tables["commit"], told).collect()
    ] == [None]
    ours = {row[0] for row in lake.rows("commit", "sha")}
    lake.run(mode="refresh", tables=("commit",))
    assert {row[0] for row in lake.rows("commit", "sha")} == ours and ("1", None) in lake.rows("commit", "sha", "by")
