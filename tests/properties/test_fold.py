"""Silver equals the fold of the live deliveries, whatever came into the landing folder and in which runs (I1, I2, I3)."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.conftest import Lakehouse
from tests.properties.plain_fold import (
    DROPPED,
    NAMES,
    Content,
    Delivery,
    Event,
    Folder,
    folded,
    forbidden,
    history,
    known_histories,
    text_of,
)

from sluice.declare import Pipeline, Source, expect_or_drop, expect_or_quarantine, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.ingest import delivery_tables
from sluice.lake.flow_report import FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.runs.execution import stages
from sluice.settings import Settings, build_root_settings

SCHEMA = "case BIGINT, k BIGINT, seq BIGINT, value BIGINT"
PIPELINE = Pipeline(name="made_up", description="Random histories.", owner="tests", layers=("made_up.bronze", __name__))
SILVER = __name__.rsplit(".", 1)[-1]


def source(name: str, redelivery: str) -> Source:
    return Source(name=name, format="json", path=name, pattern="*.jsonl", schema=SCHEMA, redelivery=redelivery, comment="It.")


@table(reads="replaced", keys=("case", "k"), sequence_by="seq")
@expect_or_quarantine("not_negative", "value >= 0")
@expect_or_drop("not_nine", f"value != {DROPPED}", null_ok=True)
def latest(replaced: DataFrame) -> DataFrame:
    """One row a key, whichever file it came in."""
    return replaced.select(*NAMES)


@table(reads="replaced", keys=("file", "k"), sequence_by="seq", key_in_one_file=True)
@expect_or_quarantine("not_negative", "value >= 0")
def by_file(replaced: DataFrame) -> DataFrame:
    """One row a key and file."""
    return replaced.select(F.col("_file").alias("file"), *NAMES)


@table(reads="appended", keys=("case", "k"))
@expect_or_quarantine("not_negative", "value >= 0")
def ever(appended: DataFrame) -> DataFrame:
    """One row a key of all that ever came; without a sequence the content decides."""
    return appended.select(*NAMES)


REPLACES = {"replaced": True, "appended": False}
GRAPH = build_declaration_graph(PIPELINE, [source("replaced", "replace"), source("appended", "append"), latest, by_file, ever])


class Lake:
    """A lake that random histories are run through, with the folders as the model sees them."""

    def __init__(self, settings: Settings, spark: SparkSession) -> None:
        self.settings, self.workspace = settings, Workspace(settings, GRAPH, spark, "run")
        self.folders: dict[int, Folder] = {}
        for name in REPLACES:
            (self.landing / name).mkdir(parents=True)

    @property
    def landing(self) -> Path:
        return self.settings.landing / PIPELINE.name

    def land(self, events: dict[int, list[Event]]) -> None:
        for case, of_case in events.items():
            self.folders.setdefault(case, Folder()).look(of_case)
            for event in of_case:
                for name in REPLACES:
                    _put(self.landing / name, event)

    def run(self) -> None:
        for layer in ("bronze", SILVER):
            try:
                stages.run_pipeline_stage(self.workspace, layer)
            except FlowsFailed as failed:
                raise next(iter(failed.errors.values())) from None

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        inside = self.workspace
        return Lakehouse(inside.settings, inside.session, inside.graph).rows(name, *columns)

    def deliveries(self, name: str) -> dict[int, tuple[str, int]]:
        """Number to (file, modification time)."""
        return {
            row["delivery"]: (row["file"], int(row["modified_at"].timestamp()))
            for row in delivery_tables.read_delivery_ledger_rows(self.workspace.deliveries)
            if row["source"] == name and row["event"] == "delivered"
        }

    def aside(self, name: str, origin: str) -> Counter[tuple[object, ...]]:
        numbers = self.deliveries(origin)
        found: Counter[tuple[object, ...]] = Counter()
        for delivery, text, reasons in self.rows(f"{name}_quarantine", "_delivery", "record", "reasons"):
            record = json.loads(str(text))
            found[*numbers[delivery], tuple(record.get(column) for column in NAMES)] += 1
            assert reasons == ["not_negative"]
        return found


def _put(folder: Path, event: Event) -> None:
    path = folder / event.file
    if event.content is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(event.content)
    os.utime(path, (event.modified, event.modified))


def silver(name: str, folder: Folder) -> set[tuple[object, ...]]:
    """What the model says a silver table holds of one case."""

    def rows() -> Iterator[tuple[tuple[object, ...], Content, str]]:
        for delivery in folder.live(name != "ever"):
            for row in delivery.rows:
                if forbidden(row) or (name == "latest" and row[3] == DROPPED):
                    continue
                if name == "by_file":
                    yield (delivery.file, row[1]), row, text_of(row, file=delivery.file)
                else:
                    yield (row[0], row[1]), row, text_of(row)

    kept = folded(rows(), by_sequence=name != "ever")
    return {((key[0], *row) if name == "by_file" else row) for key, row in kept.items()}


def check(lake: Lake, histories: dict[int, list[list[Event]]]) -> None:
    """Compare every table with the model, and name the first history that differs."""
    for name in ("latest", "by_file", "ever"):
        columns = ("file", *NAMES) if name == "by_file" else NAMES
        found = lake.rows(name, *columns)
        assert len(found) == len(set(found))
        for case, folder in lake.folders.items():
            position = columns.index("case")
            got = {row for row in found if row[position] == case}
            assert got == silver(name, folder), f"{name}, case {case}: {histories[case]}"
        aside = lake.aside(name, "appended" if name == "ever" else "replaced")
        expected = Counter(
            (delivery.file, delivery.modified, row)
            for folder in lake.folders.values()
            for delivery in folder.live(name != "ever")
            for row in delivery.rows
            if forbidden(row)
        )
        assert aside == expected, f"quarantine of {name}"
    for name in REPLACES:
        adds_up(lake, name, [delivery for folder in lake.folders.values() for delivery in folder.deliveries])


def adds_up(lake: Lake, name: str, deliveries: list[Delivery]) -> None:
    """Every record of every delivery is in bronze or its quarantine, once, and the ledger says so."""
    expected = Counter((d.file, d.modified, len(d.rows), d.malformed) for d in deliveries)
    numbers = lake.deliveries(name)
    outcomes = [row for row in delivery_tables.read_delivery_ledger_rows(lake.workspace.outcomes) if row["delivery"] in numbers]
    assert Counter((*numbers[o["delivery"]], o["rows"], o["quarantined"]) for o in outcomes) == expected
    bronze = lake.rows(name, "_delivery", "_row", *NAMES)
    assert len({row[:2] for row in bronze}) == len(bronze)
    assert Counter((numbers[row[0]], row[2:]) for row in bronze) == Counter(
        ((d.file, d.modified), row) for d in deliveries for row in d.rows
    )
    aside = lake.rows(f"{name}_quarantine", "_delivery")
    assert Counter(numbers[delivery] for (delivery,) in aside) == Counter(
        (d.file, d.modified) for d in deliveries for _ in range(d.malformed)
    )


def through_the_engine(settings: Settings, spark: SparkSession, random: Random, cases: int, runs: int) -> None:
    lake = Lake(settings, spark)
    histories = {case: history(random, case, runs) for case in range(cases)} | known_histories(cases)
    for number in range(runs):
        lake.land({case: of_case[number] for case, of_case in histories.items() if number < len(of_case)})
        lake.run()
        check(lake, histories)


def at(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("histories")
    return Settings(folder, **build_root_settings(folder))


few = examples(max_examples=1, deadline=None, derandomize=True, phases=[Phase.generate], database=None)
many = examples(max_examples=2, deadline=None, phases=[Phase.generate], database=None, print_blob=True)


@pytest.mark.spark
@few
@given(random=st.randoms(use_true_random=True))
def test_silver_is_the_fold_of_the_live_deliveries(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    through_the_engine(at(tmp_path_factory), spark, random, cases=40, runs=3)


@pytest.mark.slow
@pytest.mark.spark
@many
@given(random=st.randoms(use_true_random=True))
def test_silver_is_the_fold_of_the_live_deliveries_of_many_histories(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    through_the_engine(at(tmp_path_factory), spark, random, cases=150, runs=5)
