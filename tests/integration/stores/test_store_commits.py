"""Drivers of both kinds race on one Delta log, on a store that answers 409 and 503, loses replies and lists late: no commit is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from tests.s3_proxy import Faults, running_faulty_proxy

from demonstrations.store_server import S3Server

DRIVERS = Path(__file__).resolve().parents[2] / "log_drivers.py"
ALL_FAULTS = ("conflicts", "refused", "lost", "failed_late", "late")


def race(
    server: S3Server, url: str, kinds: list[str], commits: int, faults: Faults
) -> tuple[list[dict[str, list[str]]], Counter[str]]:
    """The answers that each driver got to its commits, and the faults that occurred."""
    with running_faulty_proxy(server.address, faults) as proxy:
        environment = {**os.environ, **server.variables(proxy.address)}
        drivers = [
            subprocess.Popen(
                [sys.executable, str(DRIVERS), kind, url, f"{kind}{number}", str(commits)],
                stdout=subprocess.PIPE,
                env=environment,
            )
            for number, kind in enumerate(kinds)
        ]
        try:
            said = [json.loads(driver.communicate(timeout=900)[0]) for driver in drivers]
        finally:
            for driver in drivers:
                driver.kill()
    return said, proxy.counts


def read_log(url: str) -> tuple[list[str], Counter[str]]:
    """The names of the commits of a table, once for each time that one was written; and how often each transaction is there."""
    client = boto3.client("s3")
    names, transactions = [], Counter[str]()
    pages = client.get_paginator("list_object_versions").paginate(
        Bucket=url.removeprefix("s3://").split("/")[0], Prefix="t/_delta_log/"
    )
    for found in (one for page in pages for one in page.get("Versions", ())):
        if not found["Key"].endswith(".json"):
            continue
        names.append(Path(found["Key"]).name)
        content = client.get_object(Bucket=url.removeprefix("s3://").split("/")[0], Key=found["Key"])["Body"].read()
        transactions.update(action["txn"]["appId"] for line in content.splitlines() if "txn" in (action := json.loads(line)))
    return sorted(names), transactions


def check_race(server: S3Server, bucket_url: str, kinds: list[str], commits: int) -> None:
    bucket = bucket_url.removeprefix("s3://")
    boto3.client("s3").put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    url = f"{bucket_url}/t"
    write_deltalake(url, pa.table({"a": [1]}))
    said, counts = race(server, url, kinds, commits, Faults(conflicts=0.1, refused=0.05, lost=0.1, failed_late=0.05, late=1))
    names, transactions = read_log(url)
    assert names == [f"{number:020d}.json" for number in range(len(names))], "none is missing, and none was written twice"
    acknowledged = [one for driver in said for one in driver["acknowledged"]]
    assert {one: transactions[one] for one in acknowledged} == dict.fromkeys(acknowledged, 1)
    unknown = [one for driver in said for one in driver["unknown"]]
    assert all(transactions[one] <= 1 for one in unknown)
    assert len(acknowledged) + len(unknown) == len(kinds) * commits
    assert len(acknowledged) > 0.9 * len(kinds) * commits
    assert all(counts[fault] for fault in ALL_FAULTS), counts


@pytest.mark.spark
def test_no_commit_of_two_kinds_of_drivers_is_lost(s3_server: S3Server, bucket_url: str) -> None:
    check_race(s3_server, bucket_url, ["spark", "delta-rs"], 15)


@pytest.mark.slow
@pytest.mark.spark
def test_no_commit_of_a_thousand_is_lost(s3_server: S3Server, bucket_url: str) -> None:
    check_race(s3_server, bucket_url, ["spark", "delta-rs", "spark", "delta-rs"], 250)
