"""Discovery without Spark: what is a delivery, what is not, and in which batches they come."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sluice.declare import Source
from sluice.declare.interval import Interval
from sluice.delta_log import is_delta_table
from sluice.errors import SluiceError, UsageError
from sluice.ingest import delivery_tables
from sluice.ingest.deliveries import absence, arrivals, discovery, known_files, landed_file, listing
from sluice.ingest.deliveries.absence import MAY_BE_EMPTY
from sluice.ingest.deliveries.discovery import DiscoveryOptions
from sluice.locations import locate
from sluice.record_states import CLEANED, DELIVERED, EXISTING, IGNORED, INGESTED, MISSED, RETURNED, UNOPENED, VANISHED
from sluice.record_tables import create_record_table


@dataclass
class Folder:
    """A landing folder and its deliveries table."""

    root: Path
    landed: int = 0

    @property
    def landing(self) -> Path:
        return self.root / "landing" / "shop"

    @property
    def deliveries(self) -> str:
        return str(self.root / "lake" / "deliveries")

    @property
    def outcomes(self) -> str:
        return str(self.root / "lake" / "outcomes")

    def land(self, file: str, content: str = "{}\n", at: float | None = None) -> Path:
        """Write a file; modified in 2020, each later than the one before, unless at says when."""
        self.landed += 1
        path = self.landing / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        when = 1_600_000_000 + self.landed if at is None else at
        os.utime(path, (when, when))
        return path

    def discover(self, *sources: Source, within: Interval | None = None) -> list[tuple[str, str]]:
        """What a discovery records: event and file."""
        before = len(self.rows())
        discovery.discover_deliveries(
            sources, self.landing, self.deliveries, "run", DiscoveryOptions(within)
        ).raise_first_refusal()
        return [(row["event"], row["file"]) for row in self.rows()[before:]]

    def rows(self) -> list[dict[str, Any]]:
        return sorted(delivery_tables.read_delivery_ledger_rows(self.deliveries), key=lambda row: int(str(row["delivery"])))

    def missed(self, source: str = "a") -> list[str]:
        return known_files.read_known_files(self.deliveries, self.outcomes).unread_files(source)

    def commits(self) -> list[list[str]]:
        """The files of each commit, oldest first."""
        from deltalake import DeltaTable

        paths = {row["file"] for row in self.rows()}
        found = []
        for version in range(1, DeltaTable(self.deliveries).version() + 1):
            before = {(r["delivery"]) for r in _at(self.deliveries, version - 1)}
            found.append([row["file"] for row in _at(self.deliveries, version) if row["delivery"] not in before])
        assert paths == {file for files in found for file in files}
        return found

    def judge(self, state: str, *numbers: int) -> None:
        """Write outcomes."""
        from datetime import UTC, datetime

        create_record_table(self.outcomes, delivery_tables.OUTCOMES)
        files = {row["delivery"]: row for row in self.rows()}
        delivery_tables.append_delivery_ledger_rows(
            self.outcomes,
            [
                {
                    "delivery": number,
                    "source": files[number]["source"],
                    "file": files[number]["file"],
                    "modified_at": files[number]["modified_at"],
                    "sha256": files[number]["sha256"],
                    "state": state,
                    "recorded_at": datetime.now(UTC),
                }
                for number in numbers
            ],
            delivery_tables.OUTCOMES,
            "run",
        )


def _at(path: str, version: int) -> list[dict[str, Any]]:
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    table = DeltaTable(path, version=version)
    return pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY delivery")).to_pylist()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    found = Folder(tmp_path)
    (found.landing / "a").mkdir(parents=True)
    return found


A = Source(name="a")


def test_new_and_changed_files_are_deliveries_and_a_second_look_finds_nothing(folder: Folder) -> None:
    folder.land("a/2.json")
    folder.land("a/deep/er/1.json")
    assert folder.discover(A) == [(DELIVERED, "2.json"), (DELIVERED, "deep/er/1.json")]
    assert folder.discover(A) == []
    folder.land("a/2.json", '{"x": 1}\n')
    assert folder.discover(A) == [(DELIVERED, "2.json")]
    (folder.landing / "a/2.json").unlink()
    assert folder.discover(A) == [(VANISHED, "2.json")]
    assert folder.discover(A) == []
    folder.land("a/2.json", '{"x": 2}\n')
    assert folder.discover(A) == [(DELIVERED, "2.json")]
    assert [row["delivery"] for row in folder.rows()] == [1, 2, 3, 4, 5]


def test_only_new_files_are_opened(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        folder.land(f"a/{number}")
    folder.discover(A)
    folder.land("a/new")
    opened: list[str] = []
    real = os.open

    def counting(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counting)
    folder.discover(A)
    assert [Path(path).name for path in opened if "/landing/" in path] == ["new"]


@pytest.mark.parametrize(
    "name",
    [
        *(".hidden", "_SUCCESS", "x.tmp", "x.TMP", "x.json.part", "x.partial", "x.crdownload", "x.filepart", "x.swp", "x~"),
        *("x._COPYING_", "x.inprogress", "_temporary/0/x.json", ".staging/x.json", "_a=1/x.json", "deep/_spark_metadata/0"),
    ],
)
def test_what_is_still_being_written_is_not_looked_at(folder: Folder, name: str) -> None:
    folder.land(f"a/{name}")
    folder.land("a/whole.json")
    assert folder.discover(A) == [(DELIVERED, "whole.json")]


def test_a_temporary_name_in_the_middle_is_a_name(folder: Folder) -> None:
    for name in ("x.tmp.json", "tmp", "x_.json", "part", "a=_1/x.json"):
        folder.land(f"a/{name}")
    assert {file for _, file in folder.discover(A)} == {"x.tmp.json", "tmp", "x_.json", "part", "a=_1/x.json"}


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[float], object]]:
    """What is done instead of a discovery's pause before it looks again. Files are young for an hour, however slow the machine is."""
    done: list[Callable[[float], object]] = []
    here, really = threading.get_ident(), time.sleep

    def sleep(seconds: float) -> None:
        # Other threads of the process, that wait for what earlier tests began, are not looked at.
        if threading.get_ident() != here:
            really(seconds)
            return
        for do in done:
            do(seconds)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(listing, "YOUNG", 3600.0)
    return done


