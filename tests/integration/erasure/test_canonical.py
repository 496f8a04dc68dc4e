"""One identifier in several spellings is one person's, wherever a form of its kind is declared: in tables, files, links, and on the list."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Link, Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import propagation, request_record, requests, vault
from sluice.erasure.proof import sought
from sluice.erasure.vault import Identifier
from sluice.lake import releases
from sluice.lake.pipeline_lake import PipelineLake
from sluice.pipeline_records import PipelineRecords
from sluice.runs.copies import releasing
from sluice.runs.execution import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = (
    pytest.mark.slow
)  # minutes; unit/erasure/subjects/test_links.py and unit/ingest/formats/test_emptied.py hold the parts
PIPELINE = Pipeline(name="house", description="h", owner="t", layers=("pipelines.house.bronze", __name__), retain="0 seconds")
members = Source(name="members", schema="user_id STRING, email STRING", subject="user_id", personal="email")
notes = Source(name="notes", schema="email STRING, text STRING", subject="email", comment="Notes.")


@table(reads="members", keys=("user_id", "email"), subject="user_id", personal="email")
def member(members: DataFrame) -> DataFrame:
    """Who has which address."""
    return members.select("user_id", "email")


@table(reads="notes", keys=("email", "text"), subject="email")
def note(notes: DataFrame) -> DataFrame:
    """A note."""
    return notes.select("email", "text")


LINK = Link("member", person=("user_id", "user_id"), identifier=("email", "email"))
LOWER = replace(PIPELINE, canonical={"email": "lower"})


def _lake(settings: Settings, spark: SparkSession, pipeline: Pipeline) -> Lakehouse:
    return Lakehouse(settings, spark, build_declaration_graph(pipeline, (members, notes, member, note), (LINK,)))


def _land(lake: Lakehouse, file: str, *emails: str) -> None:
    lake.land(f"notes/{file}", "".join(json.dumps({"email": one, "text": "x"}) + "\n" for one in emails))


def _erase(lake: Lakehouse, *asked: Identifier) -> None:
    for one in asked:
        requests.receive_erasure_request(lake.lake, [one])
    workspace = lake.workspace()
    propagation.propagate_deletions(workspace, lambda: stages.run_pipeline_stage(workspace, __name__.rsplit(".", 1)[-1]))


def test_an_address_in_another_letter_case_is_the_same_persons(settings: Settings, spark: SparkSession) -> None:
    records = PipelineRecords(settings, "house")
    plain = _lake(settings, spark, PIPELINE)
    plain.land("members/1.json", json.dumps({"user_id": "eve", "email": "EVE@Example.org"}) + "\n")
    _land(plain, "1.json", "Anna@Example.org", "anna@example.org", "bert@example.org", "eve@example.org")
    plain.run()
    releasing.release_tables(PipelineLake(settings, plain.graph), ["note"])
    _erase(plain, Identifier("email", "Anna@Example.org"))
    assert plain.rows("note", "email") == [("anna@example.org",), ("bert@example.org",), ("eve@example.org",)], (
        "as text, two people"
    )
    (first,) = request_record.list_erasure_requests(records)

    # The form is declared later: another spelling is kept out at once, and who is there by one leaves with the next run.
    lower = _lake(settings, spark, LOWER)
    lower.landed = plain.landed
    _land(lower, "2.json", "ANNA@example.org", "cem@example.org")
    lower.run()
    assert ("ANNA@example.org",) not in lower.rows("notes", "email") and ("cem@example.org",) in lower.rows("notes", "email")
    again = [one for one in request_record.list_erasure_requests(records) if one.request != first.request]
    assert len(again) == 1 and again[0].history[0].note.startswith(f"asked again for request {first.request}")
    assert propagation.recompute_suppression_entries(lower.workspace()) == [], "once"

    # Asked by one spelling, by a link that has another, of notes that have a third.
    _erase(lower, Identifier("user_id", "eve"))
    left = [("bert@example.org",), ("cem@example.org",)]
    assert lower.rows("notes", "email") == left == lower.rows("note", "email") and lower.rows("members") == []
    landed = "".join(path.read_text() for path in (settings.landing / "house").rglob("*.json")).lower()
    assert "anna" not in landed and "eve" not in landed and "bert" in landed
    (eve,) = [one for one in request_record.list_erasure_requests(records) if one.domain == "user_id"]
    known = {one.value for one in vault.read_vault_identifiers(records, eve.request) if one.domain == "email"}
    assert known == {"EVE@Example.org", "eve@example.org"}, "as it is written, for the scan, and in its form"
    assert [one.domain for one in eve.subjects] == ["email", "user_id"], "on the list once, whatever the spelling"
    (release,) = releases.read_pipeline_releases(records)
    assert spark.read.format("delta").load(str(release.folder / "note")).count() == 1, (
        "a release of before there was a form is made of the text"
    )
    found = sought.collect_sought_needles(PipelineLake(settings, lower.graph), request_record.list_erasure_requests(records))
    assert not sought.query_sought_rows(PipelineLake(settings, lower.graph), found).of_person()

    # Delivered again in any spelling: kept out, and taken out of the file.
    _land(lower, "3.json", " eVE@example.org ", "anna@EXAMPLE.org")
    lower.run()
    workspace = lower.workspace()
    propagation.propagate_deletions(workspace, lambda: stages.run_pipeline_stage(workspace, __name__.rsplit(".", 1)[-1]))
    assert lower.rows("notes", "email") == left and (settings.landing / "house" / "notes" / "3.json").read_text() == ""
