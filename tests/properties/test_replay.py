"""A replay makes what its interval touches equal to a full recompute with today's code, and touches nothing else."""

from __future__ import annotations

import json
import pathlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

import pytest
from hypothesis import Phase, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.conftest import Lakehouse

from sluice.declare import Pipeline, Source, expect_or_quarantine, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.settings import Settings, build_root_settings

DAYS, KEYS = 4, 3
FIRST = date(2026, 1, 1)
PIPELINE = Pipeline(name="days", description="Random days.", owner="tests", layers=("days.bronze", __name__))
LAYERS = ("bronze", __name__.rsplit(".", 1)[-1])
SCHEMA = "case BIGINT, k BIGINT, seq BIGINT, value BIGINT, day DATE"


def source(name: str, redelivery: str, **dated: str) -> Source:
    return Source(name=name, format="json", path=name, schema=SCHEMA, redelivery=redelivery, comment="It.", **dated)  # type: ignore[arg-type]


SOURCES = [source("files", "replace", date_in_path="%Y-%m-%d"), source("records", "append", dated_by="day")]


def before() -> Graph:
    """The code that makes the tables first."""

    @table(reads="files", keys=("case", "k"), sequence_by="seq")
    @expect_or_quarantine("not_negative", "value >= 0")
    def by_file(files: DataFrame) -> DataFrame:
        """One row a key."""
        return files.select("case", "k", "seq", "value")

    @table(reads="records", keys=("case", "k"), sequence_by="seq")
    @expect_or_quarantine("not_negative", "value >= 0")
    def by_record(records: DataFrame) -> DataFrame:
        """One row a key."""
        return records.select("case", "k", "seq", "value")

    return build_declaration_graph(PIPELINE, [*SOURCES, by_file, by_record])


def after() -> Graph:
    """Today's code: it drops a value, moves one to another key, changes one, and its rule lets one more through."""

    def changed(rows: DataFrame) -> DataFrame:
        key = F.when(F.col("value") == 1, (F.col("k") + 1) % KEYS).otherwise(F.col("k"))
        value = F.when(F.col("value") == 4, F.lit(40)).otherwise(F.col("value"))
        return rows.where("value <> 3").select("case", key.alias("k"), "seq", value.alias("value"))

    @table(reads="files", keys=("case", "k"), sequence_by="seq")
    @expect_or_quarantine("not_negative", "value >= -1")
    def by_file(files: DataFrame) -> DataFrame:
        """One row a key."""
        return changed(files)

    @table(reads="records", keys=("case", "k"), sequence_by="seq")
    @expect_or_quarantine("not_negative", "value >= -1")
    def by_record(records: DataFrame) -> DataFrame:
        """One row a key."""
        return changed(records)

    return build_declaration_graph(PIPELINE, [*SOURCES, by_file, by_record])


@dataclass(frozen=True)
class Row:
    """A delivered record. Two records with the same sequence have the same value, so content never decides."""

    case: int
    k: int
    seq: int
    value: int
    day: int


Made = tuple[int, int, int] | None
"""What code makes of a row: key, sequence, value; None: nothing."""


def old_code(row: Row) -> Made:
    return row.k, row.seq, row.value


def new_code(row: Row) -> Made:
    if row.value == 3:
        return None
    return (row.k + 1) % KEYS if row.value == 1 else row.k, row.seq, 40 if row.value == 4 else row.value


def folded(rows: list[Row], code: Callable[[Row], Made], least: int) -> dict[int, tuple[int, int]]:
    """By key the sequence and value that stand."""
    made = [one for row in rows if (one := code(row)) is not None and one[2] >= least]
    return {key: max((seq, value) for k, seq, value in made if k == key) for key in {one[0] for one in made}}


@dataclass(frozen=True)
class Expected:
    """Per key what may stand after the replay: one or, where equal rows lie inside and outside of the interval, one of two."""

    old: dict[int, tuple[int, int]]
    new: dict[int, tuple[int, int]]
    must: set[int]
    may: set[int]

    def allows(self, found: dict[int, tuple[int, int]]) -> bool:
        for key in range(KEYS):
            allowed = [self.new.get(key)] if key in self.must else [self.old.get(key)]
            if key in self.may and key not in self.must:
                allowed.append(self.new.get(key))
            if found.get(key) not in allowed:
                return False
        return True


