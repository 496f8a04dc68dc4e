"""What a store did to make a run fail: one readable line, from what each library says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.s3_proxy import Faults, running_faulty_proxy

from demonstrations.store_server import S3Server
from sluice.locations import locate
from sluice.runs.failures import explain_failure
from sluice.stores.opening import delta_rs_storage_options

ROWS = pa.table({"id": [1]})


def explained(work: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as failure:
        work()
    return explain_failure(failure.value) or ""


def written_by_delta_rs(url: str) -> Callable[[], None]:
    return lambda: write_deltalake(url, ROWS, storage_options=delta_rs_storage_options(url))


def test_a_bucket_that_is_not_there_and_a_store_that_cannot_be_reached_are_said(
    bucket_url: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "has no such bucket" in explained(lambda: locate("s3://there-is-no-such/lake/a").write_bytes(b""))
    assert "has no such bucket" in explained(written_by_delta_rs("s3://there-is-no-such/lake/a"))
    with running_faulty_proxy(s3_server.address, Faults()) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
    for work in (lambda: locate(f"{bucket_url}/lake/a").read_bytes(), written_by_delta_rs(f"{bucket_url}/lake/a")):
        assert "gave no answer that can be used" in explained(work)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("AccessDenied: (Service: S3, Status Code: 403, Request ID: 1)", "refuses this user"),
        ("InvalidAccessKeyId: The key does not exist (Service: S3, Status Code: 403)", "does not know this user"),
        ("Unable to load credentials from any of the providers in the chain", "want of credentials"),
        ("Unable to execute HTTP request: Connection refused", "cannot be reached"),
    ],
)
def test_what_spark_says_of_the_store_is_known(text: str, expected: str) -> None:
    assert expected in (explain_failure(RuntimeError(text)) or "")


def test_a_lease_that_was_lost_is_said_and_not_blamed_on_the_store() -> None:
    jvm_said = "java.io.IOException: The lease on s3://b/lake/gym/ is lost or could not be renewed in time: nothing is committed."
    assert "The lease of this run was lost" in (explain_failure(RuntimeError(jvm_said)) or "")
