"""Which files may go is said by the log: nothing that a version within the retention needs, and all that none does."""

from __future__ import annotations

import contextlib
import json
import random
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from sluice import vacuum as vacuuming
from sluice.errors import SluiceError
from sluice.lake import inventory, log
from sluice.lake.inventory import VacuumDecision, decide_vacuum, read_file_inventory
from sluice.table_properties import LOG_RETENTION, REMOVED_UNTIL, RETENTION, WALKED_AT
from sluice.vacuum import remove_inventory_files

WEEK = timedelta(days=7)
PROPERTIES = {RETENTION: "interval 7 days", LOG_RETENTION: "interval 30 days", "delta.enableChangeDataFeed": "true"}


def rows(first: int, number: int = 100) -> pa.Table:
    return pa.table({"id": list(range(first, first + number)), "text": [f"{n * 7919}" for n in range(number)]})


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A table of two files that were joined."""
    made = str(tmp_path / "t")
    for number in (0, 100):
        write_deltalake(made, rows(number), mode="append", configuration=PROPERTIES if number == 0 else None)
    DeltaTable(made).optimize.compact()
    return made


def now() -> datetime:
    return datetime.now(UTC)


def decide(path: str, later: timedelta = timedelta(), at_once: bool = False) -> VacuumDecision:
    return decide_vacuum(path, now() + later, at_once)


def vacuum(path: str, later: timedelta) -> int:
    return remove_inventory_files(path, read_file_inventory(path, now() + later), '{"sluice": 1}')


def data_files(path: str) -> set[str]:
    return {str(file.relative_to(path)) for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts}


def as_old(path: str, versions: range, days: int) -> None:
    """Have these commits made so many days earlier."""
    for version in versions:
        file = Path(path) / "_delta_log" / f"{version:020d}.json"
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            said = [("commitInfo", name) for name in ("timestamp", WALKED_AT, REMOVED_UNTIL)]
            for kind, name in (*said, ("remove", "deletionTimestamp")):
                if name in action.get(kind, {}):
                    action[kind][name] -= days * 86_400_000
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_files_may_go_once_they_outlived_the_retention_and_not_before(path: str) -> None:
    assert not decide(path).needed and "2 files" in decide(path).why and "within the retention" in decide(path).why
    decision = decide(path, WEEK + timedelta(minutes=1))
    assert decision.needed and not decision.in_full and decision.why.startswith("2 files"), decision.why
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 2
    assert data_files(path) == set(DeltaTable(path).get_add_actions()["path"].to_pylist())
    assert DeltaTable(path).to_pyarrow_table().num_rows == 200
    assert [one["operation"] for one in DeltaTable(path).history(2)] == ["VACUUM END", "VACUUM START"]


def test_after_it_there_is_nothing_to_do(path: str) -> None:
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 2
    again = read_file_inventory(path, now() + 2 * WEEK)
    assert not again.expired and not again.waiting and not decide(path, 2 * WEEK).needed


def test_a_killed_one_is_done_again_and_what_is_gone_already_is_well(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    later, kills = WEEK + timedelta(minutes=1), iter([False, True])
    unlink = Path.unlink

    def kill(file: Path, missing_ok: bool = False) -> None:
        if file.suffix == ".parquet" and next(kills):
            raise KeyboardInterrupt
        unlink(file, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", kill)
    with pytest.raises(KeyboardInterrupt):
        vacuum(path, later)
    monkeypatch.undo()
    assert len(data_files(path)) == 2 and len(read_file_inventory(path, now() + later).expired) == 2
    assert vacuum(path, later) == 1 and len(data_files(path)) == 1


def test_a_full_one_that_was_killed_before_its_last_commit_counts_for_nothing(path: str) -> None:
    """delta-rs puts what Sluice says of a VACUUM into its first commit, too."""
    later = now() + 2 * WEEK
    said = {name: str(round(later.timestamp() * 1000)) for name in (WALKED_AT, REMOVED_UNTIL)}
    info = {"timestamp": round(later.timestamp() * 1000), "operation": "VACUUM START", "operationParameters": {}, **said}
    commit = Path(path) / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json"
    commit.write_text(json.dumps({"commitInfo": info}) + "\n")
    assert len(read_file_inventory(path, later).expired) == 2


def test_what_came_back_stays(path: str) -> None:
    """A restored version needs its files, though a commit has removed them."""
    DeltaTable(path).restore(1)
    needed = set(DeltaTable(path).get_add_actions()["path"].to_pylist())
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 1
    assert data_files(path) == needed and len(needed) == 2


def test_a_version_that_somebody_else_restores_meanwhile_keeps_its_files(path: str) -> None:
    """Whoever commits without the lease: what was found before their commit is not removed after it."""
    found = read_file_inventory(path, now() + WEEK + timedelta(minutes=1))
    DeltaTable(path).restore(1)
    files, version = data_files(path), DeltaTable(path).version()
    with pytest.raises(SluiceError, match=r"Somebody else wrote to the table .* Nothing was removed"):
        remove_inventory_files(path, found, None)
    assert data_files(path) == files and DeltaTable(path).version() == version
    assert DeltaTable(path).to_pyarrow_table().num_rows == 200


def test_a_commit_whose_answer_a_store_has_lost_is_its_own(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = vacuuming.write_file_durably

    def write_without_answer(*what: Any, **how: Any) -> None:
        write(*what, **how)
        raise FileExistsError

    monkeypatch.setattr(vacuuming, "write_file_durably", write_without_answer)
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 2
    assert [one["operation"] for one in DeltaTable(path).history(3)] == ["VACUUM END", "VACUUM START", "OPTIMIZE"]


def test_the_last_commit_follows_what_somebody_else_commits_while_files_go(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    unlink = Path.unlink

    def unlink_while_somebody_writes(file: Path, missing_ok: bool = False) -> None:
        if file.suffix == ".parquet" and DeltaTable(path).version() == 3:
            write_deltalake(path, rows(200), mode="append")
        unlink(file, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_while_somebody_writes)
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 2
    assert [one["operation"] for one in DeltaTable(path).history(3)] == ["VACUUM END", "WRITE", "VACUUM START"]
    assert DeltaTable(path).to_pyarrow_table().num_rows == 300


def test_files_of_the_change_feed_go_too(path: str) -> None:
    DeltaTable(path).delete("id < 10")
    assert list((Path(path) / "_change_data").glob("*.parquet"))
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 4
    assert not (Path(path) / "_change_data").exists(), "nor does its folder stay"


def test_checksums_of_files_go_with_them(path: str) -> None:
    for file in data_files(path):
        (Path(path) / f".{file}.crc").write_bytes(b"crc")
    vacuum(path, WEEK + timedelta(minutes=1))
    assert len(list(Path(path).glob(".*.crc"))) == 1


def test_a_file_outside_the_table_is_never_touched(path: str, tmp_path: Path) -> None:
    for name in ("../other.parquet", "%2e%2e/other.parquet", f"{tmp_path}/other.parquet"):
        (tmp_path / "other.parquet").write_bytes(b"theirs")
        version = DeltaTable(path).version() + 1
        remove = {"remove": {"path": name, "dataChange": False, "deletionTimestamp": 0, "partitionValues": {}, "size": 6}}
        commit = Path(path) / "_delta_log" / f"{version:020d}.json"
        info = {"commitInfo": {"timestamp": 0, "operation": "DELETE", "operationParameters": {}}}
        commit.write_text(f"{json.dumps(info)}\n{json.dumps(remove)}\n")
        vacuum(path, timedelta())
        assert (tmp_path / "other.parquet").exists(), name


def test_a_store_is_asked_for_ever_more_commits_at_once_and_says_the_same(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2, 60):
        write_deltalake(path, rows(100 * number), mode="append" if number % 3 else "overwrite")
    on_disk = read_file_inventory(path, now())
    monkeypatch.setattr(inventory, "is_on_disk", lambda location: False)
    assert read_file_inventory(path, now()).waiting == on_disk.waiting != []

    as_old(path, range(40), 5)
    as_old(path, range(50), 30)
    vacuum(path, timedelta())
    asked: list[str] = []
    real = inventory._read_commit
    monkeypatch.setattr(inventory, "_read_commit", lambda file: asked.append(file.name) or real(file))
    decide(path)
    assert len(asked) <= 31, "no more of the log than what came since the last VACUUM, and a few beside it"


def test_names_of_partitions_are_found_however_they_are_escaped(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    for number in (0, 1):
        write_deltalake(
            path,
            pa.table({"city": ["c's, a%b"], "id": [number]}),
            mode="append",
            partition_by=["city"],
            configuration=PROPERTIES if not number else None,
        )
    DeltaTable(path).optimize.compact()
    DeltaTable(path).delete("id = 0")
    assert vacuum(path, WEEK + timedelta(minutes=1)) == 4
    assert DeltaTable(path).to_pyarrow_table().num_rows == 1 and len(data_files(path)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_what_goes_is_what_no_version_within_the_retention_needs(tmp_path: Path, seed: int) -> None:
    """Against a listing of every version: histories of appends, rewrites, deletions and restorations, over some weeks."""
    chance, path = random.Random(seed), str(tmp_path / "t")
    write_deltalake(path, rows(0), configuration=PROPERTIES)
    for step in range(1, 14):
        table, what = DeltaTable(path), chance.choice(["append", "append", "compact", "delete", "restore", "vacuum"])
        before = table.version()
        if what == "append":
            write_deltalake(path, rows(step * 100), mode="append")
        elif what == "compact":
            table.optimize.compact()
        elif what == "delete":
            table.delete(f"id % 100 = {step}")
        elif what == "restore":
            with contextlib.suppress(DeltaError):  # to the version that there is, or one whose files are gone
                table.restore(max(0, before - 1))
        else:
            vacuum(path, timedelta())
        as_old(path, range(0, DeltaTable(path).version() + 1), chance.choice([0, 1, 3]))
    # Files that a version within the retention had, which is one that was the latest at some time since.
    since, times = now() - WEEK, {one["version"]: one["timestamp"] / 1000 for one in DeltaTable(path).history()}
    versions = [v for v in sorted(times) if v + 1 not in times or times[v + 1] > since.timestamp()]
    needed = {file for v in versions for file in DeltaTable(path, version=v).get_add_actions()["path"].to_pylist()}
    vacuum(path, timedelta())
    assert needed <= data_files(path)
    commits = [
        file for file in sorted((Path(path) / "_delta_log").glob("*.json")) if times.get(int(file.stem), 9e12) > since.timestamp()
    ]
    recent = {a["cdc"]["path"] for file in commits for a in map(json.loads, file.read_text().splitlines()) if "cdc" in a}
    assert data_files(path) == needed | recent


def test_what_is_not_worth_it_waits_and_says_its_numbers(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    write_deltalake(path, rows(0, 20_000), configuration=PROPERTIES)
    write_deltalake(path, rows(0, 10), mode="append")
    sizes = DeltaTable(path).get_add_actions()["size_bytes"].to_pylist()
    assert min(sizes) < 0.1 * max(sizes), "what the test is about"
    remove_smallest(path)
    early, late = WEEK + timedelta(days=2), 2 * WEEK + timedelta(minutes=1)
    decision = decide(path, early)
    assert not decision.needed and "1 file," in decision.why and "10%" in decision.why and "2 days ago" in decision.why
    assert decision.due is not None and abs(decision.due - now() - 2 * WEEK) < timedelta(minutes=1)
    assert decide(path, early, at_once=True).needed, "people may be in it"
    at_once = decide(path, at_once=True).due
    assert at_once is not None and abs(at_once - now() - WEEK) < timedelta(minutes=1)
    assert decide(path, late).needed, "it waits for a week, and not for ever"


def remove_smallest(path: str) -> None:
    """Take the smallest file out of a table, as a DELETE of all its rows does."""
    actions = DeltaTable(path).get_add_actions()
    size, name = min(zip(actions["size_bytes"].to_pylist(), actions["path"].to_pylist(), strict=True))
    at = round(now().timestamp() * 1000)
    info = {"commitInfo": {"timestamp": at, "operation": "DELETE", "operationParameters": {}}}
    remove = {"remove": {"path": name, "dataChange": True, "deletionTimestamp": at, "partitionValues": {}, "size": size}}
    commit = Path(path) / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json"
    commit.write_text(f"{json.dumps(info)}\n{json.dumps(remove)}\n")


def test_the_folder_is_walked_every_four_weeks_where_anything_was_committed(path: str) -> None:
    assert not decide(path, timedelta(days=27)).in_full
    decision = decide(path, timedelta(days=28, minutes=1))
    assert decision.needed and decision.in_full and "28 days ago" in decision.why
    vacuum(path, 2 * WEEK)  # by inventory: the walk does not move
    assert decide(path, timedelta(days=28, minutes=1)).in_full


def test_a_log_that_does_not_go_back_far_enough_is_made_up_for_by_a_walk(path: str) -> None:
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):
        (Path(path) / "_delta_log" / f"{version:020d}.json").unlink()
    decision = decide(path)
    assert decision.needed and decision.in_full and "go back far enough" in decision.why


def test_what_delta_on_spark_vacuumed_is_known(path: str) -> None:
    at = round((now() + WEEK + timedelta(minutes=1)).timestamp() * 1000)
    for operation, said in (("START", {"defaultRetentionMillis": "604800000"}), ("END", {"status": "COMPLETED"})):
        info = {
            "commitInfo": {
                "timestamp": at,
                "operation": f"VACUUM {operation}",
                "operationParameters": said,
                "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
            }
        }
        commit = Path(path) / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json"
        commit.write_text(json.dumps(info) + "\n")
    found = read_file_inventory(path, now() + 2 * WEEK)
    assert not found.expired and not found.changed_since_walk and found.walked_at is not None
    assert decide(path, 8 * WEEK).due is None and not decide(path, 8 * WEEK).needed


def test_a_folder_that_was_walked_by_a_clock_ahead_of_now_is_walked_again(path: str) -> None:
    write_deltalake(path, rows(200), mode="append")
    as_old(path, range(1), -1500)
    write_deltalake(path, rows(300), mode="append")
    decision = decide(path)
    assert decision.in_full and decision.why == "in full, as the last time was by a clock that was ahead"


def test_a_commit_by_a_clock_that_is_far_behind_hides_no_file(path: str) -> None:
    def remove_next() -> None:
        remove_smallest(path)
        time.sleep(0.01)  # removals have different times

    for number in (200, 300, 400):
        write_deltalake(path, rows(number, 10), mode="append")
    remove_next()
    remove_next()
    as_old(path, range(DeltaTable(path).version() - 1, DeltaTable(path).version()), 1)
    write_deltalake(path, rows(500), mode="append")
    as_old(path, range(DeltaTable(path).version(), DeltaTable(path).version() + 1), 20_000)
    remove_next()
    waiting = {file.path for file in read_file_inventory(path, now()).waiting}
    vacuum(path, WEEK - timedelta(hours=12))
    found = read_file_inventory(path, now() + WEEK - timedelta(hours=12))
    assert found.waiting and not found.expired
    gone = {one for one in waiting if not (Path(path) / one).exists()}
    assert {file.path for file in found.waiting} == waiting - gone, "one behind the commit and one before it"
    assert vacuum(path, 2 * WEEK) == len(waiting - gone)


def test_a_table_whose_commits_hold_times_is_left_to_spark(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not log.has_commit_times(DeltaTable(path))
    actions = {
        "protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp", "changeDataFeed"]},
        "commitInfo": {"timestamp": 0, "operation": "SET TBLPROPERTIES", "inCommitTimestamp": 0},
    }
    text = "".join(json.dumps({kind: action}) + "\n" for kind, action in actions.items())
    (Path(path) / "_delta_log" / f"{DeltaTable(path).version() + 1:020d}.json").write_text(text)
    decision = decide(path, WEEK + timedelta(minutes=1))
    assert decision.needed and decision.in_full and not decision.inventory.expired, "Spark fails on a commit without its time"


def test_a_table_whose_files_have_other_names_is_walked(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "has_plain_reader_protocol", lambda table: False)
    assert not decide(path).needed
    decision = decide(path, WEEK + timedelta(minutes=1))
    assert decision.needed and decision.in_full and not decision.inventory.expired
