"""A driver with little memory takes much more than that from files to gold: rows stay with the tasks, files are split, keys may be skewed.

The process is one of its own, with a heap of 700 MB for driver and tasks together, and at most 8 MB of results of a job.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from tests.conftest import LAKES, ROOT, Lakehouse, settings_at

from sluice import session
from sluice.declare import Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LINES, FILES = 300_000, 2
"""Lines of each file, which one key has most of."""
COMMON, SOME = "everybody", "p00003"
"""The key that most rows have, and the one before which others are compared."""
SMALL = {"spark.driver.memory": "700m", "spark.driver.maxResultSize": "8m", "spark.master": "local[2]"}


visits = Source(name="visits", schema="id BIGINT, who STRING, minutes BIGINT, text STRING")


@table(reads="visits", keys="id")
def visit(visits: DataFrame) -> DataFrame:
    """Visits."""
    return visits.select("id", "who", "minutes", "text")


@table(reads="visits", keys="who", sequence_by="id")
def person(visits: DataFrame) -> DataFrame:
    """The last visit of each person: most rows are of one."""
    return visits.select("who", "id", "minutes", "text")


@materialized_view(reads="visit", keys="who")
def total(visit: DataFrame) -> DataFrame:
    """The sum of each person's visits."""
    return visit.groupBy("who").agg(F.sum("minutes").alias("minutes"), F.count(F.lit(1)).alias("visits"))


RUN = """
import sys
from pathlib import Path
from tests.integration.flows import test_small_driver

test_small_driver.take_all(Path(sys.argv[1]))
"""


def take_all(folder: Path) -> None:
    """In the process with the small driver: takes the files in two runs, and prints what is there after each, and its memory."""
    layers = ("small.bronze", "small.silver", "small.gold")
    silver = [replace(one, declared_in=layers[1]) for one in (visit, person)]  # type: ignore[type-var]
    declared = [visits, *silver, replace(total, declared_in=layers[2])]  # type: ignore[type-var]
    graph = build_declaration_graph(Pipeline(name="small", description="s", owner="t", layers=layers), declared)
    settings = settings_at(folder)
    lake = Lakehouse(settings, session.start_spark_session(settings, "small", SMALL), graph)
    landing = settings.landing / "small" / "visits"
    landing.mkdir(parents=True)
    said = []
    for files in (range(FILES), [FILES]):
        for number in files:
            (folder / f"{number}.json").rename(landing / f"{number}.json")
        lake.run()
        said.append(tell_what_is_there(lake))
    jvm: Any = lake.spark._jvm
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"said": said, "heap": jvm.java.lang.Runtime.getRuntime().maxMemory(), "python": used}))


def tell_what_is_there(lake: Lakehouse) -> dict[str, object]:
    def rows(name: str) -> DataFrame:
        return lake.spark.read.format("delta").load(lake.workspace().lake.record_tables()[name])

    def some(name: str) -> list[Any]:
        return rows(name).where(f"who < '{SOME}' OR who = '{COMMON}'").collect()

    return {
        **{name: rows(name).count() for name in ("visits", "visit")},
        "person": {row.who: row.id for row in some("person")},
        "total": {row.who: [row.minutes, row.visits] for row in some("total")},
    }


def write_lines(path: Path, first: int, lines: int) -> int:
    """Lines of visits with these numbers. Returns the size in bytes."""
    with path.open("w") as file:
        for number in range(first, first + lines):
            file.write(describe_visit(number))
    return path.stat().st_size


def name_visitor(number: int) -> str:
    return COMMON if number % 10 < 7 else f"p{number % 20_000:05d}"


def describe_visit(number: int) -> str:
    text = f"{number * 2654435761 % 2**32:08x}" * 55  # no two alike, and none that a page of a column could share
    return json.dumps({"id": number, "who": name_visitor(number), "minutes": number % 7, "text": text}) + "\n"


def expect(last: int, *extra: range) -> dict[str, object]:
    """What must be there after all visits below a number, and those that came again."""
    people: dict[str, int] = {}
    minutes: Counter[str] = Counter()
    visits: Counter[str] = Counter()
    for number in range(last):
        who = name_visitor(number)
        people[who] = number
        minutes[who] += number % 7
        visits[who] += 1
    wanted = {who for who in people if who < SOME or who == COMMON}
    return {
        "visits": last + sum(map(len, extra)),
        "visit": last,
        "person": {who: people[who] for who in wanted},
        "total": {who: [minutes[who], visits[who]] for who in wanted},
    }


@pytest.mark.slow
def test_a_small_driver_takes_large_files_and_a_key_that_has_most_rows(tmp_path: Path) -> None:
    if LAKES:
        pytest.skip("the process has its lake on its disk")
    sizes = [write_lines(tmp_path / f"{number}.json", number * LINES, LINES) for number in range(FILES)]
    again = range(LINES * FILES - LINES // 6, LINES * FILES)
    write_lines(tmp_path / "2.json", again[0], LINES // 3)
    assert sum(sizes) > 290_000_000
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'include'}"}
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-6000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["heap"] < 750_000_000 and told["python"] < 700_000_000, told
    assert told["said"][0] == expect(LINES * FILES)
    assert told["said"][1] == expect(LINES * FILES + LINES // 6, again)
