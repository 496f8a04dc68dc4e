"""The files in which Spark keeps how far a stream has come: whether those that it goes on from are there and whole. Without a JVM.

Spark writes offsets/N when batch N begins and commits/N when it is done, and metadata before the first. It goes on from the last two
offsets and the last commit; what is older it never reads again.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from sluice.delta_log import matches_file_checksum


def find_checkpoint_damage(checkpoint: Path) -> str | None:
    """What is wrong with a checkpoint, with the file; None where Spark can go on from it."""
    begun, done = (_list_batch_numbers(checkpoint / kind) for kind in ("offsets", "commits"))
    if not begun and not done and not (checkpoint / "metadata").exists():
        return None
    wanted = [checkpoint / "metadata"]
    last = max(begun | done, default=-1)
    # A batch that was begun is done, or comes again; then the one before it was done.
    wanted += [checkpoint / "offsets" / str(number) for number in (last - 1, last) if number >= 0]
    wanted += [checkpoint / "commits" / str(number) for number in [last if last in done else last - 1] if number >= 0]
    return next(
        (f"{_path_below_checkpoints(checkpoint, file)} {problem}" for file in wanted if (problem := _find_file_problem(file))),
        None,
    )


def has_begun_batch(checkpoint: Path) -> bool:
    """Whether there is any batch, begun or done."""
    return bool(_list_batch_numbers(checkpoint / "offsets") or _list_batch_numbers(checkpoint / "commits"))


def _list_batch_numbers(folder: Path) -> set[int]:
    return {int(file.name) for file in folder.iterdir() if file.name.isdigit()} if folder.is_dir() else set()


def _find_file_problem(file: Path) -> str | None:
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({type(error).__name__})"
    if not content:
        return "is empty"
    as_written = matches_file_checksum(file, content)
    whole = _is_whole_file(file, content) if as_written is None else as_written
    return None if whole else "is cut, or was changed"


def _is_whole_file(file: Path, content: bytes) -> bool:
    """Of metadata JSON; of the others a version, and then lines of JSON: of offsets one a source, or a dash where nothing was read of it yet."""
    if file.name == "metadata":
        return _is_json(content)
    version, *lines = content.splitlines()
    return re.fullmatch(rb"v\d+", version) is not None and bool(lines) and all(line == b"-" or _is_json(line) for line in lines)


def _is_json(content: bytes) -> bool:
    try:
        return isinstance(json.loads(content), dict)
    except ValueError:
        return False


def _path_below_checkpoints(checkpoint: Path, file: Path) -> str:
    """The file, with the checkpoint's identity, below the folder of its flow's checkpoints."""
    return str(file.relative_to(checkpoint.parent))