def test_a_file_that_still_grows_is_left_for_the_next_run(folder: Folder, pauses: list[Callable[[float], object]]) -> None:
    folder.land("a/quiet", at=time.time())
    growing = folder.land("a/growing", at=time.time())

    def write(seconds: float) -> None:
        with growing.open("a") as file:
            file.write("{}\n")

    pauses.append(write)
    assert folder.discover(A) == [(DELIVERED, "quiet")]
    os.utime(growing, (1_700_000_000, 1_700_000_000))
    assert folder.discover(A) == [(DELIVERED, "growing")]


def test_young_files_are_waited_for_once_and_old_or_future_ones_not(
    folder: Folder, pauses: list[Callable[[float], object]]
) -> None:
    slept: list[float] = []
    pauses.append(slept.append)
    folder.land("a/old")
    folder.land("a/future", at=time.time() + 86_400)
    assert len(folder.discover(A)) == 2
    assert slept == []
    for number in range(3):
        folder.land(f"a/young{number}", at=time.time())
    assert len(folder.discover(A)) == 3
    assert slept == [listing.LOOK_AGAIN]


def test_a_marker_a_folder_says_that_its_files_are_ready(folder: Folder) -> None:
    source = Source(name="a", ready_marker="_SUCCESS")
    folder.land("a/one/x")
    folder.land("a/two/x")
    assert folder.discover(source) == []
    marker = folder.land("a/one/_SUCCESS")
    assert folder.discover(source) == [(DELIVERED, "one/x")]
    marker.unlink()
    assert folder.discover(source) == [], "a file whose marker goes is there all the same"


def test_a_marker_a_file_says_that_it_is_ready_and_is_never_read(folder: Folder) -> None:
    source = Source(name="a", ready_marker="{name}.done")
    for name in ("x.json", "y.json", "x.json.done", "z.json.done"):
        folder.land(f"a/{name}")
    assert folder.discover(source) == [(DELIVERED, "x.json")]
    folder.land("a/y.json.done")
    assert folder.discover(source) == [(DELIVERED, "y.json")]


