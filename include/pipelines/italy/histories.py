"""Where past deliveries come from: an archive or folder with a manifest, or a clone of the repository."""

from __future__ import annotations

import csv
import hashlib
import io
import lzma
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from sluice.declare import UsageError

INSTANT = "%Y-%m-%dT%H%M%SZ"
FILE = re.compile(r"dpc-covid19-ita-regioni-\d{8}\.csv")
REPOSITORY_FOLDER = "dati-regioni"
MANIFEST = "manifest.csv"
ARCHIVE = "deliveries.tar.xz"
LOG = "log --reverse --first-parent -m --raw --no-abbrev --no-renames --no-show-signature --format=@%ct HEAD --"


@dataclass(frozen=True, kw_only=True)
class Event:
    """A file came, or was deleted. checksum: the content's SHA-256 or git object name; none if deleted."""

    at: datetime
    file: str
    checksum: str

    @property
    def instant(self) -> str:
        """The instant in UTC, as the manifest writes it."""
        return self.at.strftime(INSTANT)

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted."""
        return not self.checksum


class History(Protocol):
    """Events in order, and what was delivered."""

    @property
    def events(self) -> list[Event]:
        """All events, oldest first."""

    def contents(self, events: Iterable[Event]) -> Iterator[bytes]:
        """The content of each of these deliveries. Raises UsageError where one is missing or was altered."""


def open_history(path: Path) -> History:
    """The history behind a path. Raises UsageError where there is none."""
    if path.is_dir():
        if (path / MANIFEST).is_file():
            return Manifest(path / MANIFEST, lambda name: (path / name).read_bytes())
        if (path / ".git").exists():
            return Repository(path / ".git")
        if (path / "HEAD").is_file() and (path / "objects").is_dir():
            return Repository(path)
        if (path / ARCHIVE).is_file():
            return _open_archive(path / ARCHIVE)
        raise UsageError(f"{path} has no {MANIFEST} and is not a git repository; one of these must say what was delivered when.")
    if path.is_file():
        return _open_archive(path)
    raise UsageError(f"There is no {path}. --from takes {ARCHIVE}, its unpacked folder, or a clone of pcm-dpc/COVID-19.")


def _open_archive(path: Path) -> Manifest:
    try:
        with tarfile.open(path) as archive:
            members = {m.name.removeprefix("./"): archive.extractfile(m) for m in archive if m.isfile()}
            files = {name: stream.read() for name, stream in members.items() if stream}
    except (tarfile.TarError, lzma.LZMAError, EOFError, OSError) as error:
        raise UsageError(f"{path} cannot be read as a tar archive ({type(error).__name__}). Is it complete?") from None
    return Manifest(path / MANIFEST, lambda name: files[name])


class Manifest:
    """Deliveries listed in a manifest, each in a folder named after its instant."""

    def __init__(self, manifest: Path, read: Callable[[str], bytes]) -> None:
        self._manifest, self._read = manifest, read
        try:
            rows = list(csv.DictReader(io.StringIO(read(MANIFEST).decode("utf-8"))))
            self.events = [self._event(row) for row in rows]
        except (KeyError, OSError):
            raise UsageError(f"{manifest.parent} has no readable {MANIFEST}, which says what was delivered when.") from None
        except (ValueError, csv.Error):
            raise UsageError(f"{manifest} is damaged. Expected the columns delivered_at, file, event, sha256, bytes.") from None
        if not self.events:
            raise UsageError(f"{manifest} lists no deliveries.")
        if any(later.at < earlier.at for earlier, later in zip(self.events, self.events[1:], strict=False)):
            raise UsageError(f"{manifest} is not in the order of its instants.")

    @staticmethod
    def _event(row: dict[str, str]) -> Event:
        deleted = row.get("event") == "deleted"
        checksum = "" if deleted else (row.get("sha256") or "")
        if FILE.fullmatch(row.get("file") or "") is None or not (deleted or checksum):
            raise ValueError(row)
        at = datetime.strptime(row.get("delivered_at") or "", INSTANT).replace(tzinfo=UTC)
        return Event(at=at, file=row["file"], checksum=checksum)

    def contents(self, events: Iterable[Event]) -> Iterator[bytes]:
        """See History."""
        for event in events:
            name = f"{event.instant}/{event.file}"
            try:
                content = self._read(name)
            except (KeyError, OSError):
                raise UsageError(f"{self._manifest} lists {name}, which is not there.") from None
            if hashlib.sha256(content).hexdigest() != event.checksum:
                raise UsageError(f"{name} was changed: its SHA-256 differs from the one in {self._manifest}.")
            yield content


class Repository:
    """Deliveries as commits to the public repository, at their committer's time."""

    def __init__(self, git_directory: Path) -> None:
        self._git_directory = git_directory
        if self._git("rev-parse", "--is-shallow-repository").strip() != b"false":
            raise UsageError(f"{git_directory} is a shallow clone, so deliveries are missing. Run git fetch --unshallow.")
        log = self._git(*LOG.split(), REPOSITORY_FOLDER)
        self.events = list(_parse_git_events(log.decode("utf-8", errors="replace").splitlines()))
        if not self.events:
            raise UsageError(f"{git_directory} has no commits to {REPOSITORY_FOLDER}/: is it a clone of pcm-dpc/COVID-19?")

    def contents(self, events: Iterable[Event]) -> Iterator[bytes]:
        """See History."""
        names = [event.checksum for event in events]
        found = io.BytesIO(self._git("cat-file", "--batch", stdin="\n".join(names) + "\n") if names else b"")
        for name in names:
            header = found.readline().split()
            if len(header) != 3 or header[1] != b"blob":
                raise UsageError(f"{self._git_directory} lacks the file version {name}: make a full clone.")
            yield found.read(int(header[2]))
            found.read(1)

    def _git(self, *arguments: str, stdin: str = "") -> bytes:
        command = ["git", f"--git-dir={self._git_directory}", "-c", "core.quotePath=false", *arguments]
        try:
            done = subprocess.run(command, input=stdin.encode(), capture_output=True, check=False)
        except FileNotFoundError:
            raise UsageError("A git repository is read with the git executable, which is not on the PATH.") from None
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", errors="replace").strip().splitlines() or ["nothing"]
            raise UsageError(f"git cannot read {self._git_directory}; it said: {said[-1]}")
        return done.stdout


def _parse_git_events(log: Iterable[str]) -> Iterator[Event]:
    """The events of a raw git log, oldest first."""
    at = datetime.min.replace(tzinfo=UTC)
    for line in log:
        if line.startswith("@"):
            # If a committer's clock went back, the later version of a file must not look older.
            at = max(at, datetime.fromtimestamp(int(line[1:]), UTC))
        elif line.startswith(":"):
            change, _, path = line.partition("\t")
            _, _, _, blob, status = change.split()
            folder, _, file = path.rpartition("/")
            if folder == REPOSITORY_FOLDER and FILE.fullmatch(file):
                yield Event(at=at, file=file, checksum="" if status == "D" else blob)
