"""What only the user may read who runs Sluice, and what keeps the rights of its root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession
from tests.conftest import ROOT, gym_at, settings_at

from sluice.private_files import make_private_folder


def open_to_others(root: Path) -> Iterator[Path]:
    """The files below a folder that another user of the machine can read: the file and each folder on the way allow it."""
    for path in sorted(root.iterdir()) if root.stat().st_mode & 0o005 == 0o005 else ():
        if path.is_dir():
            yield from open_to_others(path)
        elif path.stat().st_mode & 0o044:
            yield path


@pytest.mark.spark
def test_spilt_rows_and_bookkeeping_are_nobody_else_s_and_tables_keep_the_rights_of_their_root(
    spark: SparkSession, tmp_path: Path, gym_of_two_days: Path
) -> None:
    local, jvm = settings_at(ROOT).spark_local, cast("Any", spark._jvm)
    # As long as somebody holds the shuffled rows, Spark keeps their files. Those of other processes come and go.
    shuffled = cast("Any", spark.range(100).repartition(3))._jdf.queryExecution().toRdd()
    assert shuffled.count() == 100
    ours = [Path(one) for one in jvm.org.apache.spark.SparkEnv.get().blockManager().diskBlockManager().localDirsString()]
    assert ours and all(one.is_relative_to(local) for one in ours)
    assert [file for folder in ours for file in folder.rglob("shuffle_*.data")], "a shuffle has left its files"
    assert list(open_to_others(local)) == []
    gym = gym_at(tmp_path / "gym", gym_of_two_days)
    lake = Path(gym.lake) / "gym"
    read = set(open_to_others(lake))
    assert not [path for path in read if "_sluice" in path.parts]
    assert set((lake / "silver").rglob("*.parquet")) <= read
    assert not gym.restricted.exists() or gym.restricted.stat().st_mode & 0o777 == 0o700


def test_a_folder_of_before_is_closed_and_one_of_somebody_else_stays(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    before = os.umask(0)
    try:
        make_private_folder(folder)
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    folder.chmod(0o755)
    make_private_folder(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    if os.geteuid() == 0:
        folder.chmod(0o755)
        os.chown(folder, 12345, -1)
        make_private_folder(folder)
        assert folder.stat().st_mode & 0o777 == 0o755, "its owner decides"