def test_the_pattern_is_of_names_and_a_narrower_one_makes_nothing_vanish(folder: Folder) -> None:
    folder.land("a/x.json")
    folder.land("a/deep/y.csv")
    assert folder.discover(A) == [(DELIVERED, "x.json"), (DELIVERED, "deep/y.csv")]
    folder.land("a/z.json")
    assert folder.discover(Source(name="a", pattern="*.csv")) == []


def test_what_was_there_before_stays_unread(folder: Folder) -> None:
    source = Source(name="a", include_existing_files=False)
    folder.land("a/old")
    folder.land("a/older")
    assert folder.discover(source) == [(EXISTING, "old"), (EXISTING, "older")]
    folder.land("a/new")
    assert folder.discover(source) == [(DELIVERED, "new")]
    assert folder.discover(A) == [], "also when the source asks for existing files later"
    folder.land("a/old", '{"x": 1}\n')
    assert folder.discover(source) == [(DELIVERED, "old")], "a change is a delivery"


def test_nothing_was_there_before_and_then_comes_the_first(folder: Folder) -> None:
    source = Source(name="a", include_existing_files=False)
    assert folder.discover(source) == [(EXISTING, "")]
    folder.land("a/first")
    assert folder.discover(source) == [(DELIVERED, "first")]
    assert folder.discover(source) == []


@pytest.mark.parametrize("kind", ["disk", "store"])
def test_files_that_come_with_their_folder_after_the_first_discovery_are_new(
    folder: Folder, kind: str, request: pytest.FixtureRequest
) -> None:
    source = Source(name="late", include_existing_files=False)
    landing: Any = folder.landing
    if kind == "store":
        landing = locate(f"{request.getfixturevalue('bucket_url')}/landed/shop")
        (landing / "other" / "x.json").write_bytes(b"{}")

    def discover(within: Interval | None = None) -> list[tuple[str, str]]:
        before = len(folder.rows()) if is_delta_table(folder.deliveries) else 0
        discovery.discover_deliveries([source], landing, folder.deliveries, "run", DiscoveryOptions(within)).raise_first_refusal()
        return [(row["event"], row["file"]) for row in folder.rows()[before:]]

    assert discover(Interval.of("2020-01-01", "2030-01-01")) == [], "a look within an interval is no first discovery"
    assert discover() == [(EXISTING, "")]
    assert discover() == [], "Sluice still waits for the folder"
    (landing / "late").mkdir()
    (landing / "late" / "first.json").write_bytes(b"{}")
    assert discover() == [(DELIVERED, "first.json")]
    assert discover() == []


def test_a_folder_that_was_there_and_is_missing_is_refused_though_nothing_was_in_it(folder: Folder) -> None:
    source = Source(name="a", include_existing_files=False)
    assert folder.discover(source) == [(EXISTING, "")]
    (folder.landing / "a").rmdir()
    with pytest.raises(UsageError, match="has no landing folder"):
        folder.discover(source)


def test_the_files_of_before_are_noted_in_one_commit(folder: Folder) -> None:
    for number in range(5):
        folder.land(f"a/{number}")
    folder.discover(Source(name="a", include_existing_files=False, max_files_per_trigger=2))
    assert len(folder.commits()) == 1, "killed after the first of several, the next run would take the rest for new"


def test_a_known_file_that_changes_is_ignored_where_overwrites_are_not_allowed(folder: Folder) -> None:
    source = Source(name="a", allow_overwrites=False)
    path = folder.land("a/x")
    folder.discover(source)
    folder.judge(INGESTED, 1)
    folder.land("a/x", '{"x": 1}\n')
    assert folder.discover(source) == [(IGNORED, "x")]
    assert folder.discover(source) == [], "said once"
    path.unlink()
    folder.discover(source)
    folder.land("a/x", '{"x": 2}\n')
    assert folder.discover(source) == [(IGNORED, "x")], "nor is it new when it was away"


