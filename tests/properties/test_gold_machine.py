"""A ward over one long session: whatever is landed, taken back, run, stopped or done to its tables, they are what they must be (I5).

Silver is compared with the plain model, gold with its views computed in full over silver as it is. What a stage has not followed
yet is compared after that stage ran.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial, reduce
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.conftest import Lakehouse, settings_at
from tests.properties import plain_gold, ward_gold, ward_silver
from tests.properties.plain_fold import Event
from tests.properties.plain_gold import DAYS, FIRST, Ward

from sluice import delta_log
from sluice.declare import Pipeline
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.interval import Interval
from sluice.errors import StopRequested
from sluice.flows.progress import streams
from sluice.lake import batch_sizes, log
from sluice.lake.table_creation import make_inline_frame
from sluice.runs.repair import restoring
from sluice.settings import Settings
from sluice.verification.verify import verify_tables

LAYERS = ("bronze", "ward_silver", "ward_gold")
MODULES = ("tests.properties.bronze", ward_silver.__name__, ward_gold.__name__)
FILES = ("a", "b", "c")
RANDOMS = st.randoms(use_true_random=True)
Row = tuple[Any, ...]

POINTS = (
    "sluice.flows.bronze.intake:commits.append_rows",
    "sluice.flows.bronze.intake:accounting.build_outcome_rows",
    "sluice.flows.silver.fold:apply_merge_operations",
    "sluice.flows.gold.view_batch:apply_merge_operations",
)
"""Where a commit is made: before or after any of them the process may die."""


class Crash(BaseException):
    """Stands for a killed process: nothing of Sluice catches it."""


SILVER = ("reading", "worn_by")
COLUMNS = {"reading": "monitor BIGINT, day DATE, seq BIGINT, bpm BIGINT", "worn_by": "monitor BIGINT, at BIGINT, patient BIGINT"}
TELLING = ("with_patient", "by_patient", "moving_sum", "monitors_of")
VIEWS = (*TELLING, "by_day", "top_two", "unworn", "highest")


def declared(views: Sequence[str]) -> Graph:
    pipeline = Pipeline(name="ward", description="A ward.", owner="tests", layers=MODULES)
    wanted = ("readings", "fittings", *SILVER, *views)
    found = {**vars(ward_silver), **vars(ward_gold)}
    return build_declaration_graph(pipeline, [found[name] for name in wanted])


class History:
    """A lake of the ward and what happened to it. told: the steps, to be read after a failure."""

    def __init__(self, settings: Settings, spark: SparkSession, views: Sequence[str]) -> None:
        self.lake, self.views = Lakehouse(settings, spark, declared(views)), views
        self.session = spark.newSession()
        batch_sizes.choose_evaluation_settings(self.session, (), rows=0)
        self.ward, self.told = Ward(), list[str]()
        self.clock = 1_767_225_600
        self.landed: dict[str, bytes] = {}
        # What silver must hold as of its last run; None: not known until it runs again. followed: gold ran after that.
        self.silver: dict[str, list[Row]] | None = None
        self.followed = False
        # Restored tables: what they hold is no longer the fold of bronze, until they are made anew.
        self.restored: set[str] = set()
        for source in ("readings", "fittings"):
            (settings.landing / "ward" / source).mkdir(parents=True)

    # What comes

    def land(self, random: Random, rows: int, days: Sequence[int] = range(DAYS), late: bool = False) -> None:
        """A file of readings, new or again with other content; late: with a modification time of before what came last."""
        self._put(random.choice(FILES), plain_gold.content(plain_gold.random_readings(random, rows, days)), late)

    def again(self, random: Random) -> None:
        """A file once more: its own content, or that of another."""
        if self.landed:
            self._put(random.choice(FILES), random.choice(sorted(self.landed.values())))

    def correct(self, random: Random) -> None:
        """A file again, with higher sequences and other values of the same keys."""
        self._rewrite(random, lambda line: line.replace('"seq": 1', '"seq": 4').replace('"bpm": 60', '"bpm": 66'))

    def take_out(self, random: Random) -> None:
        """A file again, with fewer rows or none."""
        kept = random.choice((0.0, 0.5, 0.8))
        self._rewrite(random, lambda line: line if random.random() < kept else "")

    def fit(self, random: Random, changes: int) -> None:
        """The dimension changes: monitors are given to patients, or taken from them."""
        fittings = plain_gold.random_fittings(random, changes)
        self.told.append(f"fittings {fittings}")
        self.clock += 1
        path = self.lake.settings.landing / "ward" / "fittings" / f"{self.clock}.jsonl"
        path.write_text("".join(one.line for one in fittings))
        self.ward.fittings += fittings

    def _rewrite(self, random: Random, change: Callable[[str], str]) -> None:
        if self.landed:
            file = random.choice(sorted(self.landed))
            lines = self.landed[file].decode().splitlines(keepends=True)
            self._put(file, "".join(map(change, lines)).encode())

    def _put(self, file: str, content: bytes, late: bool = False) -> None:
        self.clock += 1
        modified = self.clock - (5 if late else 0)
        self.told.append(f"file {file} of {modified}: {content.decode()}")
        path = self.lake.settings.landing / "ward" / "readings" / f"{file}.jsonl"
        path.write_bytes(content)
        os.utime(path, (modified, modified))
        self.landed[file] = content
        # Of what happens to a file between two looks the last counts.
        self.ward.pending.append(Event(f"{file}.jsonl", content, modified))

    # What is done

    def run(self, *stages: str) -> None:
        """Run stages, by default all in order."""
        self.told.append(f"run {stages or 'all'}")
        for stage in stages or LAYERS:
            self._passed(stage, before=True)
            self.lake.run(stage)
            self._passed(stage)

    def optimise(self) -> None:
        self.told.append("optimize")
        self.lake.run("optimize")

    def replay(self, first: int, last: int, *tables: str) -> None:
        """Take days again. Bronze runs before, so that a replay finds no file that the model has not seen."""
        days = [str(FIRST + timedelta(days=day)) for day in (first, last)]
        self.run("bronze")
        self.told.append(f"replay {days} {tables}")
        for stage in LAYERS:
            self.lake.run(stage, mode="replay", tables=tables, interval=Interval.of(*days))
        # A replay folds what its days touch, and nothing else: what was not folded yet may still be so.
        if self.silver != self._silver():
            self.silver = None
        self.followed = True

    def refresh(self, table: str) -> None:
        self.told.append(f"refresh {table}")
        self._passed("bronze", before=True)
        self.lake.run(mode="refresh", tables=[table])
        self.restored -= {table}
        self._passed("ward_silver")
        self._passed("ward_gold")

    def restore(self, table: str, random: Random) -> None:
        """Restores a silver table to one of its versions. Until a refresh, it then differs from the fold of bronze."""
        path = self.lake.workspace().path(table)
        version = random.randint(1, log.latest_table_version(path) or 1)
        self.told.append(f"restore {table} to {version}")
        restoring.run_table_restore(self.lake.lake, table, str(version))
        self.restored |= {table}
        self.followed = False

    def lose(self, table: str) -> None:
        """Removes a table's folder, so that the next run makes all of it again. Without an input, views would stay as they are."""
        self.told.append(f"lose {table}")
        shutil.rmtree(self.lake.workspace().path(table), ignore_errors=True)
        self.restored -= {table}
        self.followed = False
        if table in SILVER:
            self.silver = None
            self.run("ward_silver")

    def stop(self, after: int) -> None:
        """Ask a run to stop after so many of its batches."""
        self.told.append(f"stop after {after}")
        workspace, real, batches = self.lake.workspace(run="stopped"), streams.stop_if_requested, []

        def asking(of: Any) -> None:
            batches.append(1)
            if len(batches) == after + 1:  # once: the run that comes after the stopped one is not stopped
                request = workspace.paths.stop_request(of.run)
                request.parent.mkdir(parents=True, exist_ok=True)
                request.touch()
            real(of)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "stop_if_requested", asking)
            self._interrupted(StopRequested)

    def crash(self, point: str, number: int, after: bool) -> None:
        """Die at a commit, before or after it."""
        self.told.append(f"crash at {point}, {number}, {after}")
        with dying(point, number, after):
            self._interrupted(Crash)

    def _interrupted(self, by: type[BaseException]) -> None:
        """Run all, which may be cut short, and again."""
        try:
            self.run()
        except by:
            self.told.append("it was")
            self.silver, self.followed = None, False
            # What was discovered is read before a file changes again: the model has no deliveries that were missed.
            self.lake.run("bronze")

    def _passed(self, stage: str, before: bool = False) -> None:
        if before and stage == "bronze":
            self.ward.look()
        elif not before and stage == "ward_silver":
            self.silver, self.followed = self._silver(), False
        elif not before and stage == "ward_gold":
            self.followed = True

    def _silver(self) -> dict[str, list[Row]]:
        return {"reading": self.ward.reading, "worn_by": self.ward.worn_by}

    # What must hold

    def check(self) -> None:
        """Silver is the model's, as of its last run; gold, if it ran since, is its views over silver as it is."""
        steps = "\n".join(self.told)
        held = {name: self._rows(name) for name in SILVER}
        if self.silver is not None:
            for name in set(SILVER) - self.restored:
                columns = ("monitor", "day", "seq", "bpm") if name == "reading" else ("monitor", "patient")
                found = sorted((tuple(row[column] for column in columns) for row in held[name]), key=repr)
                assert found == self.silver[name], f"{name} after\n{steps}"
        if self.followed:
            full = self._in_full(held)
            for name in self.views:
                found = Counter(_told(row) for row in self._rows(name))
                assert found == full[name], f"{name}: has {found - full[name]} and lacks {full[name] - found} after\n{steps}"

    def verify(self) -> None:
        """What `sluice verify` says after a full run."""
        self.run()
        wrong = [found for found in verify_tables(self.lake.settings, self.lake.spark, self.lake.graph) if found.equal is False]
        assert not wrong, "\n".join((*map(repr, wrong), *self.told))

    def _rows(self, table: str) -> list[dict[str, Any]]:
        """A table's rows, read by another engine than the one that wrote them."""
        path = self.lake.workspace().path(table)
        return DeltaTable(path).to_pyarrow_table().to_pylist() if delta_log.is_delta_table(path) else []

    def _in_full(self, held: dict[str, list[dict[str, Any]]]) -> dict[str, Counter[Row]]:
        """Every view over these rows of silver: in one Spark job, as texts by name of the column."""
        frames = {name: self._frame(name, rows) for name, rows in held.items()}
        texts = []
        for name in self.views:
            view = self.lake.graph.views[name]
            frames[name] = full = view(*(frames[read] for read in view.reads))
            pairs = [F.array(F.lit(column), F.col(column).cast("string")) for column in sorted(full.columns)]
            texts.append(full.select(F.lit(name).alias("view"), F.array(*pairs).alias("row")))
        found: dict[str, Counter[Row]] = {name: Counter() for name in self.views}
        for one in reduce(lambda a, b: a.unionByName(b), texts).collect():
            found[one.view][tuple(tuple(pair) for pair in one.row)] += 1
        return found

    def _frame(self, table: str, rows: list[dict[str, Any]]) -> DataFrame:
        names = [part.split()[0] for part in COLUMNS[table].split(", ")]
        return make_inline_frame(self.session, [tuple(row[name] for name in names) for row in rows], COLUMNS[table])


