"""Several sources in one bronze table: what one of them says of its columns holds for the landed files of all."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import requests
from sluice.erasure.vault import Identifier
from sluice.lake.pipeline_lake import PipelineLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.usefixtures("uncontrolled")
SCHEMA = "sha STRING, author STRING, reviewer STRING, message STRING"
PIPELINE = Pipeline(name="code", description="c", owner="t", layers=(__name__,))
commits = Source(name="commits", schema=SCHEMA, subject="author", domain="mail", also_subjects=("reviewer",), free_text="message")
mirrored = Source(
    name="mirrored", schema=SCHEMA, subject="author", domain="mail", into="commits", personal=("message", "reviewer")
)


def line(sha: str, author: str, reviewer: str | None, message: str | None) -> str:
    return json.dumps({"sha": sha, "author": author, "reviewer": reviewer, "message": message}) + "\n"


@pytest.mark.thorough(beside="integration/erasure/test_erasure_shared_keys.py")
def test_cells_with_others_are_emptied_in_the_files_of_every_source_of_the_table(settings: Settings, spark: SparkSession) -> None:
    lake = Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [commits, mirrored]))
    delivered = line("1", "bo@example.org", "ada@example.org", "fixed") + line("2", "bo@example.org", None, "for ada@example.org")
    first = lake.land("mirrored/1.json", delivered)
    lake.run()
    requests.receive_erasure_request(PipelineLake(settings, lake.graph), [Identifier("mail", "ada@example.org")])
    lake.run("propagate_deletions")
    without = line("1", "bo@example.org", None, "fixed") + line("2", "bo@example.org", None, None)
    assert "ada" not in str(lake.rows("commits")) and first.read_text() == without

    again = lake.land("mirrored/2.json", line("3", "bo@example.org", "ada@example.org", "more"))
    lake.run()
    lake.run("propagate_deletions")
    assert "ada" not in str(lake.rows("commits")) and again.read_text() == line("3", "bo@example.org", None, "more")