def test_a_change_of_what_was_missed_is_a_delivery_all_the_same(folder: Folder) -> None:
    source = Source(name="a", allow_overwrites=False)
    folder.land("a/x")
    folder.discover(source)
    folder.judge(MISSED, 1)
    folder.land("a/x", '{"x": 1}\n')
    assert folder.discover(source) == [(DELIVERED, "x")], "nothing of it was read so far"


def test_odd_names_are_kept_and_one_that_is_not_utf_8_is_found_again(folder: Folder) -> None:
    names = ["a b", "\xe9t\xe9", "[x]*{y}?", "line\nend", "50%25+1", "#1;'\"", "back\\x41slash", "\U0001f600"]
    for name in names:
        folder.land(f"a/{name}")
    raw = os.fsencode(folder.landing / "a") + b"/caf\xe9.json"
    os.close(os.open(raw, os.O_CREAT | os.O_WRONLY))
    os.utime(raw, (1_700_000_000, 1_700_000_000))
    found = folder.discover(A)
    assert [file for _, file in found] == [*names, "caf\\xe9.json"]
    for _, file in found:
        assert landed_file.resolve_landed_path(folder.landing / "a", file).exists()
    assert folder.discover(A) == []
    Path(os.fsdecode(raw)).unlink()
    assert folder.discover(A) == [(VANISHED, "caf\\xe9.json")]


def test_two_files_whose_names_could_be_written_alike_are_two(folder: Folder) -> None:
    folder.land("a/a\\xff", '{"x": 1}\n')
    raw = os.fsdecode(os.fsencode(folder.landing / "a") + b"/a\xff")
    folder.land(raw, '{"x": 22}\n')
    assert sorted(file for _, file in folder.discover(A)) == ["a\\x5cxff", "a\\xff"]
    assert folder.discover(A) == [], "neither is taken for a change of the other"
    Path(raw).unlink()
    assert folder.discover(A) == [(VANISHED, "a\\xff")]