def _told(row: dict[str, Any]) -> Row:
    return tuple((name, None if row[name] is None else str(row[name])) for name in sorted(row))


@contextmanager
def dying(point: str, number: int, after: bool) -> Iterator[None]:
    """Makes the n-th call of a function crash, before or after its work."""
    module, _, path = point.partition(":")
    owner: Any = importlib.import_module(module)
    *inner, name = path.split(".")
    for part in inner:
        owner = getattr(owner, part)
    real, calls = getattr(owner, name), []

    def crashing(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) != number:
            return real(*arguments, **options)
        if after:
            real(*arguments, **options)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, crashing)
        yield


class GoldMachine(RuleBasedStateMachine):
    """Random histories of the ward. `started` gives each its lake."""

    started: Callable[[], History]

    @initialize(random=RANDOMS)
    def first(self, random: Random) -> None:
        self.history = self.started()
        self.history.land(random, 10)
        self.history.fit(random, 5)
        self.history.run()

    @rule(random=RANDOMS, rows=st.integers(0, 5), late=st.booleans())
    def land(self, random: Random, rows: int, late: bool) -> None:
        self.history.land(random, rows, late=late)

    @rule(random=RANDOMS)
    def again(self, random: Random) -> None:
        self.history.again(random)

    @rule(random=RANDOMS)
    def correct(self, random: Random) -> None:
        self.history.correct(random)

    @rule(random=RANDOMS)
    def take_out(self, random: Random) -> None:
        self.history.take_out(random)

    @rule(random=RANDOMS, changes=st.integers(1, 3))
    def fit(self, random: Random, changes: int) -> None:
        self.history.fit(random, changes)

    @rule()
    def run(self) -> None:
        self.history.run()

    @rule(stages=st.lists(st.sampled_from(LAYERS), min_size=1, max_size=3))
    def run_some(self, stages: list[str]) -> None:
        self.history.run(*stages)

    @rule()
    def optimise(self) -> None:
        self.history.optimise()

    @rule(first=st.integers(0, DAYS - 1), length=st.integers(0, 2))
    def replay(self, first: int, length: int) -> None:
        self.history.replay(first, first + length)

    @rule(table=st.sampled_from((*SILVER, *VIEWS)))
    def refresh(self, table: str) -> None:
        self.history.refresh(table)

    @rule(table=st.sampled_from(SILVER), random=RANDOMS)
    def restore(self, table: str, random: Random) -> None:
        self.history.restore(table, random)

    @rule(table=st.sampled_from((*SILVER, *VIEWS)))
    def lose(self, table: str) -> None:
        self.history.lose(table)

    @rule(after=st.integers(0, 9))
    def stop(self, after: int) -> None:
        self.history.stop(after)

    @rule(point=st.sampled_from(POINTS), number=st.integers(1, 4), after=st.booleans())
    def crash(self, point: str, number: int, after: bool) -> None:
        self.history.crash(point, number, after)

    @invariant()
    def everything_is_what_it_must_be(self) -> None:
        self.history.check()

    def teardown(self) -> None:
        if hasattr(self, "history"):
            self.history.verify()
            self.history.check()


