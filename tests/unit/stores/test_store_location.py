"""A location on a store behaves as a pathlib.Path of a disk does, as far as a store can; what it cannot do fails."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path, PurePosixPath
from typing import Any

import boto3  # type: ignore[import-untyped]  # it has no types
import pytest

from sluice.locations import find_last_write, list_file_sizes, locate, open_new_file, open_to_read, remove_folder, walk_folders
from sluice.stores import s3_client, store_location, store_object
from sluice.stores.opening import ObjectChanged
from sluice.stores.store_location import StoreLocation

FILES = ("a/1.json", "a/2.csv", "a/b/3.json", "c.txt")


@pytest.fixture
def root(bucket_url: str) -> StoreLocation:
    found = locate(f"{bucket_url.replace('s3://', 's3a://')}/lake/")
    assert isinstance(found, StoreLocation)
    return found


@pytest.fixture
def filled(root: StoreLocation) -> StoreLocation:
    for name in FILES:
        (root / name).write_text(name)
    root.with_name("lake2").joinpath("other").write_text("beside it")
    return root


def keys(root: StoreLocation) -> list[str]:
    client: Any = boto3.client("s3", region_name="us-east-1")
    return [one["Key"] for one in client.list_objects_v2(Bucket=root.bucket_url[5:]).get("Contents", ())]


def put_mark(root: StoreLocation, key: str) -> None:
    boto3.client("s3", region_name="us-east-1").put_object(Bucket=root.bucket_url[5:], Key=key, Body=b"")


def test_one_location_has_one_name_and_parents_end_at_the_bucket(root: StoreLocation, bucket_url: str) -> None:
    location = root / "gym" / "silver"
    assert str(location) == f"{bucket_url}/lake/gym/silver" and location == locate(str(location)) == pickle.loads(
        pickle.dumps(location)
    )
    assert location.name == "silver" and location.with_name("gold") == root / "gym" / "gold"
    assert (
        location.relative_to(root) == PurePosixPath("gym/silver")
        and location.is_relative_to(root)
        and not root.is_relative_to(location)
    )
    assert [str(one) for one in location.parents] == [f"{bucket_url}/lake/gym", f"{bucket_url}/lake", bucket_url]
    bucket = locate(bucket_url)
    assert bucket.parent == bucket and location.resolve() == location.absolute() == location and location.samefile(location)
    for use in (os.fspath, open, os.stat):
        with pytest.raises(TypeError, match="on a store"):
            use(location)  # type: ignore[operator]


def test_folders_are_there_while_objects_are_below(filled: StoreLocation) -> None:
    assert (filled / "a").is_dir() and (filled / "a").exists() and not (filled / "a").is_file()
    assert (filled / "c.txt").is_file() and not (filled / "c.txt").is_dir() and not (filled / "none").exists()
    assert sorted(one.name for one in filled.iterdir()) == ["a", "c.txt"]
    assert sorted(str(one.relative_to(filled)) for one in filled.glob("*/*.json")) == ["a/1.json"]
    assert [str(one.relative_to(filled)) for one in filled.rglob("*.json")] == ["a/1.json", "a/b/3.json"]
    walked = [(str(here.relative_to(filled)), folders, sorted(files)) for here, folders, files in walk_folders(filled)]
    assert walked == [(".", ["a"], ["c.txt"]), ("a", ["b"], ["1.json", "2.csv"]), ("a/b", [], ["3.json"])]
    for _, folders, _ in walk_folders(filled):
        folders.clear()  # is not entered
    assert list_file_sizes(filled / "a") == {"1.json": 8, "2.csv": 7} and list_file_sizes(filled / "none") == {}
    assert find_last_write(filled) >= find_last_write(filled / "c.txt") > 1e9
    with pytest.raises(FileExistsError):
        (filled / "a").mkdir()
    with pytest.raises(OSError, match=os.strerror(errno.ENOTEMPTY)):
        (filled / "a").rmdir()
    (filled / "new").mkdir()
    assert not (filled / "new").exists()


def test_objects_are_read_written_moved_and_removed(filled: StoreLocation, tmp_path: Path) -> None:
    location = filled / "x"
    assert location.write_bytes(b"12345") == 5 and location.read_range(1, 3) == b"234" and location.stat().st_size == 5
    with pytest.raises(FileExistsError):
        location.write_new_bytes(b"other")
    with open_new_file(filled / "y") as written:
        written.write(b"new")
        assert not (filled / "y").exists(), "it is there whole or not at all"
    assert (filled / "y").read_bytes() == b"new"
    with open_new_file(filled / "closed") as written, written:
        written.write(b"by the block")
    assert (filled / "closed").read_bytes() == b"by the block"
    with pytest.raises(FileExistsError), open_new_file(location):
        pass
    with pytest.raises(ValueError, match="broken"), open_new_file(filled / "z") as written:
        raise ValueError("broken")
    assert not (filled / "z").exists()
    assert location.rename(filled / "moved").read_bytes() == b"12345" and not location.exists()
    with pytest.raises(OSError, match=os.strerror(errno.EXDEV)):
        (filled / "moved").rename(tmp_path / "here")
    with pytest.raises(FileNotFoundError):
        location.unlink()
    location.unlink(missing_ok=True)
    for ask in (
        location.read_bytes,
        location.stat,
        location.open_ranges,
        lambda: location.copy_to(filled / "w"),
        lambda: list((filled / "none").iterdir()),
    ):
        with pytest.raises(FileNotFoundError):
            ask()


def test_a_large_object_is_read_in_ranges(root: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_object, "_READ_WHOLE", 10)
    content = bytes(range(256)) * 10
    (root / "large").write_bytes(content)
    asked: list[int] = []
    real = StoreLocation.read_range

    def counted(location: StoreLocation, start: int, length: int) -> bytes:
        asked.append(length)
        return real(location, start, length)

    monkeypatch.setattr(StoreLocation, "read_range", counted)
    with (root / "large").open_ranges(1000) as file:
        assert file.read() == content and asked[0] >= 1000
    with open_to_read(root / "large") as file:
        file.seek(-4, os.SEEK_END)
        assert file.read(10) == content[-4:]


def test_an_object_is_replaced_only_as_it_was_read(root: StoreLocation) -> None:
    location = root / "lease"
    tag = location.replace_tagged(b"1", None)
    with pytest.raises(ObjectChanged):
        location.replace_tagged(b"2", None)
    content, read, _ = location.read_with_tag()
    assert (content, read) == (b"1", tag)
    newer = location.replace_tagged(b"2", tag)
    with pytest.raises(ObjectChanged):
        location.replace_tagged(b"3", tag)
    assert newer != tag and location.read_bytes() == b"2"


@pytest.mark.parametrize("knows_conditions", [True, False])
def test_an_object_is_removed_only_as_it_was_read(
    root: StoreLocation, monkeypatch: pytest.MonkeyPatch, knows_conditions: bool
) -> None:
    if not knows_conditions:
        monkeypatch.setattr(store_location, "remove_key_with_tag", lambda location, tag: None)
    location = root / "landed"
    tag = location.replace_tagged(b"1", None)
    newer = location.replace_tagged(b"2", tag)
    with pytest.raises(ObjectChanged):
        location.remove_tagged(tag)
    assert location.read_bytes() == b"2"
    location.remove_tagged(newer)
    with pytest.raises(FileNotFoundError):
        location.remove_tagged(newer)


def test_a_folder_that_is_removed_leaves_no_mark_of_hadoop_s_and_nothing_beside_it_goes(filled: StoreLocation) -> None:
    for mark in ("lake/a/", "lake/a/empty/", "lake/a/b/_delta_log/_staged_commits/", "lake2/"):
        put_mark(filled, mark)
    assert not (filled / "a" / "empty").exists(), "a mark is nothing"
    remove_folder(filled / "a")
    assert keys(filled) == ["lake/c.txt", "lake2/", "lake2/other"]
    remove_folder(filled / "none")
    remove_folder(filled)
    assert keys(filled) == ["lake2/", "lake2/other"]


def test_objects_are_listed_whatever_they_are_called_and_what_reads_paths_says_that_one_is_none(filled: StoreLocation) -> None:
    put_mark(filled, "lake/a/")
    for key in ("lake/a//3.json", "lake/a/./4.json"):
        boto3.client("s3", region_name="us-east-1").put_object(Bucket=filled.bucket_url[5:], Key=key, Body=b"12")
    found = {name: status for name, status in (filled / "a").list_named_objects()}
    assert sorted(found) == ["./4.json", "/3.json", "1.json", "2.csv", "b/3.json"]
    assert found["1.json"] == (filled / "a" / "1.json").stat(), "by either library"
    assert (filled / "a").is_dir()
    with pytest.raises(OSError, match="a name that is no path"):
        list(filled.rglob("*"))


def test_a_store_that_does_not_answer_is_an_error_of_a_disk(root: StoreLocation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(OSError, match="no answer that can be used"):
        (root / "x").read_bytes()


def test_marks_of_folders_that_the_store_keeps_are_no_success(bucket_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = boto3.client("s3", region_name="us-east-1")
    client.put_object(Bucket=bucket_url.removeprefix("s3://"), Key="lake/t/_delta_log/", Body=b"")
    refused = {"Errors": [{"Key": "lake/t/_delta_log/", "Code": "AccessDenied"}]}

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return (lambda **asked: refused) if name == "delete_objects" else getattr(client, name)

    monkeypatch.setattr(s3_client, "open_s3_client", Refusing)
    with pytest.raises(PermissionError, match=r"refuses to remove marks of folders \(AccessDenied\)"):
        remove_folder(locate(f"{bucket_url}/lake/t"))
    monkeypatch.undo()
