"""Compares Sluice's VACUUM, by the inventory of a table's log, with the two ways of Delta on Spark: a part of `upkeep.py`.

Each way works on a copy of one table. A hundred runs each overwrote this table, in partitions, so that a hundredth of its files are needed.
Each way vacuums its copy, and then once more when there is nothing to remove. A time counts only if all copies have the same files and the
table's rows.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from _cpu_seconds import measure_tree
from _results import Medians
from sluice.table_properties import RETENTION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SLUICE, LITE, FULL = "by inventory", "VACUUM LITE", "VACUUM"
REMOVED, AGAIN = "files to remove", "nothing to remove"
LOSSES = """What VACUUM by inventory does not give: files that no commit names stay until the folder is walked, every 28 days, by Delta's
own VACUUM; VACUUM LITE leaves them as well. Its deletions are one after another, as Delta's are unless it is told otherwise."""
_RUNS = 100
_PARTITIONS = 20
_OLD = timedelta(days=10)
"""So long ago all of it was written: the retention is 7 days."""


def measure_vacuum_ways(spark: SparkSession, folder: Path, files: int, rounds: int) -> str:
    """What each way takes, as text. files: how many are to be removed. Raises AssertionError where results differ."""
    table = folder / "rewritten"
    rows = make_rewritten_table(table, files)
    ways = make_ways(spark)
    found = {what: Medians(f"{what} seconds, {files:,} files", list(ways), digits=2) for what in ("CPU", "wall")}
    for number in range(-1, rounds):  # the first one warms the JVM up
        left = {}
        for name, vacuum in ways.items():
            copy = shutil.copytree(table, folder / f"{number} {name}")
            for what, (cpu, wall) in zip((REMOVED, AGAIN), _vacuum_copy(vacuum, copy), strict=True):
                if number < 0:
                    continue
                found["CPU"].add(what, name, cpu)
                found["wall"].add(what, name, wall)
            left[name] = _list_files(copy)
            assert DeltaTable(copy).to_pyarrow_table().num_rows == rows, f"rows were lost: {name}"
            shutil.rmtree(copy)
        assert all(one == left[SLUICE] for one in left.values()), {name: len(one) for name, one in left.items()}
        assert len(left[SLUICE]) == len(_list_files(table)) - files, "files were left"
    return f"{found['CPU'].format()}\n\n{found['wall'].format()}\n\n{LOSSES}"


def make_ways(spark: SparkSession) -> dict[str, Callable[[str], object]]:
    """By name, what vacuums the table at a path."""
    from sluice.lake.inventory import decide_vacuum
    from sluice.vacuum import remove_inventory_files

    def vacuum_by_inventory(path: str) -> None:
        decision = decide_vacuum(path, datetime.now(UTC), at_once=False)
        assert not decision.in_full, decision.why
        if decision.needed:
            remove_inventory_files(path, decision.inventory, None)

    return {
        SLUICE: vacuum_by_inventory,
        LITE: lambda path: spark.sql(f"VACUUM delta.`{path}` LITE").collect(),
        FULL: lambda path: spark.sql(f"VACUUM delta.`{path}`").collect(),
    }


def make_rewritten_table(table: Path, files: int) -> int:
    """A table of which so many files, a multiple of 100, are needed no more. Returns how many rows it has.

    delta-rs writes a file of each partition. All others are copies of these under names of their own, in commits as a run makes them that
    overwrites the table.
    """
    rows = pa.table({"part": [place % _PARTITIONS for place in range(_PARTITIONS * 10)], "id": list(range(_PARTITIONS * 10))})
    write_deltalake(table, rows, partition_by=["part"], configuration={RETENTION: "interval 7 days"})
    log = table / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    templates, present = [one["add"] for one in actions if "add" in one], list[dict[str, Any]]()
    began = round((time.time() - _OLD.total_seconds()) * 1000)
    for run in range(_RUNS + 1):
        at = began + run * 1000
        added = [_copy_file(table, templates[place % _PARTITIONS], f"{run}-{place}") for place in range(files // _RUNS)]
        info = {"timestamp": at, "operation": "WRITE", "operationParameters": {"mode": "Overwrite"}}
        shape = [one for one in actions if "protocol" in one or "metaData" in one] if run == 0 else []
        removed = [{"remove": _describe_removal(one, at)} for one in present]
        commit = [{"commitInfo": info}, *shape, *removed, *({"add": one} for one in added)]
        file = log / f"{run:020d}.json"
        file.write_text("".join(json.dumps(one) + "\n" for one in commit))
        os.utime(file, (at / 1000, at / 1000))
        present = added
    for one in templates:
        (table / one["path"]).unlink()
    made = DeltaTable(table)
    made.create_checkpoint()
    for file in table.rglob("*.parquet"):
        os.utime(file, (began / 1000, began / 1000))
    return int(made.to_pyarrow_table().num_rows)


def _copy_file(table: Path, template: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Returns what adds the copy to the table."""
    file = Path(template["path"]).with_name(f"part-{name}.snappy.parquet")
    shutil.copyfile(table / template["path"], table / file)
    return {**template, "path": str(file)}


def _describe_removal(one: Mapping[str, Any], at: int) -> dict[str, Any]:
    kept = {name: one[name] for name in ("path", "partitionValues", "size")}
    return {**kept, "deletionTimestamp": at, "dataChange": True, "extendedFileMetadata": True}


def _vacuum_copy(vacuum: Callable[[str], object], copy: Path) -> list[tuple[float, float]]:
    """Vacuums twice. Returns the CPU and wall seconds of each time."""
    found = []
    for _ in range(2):
        began = time.monotonic()
        with measure_tree() as seconds:
            vacuum(str(copy))
        found.append((seconds[0], time.monotonic() - began))
    return found


def _list_files(table: Path) -> set[str]:
    """The files of a table beside its log, wherever they lie."""
    return {str(file.relative_to(table)) for file in table.rglob("*") if file.is_file() and "_delta_log" not in file.parts}