def walk(history: History, random: Random, half: int) -> None:
    """Every kind of step at least once, in two halves that begin alike, and checks wherever a stage has run."""
    land = partial(history.land, random, 4)
    first = (partial(history.land, random, 12), land, partial(history.fit, random, 6), history.run)
    halves = (
        (
            (
                partial(history.correct, random),
                partial(history.fit, random, 3),
                partial(history.run, "bronze", "ward_gold", "ward_silver"),
            ),
            (partial(history.land, random, 3, late=True), history.optimise, partial(history.run, "ward_gold")),
            (partial(history.take_out, random), partial(history.crash, POINTS[-1], 3, after=True), history.run),
        ),
        (
            (land, partial(history.replay, 1, 3), partial(history.run, "ward_silver", "ward_gold")),
            (
                partial(history.again, random),
                partial(history.fit, random, 2),
                partial(history.lose, history.views[0]),
                partial(history.stop, 6),
                history.run,
            ),
            (partial(history.restore, "reading", random), partial(history.run, "ward_gold")),
            (land, partial(history.refresh, "reading")),
        ),
    )
    for steps in (first, *halves[half]):
        for step in steps:
            step()
        history.check()


def at(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_at(tmp_path_factory.mktemp("ward"))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("half", [0, 1])
def test_a_ward_is_what_it_must_be_after_every_kind_of_step(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, half: int
) -> None:
    walk(History(at(tmp_path_factory), spark, TELLING), Random(7), half)


@pytest.mark.slow
@pytest.mark.spark
def test_a_ward_is_what_it_must_be_after_any_steps(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> None:
    GoldMachine.started = staticmethod(lambda: History(at(tmp_path_factory), spark, VIEWS))
    some = examples(
        max_examples=2,  # the first is the simplest: the same step again and again
        stateful_step_count=20,
        deadline=None,
        phases=[Phase.generate],
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(GoldMachine, settings=some)
