"""Targets of change feeds through bronze and silver: equal to the plain model of what counts, however it came and whatever was taken back."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.conftest import Lakehouse
from tests.properties import plain_cdc
from tests.properties.plain_cdc import Change, Key, Values

from sluice.declare import Pipeline, Source, auto_cdc
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.lake.flow_report import FlowsFailed
from sluice.lake.workspace import Workspace
from sluice.runs.execution import stages
from sluice.settings import Settings, build_root_settings

NAMES = ("case", "k", "at", "a", "b")
SCHEMA = "case BIGINT, k BIGINT, at BIGINT, a BIGINT, b BIGINT, op STRING"
PIPELINE = Pipeline(name="feeds", description="Random feeds.", owner="tests", layers=("feeds.bronze", __name__))
SILVER = __name__.rsplit(".", 1)[-1]
FILES = ("a", "b", "c", "d")
OPTIONS: dict[str, Any] = {
    "reads": "feed",
    "keys": ("case", "k"),
    "sequence_by": "at",
    "apply_as_deletes": "op = 'delete'",
    "except_column_list": "op",
}
now = auto_cdc("now", **OPTIONS)
kept = auto_cdc("kept", **OPTIONS, apply_as_truncates="op = 'truncate'", ignore_null_updates=True)
told = auto_cdc(
    "told", **OPTIONS, apply_as_truncates="op = 'truncate'", stored_as_scd_type=2, track_history_except_column_list=("b", "at")
)
feed = Source(name="feed", format="json", path="feed", pattern="*.jsonl", schema=SCHEMA, redelivery="replace", comment="It.")
TELLING, ALL = (build_declaration_graph(PIPELINE, [feed, *targets]) for targets in ((kept, told), (now, kept, told)))
"""`now` is `kept` with fewer options: it is in the slow test alone."""


@dataclass(frozen=True)
class Landed(Change):
    """A change as its row is in a file. Its target has the keys and the sequence too, and ties are decided by all of it."""

    @property
    def content(self) -> str:
        case, k = self.key
        own = {} if self.values is None else {"at": self.sequence, "a": self.values[0], "b": self.values[1]}
        return plain_cdc.content({"case": case, "k": k, **own})


@dataclass(frozen=True)
class File:
    """What a file says: changes, and when all was gone."""

    changes: tuple[Landed, ...]
    truncates: tuple[int, ...]

    @property
    def text(self) -> str:
        rows: list[dict[str, Any]] = [
            {
                "case": change.key[0],
                "k": change.key[1],
                "at": change.sequence,
                # What a delete says beside its key does not count.
                **dict(zip("ab", change.values or (7, None), strict=True)),
                "op": "delete" if change.values is None else "update",
            }
            for change in self.changes
        ]
        rows += [{"at": at, "op": "truncate"} for at in self.truncates]
        return "".join(json.dumps(row) + "\n" for row in rows)


def random_file(random: Random, cases: int) -> File:
    keys: list[Key] = [(case, k) for case in range(cases) for k in (0, 1)]
    some = random.sample(keys, k=random.randint(1, len(keys)))
    changes = [change for key in some for change in plain_cdc.random_feed(random, [key], 3)]
    random.shuffle(changes)
    truncates = [random.randint(0, 6)] if random.random() < 0.3 else []
    return File(tuple(Landed(change.key, change.sequence, change.values) for change in changes), tuple(truncates))


class Lake:
    """A lake with one feed, whose files come, are changed and come again."""

    def __init__(self, at: Settings, spark: SparkSession, graph: Graph) -> None:
        self.workspace, self.landing = Workspace(at, graph, spark, "run"), at.landing / PIPELINE.name / "feed"
        self.landing.mkdir(parents=True)
        self.files: dict[str, File] = {}
        self.clock = 1_600_000_000

    def land(self, files: dict[str, File]) -> None:
        for name, file in files.items():
            self.clock += 1
            path = self.landing / f"{name}.jsonl"
            path.write_text(file.text)
            os.utime(path, (self.clock, self.clock))
        self.files |= files

    def run(self) -> None:
        for layer in ("bronze", SILVER):
            try:
                stages.run_pipeline_stage(self.workspace, layer)
            except FlowsFailed as failed:
                raise next(iter(failed.errors.values())) from None

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        inside = self.workspace
        return Lakehouse(inside.settings, inside.session, inside.graph).rows(name, *columns)

    def check(self) -> None:
        """Compare every target with the model of all that counts."""
        changes = [change for file in self.files.values() for change in file.changes]
        truncates = {at for file in self.files.values() for at in file.truncates}
        if "now" in self.workspace.graph.datasets:
            assert self.rows("now", "case", "k", "a", "b") == flat(plain_cdc.scd1(changes))
        assert self.rows("kept", "case", "k", "a", "b") == flat(plain_cdc.scd1(changes, truncates, ignore_null_updates=True))
        history = plain_cdc.scd2(changes, truncates, tracked=("a",))
        expected = sorted(
            ((*key, *values, start, end) for key, found in history.items() for values, start, end in found), key=repr
        )
        assert self.rows("told", "case", "k", "a", "b", "__START_AT", "__END_AT") == expected


def flat(states: dict[Key, Values]) -> list[tuple[Any, ...]]:
    return sorted(((*key, *values) for key, values in states.items()), key=repr)


def through_the_engine(at: Settings, spark: SparkSession, random: Random, graph: Graph, cases: int, runs: int) -> None:
    lake = Lake(at, spark, graph)
    for _ in range(runs):
        lake.land({name: random_file(random, cases) for name in random.sample(FILES, k=random.randint(1, 3))})
        lake.run()
        lake.check()


def at_new(folders: pytest.TempPathFactory) -> Settings:
    folder: Path = folders.mktemp("feeds")
    return Settings(folder, **build_root_settings(folder))


@pytest.mark.thorough(beside="properties/test_histories.py")
@pytest.mark.spark
@examples(max_examples=1, deadline=None, derandomize=True, phases=[Phase.generate], database=None)
@given(random=st.randoms(use_true_random=True))
def test_targets_equal_the_model_of_what_counts_whatever_came_when(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    through_the_engine(at_new(tmp_path_factory), spark, random, TELLING, cases=40, runs=2)


@pytest.mark.slow
@pytest.mark.spark
@examples(max_examples=1, deadline=None, phases=[Phase.generate], database=None, print_blob=True)
@given(random=st.randoms(use_true_random=True))
def test_targets_equal_the_model_of_what_counts_whatever_came_when_of_many_feeds(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    through_the_engine(at_new(tmp_path_factory), spark, random, ALL, cases=150, runs=5)