def test_a_file_that_an_older_ledger_names_in_another_way_is_not_delivered_again(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.land("a/other")
    assert folder.discover(A) == [(DELIVERED, "other")]
    path = folder.land("a/a\\xff", '{"x": 1}\n')
    with monkeypatch.context() as older:
        older.setattr(listing, "escape_file_name", str)
        assert folder.discover(A) == [(DELIVERED, "a\\xff")]
    assert folder.discover(A) == []
    folder.land("a/a\\xff", '{"x": 2}\n')
    assert folder.discover(A) == [(DELIVERED, "a\\xff")], "its next version is one of the same file"
    path.unlink()
    assert folder.discover(A) == [(VANISHED, "a\\xff")]


def test_a_link_is_a_delivery_that_is_not_followed(folder: Folder, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (folder.landing / "a" / "file").symlink_to(outside / "secret")
    (folder.landing / "a" / "folder").symlink_to(outside, target_is_directory=True)
    (folder.landing / "a" / "loop").symlink_to(folder.landing / "a", target_is_directory=True)
    (folder.landing / "a" / "broken").symlink_to(tmp_path / "nowhere")
    assert sorted(file for _, file in folder.discover(A)) == ["broken", "file", "folder", "loop"]
    assert {row["sha256"] for row in folder.rows()} == {None}, "nor is it opened"
    assert folder.discover(A) == []


def test_a_source_whose_folder_leaves_the_landing_folder_is_refused(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (folder.landing / "b").symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError, match="leaves the landing folder"):
        folder.discover(Source(name="b"))
    assert not Path(folder.deliveries).exists() or folder.rows() == []


def test_pipes_and_sockets_are_not_opened(folder: Folder) -> None:
    os.mkfifo(folder.landing / "a" / "pipe")
    assert folder.discover(A) == []


def test_a_folder_that_cannot_be_listed_is_told_and_its_files_are_not_gone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.land("a/shut/x")
    folder.discover(A)

    def refusing(real: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def look(path: Any) -> Any:
            if "shut/" in str(path):
                raise PermissionError(13, "Permission denied", str(path))
            return real(path)

        return look

    with monkeypatch.context() as shut:
        shut.setattr(os, "scandir", refusing(os.scandir))
        shut.setattr(Path, "lstat", refusing(Path.lstat))
        assert folder.discover(A) == [(UNOPENED, "shut")]
        assert folder.discover(A) == []
        assert folder.missed() == ["shut"]
    folder.land("a/shut/y")
    assert folder.discover(A) == [(DELIVERED, "shut/y"), (VANISHED, "shut")]
    assert folder.missed() == [], "it can be listed again"


def test_batches_keep_the_limits_of_each_source(folder: Folder) -> None:
    for number in range(5):
        folder.land(f"a/{number}", "x" * 10)
        folder.land(f"b/b{number}", "x" * 10)
    folder.discover(Source(name="a", max_files_per_trigger=2), Source(name="b", max_files_per_trigger=4))
    assert folder.commits() == [["0", "1", "b0", "b1", "b2", "b3"], ["2", "3", "b4"], ["4"]]
    assert [row["delivery"] for row in folder.rows()] == list(range(1, 11))


def test_batches_keep_the_limit_on_bytes_with_at_least_one_file(folder: Folder) -> None:
    for name, size in (("a", 60), ("b", 40), ("c", 1), ("d", 500), ("e", 99)):
        folder.land(f"a/{name}", "x" * size)
    folder.discover(Source(name="a", max_bytes_per_trigger=100))
    assert folder.commits() == [["a", "b"], ["c"], ["d"], ["e"]]


def test_a_replay_finds_only_what_is_of_its_interval(folder: Folder) -> None:
    source = Source(name="a", date_in_path="%Y%m%d")
    folder.land("a/20260101")
    folder.land("a/20260102")
    assert folder.discover(source, within=Interval.of("2026-01-02", "2026-01-02")) == [(DELIVERED, "20260102")]
    assert folder.discover(source) == [(DELIVERED, "20260101")]


def test_an_older_ledger_gets_the_columns_that_it_lacks(folder: Folder) -> None:
    import pyarrow as pa

    older = pa.schema([field for field in delivery_tables.OUTCOMES if field.name not in ("read", "discarded")])
    create_record_table(folder.outcomes, older)
    assert delivery_tables.read_delivery_ledger_columns(folder.outcomes, ["delivery", "read"]).num_rows == 0
    delivery_tables.append_delivery_ledger_rows(
        folder.outcomes, [{"delivery": 1, "source": "a", "file": "x", "state": "ingested"}], older, "run"
    )
    assert delivery_tables.read_delivery_ledger_columns(folder.outcomes, ["delivery", "read"]).to_pylist() == [
        {"delivery": 1, "read": None}
    ]
    create_record_table(folder.outcomes, delivery_tables.OUTCOMES)
    assert "read" in delivery_tables.read_delivery_ledger_rows(folder.outcomes)[0]
    row = {"delivery": 2, "source": "a", "file": "y", "state": "ingested", "read": 7}
    delivery_tables.append_delivery_ledger_rows(folder.outcomes, [row], delivery_tables.OUTCOMES, "run")
    found = {
        row["delivery"]: row["read"] for row in delivery_tables.read_delivery_ledger_rows(folder.outcomes, ["delivery", "read"])
    }
    assert found == {1: None, 2: 7}


def test_a_cleaned_file_that_comes_back_as_it_was_is_not_new(folder: Folder) -> None:
    path = folder.land("a/x")
    folder.discover(A)
    row = {**folder.rows()[0], "event": CLEANED}
    delivery_tables.append_numbered_deliveries(folder.deliveries, [[row]], 1, "run")
    assert folder.discover(A) == []
    path.unlink()
    assert folder.discover(A) == []
    folder.land("a/x")
    assert folder.discover(A) == [(RETURNED, "x")] and folder.discover(A) == [], "at another time"
    assert known_files.read_known_files(folder.deliveries).files_of_source("a")["x"].event == CLEANED, "and is cleaned again"
    folder.land("a/x", '{"x": 1}\n')
    assert folder.discover(A) == [(DELIVERED, "x")]


def test_a_folder_that_never_was_is_waited_for_and_one_that_went_is_an_error(folder: Folder) -> None:
    assert folder.discover(Source(name="later"), A) == []
    folder.land("later/x")
    assert folder.discover(Source(name="later"), A) == [(DELIVERED, "x")]
    shutil.rmtree(folder.landing / "later")
    with pytest.raises(UsageError, match="no landing folder"):
        folder.discover(Source(name="later"), A)


def test_a_source_that_cannot_be_looked_at_holds_no_other_up(folder: Folder) -> None:
    folder.land("later/x")
    folder.discover(Source(name="later"))
    shutil.rmtree(folder.landing / "later")
    folder.land("a/y")
    refused = discovery.discover_deliveries([Source(name="later"), A], folder.landing, folder.deliveries, "run").refused
    assert list(refused) == ["later"]
    assert [(row["event"], row["file"]) for row in folder.rows()] == [(DELIVERED, "x"), (DELIVERED, "y")]


@pytest.fixture
def shutting(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, int], None]:
    """Makes every open of a file fail with this error; 0 ends that. File modes would not do: tests also run as root."""
    shut: dict[str, int] = {}
    real = os.open

    def refusing(path: Any, *arguments: Any, **options: Any) -> int:
        if shut.get(os.fspath(path)):
            raise OSError(shut[os.fspath(path)], os.strerror(shut[os.fspath(path)]), path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refusing)
    return lambda path, error: shut.update({os.fspath(path): error})


@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO, errno.ESTALE, errno.EMFILE])
def test_a_file_that_cannot_be_opened_is_noted_once_and_a_delivery_as_soon_as_it_can(
    folder: Folder, shutting: Callable[[Path, int], None], error: int
) -> None:
    path = folder.land("a/x")
    folder.land("a/y")
    shutting(path, error)
    assert folder.discover(A) == [(UNOPENED, "x"), (DELIVERED, "y")]
    version = _version(folder)
    assert folder.discover(A) == [] and folder.discover(A) == []
    assert _version(folder) == version, "it is tried without a commit"
    assert folder.missed() == ["x"]
    (note,) = (row for row in folder.rows() if row["event"] == UNOPENED)
    assert note["reason"] == f"the file cannot be opened: {os.strerror(error)}"
    shutting(path, 0)
    assert folder.discover(A) == [(DELIVERED, "x")]
    assert folder.missed() == [] and folder.discover(A) == []


