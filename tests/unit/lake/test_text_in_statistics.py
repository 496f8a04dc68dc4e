"""A commit's lines end with a newline, and with nothing that a text in a file's statistics may hold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import delta_rs_commits
from sluice.erasure.steps import sweep
from sluice.flows.progress import positions
from sluice.lake import commit_history, file_rewrites
from sluice.lake.inventory import read_file_inventory
from sluice.lake.log_files import read_cluster_columns, read_log_actions
from sluice.locations import locate
from sluice.runs.repair import lost_commits

TEXTS = ["a\u0085b", "a\u2028b", "a\u2029b", "a\x1cb\x0bc"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    made = str(tmp_path / "t")
    for text in TEXTS:
        write_deltalake(made, pa.table({"text": [text]}), mode="append")
    DeltaTable(made).optimize.compact()
    return made


def now() -> datetime:
    return datetime.now(UTC) + timedelta(days=40)


READERS: dict[str, tuple[Callable[[str], Any], int]] = {
    "of a stream": (lambda path: [kind for kind, _ in positions.read_commit_actions(path, len(TEXTS))].count("remove"), 4),
    "of an inventory": (lambda path: len(read_file_inventory(path, now()).expired), 4),
    "of a sweep": (lambda path: len(list(sweep._list_recently_removed_files(locate(path, "_delta_log"), 0))), 9),
    "of a scan": (lambda path: len([one for one in read_log_actions(path) if one.kind == "add"]), 5),
    "of a checksum": (
        lambda path: len([kind for kind, _ in delta_rs_commits._read_actions(locate(path, f"_delta_log/{4:020d}.json"))]),
        6,
    ),
    "of clustering": (read_cluster_columns, ()),
    "of a history": (
        lambda path: commit_history._read_commit_info(locate(path, f"_delta_log/{4:020d}.json"))["operation"],
        "OPTIMIZE",
    ),
    "of a repair": (lambda path: lost_commits._read_commit_time(path, 0) is not None, True),
}
"""By who reads the commits: what it finds in the log of four appends and a rewrite."""


@pytest.mark.parametrize("reader", READERS)
def test_whoever_reads_commits_reads_them_whole(path: str, reader: str) -> None:
    assert "\u2028" in (Path(path) / "_delta_log" / f"{1:020d}.json").read_text(encoding="utf-8"), "it is there as it is"
    read, expected = READERS[reader]
    assert read(path) == expected


def test_what_a_rewrite_lays_out_is_read_whole(path: str) -> None:
    staged = Path(path) / "_delta_log" / f"{4:020d}.json"
    staged.replace(Path(path) / "_delta_log" / f"{1:020d}.json")
    said, added, removed = file_rewrites._read_staged_commit(locate(path))
    assert said["operation"] == "OPTIMIZE" and len(added) == 1 and len(removed) > 1


def test_no_code_of_the_engine_reads_a_commit_as_lines_of_text() -> None:
    engine = Path(delta_rs_commits.__file__).parent
    reading = [file for file in engine.rglob("*.py") if "LOG" in file.read_text() and "splitlines()" in file.read_text()]
    assert [file.name for file in reading] == ["delta_log.py"]
