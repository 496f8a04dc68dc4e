"""A rewrite of some files of a table that is killed at any step: the rows are the same, each version can be read, and what is left goes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from tests.conftest import settings_at
from tests.unit.test_optimize import append_rows, read_rows, rewrite_as_decided

from sluice.declare import Pipeline, Source
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure.steps import sweep
from sluice.lake import file_rewrites, file_statistics
from sluice.lake.layout import decide_layout
from sluice.lake.workspace import Workspace

ZORDER = ("id",)
FILES_OF_A_DAY = 9


class Killed(BaseException):
    """Stands for the end of the process: nothing of Sluice catches it."""


KILLED_AT = [
    ("_make_staged_table", 1, False),
    ("_link_file", 1, True),
    ("_link_file", 5, True),
    ("_make_staged_table", 1, True),
    ("_read_staged_commit", 1, False),
    ("_refuse_missing_rows", 1, True),
    ("_take_written_file", 1, True),
    ("write_file_durably", 1, False),
    ("write_file_durably", 1, True),
    ("complete_commit", 1, True),
    ("keep_written_table", 1, True),
    ("_link_file", FILES_OF_A_DAY + 3, True),
    ("_take_written_file", 2, True),
    ("write_file_durably", 2, True),
]
"""Functions of the module, in the order of their calls: at which call of each, and whether after its work. The last ones are of the second
partition, when the first one is done."""
COMMITTED = ("write_file_durably", "complete_commit", "keep_written_table")


def kill_at(monkeypatch: pytest.MonkeyPatch, function: str, call: int, after: bool, kill: Callable[[], None]) -> None:
    """Let a call of a function end the process. Nothing is tidied up then."""
    real, calls = getattr(file_rewrites, function), [0]

    def killing(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        result = real(*arguments, **options) if calls[0] != call or after else None
        if calls[0] == call:
            monkeypatch.setattr(shutil, "rmtree", lambda *folders, **how: None)
            kill()
        return result

    monkeypatch.setattr(file_rewrites, function, killing)


def end_process() -> None:
    raise Killed


def make_workspace(tmp_path: Path) -> Workspace:
    source = Source(name="readings", schema="id BIGINT, day DATE, text STRING", comment="r")
    graph = build_declaration_graph(Pipeline(name="house", description="h", owner="t", layers=(__name__,)), [source])
    return Workspace(settings_at(tmp_path), graph, SimpleNamespace(), "r")  # type: ignore[arg-type]


def fill_table(path: str) -> None:
    """Two partitions of files that overlap, and a good one in each."""
    for day in (1, 2):
        append_rows(path, range(2_000_000, 2_002_000), day, partitioned=True)
        for number in range(FILES_OF_A_DAY):
            append_rows(path, range(number, 450 + number, 9), day, partitioned=True)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake to be copied."""
    folder = tmp_path_factory.mktemp("filled")
    fill_table(make_workspace(folder).path("readings"))
    return folder


@pytest.fixture
def workspace(filled: Path, tmp_path: Path) -> Workspace:
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    return make_workspace(tmp_path)


def read_version(path: str, version: int) -> list[dict[str, object]]:
    return read_table(DeltaTable(path, version=version))


def read_table(table: DeltaTable) -> list[dict[str, object]]:
    found = QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY id, day, text").read_all()
    rows: list[dict[str, object]] = pa.table(found).to_pylist()
    return rows


def list_stored_files(path: str) -> set[str]:
    """The files of rows on the disk, wherever they lie below the table."""
    return {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts}


def list_staged(path: str) -> list[Path]:
    return [*Path(path).glob(".spark-staging-layout-*")]