def test_an_error_after_discovery_gives_a_new_number_only_when_a_read_succeeds(
    folder: Folder, shutting: Callable[[Path, int], None]
) -> None:
    path = folder.land("a/x")
    folder.land("a/y")
    folder.discover(A)
    folder.judge(MISSED, 1)
    folder.judge(INGESTED, 2)
    shutting(path, errno.EIO)
    assert folder.discover(A) == [] and folder.missed() == ["x"]
    shutting(path, 0)
    assert folder.discover(A) == [(DELIVERED, "x")], "also where size and time are as before: its content may be another"
    assert folder.discover(A) == [], "a number is given once"
    folder.judge(MISSED, 3)
    path.unlink()
    assert folder.discover(A) == [(VANISHED, "x")] and folder.missed() == [], "what is there no more is missed no longer"


def test_an_unopened_file_that_goes_has_vanished_and_one_that_is_back_unchanged_is_not_new(
    folder: Folder, shutting: Callable[[Path, int], None]
) -> None:
    path, other = folder.land("a/x"), folder.land("a/y")
    folder.discover(A)
    folder.judge(INGESTED, 1, 2)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    shutting(path, errno.EACCES)
    folder.land("a/z")
    shutting(folder.landing / "a/z", errno.EACCES)
    assert folder.discover(A) == [(UNOPENED, "z"), (UNOPENED, "x")]
    shutting(path, 0)
    (folder.landing / "a/z").unlink()
    assert folder.discover(A) == [(RETURNED, "x"), (VANISHED, "z")]
    assert folder.missed() == [] and folder.discover(A) == [] and other.exists()


