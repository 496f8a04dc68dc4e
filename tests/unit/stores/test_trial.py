"""What `sluice doctor --lake URL` says about a store: a good one, and one that does what a store for commits must not do."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import timedelta

import obstore
import pytest
from obstore.store import MemoryStore
from tests.s3_proxy import EVERYTHING, Faults, running_faulty_proxy

from demonstrations.store_server import CREDENTIALS, S3Server
from sluice.cli import main
from sluice.errors import UsageError
from sluice.pipeline_records import PipelineRecords
from sluice.runs.lease import lock
from sluice.settings import Settings
from sluice.stores import trial
from sluice.stores.opening import open_store


def failed(findings: list[trial.StoreFinding]) -> set[str]:
    assert all(finding.remedy for finding in findings if not finding.ok)
    return {finding.name for finding in findings if not finding.ok}


def test_a_store_with_conditional_writes_passes_and_keeps_nothing_of_the_trial(bucket_url: str) -> None:
    found = trial.try_store(f"{bucket_url.replace('s3://', 's3a://')}/lake")
    assert [finding.name for finding in found] == list(trial.LOOKS) and failed(found) == set()
    assert [entry for page in obstore.list(open_store(bucket_url)) for entry in page] == []


def test_a_kind_of_store_on_which_no_test_runs_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "open_store", lambda *_: MemoryStore())
    for url in ("gs://bucket/lake", "abfss://container@account.dfs.core.windows.net/lake"):
        first, *others = trial.try_store(url)
        assert first.name == trial.UNTRIED and first.found.startswith(
            f"Sluice's own tests never ran on {url.partition('//')[0]}//"
        )
        assert [finding.name for finding in others] == list(trial.LOOKS)


def test_a_store_that_ignores_conditions_fails_for_commits_and_the_lease(
    s3_server: S3Server, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_faulty_proxy(s3_server.address, Faults(ignores_conditions=True, keys=EVERYTHING)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        found = trial.try_store(bucket_url)
    assert failed(found) == {trial.COMMITS, trial.LEASE}
    assert "[8, 8, 8, 8, 8] winners" in str(found)


def test_a_store_that_lists_late_fails(s3_server: S3Server, bucket_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_faulty_proxy(s3_server.address, Faults(late=600, keys=EVERYTHING)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        assert failed(trial.try_store(bucket_url)) == {trial.LISTING}


def test_a_clock_that_is_wrong_fails(bucket_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MOST_SKEW", timedelta(seconds=-1))
    assert failed(trial.try_store(bucket_url)) == {trial.CLOCK}


def test_a_store_that_does_not_answer_is_one_finding_after_a_short_while(
    s3_server: S3Server, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with running_faulty_proxy(s3_server.address, Faults(partitioned=True)) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        found = trial.try_store(bucket_url, timedelta(seconds=3))
    assert [(finding.name, finding.ok) for finding in found] == [(trial.REACHED, False)]
    assert time.monotonic() - began < 200


def test_the_command_prints_a_line_for_each_look_and_no_credential(bucket_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    for url, code in ((f"{bucket_url}/lake", 0), ("s3://no-such-bucket-here/lake", 2)):
        with pytest.raises(SystemExit) as ended:
            main(["doctor", "--lake", url, "--json"])
        printed = capsys.readouterr()
        assert ended.value.code == code, printed
        assert json.loads(printed.out.splitlines()[-1])["ok"] is (code == 0)
        assert not any(secret in printed.out + printed.err for secret in CREDENTIALS.values())


@pytest.mark.parametrize("location", ["/data/lake", "s4://bucket/lake"])
def test_what_is_no_store_is_refused(location: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--lake", location])
    assert ended.value.code == UsageError.exit_code and location.partition(":")[0] in capsys.readouterr().err


def test_the_first_lease_on_a_store_that_loses_commits_is_refused_before_anything_is_written(
    settings: Settings, s3_server: S3Server, bucket_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hold() -> None:
        with lock.hold_lease_without_spark(PipelineRecords(replace(settings, lake=f"{bucket_url}/lake"), "gym"), "r1", "Wait."):
            pass

    with running_faulty_proxy(s3_server.address, Faults(ignores_conditions=True, keys=EVERYTHING)) as proxy:
        with monkeypatch.context() as patch:
            patch.setenv("AWS_ENDPOINT_URL", proxy.address)
            with pytest.raises(UsageError, match=r"can hold no lake\. commits: .* lease: "):
                hold()
        assert [entry for page in obstore.list(open_store(bucket_url)) for entry in page] == []
        hold()
        monkeypatch.setattr(trial, "try_store", None)
        hold()  # a lake that is there is not tried again
