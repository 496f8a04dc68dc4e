"""A crash while bronze's columns grow or are widened, and another run: no record twice, none missing, each value where it belongs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse
from tests.crash.test_commit_points import Crash, crash_at

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.ingest import schema_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.crash

PIPELINE = Pipeline(name="visits", description="v", owner="t", layers=("pipelines.visits.bronze",))
VISITS = Source(name="visits", widen_types=True, schema_hints="zip STRING")

POINTS = [
    ("sluice.ingest.schema_log", "write_schema_version", False),
    ("sluice.ingest.schema_log", "write_schema_version", True),
    ("sluice.flows.bronze.table_shape", "table_creation.replace_table", False),
    ("sluice.flows.bronze.table_shape", "table_creation.replace_table", True),
    ("sluice.flows.bronze.intake", "commits.append_rows", True),
]
"""In the order of a run: each has something left to do after a crash at those before it."""


def test_columns_grow_and_are_widened_in_one_run(settings: Settings, spark: SparkSession) -> None:
    _check(Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [VISITS])))


def cases() -> list[Any]:
    """Every point alone."""
    return [
        pytest.param(
            [point], id=f"{point[0].rsplit('.', 1)[1]}.{point[1]}-{'after' if point[2] else 'before'}", marks=pytest.mark.slow
        )
        for point in POINTS
    ]


@pytest.mark.parametrize("crashes", [pytest.param(POINTS, id="one-after-another"), *cases()])
def test_a_crash_changes_nothing(
    settings: Settings, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, crashes: list[tuple[str, str, bool]]
) -> None:
    """crashes: at each of them a run ends, and the next one begins."""
    _check(Lakehouse(settings, spark, build_declaration_graph(PIPELINE, [VISITS])), monkeypatch, crashes)


def _check(lake: Lakehouse, monkeypatch: pytest.MonkeyPatch | None = None, crashes: Sequence[tuple[str, str, bool]] = ()) -> None:
    lake.land("visits/1.json", '{"who": 1, "minutes": 5, "on": "2026-11-20"}\n{"who": 9007199254740993, "zip": 7}\nno object\n')
    lake.run()
    lake.land("visits/2.json", '{"who": 1.5, "minutes": 6, "at": {"door": 1}}\n')
    for point in crashes:
        assert monkeypatch
        with monkeypatch.context() as patch:
            crash_at(patch, *point)
            with pytest.raises(Crash):
                lake.run()
    lake.run()
    rows = lake.rows("visits", "_delivery", "_row", "who", "minutes", "zip", "at", "_rescued_data")
    assert [(*row[:5], row[5] and row[5].asDict(), row[6] and json.loads(row[6])) for row in rows] == [
        (1, 0, 1.0, 5, None, None, None),
        # An integer that no double is, and a number where text is expected: neither is lost.
        (1, 1, None, None, None, None, {"zip": 7, "who": 9007199254740993}),
        (2, 0, 1.5, 6, None, {"door": 1}, None),
    ]
    assert lake.rows("visits_quarantine", "_delivery", "_row", "record") == [(1, 2, "no object")]
    states = [(row["state"], row["rows"], row["quarantined"]) for row in lake.outcomes()]
    assert states == [("ingested", 2, 1), ("ingested", 1, 0)]
    whys = [version.why for version in schema_log.read_schema_versions(lake.workspace().schemas("visits"))]
    assert whys == ["inferred from 1 delivery", "new: the field at; widened: the field who"]
