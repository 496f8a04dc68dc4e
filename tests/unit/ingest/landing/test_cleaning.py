"""Cleaning a landing folder, without Spark: only what is committed goes, and nothing that is not in the ledger."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sluice.declare import Source
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import discovery
from sluice.ingest.landing import cleaning
from sluice.ingest.landing.cleaning import CleaningResult
from sluice.record_states import CLEANED, DELIVERED, DISCARDED, INGESTED, MISSED, QUARANTINED
from sluice.record_tables import create_record_table


class Landing:
    """A landing folder with its ledger. Every file is of 2020; outcomes are ten days old."""

    def __init__(self, root: Path) -> None:
        self.landing = root / "landing" / "shop"
        self.deliveries, self.outcomes = str(root / "lake" / "deliveries"), str(root / "lake" / "outcomes")
        self.landed = 0

    def land(self, file: str, content: str = "{}\n") -> Path:
        self.landed += 1
        path = self.landing / "a" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        os.utime(path, (1_600_000_000 + self.landed,) * 2)
        return path

    def discover(self, source: Source) -> list[tuple[str, str]]:
        before = {row["delivery"] for row in self.rows()}
        discovery.discover_deliveries([source], self.landing, self.deliveries, "run").raise_first_refusal()
        return [(row["event"], row["file"]) for row in self.rows() if row["delivery"] not in before]

    def rows(self) -> list[dict[str, Any]]:
        return sorted(delivery_tables.read_delivery_ledger_rows(self.deliveries), key=lambda row: int(str(row["delivery"])))

    def judge(self, number: int, state: str = INGESTED, days: float = 10) -> None:
        create_record_table(self.outcomes, delivery_tables.OUTCOMES)
        (row,) = (row for row in self.rows() if row["delivery"] == number)
        kept = {name: row[name] for name in ("delivery", "source", "file")}
        at = datetime.now(UTC) - timedelta(days=days)
        delivery_tables.append_delivery_ledger_rows(
            self.outcomes, [{**kept, "state": state, "recorded_at": at}], delivery_tables.OUTCOMES, "run"
        )

    def ingest(self, source: Source, file: str, content: str = "{}\n", days: float = 10) -> Path:
        """Land a file, discover it, and have it ingested."""
        path = self.land(file, content)
        self.discover(source)
        self.judge(self.rows()[-1]["delivery"], days=days)
        return path

    def clean(self, source: Source) -> CleaningResult:
        return cleaning.clean_landing_folder(source, self.landing, self.deliveries, self.outcomes, "run")

    def archived(self) -> dict[str, str]:
        root = self.landing / "_archive"
        return {path.relative_to(root).as_posix(): path.read_text() for path in root.rglob("*") if path.is_file()}


KEEP = Source(name="a")
DELETE = Source(name="a", clean_source="delete", clean_after_days=7)
ARCHIVE = Source(name="a", clean_source="archive", clean_after_days=7)


@pytest.fixture
def lake(tmp_path: Path) -> Landing:
    return Landing(tmp_path)


def test_keep_keeps_and_reads_nothing(lake: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.ingest(KEEP, "x")
    monkeypatch.setattr(cleaning, "read_known_files", lambda *_: pytest.fail("keep needs no ledger"))
    assert lake.clean(KEEP) == CleaningResult()
    assert path.exists()


def test_delete_removes_what_is_ingested_long_enough_and_says_so_in_the_ledger(lake: Landing) -> None:
    old, young = lake.ingest(DELETE, "old"), lake.ingest(DELETE, "young", days=6)
    assert lake.clean(DELETE).notes(DELETE) == ["1 file deleted"]
    assert (old.exists(), young.exists()) == (False, True)
    assert [(row["event"], row["file"]) for row in lake.rows()] == [(DELIVERED, "old"), (DELIVERED, "young"), (CLEANED, "old")]
    assert lake.discover(DELETE) == [], "it did not vanish"
    assert lake.clean(DELETE) == CleaningResult()


@pytest.mark.parametrize("state", [QUARANTINED, MISSED, DISCARDED])
def test_what_was_not_ingested_stays(lake: Landing, state: str) -> None:
    path = lake.land("x")
    lake.discover(DELETE)
    assert lake.clean(DELETE) == CleaningResult(), "no outcome yet"
    lake.judge(1, state)
    assert lake.clean(DELETE) == CleaningResult()
    assert path.exists()


def test_a_later_outcome_counts(lake: Landing) -> None:
    path = lake.ingest(DELETE, "x")
    lake.judge(1, DISCARDED, days=9)
    lake.clean(DELETE)
    assert path.exists()


def test_a_file_that_changed_since_stays(lake: Landing) -> None:
    lake.ingest(DELETE, "x")
    path = lake.land("x", '{"new": 1}\n')
    assert lake.clean(DELETE) == CleaningResult()
    lake.discover(DELETE)
    assert lake.clean(DELETE) == CleaningResult(), "its newest delivery is not ingested yet"
    assert path.read_text() == '{"new": 1}\n'


def test_a_file_that_changes_at_the_last_moment_stays(lake: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.ingest(DELETE, "x")
    append = delivery_tables.append_numbered_deliveries

    def and_change(*arguments: Any) -> int:
        lake.land("x", '{"new": 1}\n')
        return append(*arguments)

    monkeypatch.setattr(delivery_tables, "append_numbered_deliveries", and_change)
    lake.clean(DELETE)
    assert path.read_text() == '{"new": 1}\n'
    assert lake.discover(DELETE) == [(DELIVERED, "x")]


def test_archive_keeps_the_tree_and_never_overwrites(lake: Landing) -> None:
    lake.ingest(ARCHIVE, "date=2026-11-20/x.json", "1\n")
    assert lake.clean(ARCHIVE).notes(ARCHIVE) == ["1 file archived"]
    assert lake.archived() == {"a/date=2026-11-20/x.json": "1\n"}
    lake.ingest(ARCHIVE, "date=2026-11-20/x.json", "22\n")
    lake.clean(ARCHIVE)
    assert lake.archived() == {"a/date=2026-11-20/x.json": "1\n", "a/date=2026-11-20/3.x.json": "22\n"}
    assert lake.discover(ARCHIVE) == [], "the archive is no landing folder"
    assert lake.discover(Source(name="everything", path=".")) == []


def test_a_number_behind_a_compressed_files_name_is_put_in_front_where_it_is_found(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "a.jsonl.gz.17", "a.jsonl.GZ.17.2", "b.jsonl.17", "log.1", "17.a.jsonl.zst"):
        (tmp_path / name).write_text(name)
    found = {cleaning.restore_archived_suffix(path).name: path.name for path in sorted(tmp_path.iterdir())}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == found
    assert found == {
        "a.jsonl.gz": "a.jsonl.gz",
        "17.a.jsonl.gz": "a.jsonl.gz.17",
        "a.jsonl.GZ": "a.jsonl.GZ.17.2",
        "b.jsonl.17": "b.jsonl.17",
        "log.1": "log.1",
        "17.a.jsonl.zst": "17.a.jsonl.zst",
    }
    for name in ("17.a.jsonl.gz", "17.2.a.jsonl.gz", "a.jsonl.gz.17", "a.jsonl.gz.17.2"):
        assert "a.jsonl.gz" in cleaning.archived_file_names(name)


def test_killed_before_the_file_is_removed_the_next_run_removes_it(lake: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lake.ingest(ARCHIVE, "x")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cleaning, "_require_unchanged_file", killed)
        with pytest.raises(KeyboardInterrupt):
            lake.clean(ARCHIVE)
    assert path.exists()
    assert lake.discover(ARCHIVE) == [], "it is not delivered again"
    assert lake.clean(ARCHIVE).files == 1
    assert lake.archived() == {"a/x": "{}\n"}
    assert [row["event"] for row in lake.rows()] == [DELIVERED, CLEANED], "noted once"


def test_what_cannot_be_removed_is_said_and_does_not_fail_the_run(lake: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.ingest(DELETE, "x")
    with monkeypatch.context() as patch:

        def refused(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        patch.setattr(Path, "unlink", refused)
        assert lake.clean(DELETE).notes(DELETE) == ["1 file could not be deleted: Permission denied"]
    assert lake.clean(DELETE).files == 1


def test_a_link_is_not_removed_for_the_file_that_it_names(lake: Landing, tmp_path: Path) -> None:
    path = lake.ingest(DELETE, "x")
    path.unlink()
    target = tmp_path / "target"
    target.write_text("{}\n")
    os.utime(target, (1_600_000_001, 1_600_000_001))
    path.symlink_to(target)
    lake.clean(DELETE)
    assert target.exists()
    assert path.is_symlink()
