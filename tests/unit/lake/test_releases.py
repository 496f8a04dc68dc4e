"""Releases on disk: numbers are given once, nobody changes a file, and what a kill left of a swap is put right."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.errors import UsageError
from sluice.lake import releases
from sluice.pipeline_records import PipelineRecords
from sluice.settings import Settings


def made(settings: Settings) -> releases.Release:
    release = releases.begin_release(PipelineRecords(settings, "shop"), {"at": "now"})
    with releases.release_made_writable(release):
        put(release, "order", "one")
    release.tables["order"] = {"rows": 1}
    release.folder.chmod(0o755)
    releases.write_release_manifest(release)
    return release


def put(release: releases.Release, table: str, content: str) -> None:
    releases.new_release_table_path(release, table).mkdir()
    (releases.new_release_table_path(release, table) / "rows").write_text(content)
    releases.swap_release_table(release, table)


def test_a_number_is_given_once(settings: Settings) -> None:
    first, second = made(settings), made(settings)
    releases.remove_release(second)
    assert (first.number, second.number, made(settings).number) == (1, 2, 3)
    assert [one.number for one in releases.read_pipeline_releases(PipelineRecords(settings, "shop"))] == [1, 3]
    with pytest.raises(UsageError, match=r"has no release 2\. There are: 1, 3\."):
        releases.find_release(PipelineRecords(settings, "shop"), 2)


def test_what_is_released_is_read_and_not_changed(settings: Settings) -> None:
    release = made(settings)
    with releases.release_made_writable(release):
        pass
    assert {path.stat().st_mode & 0o777 for path in release.folder.rglob("*") if path.is_file()} == {0o444}
    assert {path.stat().st_mode & 0o777 for path in (release.folder, release.folder / "order")} == {0o555}


def test_a_swap_leaves_nothing_of_what_was_there(settings: Settings) -> None:
    release = made(settings)
    with releases.release_made_writable(release):
        put(release, "order", "two")
    assert (release.folder / "order" / "rows").read_text() == "two"
    assert {path.name for path in release.folder.iterdir()} == {"order", releases.MANIFEST}


@pytest.mark.parametrize("killed_after", ["writing", "moving away", "moving in"])
def test_what_a_kill_left_is_put_right(settings: Settings, killed_after: str) -> None:
    release = made(settings)
    there, old, new = (Path(f"{release.folder}/order{end}") for end in ("", ".old", ".new"))
    new.mkdir()
    (new / "rows").write_text("two")
    if killed_after != "writing":
        there.rename(old)
    if killed_after == "moving in":
        new.rename(there)
    with releases.release_made_writable(release):
        pass
    assert (there / "rows").read_text() == ("two" if killed_after == "moving in" else "one")
    assert not old.exists() and not new.exists()
