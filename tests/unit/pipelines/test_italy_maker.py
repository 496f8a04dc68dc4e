"""`sluice land italy`: past deliveries from an archive, a folder and a git repository."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipelines.italy.maker import land
from sluice.declare import Landed, UsageError

SHARED = Path(os.environ.get("SLUICE_SHARED", Path(__file__).parents[3].parent / "shared"))
ARCHIVE = SHARED / "data" / "italy_regions" / "deliveries.tar.xz"
CUTS = ("2020-03-07T152204Z", "2020-04-20T213017Z", "2020-05-11T160642Z", "2020-07-12T150416Z", "2020-08-31")
ONE, TWO = "dpc-covid19-ita-regioni-20200301.csv", "dpc-covid19-ita-regioni-20200302.csv"

# The history of every made-up source below: day 1 comes, day 2 comes and day 1 again, then day 2 is deleted.
FIRST, SECOND, THIRD = "2020-03-01T170000Z", "2020-03-02T170000Z", "2020-03-02T235959Z"
HISTORY: list[tuple[str, str, bytes | None]] = [
    (FIRST, ONE, b"data\n1\n"),
    (SECOND, ONE, b"data\n1 again\n"),
    (SECOND, TWO, b"data\n2\n"),
    (THIRD, TWO, None),
]


@pytest.fixture
def archive() -> Path:
    if not ARCHIVE.is_file():
        missing = f"the Italian reports are not at {ARCHIVE}"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    return ARCHIVE


def folder_of(path: Path) -> Path:
    rows = ["delivered_at,file,event,sha256,bytes"]
    for at, file, content in HISTORY:
        if content is None:
            rows.append(f"{at},{file},deleted,,0")
            continue
        (path / at).mkdir(parents=True, exist_ok=True)
        (path / at / file).write_bytes(content)
        rows.append(f"{at},{file},delivered,{hashlib.sha256(content).hexdigest()},{len(content)}")
    (path / "manifest.csv").write_text("\n".join(rows) + "\n")
    return path


def archive_of(path: Path) -> Path:
    folder = folder_of(path / "unpacked")
    with tarfile.open(path / "made-up.tar.xz", "w:xz") as archive:
        archive.add(folder, ".")
    return path / "made-up.tar.xz"


def git(repository: Path, *arguments: str, at: str | None = None) -> None:
    people = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "c", "GIT_COMMITTER_EMAIL": "c@d"}
    plain = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_AUTHOR_DATE": "2001-01-01T00:00:00Z"}
    when = {"GIT_COMMITTER_DATE": datetime.strptime(at, "%Y-%m-%dT%H%M%SZ").strftime("%Y-%m-%dT%H:%M:%S+00:00")} if at else {}
    subprocess.run(
        ["git", "-C", str(repository), *arguments], check=True, capture_output=True, env=os.environ | people | plain | when
    )


def commit(repository: Path, at: str) -> None:
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", at, at=at)


def repository_of(path: Path) -> Path:
    regions = path / "dati-regioni"
    regions.mkdir(parents=True)
    git(path, "init", "--quiet")
    for at in (FIRST, SECOND, THIRD):
        for _, file, content in (event for event in HISTORY if event[0] == at):
            if content is None:
                (regions / file).unlink()
            else:
                (regions / file).write_bytes(content)
        # What else is in the public repository is no delivery.
        (regions / "dpc-covid19-ita-regioni-latest.csv").write_text(at)
        (regions / "dpc-covid19-ita-regioni.csv").write_text(at)
        (path / "README.md").write_text(at)
        (path / ONE).write_text(at)
        commit(path, at)
    return path


def bare_repository_of(path: Path) -> Path:
    repository_of(path / "clone")
    git(path, "clone", "--quiet", "--bare", "clone", "bare.git")
    return path / "bare.git"


SOURCES = (folder_of, archive_of, repository_of, bare_repository_of)


def landed(tmp_path: Path) -> dict[str, tuple[bytes, str]]:
    """What lies in the landing folder: content and modification time."""
    return {
        path.name: (path.read_bytes(), datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime("%Y-%m-%dT%H%M%SZ"))
        for path in sorted((tmp_path / "landing" / "regional_reports").iterdir())
    }


def land_here(tmp_path: Path, source: Path | None, until: str | None = None) -> Landed:
    return land(tmp_path / "landing", tmp_path / "truth", from_path=source, until=until)


@pytest.mark.parametrize("make", SOURCES)
def test_landing_in_steps_goes_on_where_it_was(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    source = make(tmp_path / "source")
    assert land_here(tmp_path, source, "2020-03-01") == Landed(files=1, deleted=0, until=FIRST)
    assert landed(tmp_path) == {ONE: (b"data\n1\n", FIRST)}
    assert land_here(tmp_path, source, SECOND) == Landed(files=2, deleted=0, until=SECOND)
    assert landed(tmp_path) == {ONE: (b"data\n1 again\n", SECOND), TWO: (b"data\n2\n", SECOND)}
    assert land_here(tmp_path, source, "2020-03-02") == Landed(files=0, deleted=1, until=THIRD)
    assert landed(tmp_path) == {ONE: (b"data\n1 again\n", SECOND)}
    assert land_here(tmp_path, source) == Landed(files=0, deleted=0, until=THIRD)


@pytest.mark.parametrize("make", SOURCES)
def test_landing_at_once_leaves_the_last_content_of_each_file(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    assert land_here(tmp_path, make(tmp_path / "source")) == Landed(files=3, deleted=1, until=THIRD)
    assert landed(tmp_path) == {ONE: (b"data\n1 again\n", SECOND)}


def test_an_earlier_until_lands_nothing_and_takes_nothing_back(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "source")
    land_here(tmp_path, source, SECOND)
    before = landed(tmp_path)
    assert land_here(tmp_path, source, FIRST) == Landed(files=0, deleted=0, until=SECOND)
    assert landed(tmp_path) == before


def test_a_removed_landing_folder_is_landed_again_from_the_beginning(tmp_path: Path) -> None:
    source = folder_of(tmp_path / "source")
    land_here(tmp_path, source)
    shutil.rmtree(tmp_path / "landing")
    assert land_here(tmp_path, source, FIRST) == Landed(files=1, deleted=0, until=FIRST)
    assert landed(tmp_path) == {ONE: (b"data\n1\n", FIRST)}


def test_a_committer_whose_clock_went_back_does_not_make_a_later_version_older(tmp_path: Path) -> None:
    source = repository_of(tmp_path / "source")
    (source / "dati-regioni" / ONE).write_bytes(b"data\nlate\n")
    commit(source, FIRST)
    land_here(tmp_path, source, THIRD)
    assert landed(tmp_path) == {ONE: (b"data\nlate\n", THIRD)}


def without_manifest(source: Path) -> None:
    (source / "manifest.csv").unlink()


def with_a_changed_file(source: Path) -> None:
    (source / SECOND / TWO).write_bytes(b"data\nx\n")


def without_a_file(source: Path) -> None:
    (source / SECOND / TWO).unlink()


def with_a_broken_manifest(source: Path) -> None:
    (source / "manifest.csv").write_text("when,what\n1,2\n")


def with_a_path_out_of_the_folder(source: Path) -> None:
    manifest = source / "manifest.csv"
    manifest.write_text(manifest.read_text().replace(ONE, "../../evil.csv"))


def with_a_manifest_out_of_order(source: Path) -> None:
    lines = (source / "manifest.csv").read_text().splitlines()
    (source / "manifest.csv").write_text("\n".join([lines[0], *reversed(lines[1:])]))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without_manifest, "has no manifest.csv and is not a git repository"),
        (with_a_changed_file, f"{SECOND}/{TWO} was changed"),
        (without_a_file, f"lists {SECOND}/{TWO}, which is not there"),
        (with_a_broken_manifest, "is damaged. Expected the columns delivered_at, file"),
        (with_a_path_out_of_the_folder, "is damaged"),
        (with_a_manifest_out_of_order, "is not in the order of its instants"),
    ],
)
def test_a_damaged_source_lands_nothing(tmp_path: Path, spoil: Callable[[Path], None], message: str) -> None:
    source = folder_of(tmp_path / "source")
    spoil(source)
    with pytest.raises(UsageError, match=message) as caught:
        land_here(tmp_path, source)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "landing").exists()
    assert not (tmp_path / "truth").exists()


@pytest.mark.parametrize("until", ["2020-13-01", "yesterday", "2020-03-01T25", "9999-99-99", "20200301T"])
def test_a_wrong_date_lands_nothing(tmp_path: Path, until: str) -> None:
    source = folder_of(tmp_path / "source")
    with pytest.raises(UsageError, match=f"'{until}' is not a date. Expected a day such as 2020-05-11"):
        land_here(tmp_path, source, until)
    assert not (tmp_path / "landing").exists()


def test_an_until_before_everything_names_the_first_delivery(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"Nothing was delivered until 2020-02-01.*{FIRST}"):
        land_here(tmp_path, folder_of(tmp_path / "source"), "2020-02-01")


def test_no_source_no_file_and_no_archive_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "text.tar.xz").write_text("no archive")
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init", "--quiet")
    for source, message in (
        (None, "--from is missing"),
        (tmp_path / "nowhere", "There is no"),
        (tmp_path / "text.tar.xz", "cannot be read as a tar archive"),
        (tmp_path / "empty", "git cannot read"),
    ):
        with pytest.raises(UsageError, match=message):
            land_here(tmp_path, source)


def test_a_truncated_archive_lands_nothing(tmp_path: Path) -> None:
    whole = archive_of(tmp_path / "source")
    half = tmp_path / "half.tar.xz"
    half.write_bytes(whole.read_bytes()[:-200])
    with pytest.raises(UsageError, match="cannot be read as a tar archive"):
        land_here(tmp_path, half)
    assert not (tmp_path / "landing").exists()


def test_a_shallow_clone_is_refused(tmp_path: Path) -> None:
    repository_of(tmp_path / "full")
    git(tmp_path, "clone", "--quiet", "--depth", "1", (tmp_path / "full").as_uri(), "shallow")
    with pytest.raises(UsageError, match="is a shallow clone"):
        land_here(tmp_path, tmp_path / "shallow")


def test_the_real_deliveries_in_five_landings(tmp_path: Path, archive: Path) -> None:
    """The latest acceptable delivery of each file that was seen stands, whole: worked out here in plain Python."""
    stands: dict[str, list[dict[str, str]]] = {}
    refused: list[str] = []
    seen: dict[str, tuple[bytes, str]] = {}
    counted = [land_here(tmp_path, archive, cut) for cut in CUTS]
    assert [(one.files, one.deleted, one.until) for one in counted][-1] == (59, 1, "2020-08-31T162755Z")
    assert (sum(one.files for one in counted), sum(one.deleted for one in counted)) == (623, 1)
    shutil.rmtree(tmp_path / "landing")
    for cut in CUTS:
        land_here(tmp_path, archive, cut)
        for file, (content, at) in landed(tmp_path).items():
            if seen.get(file) == (content, at):
                continue
            seen[file] = content, at
            header, *rows = csv.reader(io.StringIO(content.decode()))
            if header[0] != "data":
                refused.append(f"{at}/{file}")
                continue
            refused += [f"{at}/{file} {row[3]}" for row in rows if len(row) != len(header)]
            stands[file] = [dict(zip(header, row, strict=True)) for row in rows if len(row) == len(header)]
    standing = [row for of_file in stands.values() for row in of_file]
    assert len(standing) == 4011
    assert len({row["data"][:10] for row in standing}) == 191
    assert sum(int(row["nuovi_positivi"]) < 0 for row in standing) == 13
    assert refused == [
        "2020-04-20T213017Z/dpc-covid19-ita-regioni-20200311.csv Abruzzo",
        "2020-04-20T213017Z/dpc-covid19-ita-regioni-20200410.csv Molise",
        "2020-05-11T160642Z/dpc-covid19-ita-regioni-20200511.csv",
    ]
    assert len(landed(tmp_path)) == 190
