"""Files go from a table on a store that lists its latest commits late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.s3_proxy import COMMIT, Faults, running_faulty_proxy

from demonstrations.store_server import S3Server
from sluice.lake.inventory import read_file_inventory
from sluice.open_tables import open_delta_table
from sluice.vacuum import remove_inventory_files


def test_a_store_that_lists_its_own_commit_late_is_waited_for(
    s3_server: S3Server, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"{bucket_url}/t"
    write_deltalake(path, pa.table({"a": [1]}))
    write_deltalake(path, pa.table({"a": [2]}), mode="overwrite")
    found = read_file_inventory(path, datetime.now(UTC) + timedelta(days=8))
    assert len(found.expired) == 1
    with running_faulty_proxy(s3_server.address, Faults(late=2, keys=COMMIT)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        assert remove_inventory_files(path, found, None) == 1
        assert proxy.counts["late"] > 0
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.address)
    assert open_delta_table(path).version() == 3
