"""Checks that the commits of a Delta table's log are whole, without a JVM.

A power failure can leave a commit's file without its content. Spark and delta-rs take an empty file for a commit that did nothing, and
a reader that continues from there never sees what the commit held. So each reader and each stage checks the log first.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sluice.errors import SluiceError
from sluice.locations import Location, is_on_disk, list_file_sizes, locate, open_to_read
from sluice.own_records import OWN_FOLDER

LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\..+)?\.(parquet|json)")
"""Of one file, of several parts, or with sidecars (`delta.checkpointPolicy = v2`); the last may be JSON."""
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_PARQUET = b"PAR1"
_HEADER = b"crc\x00"
_ADDED = ("num_added_files", "num_target_files_added", "numFilesAdded")
_REMOVED = ("num_removed_files", "num_target_files_removed", "numFilesRemoved")
"""The names of delta-rs for the counts of files in a commit: of appends and deletions, of merges, of OPTIMIZE."""
TRANSACTIONS = "sluiceTransactions"
"""What a commit through delta-rs says of its transaction ids: how many there are. They come last in it."""


@dataclass(frozen=True)
class LogDamage:
    """A log file that is not as it was written. version: of the commit or the checkpoint. what: the damage, such as "is empty"."""

    file: str
    version: int
    what: str
    is_commit: bool = True

    def __str__(self) -> str:
        return f"{LOG}/{self.file} {self.what}"


class DamagedLog(SluiceError):
    """A table's log is damaged: reading the table, or writing to it, would lose what the damaged file held."""


def is_delta_table(path: str) -> bool:
    """Whether the path is a Delta table. Searches for a commit or a checkpoint, and opens no file."""
    return any(_COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in _list_names(locate(path, LOG)))


def split_commit_lines(content: bytes) -> list[bytes]:
    """The lines of a commit, one for each action. Lines of text would also end at U+0085 or U+2028, which values in statistics may hold."""
    return [line for line in content.splitlines() if line.strip()]


def measure_log_bytes(path: str) -> int:
    """The size in bytes of what a reader loads of a log: its last checkpoint, and the commits after it."""
    try:
        sizes = list_file_sizes(locate(path, LOG))
    except FileNotFoundError:  # a file of it went meanwhile
        return 0
    found = [name for name in sizes if _COMMIT.fullmatch(name) or _CHECKPOINT.fullmatch(name)]
    last = max((name[:20] for name in found if _CHECKPOINT.fullmatch(name)), default="")
    return sum(sizes[name] for name in found if name >= last)


def check_table_logs(tables: Mapping[str, str], pipeline: str | None = None) -> None:
    """Raises DamagedLog for the first table with a damaged log. tables: paths by name. pipeline: their pipeline, if known."""
    for name, path in tables.items():
        damaged = next(find_log_damage(path), None)
        if damaged is not None:
            called = f"'{name}' ({path})" if name != path else path
            raise DamagedLog(
                f"The log of the table {called} is damaged: {damaged}, as when power is lost. Nothing of it is read or written, since what "
                f"the file held would be missed for ever. Put it right: {_repair_advice(pipeline or _find_pipeline_of_table(path))}"
            )


def find_log_damage(path: str) -> Iterator[LogDamage]:
    """The damage in a table's log, commits by version first. Commits that no reader needs any more are only checked for being empty."""
    folder = locate(path) / LOG
    if not is_on_disk(folder):
        yield from _find_damage_on_store(folder)
        return
    names = _list_names(folder)
    commits, checkpoints = _sort_log_versions(folder, names)
    if not commits and not checkpoints:
        return
    of_checkpoint, last = max(checkpoints, default=-1), max(commits, default=-1)
    lost = _find_last_checksum(names, after=max(last, of_checkpoint))
    for version in sorted({*commits, *range(of_checkpoint + 1, max(last, lost + 1))}):
        file = commits.get(version)
        if file is not None:
            what = _commit_damage(file, with_content=version >= of_checkpoint)
        else:  # unless it came while the folder was listed, which takes more than an instant
            what = (
                f"is missing, and {'its' if version == lost else 'a later'} checksum is there"
                if version > last
                else "is missing, and later commits are there"
            )
            what = None if (folder / f"{version:020d}.json").exists() else what
        if what:
            yield LogDamage(f"{version:020d}.json", version, what)
    for file in checkpoints.get(of_checkpoint, []):
        if not _ends_as_checkpoint(file):
            yield LogDamage(file.name, of_checkpoint, "is cut", is_commit=False)


def _find_damage_on_store(folder: Location) -> Iterator[LogDamage]:
    """The damage in a log on a store: no object is there in part, but one may be empty or missing."""
    sizes = list_file_sizes(folder)
    commits, checkpoints = _sort_log_versions(folder, sizes)
    for version in sorted(commits):
        if sizes[commits[version].name] == 0:
            yield LogDamage(commits[version].name, version, "is empty")
    for version in range(max(checkpoints, default=-1) + 1, max(commits, default=-1)):
        if version not in commits and not (folder / f"{version:020d}.json").is_file():
            yield LogDamage(f"{version:020d}.json", version, "is missing, and later commits are there")