def require_whole_table_and_tidy_up(workspace: Workspace, rows: list[dict[str, object]], last: int) -> set[str]:
    """After a kill. last: the version before it. Returns the files that no version names."""
    path = workspace.path("readings")
    assert read_rows(path) == rows and read_version(path, last) == rows
    sweep.remove_killed_commit_files(workspace, time.time() + 1)
    assert not list_staged(path), "what was staged is swept by the next stage vacuum"
    named = {file for version in range(last, DeltaTable(path).version() + 1) for file in list_version_files(path, version)}
    stray = list_stored_files(path) - named
    rewrite_as_decided(path, ZORDER)
    assert read_rows(path) == rows and read_version(path, last) == rows
    assert {len(one.file_sizes) for one in file_statistics.list_partition_file_sizes(path)} == {2}
    version = DeltaTable(path).version()
    assert not rewrite_as_decided(path, ZORDER) and DeltaTable(path).version() == version
    assert decide_layout(path, ZORDER).why == "no data came since the last rewrite"
    assert not list_staged(path)
    sweep.remove_orphan_files(path, datetime.now(UTC) + timedelta(days=8))
    assert list_stored_files(path) == list_version_files(path, version) and read_rows(path) == rows
    return stray


def list_version_files(path: str, version: int) -> set[str]:
    return set(pa.chunked_array(DeltaTable(path, version=version).get_add_actions()["path"]).to_pylist())


@pytest.mark.parametrize(
    ("function", "call", "after"),
    [
        pytest.param(*one, id=f"{'after' if one[2] else 'before'} call {one[1]} of {one[0].removeprefix('_')}")
        for one in KILLED_AT
    ],
)
def test_a_killed_rewrite_loses_nothing_and_the_next_one_ends_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, function: str, call: int, after: bool
) -> None:
    path = workspace.path("readings")
    rows, last = read_rows(path), DeltaTable(path).version()
    with monkeypatch.context() as killing:
        kill_at(killing, function, call, after, end_process)
        with pytest.raises(Killed):
            rewrite_as_decided(path, ZORDER)
    done = (call if function in COMMITTED and after else call - 1) if not function.startswith("_link") else call // FILES_OF_A_DAY
    assert DeltaTable(path).version() == last + done, "a partition is rewritten as a whole, or is as it was"
    assert list_staged(path) or function in ("_make_staged_table", "complete_commit", "keep_written_table")
    stray = require_whole_table_and_tidy_up(workspace, rows, last)
    assert len(stray) == (function == "_take_written_file" or (function, after) == ("write_file_durably", False))
    assert all(Path(one).name.startswith("rewritten-1.00-") for one in stray)


def test_whoever_reads_at_any_step_reads_the_same_rows(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they open the table then, or had opened it before."""
    path = workspace.path("readings")
    rows, opened, steps = read_rows(path), DeltaTable(path), list[str]()

    def let_read(function: str) -> None:
        real = getattr(file_rewrites, function)

        def reading(*arguments: Any, **options: Any) -> Any:
            result = real(*arguments, **options)
            steps.append(function)
            assert read_rows(path) == rows and read_table(opened) == rows, function
            return result

        monkeypatch.setattr(file_rewrites, function, reading)

    for function in {function for function, _, _ in KILLED_AT} - {"_link_file"}:
        let_read(function)
    rewrite_as_decided(path, ZORDER)
    assert steps.count("write_file_durably") == 2 and DeltaTable(path).version() == opened.version() + 2
    assert read_table(opened) == rows


def test_a_process_that_is_killed_in_truth_leaves_no_more_than_that(workspace: Workspace, tmp_path: Path) -> None:
    """With new files in the table's folder that are not committed, and the staged ones beside it."""
    path = workspace.path("readings")
    rows, last = read_rows(path), DeltaTable(path).version()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", KILLED, path], env=environment, check=False, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert DeltaTable(path).version() == last and list_staged(path)
    assert len(require_whole_table_and_tidy_up(workspace, rows, last)) == 1


KILLED = """
import os, signal, sys
import pytest
from tests.unit.lake.test_rewrite_kill_points import ZORDER, kill_at
from tests.unit.test_optimize import rewrite_as_decided

kill_at(pytest.MonkeyPatch(), "write_file_durably", 1, False, lambda: os.kill(os.getpid(), signal.SIGKILL))
rewrite_as_decided(sys.argv[1], ZORDER)
"""