def test_a_file_that_returns_as_it_was_is_not_new(folder: Folder) -> None:
    a, b = '{"x": 1}\n', '{"x": 2}\n'
    stays = folder.land("a/stays")
    for content, event in ((a, DELIVERED), (a, RETURNED), (b, DELIVERED), (a, DELIVERED), (a, RETURNED)):
        path = folder.land("a/x", content, at=1_650_000_000)
        assert (event, "x") in folder.discover(A), content
        assert folder.discover(A) == []
        path.unlink()
        assert folder.discover(A) == [(VANISHED, "x")]
    assert stays.exists()
    # Another time is no other content.
    folder.land("a/x", a)
    assert folder.discover(A) == [(RETURNED, "x")] and folder.discover(A) == []
    rows = {row["delivery"]: row for row in known_files.read_current_deliveries(folder.deliveries) if row["event"] == DELIVERED}
    last = max(number for number, row in rows.items() if row["file"] == "x")
    state = landed_file.read_file_state(path)
    assert (state.size, state.modified_at) == (rows[last]["size"], rows[last]["modified_at"]), (
        "it can be read again under its number"
    )


def test_what_was_missed_is_new_when_it_returns(folder: Folder) -> None:
    path = folder.land("a/x")
    folder.land("a/y")
    folder.discover(A)
    folder.judge(MISSED, 1)
    path.unlink()
    folder.discover(A)
    folder.land("a/x")
    assert folder.discover(A) == [(DELIVERED, "x")]


def test_files_of_before_and_links_that_return_are_not_new_either(folder: Folder) -> None:
    source = Source(name="a", include_existing_files=False)
    path = folder.land("a/old")
    folder.land("a/older")
    link = folder.landing / "a" / "link"
    folder.discover(source)
    link.symlink_to("old")
    assert folder.discover(source) == [(DELIVERED, "link")]
    away = folder.root / "away"
    for one in (path, link):
        one.rename(away)
        assert folder.discover(source) == [(VANISHED, one.name)]
        away.rename(one)
        assert folder.discover(source) == [(RETURNED, one.name)] and folder.discover(source) == []
    path.unlink()
    folder.discover(source)
    folder.land("a/old", '{"x": 1}\n')
    assert folder.discover(source) == [(DELIVERED, "old")], "a change is a delivery"


@pytest.mark.parametrize("state", ["empty", "not there"])
def test_a_folder_without_any_of_its_files_is_refused_and_its_files_are_not_new_when_they_are_back(
    folder: Folder, state: str
) -> None:
    for number in range(3):
        folder.land(f"a/{number}")
    folder.discover(A)
    version, root = _version(folder), folder.landing / "a"
    root.rename(folder.root / "mounted")
    if state == "empty":
        root.mkdir()
        (root / "lost+found").mkdir()
    with pytest.raises(UsageError, match=f"{root} is {state}.* 3 files .*mkdir -p .* touch '{root}/{MAY_BE_EMPTY}'"):
        folder.discover(A)
    assert _version(folder) == version
    shutil.rmtree(root, ignore_errors=True)
    (folder.root / "mounted").rename(root)
    assert folder.discover(A) == []
    # And whoever did empty it can say so.
    shutil.rmtree(root)
    root.mkdir()
    (root / MAY_BE_EMPTY).touch()
    assert folder.discover(A) == [(VANISHED, "0"), (VANISHED, "1"), (VANISHED, "2")]
    (root / MAY_BE_EMPTY).unlink()
    assert folder.discover(A) == [], "nothing is expected any more"


