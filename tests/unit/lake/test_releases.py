"""Releases: numbers are given once, nobody changes a file, and what a kill left of a swap is put right; on a disk and on a store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import LeaseLost, SluiceError, UsageError
from sluice.lake import releases
from sluice.locations import Location, locate
from sluice.pipeline_records import PipelineRecords
from sluice.runs import run_ledger
from sluice.settings import Settings
from sluice.stores import fences
from sluice.stores.store_location import StoreLocation


@pytest.fixture
def on_store(settings: Settings, bucket_url: str) -> Settings:
    """Settings whose releases lie on a store, and whose lake does, too."""
    return replace(settings, lake=f"{bucket_url}/lake", released=locate(f"{bucket_url}/released"))


@pytest.fixture(params=["disk", "store"])
def anywhere(request: pytest.FixtureRequest, settings: Settings) -> Settings:
    chosen: Settings = settings if request.param == "disk" else request.getfixturevalue("on_store")
    return chosen


def made(settings: Settings) -> releases.Release:
    release = releases.begin_release(PipelineRecords(settings, "shop"), {"at": "now"})
    with releases.release_made_writable(release):
        put(release, "order", "one")
    release.tables["order"] = {"rows": 1}
    if not isinstance(release.folder, StoreLocation):
        release.folder.chmod(0o755)
    releases.write_release_manifest(release)
    return release


def put(release: releases.Release, table: str, content: str) -> None:
    write(releases.new_release_table_path(release, table), content)
    releases.swap_release_table(release, table)


def write(folder: Location, content: str) -> None:
    (folder / "_delta_log").mkdir(parents=True)
    (folder / "rows").write_text(content)
    (folder / "_delta_log" / "0.json").write_text(content)


def note_run(settings: Settings, state: str) -> None:
    run_ledger.append_run_rows(
        PipelineRecords(settings, "shop"), [{"run": "r", "stage": "release", "flow": "order", "state": state}]
    )


def test_releases_whose_disk_is_not_mounted_are_absent(settings: Settings) -> None:
    records = PipelineRecords(settings, "shop")
    note_run(settings, "failed")
    assert not releases.are_releases_absent(records), "nothing was released"
    made(settings)
    note_run(settings, "done")
    assert not releases.are_releases_absent(records)
    away = settings.released.rename(f"{settings.released}.away")
    assert releases.are_releases_absent(records)
    with pytest.raises(
        SluiceError, match=r"Pipeline 'shop' has made releases, and they are not there: .*/released/shop\. .*mount"
    ):
        releases.begin_release(records, {})
    assert not settings.released.exists()
    folder = releases.releases_folder(records)
    folder.mkdir(parents=True)
    assert releases.are_releases_absent(records), "the folder where a disk is mounted is there"
    (folder / releases.LAST).write_text("1")
    assert not releases.are_releases_absent(records), "they were removed for good"
    assert made(settings).number == 2 and away


def test_a_number_is_given_once(anywhere: Settings) -> None:
    settings = anywhere
    first, second = made(settings), made(settings)
    releases.remove_release(second)
    assert (first.number, second.number, made(settings).number) == (1, 2, 3)
    assert [one.number for one in releases.read_pipeline_releases(PipelineRecords(settings, "shop"))] == [1, 3]
    with pytest.raises(UsageError, match=r"has no release 2\. There are: 1, 3\."):
        releases.find_release(PipelineRecords(settings, "shop"), 2)


def test_a_release_is_removed_by_whoever_may_not_write_where_it_is_not_allowed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As root, for whom no mode is an obstacle, the modes are looked at."""
    release = made(settings)
    real, modes = releases.remove_folder, []

    def removing(folder: Location, strict: bool = False) -> None:
        modes.extend(path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*")) if path.is_dir())
        real(folder, strict=strict)

    monkeypatch.setattr(releases, "remove_folder", removing)
    releases.remove_release(release)
    assert modes == [0o755] * 3 and not release.folder.exists()


def test_what_is_released_is_read_and_not_changed(settings: Settings) -> None:
    release = made(settings)
    with releases.release_made_writable(release):
        pass
    assert {path.stat().st_mode & 0o777 for path in release.folder.rglob("*") if path.is_file()} == {0o444}
    assert {path.stat().st_mode & 0o777 for path in (release.folder, release.folder / "order")} == {0o555}


def test_a_swap_leaves_nothing_of_what_was_there(anywhere: Settings) -> None:
    release = made(anywhere)
    if isinstance(release.folder, StoreLocation):
        (release.folder / "order" / "older").write_text("one")
    with releases.release_made_writable(release):
        put(release, "order", "two")
    assert {path.name for path in (release.folder / "order").iterdir()} == {"rows", "_delta_log"}
    assert (release.folder / "order" / "rows").read_text() == "two"
    assert {path.name for path in release.folder.iterdir()} == {"order", releases.MANIFEST}


def test_a_table_goes_and_then_the_release(anywhere: Settings) -> None:
    release = made(anywhere)
    with releases.release_made_writable(release):
        releases.remove_release_table(release, "order")
    assert {path.name for path in release.folder.iterdir()} == {releases.MANIFEST}
    releases.remove_release(release)
    assert not release.folder.exists()


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


class Killed(BaseException):
    """Stands for the end of the process."""


STEPS = [(StoreLocation, "remove_below"), (StoreLocation, "copy_to"), (StoreLocation, "unlink"), (StoreLocation, "touch")]


def killed_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """The process ends before its step of this number that changes the store. Returns what tells how many steps there were."""
    count = 0

    def counted(whole: Any) -> Any:
        def step(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == number:
                raise Killed
            return whole(*arguments, **options)

        return step

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return lambda: count


def test_on_a_store_a_kill_at_any_step_of_a_swap_leaves_the_former_table_or_the_new_one(
    on_store: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 0
    while True:
        number += 1
        release = made(on_store)
        with monkeypatch.context() as patch:
            reached = killed_at(number, patch)
            try:
                put(release, "order", "two")
            except Killed:
                pass
            else:
                assert number > reached() >= 5, "removed, copied twice, and each mark put and removed"
                return
        assert not (release.folder / "order" / "_delta_log").exists() or whole(release) in ("one", "two")
        with releases.release_made_writable(release):
            pass
        assert whole(release) == ("one" if number == 1 else "two")
        assert {path.name for path in release.folder.iterdir()} == {"order", releases.MANIFEST}


def whole(release: releases.Release) -> str:
    """The content of the table; all its files say the same."""
    (said,) = {(release.folder / "order" / name).read_text() for name in ("rows", "_delta_log/0.json")}
    return said


def test_on_a_store_whoever_lost_the_lease_changes_no_release(on_store: Settings) -> None:
    release = made(on_store)
    root = str(releases.releases_folder(PipelineRecords(on_store, "shop")))
    write(releases.new_release_table_path(release, "order"), "two")
    fences.close_fence(root)
    try:
        with pytest.raises(LeaseLost):
            releases.swap_release_table(release, "order")
        with pytest.raises(LeaseLost):
            releases.remove_release_table(release, "order")
        with pytest.raises(LeaseLost):
            releases.write_release_manifest(release)
    finally:
        fences.remove_fence(root)
    assert whole(release) == "one"
