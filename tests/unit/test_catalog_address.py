"""The address of a catalog: what it says, and why another one is refused. Never with a password in the message."""

from __future__ import annotations

import pytest

from sluice.catalog_address import parse_catalog_address
from sluice.errors import UsageError
from sluice.settings import Settings
from sluice.spark_process import build_spark_environment


@pytest.mark.parametrize(
    ("said", "means"),
    [
        ("thrift://hms:9083", "thrift://hms:9083"),
        ("thrift://hms", "thrift://hms:9083"),
        ("thrift://[::1]:1/", "thrift://[::1]:1"),
    ],
)
def test_an_address_has_a_host_and_a_port(said: str, means: str) -> None:
    address = parse_catalog_address(said)
    assert str(address) == means
    assert parse_catalog_address(str(address)) == address


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("hms:9083", "no address"),
        ("thrif://hms:9083", "Did you mean 'thrift'"),
        ("thrift://hms:port", "port"),
        ("thrift://hms:99999", "port"),
        ("thrift://", "is thrift://HOST:9083"),
        ("thrift://hms:9083/gym", "is thrift://HOST:9083"),
        ("s3tables://arn", "owns the commits"),
        ("iceberg+rest://hms", "owns the commits"),
        ("uc+https://uc:8080/main", "owns the commits of its managed tables"),
        ("glue://eu-south-1", "AWS Glue"),
    ],
)
def test_a_wrong_address_is_told_with_what_was_expected(said: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_catalog_address(said)
    assert told in str(refused.value)
    assert "thrift://HOST:9083" in str(refused.value)


def test_a_password_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as refused:
        parse_catalog_address("thrift://me:hush@hms:9083")
    assert "Credentials" in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_process_that_is_started_is_told_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings.current().catalog is None
    monkeypatch.setenv("SLUICE_CATALOG", "thrift://hms")
    told = build_spark_environment(Settings.current())
    assert told["SLUICE_CATALOG"] == "thrift://hms:9083"
    monkeypatch.setenv("SLUICE_CATALOG", build_spark_environment(Settings.current())["SLUICE_CATALOG"])
    assert str(Settings.current().catalog) == "thrift://hms:9083"


def test_a_wrong_address_ends_every_command_before_it_does_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_CATALOG", "hive://hms:9083")
    with pytest.raises(UsageError, match="no kind of catalog 'hive://'"):
        Settings.current()
