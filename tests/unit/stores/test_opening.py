"""A URL of a store is read in one way, and opened with what the environment says, which nothing repeats."""

from __future__ import annotations

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError

from demonstrations.store_server import CREDENTIALS
from sluice.errors import UsageError
from sluice.settings import Settings
from sluice.stores.opening import delta_rs_storage_options, find_store_kind, hadoop_url, open_store, split_store_url
from sluice.stores.trial import try_store


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("s3://bucket", ("s3://bucket", "")),
        ("s3a://bucket/lake/gym/", ("s3://bucket", "lake/gym")),
        ("s3://bucket//lake///gym", ("s3://bucket", "lake/gym")),
        ("abfss://container@account.dfs.core.windows.net/lake", ("abfss://container@account.dfs.core.windows.net", "lake")),
        ("gs://bucket/a", ("gs://bucket", "a")),
        ("hdfs://name:8020/a", ("hdfs://name:8020", "a")),
        ("s3://bucket/report #1?.csv", ("s3://bucket", "report #1?.csv")),
        ("s3://bucket/tab\tline\n/a@b:c", ("s3://bucket", "tab\tline\n/a@b:c")),
    ],
)
def test_two_names_of_one_location_give_the_same_root_and_key(url: str, parts: tuple[str, str]) -> None:
    assert split_store_url(url) == parts


@pytest.mark.parametrize(
    "url",
    [
        "s4://bucket/a",
        "s3:///lake",
        "s3://key:secret-word@bucket/lake",
        "s3://secret-word@bucket/lake",
        "abfss://container:secret-word@account.dfs.core.windows.net/lake",
        "s3://bucket/lake/../other",
    ],
)
def test_what_is_no_location_is_refused_without_repeating_a_credential(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        split_store_url(url)
    assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize("url", ["s3://bucket/lake?token=secret-word", "s3://bucket/lake#secret-word"])
def test_a_setting_or_an_argument_holds_no_query_in_which_credentials_would_be(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_LAKE", url)
    for ask in (Settings.current, lambda: try_store(url)):
        with pytest.raises(UsageError, match="holds more than a location") as refused:
            ask()
        assert "secret-word" not in str(refused.value)


@pytest.mark.parametrize("variable", ["SLUICE_LAKE", "SLUICE_LANDING", "SLUICE_RESTRICTED"])
def test_a_url_of_no_store_is_no_folder(variable: str, nothing_said: pytest.MonkeyPatch) -> None:
    nothing_said.setenv(variable, "dbfs:/lake")
    with pytest.raises(UsageError, match=r"There is no store 'dbfs:'. Write a folder, or s3://BUCKET/FOLDER\."):
        Settings.current()
    nothing_said.setenv(variable, "wasbs://box@account/lake")
    with pytest.raises(UsageError, match="There is no store 'wasbs://'"):
        Settings.current()
    nothing_said.setenv(variable, "c:/lake")
    Settings.current()


def test_a_folder_that_must_be_on_a_disk_is_no_url(nothing_said: pytest.MonkeyPatch) -> None:
    nothing_said.setenv("SLUICE_SECRETS", "dbfs:/secrets")
    with pytest.raises(UsageError, match="SLUICE_SECRETS is 'dbfs:/secrets': it must be a folder of a disk"):
        Settings.current()


def test_spark_calls_the_same_location_by_its_own_name() -> None:
    assert hadoop_url("s3://bucket/lake/gym") == hadoop_url("s3a://bucket/lake/gym") == "s3a://bucket/lake/gym"
    assert hadoop_url("s3://bucket") == "s3a://bucket"


def test_which_kinds_have_been_tried_is_said() -> None:
    assert [one for one in ("s3", "s3a", "abfss", "gs", "hdfs") if find_store_kind(f"{one}://x").tried] == ["s3", "s3a"]


def test_a_store_is_opened_by_what_the_environment_says(bucket_url: str) -> None:
    store = open_store(bucket_url, "lake")
    obstore.put(store, "a/b", b"first", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "a/b", b"second", mode="create")
    assert bytes(obstore.get(open_store(bucket_url), "lake/a/b").bytes()) == b"first"
    assert all(value not in repr(store) for value in CREDENTIALS.values())


def test_a_profile_is_read_where_no_keys_are_given(bucket_url: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "credentials").write_text("[lakes]\naws_access_key_id = someone\naws_secret_access_key = something\n")
    for name in CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_PROFILE", "lakes")
    store = open_store(bucket_url)
    obstore.put(store, "a", b"")
    assert store.credential_provider.credentials.access_key == "someone"


def test_delta_rs_commits_by_conditional_puts(bucket_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options = delta_rs_storage_options(f"{bucket_url}/t")
    write_deltalake(f"{bucket_url}/t", pa.table({"a": [1]}), storage_options=options)
    assert DeltaTable(f"{bucket_url}/t", storage_options=options).version() == 0
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    with pytest.raises(UsageError, match="AWS_S3_ALLOW_UNSAFE_RENAME"):
        delta_rs_storage_options(f"{bucket_url}/t")
    assert delta_rs_storage_options("/a/path") == {}
