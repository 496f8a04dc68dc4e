"""A person who asked to be erased leaves every table and does not come back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from pipelines.gym import maker
from sluice.declare.assembly.loading import load_declaration_graph
from sluice.erasure import requests
from sluice.erasure.vault import Identifier
from sluice.lake import commit_history
from sluice.privacy import secrets
from sluice.privacy.pseudonyms import add_pseudonym_column, compute_pseudonym

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sluice.settings import Settings


@pytest.fixture
def gym(settings: Settings, spark: SparkSession) -> Lakehouse:
    """A gym with one day in all layers."""
    lake = Lakehouse(settings, spark, load_declaration_graph(settings, "gym"))
    _land(lake)
    lake.run()
    return lake


def _land(lake: Lakehouse) -> None:
    maker.land(lake.settings.landing / "gym", lake.settings.truth / "gym", days=1, scale=0.15)


BY_DEVICE = (
    *("readings", "registrations", "heart_rate", "device_day", "member_keys", "memberships", "workout_heart_rate"),
    *("device_counts", "heart_rate_10min", "heart_rate_10min_late"),
)


def _of(lake: Lakehouse, subject: int) -> dict[str, int]:
    """How many rows of a subject each table has, quarantines included; found by text search where no column names the subject."""
    found = {}
    for name, path in lake.workspace().lake.record_tables().items():
        frame = lake.spark.read.format("delta").load(path)
        column = "_subject" if name.endswith("_quarantine") else "device_id"
        if column == "device_id" and name not in BY_DEVICE:
            continue  # others know a member by another kind of identifier
        found[name] = frame.where(f"CAST({column} AS STRING) = '{subject}'").count()
    return found


def _of_one_member(lake: Lakehouse) -> list[int]:
    """Devices with readings that have been one member's only, each of another member."""
    owners: dict[int, set[int]] = {}
    for device, member in lake.rows("memberships", "device_id", "user_id"):
        owners.setdefault(device, set()).add(member)
    read = {row[0] for row in lake.rows("device_day", "device_id")}
    found = {min(members): device for device, members in owners.items() if len(members) == 1 and device in read}
    return sorted(found.values())


@pytest.mark.slow
def test_a_subject_erased_while_silver_is_two_commits_behind_stays_out(gym: Lakehouse) -> None:
    subject, other = _of_one_member(gym)[:2]
    for _ in range(2):
        _land(gym)
        gym.run("bronze")
    others = _of(gym, other)
    assert _of(gym, subject)["readings"] > 0
    before = {path: path.read_bytes() for path in sorted((gym.settings.landing / "gym" / "readings").glob("*.jsonl"))}
    requests.receive_erasure_request(gym.lake, [Identifier("device_id", f" {subject} \n")])
    reports = gym.run("propagate_deletions")
    assert set(_of(gym, subject).values()) == {0}
    assert _of(gym, other)["readings"] == others["readings"] and _of(gym, other)["device_day"] == 3
    assert reports["readings"].deleted > 0 and reports["registrations"].deleted > 0

    # Delivered again, as new files, and made anew from bronze: still out.
    for path, content in before.items():
        path.with_name(f"again-{path.name}").write_bytes(content)
    again = gym.run()
    assert again["readings"].suppressed > 0
    gym.run("silver", "gold", mode="refresh", tables=["heart_rate"])
    assert set(_of(gym, subject).values()) == {0}
    for outcome in (outcome for outcome in gym.outcomes() if outcome["source"] == "readings"):
        path = gym.settings.landing / "gym" / "readings" / str(outcome["file"])
        if outcome["suppressed"]:
            lines = sum(1 for line in path.read_text().splitlines() if line.strip())
            assert outcome["rows"] + outcome["quarantined"] + outcome["suppressed"] == lines


@pytest.mark.slow
def test_nothing_names_the_subject_and_a_second_propagation_does_nothing(gym: Lakehouse) -> None:
    subject, member = _of_one_member(gym)[0], gym.rows("completed_workouts", "user_id")[0][0]
    requests.receive_erasure_request(gym.lake, [Identifier("device_id", str(subject))])
    requests.receive_erasure_request(gym.lake, [Identifier("user_id", str(member))])
    gym.run("propagate_deletions")
    assert str(member) not in {key for (key,) in gym.rows("events", "key")}
    for table in ("workouts", "members_changes", "members", "members_history", "bpm", "completed_workouts", "workout_summary"):
        assert member not in {user for (user,) in gym.rows(table, "user_id")}, table
    bookkeeping = Path(gym.records.bookkeeping())
    texts = [path for path in Path(gym.settings.lake).rglob("*") if path.is_file() and path.suffix in (".json", ".crc", "")]
    assert any(bookkeeping in path.parents for path in texts)
    for path in texts:
        for who in (subject, member):
            assert str(who).encode() not in path.read_bytes(), path
    before = gym.versions()
    assert gym.run("propagate_deletions") == {}
    assert gym.versions() == before
    for table in ("readings", "heart_rate"):
        merge = next(
            c
            for c in commit_history.read_commit_history(gym.workspace().path(table))
            if c["note"].get("flow") == f"erasure_{table}"
        )
        assert str(subject) not in str(merge["parameters"])


@pytest.mark.slow
def test_a_killed_propagation_is_run_again(gym: Lakehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.erasure.steps import rows

    subject = _of_one_member(gym)[0]
    requests.receive_erasure_request(gym.lake, [Identifier("device_id", str(subject))])
    delete, done = rows.delete_suppressed_rows, []

    def once(*arguments: Any, **more: Any) -> object:
        if done:
            raise KeyboardInterrupt
        done.append(arguments)
        return delete(*arguments, **more)

    monkeypatch.setattr(rows, "delete_suppressed_rows", once)
    with pytest.raises(KeyboardInterrupt):
        gym.run("propagate_deletions")
    monkeypatch.undo()
    gym.run("propagate_deletions")
    assert set(_of(gym, subject).values()) == {0}


def test_pseudonyms_are_the_same_in_python_and_in_spark(settings: Settings, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    key = secrets.read_secret_key(settings)
    names = ["a", " 17 ", "é" * 80, "x"]
    frame = spark.createDataFrame([(name,) for name in [*names, None]], "name STRING")
    hashed = add_pseudonym_column(frame, key, "device", F.col("name"), "hashed")
    assert {row.name: row.hashed for row in hashed.collect()} == {
        **{name: compute_pseudonym(key, "device", name) for name in names},
        None: None,
    }
    assert key.hex() not in hashed._jdf.queryExecution().toString()
    assert (settings.secrets / "suppression.key").stat().st_mode & 0o777 == 0o600