def _find_last_checksum(names: Collection[str], after: int) -> int:
    """The last version after `after` with a checksum file but no commit; -1 if none. The commit is written first, so it was lost."""
    found = (int(version[1]) for name in names if (version := _CHECKSUM.fullmatch(name)) and int(version[1]) > after)
    return max((version for version in found if f"{version:020d}.json" not in names), default=-1)


def list_log_versions(folder: Location) -> tuple[dict[int, Location], dict[int, list[Location]]]:
    """The commits of a log by version, and the files of its checkpoints. Both are empty if the table's creation did not finish."""
    return _sort_log_versions(folder, _list_names(folder))


def _sort_log_versions(folder: Location, names: Iterable[str]) -> tuple[dict[int, Location], dict[int, list[Location]]]:
    commits: dict[int, Location] = {}
    checkpoints: dict[int, list[Location]] = {}
    for name in names:
        if found := _COMMIT.fullmatch(name):
            commits[int(found[1])] = folder / name
        elif found := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault(int(found[1]), []).append(folder / name)
    return commits, checkpoints


def _list_names(folder: Location) -> frozenset[str]:
    try:
        return frozenset(file.name for file in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return frozenset()


def matches_file_checksum(file: Location, content: bytes) -> bool | None:
    """Whether a file's content matches the checksum that Hadoop's file system wrote beside it; None if there is no checksum.

    It writes them on disks alone: a store looks after its objects.
    """
    if not is_on_disk(file):
        return None
    try:
        sums = checksum_file_path(file).read_bytes()
    except OSError:
        return None
    size = int.from_bytes(sums[4:8], "big")
    if sums[:4] != _HEADER or size == 0 or len(sums) % 4:
        return None
    pieces = (content[start : start + size] for start in range(0, len(content), size))
    return sums[8:] == b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)


def checksum_file_path(file: Location) -> Location:
    """The path at which Hadoop's file system keeps a file's checksum."""
    return file.with_name(f".{file.name}.crc")


def _commit_damage(file: Location, with_content: bool) -> str | None:
    try:
        found = file.stat()
        if found.st_size == 0:
            return "is empty"
        return _content_damage(str(file), found.st_size, found.st_mtime_ns, found.st_ino) if with_content else None
    except FileNotFoundError:  # what is older than a checkpoint goes at some time
        return None


@lru_cache(maxsize=4096)
def _content_damage(file: str, _size: int, _modified: int, _inode: int) -> str | None:
    """What is wrong with a commit's content. The arguments identify a state of the file, which never changes, so each is read once."""
    content = locate(file).read_bytes()
    as_written = matches_file_checksum(locate(file), content)
    if as_written is None:
        return None if _are_whole_actions(content) else "is cut"
    return None if as_written else "is not what its checksum says: it is cut, or was changed"


def _are_whole_actions(content: bytes) -> bool:
    """Whether each line is an action, and no action is missing by the commit's own counts."""
    try:
        actions = [json.loads(line) for line in split_commit_lines(content)]
    except ValueError:
        return False
    if not actions or not all(isinstance(action, dict) for action in actions):
        return False
    # delta-rs counts files of the change feed among those that it added.
    added = sum("add" in action or "cdc" in action for action in actions)
    removed = sum("remove" in action for action in actions)
    transactions = sum("txn" in action for action in actions)
    return all(
        _read_file_count(action, _ADDED) <= added
        and _read_file_count(action, _REMOVED) <= removed
        and _read_transaction_count(action) <= transactions
        for action in actions
    )


def _read_file_count(action: Mapping[str, Any], names: Collection[str]) -> int:
    """A count of files that delta-rs wrote into a commit, for lack of a checksum beside it; 0 if the commit has no such count."""
    info = action.get("commitInfo")
    counts = info.get("operationMetrics") if isinstance(info, dict) else None
    found = [counts.get(name) for name in names] if isinstance(counts, dict) else []
    return max((count for count in found if isinstance(count, int)), default=0)


def _read_transaction_count(action: Mapping[str, Any]) -> int:
    info = action.get("commitInfo")
    told = info.get(TRANSACTIONS) if isinstance(info, dict) else None
    return int(told) if isinstance(told, str) and told.isdecimal() else 0


def _ends_as_checkpoint(file: Location) -> bool:
    with open_to_read(file) as opened:
        if file.name.endswith(".json"):
            return bool(opened.read().rstrip().endswith(b"}"))
        size = opened.seek(0, 2)
        opened.seek(max(0, size - len(_PARQUET)))
        return size > 2 * len(_PARQUET) and opened.read() == _PARQUET


def _find_pipeline_of_table(path: str) -> str | None:
    """The pipeline whose lake holds a table; None if the path does not show it."""
    folder = locate(path).parent.parent
    return folder.name if (folder / OWN_FOLDER).is_dir() else None


def _repair_advice(pipeline: str | None) -> str:
    return (
        f"sluice repair {pipeline}"
        if pipeline
        else f"sluice repair PIPELINE; of a table of no pipeline, put {LOG} back from a backup"
    )