def test_a_folder_on_another_device_is_refused_unless_it_has_the_files(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        folder.land(f"a/{number}")
    folder.discover(A)
    root = folder.landing / "a"
    monkeypatch.setattr(arrivals, "find_folder_device", lambda path: 4711)
    assert folder.discover(A) == [], "the same files on a copy of the disk, or a disk that has got another number"
    for number in range(3):
        path = root / f"{number}"
        os.utime(path, (1_700_000_000 + number, 1_700_000_000))
    assert {event for event, _ in folder.discover(A)} == {RETURNED}, "a copy that did not keep the times"
    monkeypatch.setattr(arrivals, "find_folder_device", lambda path: 4712)
    shutil.rmtree(root)
    folder.land("a/other")
    with pytest.raises(UsageError, match="is on another device than before"):
        folder.discover(A)
    (root / MAY_BE_EMPTY).touch()
    assert sorted(folder.discover(A)) == [(DELIVERED, "other"), *((VANISHED, str(number)) for number in range(3))]
    (root / MAY_BE_EMPTY).unlink()
    shutil.rmtree(root)
    folder.land("a/another")
    assert sorted(folder.discover(A)) == [(DELIVERED, "another"), (VANISHED, "other")], "the same device: a folder that lives"


def test_a_folder_that_was_emptied_by_clean_source_is_not_refused(folder: Folder) -> None:
    path = folder.land("a/x")
    folder.discover(A)
    delivery_tables.append_numbered_deliveries(folder.deliveries, [[{**folder.rows()[0], "event": CLEANED}]], 1, "run")
    path.unlink()
    assert folder.discover(A) == []


def test_many_files_that_vanish_from_a_folder_that_lives_are_a_warning(folder: Folder) -> None:
    paths = [folder.land(f"a/{number:02}") for number in range(absence.MANY + 2)]
    folder.discover(A)
    for few in (paths[:2], paths[2:]):
        for path in few:
            path.unlink()
        folder.land(f"a/new{len(few)}")
        warnings = discovery.discover_deliveries([A], folder.landing, folder.deliveries, "run").warnings
        assert bool(warnings) == (few != paths[:2])
    ((told,),) = warnings.values()
    assert told.startswith(f"10 of 11 files are gone from {folder.landing / 'a'}: their rows stay.")


def test_a_link_to_itself_and_what_cannot_be_looked_at_are_refused_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.landing / "a" / "me").symlink_to("me")
    (folder.landing / "a" / "deep").mkdir()
    (folder.landing / "a" / "deep" / "us").symlink_to("us/further")
    folder.land("a/x")
    folder.land("b/y")
    here = os.scandir(folder.landing / "b")
    (odd,) = here
    here.close()

    class Stale:
        """An entry of a share that has gone: nothing can be asked of it."""

        name, path = "stale", str(folder.landing / "b" / "stale")

        def __getattr__(self, name: str) -> Any:
            def failing(**_: Any) -> Any:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

            return failing

    real = listing._scan_folder
    stale: Any = Stale()
    monkeypatch.setattr(listing, "_scan_folder", lambda root, below: [stale, odd] if root.endswith("/b") else real(root, below))
    found = folder.discover(A, Source(name="b"))
    assert sorted(found) == [(DELIVERED, "deep/us"), (DELIVERED, "me"), (DELIVERED, "x"), (DELIVERED, "y"), (UNOPENED, "stale")]
    assert folder.discover(A, Source(name="b")) == [] and folder.missed("b") == ["stale"]


def test_a_folder_that_may_not_be_looked_into_holds_no_other_source_up(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.land("a/x")
    real = Path.stat

    def refusing(path: Path, **options: Any) -> os.stat_result:
        if path.name == "shut":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", refusing)
    refused = discovery.discover_deliveries([Source(name="shut"), A], folder.landing, folder.deliveries, "run").refused
    assert list(refused) == ["shut"] and "cannot be looked at: Permission denied" in str(refused["shut"])
    assert [row["file"] for row in folder.rows()] == ["x"]
    with pytest.raises(UsageError, match="cannot be looked at"):
        discovery.preview_discovery(Source(name="shut"), folder.landing, known_files.read_known_files(folder.deliveries))


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.ESTALE, errno.EIO, errno.ENOTCONN, errno.EACCES, errno.ENODEV])
@pytest.mark.parametrize("when", ["looked at", "listed"])
def test_a_share_that_does_not_answer_now_is_no_wrong_use(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, number: int, when: str
) -> None:
    """Airflow tries a run again whose error is none of use."""
    folder.land("a/x")

    def fail(*_: object) -> Any:
        raise OSError(number, os.strerror(number))

    if when == "listed":
        monkeypatch.setattr(listing, "_scan_folder", fail)
    else:
        monkeypatch.setattr(arrivals, "find_folder_device", fail)
    with pytest.raises(SluiceError, match=f"cannot be {when}: {os.strerror(number)}") as failure:
        discovery.preview_discovery(A, folder.landing, known_files.read_known_files(folder.deliveries))
    assert isinstance(failure.value, UsageError) == (number in (errno.EACCES, errno.ENODEV))


def _version(folder: Folder) -> int:
    from deltalake import DeltaTable

    return int(DeltaTable(folder.deliveries).version())