def expected(rows: list[Row], days: range) -> Expected:
    old, new = folded(rows, old_code, 0), folded(rows, new_code, -1)
    inside = [row for row in rows if row.day in days]
    must = {one[0] for row in inside if (one := new_code(row))} | {row.k for row in inside if row.value < 0}
    may: set[int] = set()
    for key, winner in old.items():
        origins = {row.day in days for row in rows if row.value >= 0 and (row.k, (row.seq, row.value)) == (key, winner)}
        must |= {key} if origins == {True} else set()
        may |= {key} if True in origins else set()
    return Expected(old, new, must, may)


def made_up(random: Random, cases: int) -> list[Row]:
    def row(case: int) -> Row:
        value = random.randint(-2, 5)
        return Row(case, random.randrange(KEYS), 10 * random.randrange(2) + value, value, random.randrange(DAYS))

    return [row(case) for case in range(cases) for _ in range(random.randint(0, 6))]


def land(lake: Lakehouse, rows: list[Row], random: Random) -> None:
    """Each day's rows in a file of that day, which came once before with other content; and all rows, shuffled, in two other files."""

    def text(some: list[Row]) -> str:
        return "".join(json.dumps({**vars(row), "day": str(FIRST + timedelta(days=row.day))}) + "\n" for row in some)

    for day in range(DAYS):
        lake.land(f"files/{FIRST + timedelta(days=day)}.jsonl", text([row for row in rows if row.day == day]))
    shuffled = random.sample(rows, len(rows))
    lake.land("records/1.jsonl", text(shuffled[::2]))
    lake.land("records/2.jsonl", text(shuffled[1::2]))


def check(lake: Lakehouse, rows: list[Row], days: range) -> None:
    of_case: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        of_case[row.case].append(row)
    for name in ("by_file", "by_record"):
        found: dict[int, dict[int, tuple[int, int]]] = defaultdict(dict)
        for case, key, seq, value in lake.rows(name, "case", "k", "seq", "value"):
            assert key not in found[case]
            found[case][key] = (seq, value)
        for case, of in of_case.items():
            assert expected(of, days).allows(found[case]), f"{name}, days {days}: {of} gave {found[case]}"
        assert set(found) <= set(of_case)


def through_the_engine(settings: Settings, spark: SparkSession, random: Random, cases: int, every_day: bool = True) -> None:
    """every_day: what was replayed is replayed again, and then the other days, until no row is left that earlier code made."""
    lake = Lakehouse(settings, spark, before())
    early, rows = made_up(random, cases // 3), made_up(random, cases)
    land(lake, early, random)
    pathlib.Path(lake.settings.landing / "days" / "records" / "1.jsonl").unlink()
    pathlib.Path(lake.settings.landing / "days" / "records" / "2.jsonl").unlink()
    lake.run(*LAYERS)
    land(lake, rows, random)
    lake.run(*LAYERS)
    lake.graph = after()
    first = random.randrange(DAYS)
    days = range(first, random.randrange(first, DAYS) + 1)
    names = [str(FIRST + timedelta(days=day)) for day in (days[0], days[-1])]
    lake.replay(names[0], names[1])
    check(lake, rows, days)
    if not every_day:
        return
    versions = lake.versions()
    lake.replay(names[0], names[1])
    assert lake.versions() == versions, "a second replay changed something"
    lake.run(*LAYERS)
    assert lake.versions() == versions, "an increment after a replay changed something"
    for rest in (range(days.start), range(days.stop, DAYS)):
        if rest:
            lake.replay(*(str(FIRST + timedelta(days=day)) for day in (rest[0], rest[-1])))
    check(lake, rows, range(DAYS))
    aside = {row[0] for row in lake.rows("by_file_quarantine", "record")}
    assert {json.loads(record)["value"] for record in aside} <= {-2}


few = examples(max_examples=1, deadline=None, derandomize=True, phases=[Phase.generate], database=None)
many = examples(max_examples=2, deadline=None, phases=[Phase.generate], database=None, print_blob=True)


@pytest.mark.thorough(beside="integration/runs/repair/test_replay.py")
@pytest.mark.spark
@few
@given(random=st.randoms(use_true_random=True))
def test_a_replay_is_a_full_recompute_of_what_it_touches(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    through_the_engine(at(tmp_path_factory), spark, random, cases=150, every_day=False)


@pytest.mark.slow
@pytest.mark.spark
@many
@given(random=st.randoms(use_true_random=True))
def test_a_replay_is_a_full_recompute_of_what_it_touches_in_many_histories(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, random: Random
) -> None:
    through_the_engine(at(tmp_path_factory), spark, random, cases=400)


def at(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("days")
    return Settings(folder, **build_root_settings(folder))
