"""A small file is there as it was or as it is to be, whatever breaks off its writing, and nothing in the engine writes one otherwise.

What a run wrote is on the disk in the end: the call reaches the system, and its failure is one of the stage.
"""

from __future__ import annotations

import ast
import ctypes
import errno
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.checkout import ROOT

from sluice import durable_files
from sluice.settings import Settings

STEPS = ("open", "fsync", "replace", "fsync of the folder")


class PowerLost(BaseException):
    """Ends like a killed process: no `except` in the code sees it."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kept.json"
    path.write_text("before")
    return path


def _break_off_at(monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException) -> None:
    whole: dict[str, Callable[..., object]] = {name: getattr(os, name) for name in ("open", "fsync", "replace")}

    def broken(name: str) -> Callable[..., object]:
        def call(*arguments: object, **named: object) -> object:
            of_folder = name == "fsync" and stat.S_ISDIR(os.fstat(arguments[0]).st_mode)  # type: ignore[arg-type]
            if step == (f"{name} of the folder" if of_folder else name):
                raise error
            return whole[name](*arguments, **named)

        return call

    for name in whole:
        monkeypatch.setattr(os, name, broken(name))


@pytest.mark.parametrize("step", STEPS[:3])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space left"), PowerLost()], ids=["full", "killed"])
def test_a_write_that_breaks_off_leaves_the_old_file_and_nothing_beside_it(
    file: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    with monkeypatch.context() as patched, pytest.raises(type(error)):
        _break_off_at(patched, step, error)
        durable_files.write_json_durably(file, {"new": 1})
    assert file.read_text() == "before"
    assert list(file.parent.iterdir()) == [file]


def test_a_folder_that_cannot_be_flushed_is_no_success_and_the_file_is_whole(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(OSError, match="broken disk"):
        _break_off_at(patched, STEPS[3], OSError(errno.EIO, "broken disk"))
        durable_files.write_json_durably(file, {"new": 1})
    assert json.loads(file.read_text()) == {"new": 1}


def test_a_file_system_that_cannot_flush_folders_is_written_to(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _break_off_at(monkeypatch, STEPS[3], OSError(errno.EINVAL, "Invalid argument"))
    durable_files.write_text_durably(file, "after")
    assert file.read_text() == "after"


def test_the_content_is_on_the_disk_before_the_name_is_and_the_name_before_the_call_returns(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def traced_fsync(descriptor: int) -> None:
        calls.append(("fsync", "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else file.read_text()))
        fsync(descriptor)

    def traced_replace(one: Path, other: Path) -> None:
        calls.append(("replace", Path(one).read_text()))
        replace(one, other)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "replace", traced_replace)
    durable_files.write_text_durably(file, "after")
    assert calls == [("fsync", "before"), ("replace", "after"), ("fsync", "folder")]
    calls.clear()
    other = file.with_name("written.part")
    other.write_text("moved")
    durable_files.move_file_durably(other, file)
    assert calls == [("fsync", "after"), ("replace", "moved"), ("fsync", "folder")]
    assert (file.read_text(), other.exists()) == ("moved", False)


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_killed_process_leaves_the_old_file_and_one_that_no_reader_takes_for_it(file: Path, step: str) -> None:
    code = f"import os; os.{step} = lambda *_: os._exit(9); from pathlib import Path; from sluice import durable_files; "
    code += f"durable_files.write_json_durably(Path({str(file)!r}), {{'new': 1}})"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT / "include", check=False).returncode == 9
    left = [one for one in file.parent.iterdir() if one != file]
    assert (file.read_text(), [left.read_text() for left in left]) == ("before", ['{"new": 1}'])
    assert list(file.parent.glob("*.json")) == [file]


def test_a_later_write_removes_what_a_killed_process_left(file: Path) -> None:
    left, young, foreign = (
        file.with_name(name) for name in (".kept.json.0a1b.tmp", ".kept.json.2c3d.tmp", ".other.json.0a1b.tmp")
    )
    for one in (left, young, foreign):
        one.write_text("half")
    os.utime(left, (0, 0))
    os.utime(foreign, (0, 0))
    durable_files.write_text_durably(file, "after")
    assert sorted(file.parent.iterdir()) == [young, foreign, file]
    durable_files.remove_file_durably(file)
    assert list(file.parent.iterdir()) == [foreign]
    durable_files.remove_file_durably(file.parent / "no folder" / "kept.json")


def test_what_another_file_of_a_longer_name_is_being_written_by_stays(file: Path) -> None:
    others = file.with_name(f".{file.name}.bak.0a1b2c3d.tmp")
    others.write_text("half of another file")
    durable_files.remove_file_durably(file)
    assert others.exists()


def test_a_private_file_is_never_open_to_others_and_one_is_not_overwritten(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    fsync = os.fsync

    def seen(descriptor: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        fsync(descriptor)

    before = os.umask(0o022)
    try:
        monkeypatch.setattr(os, "fsync", seen)
        durable_files.write_file_durably(file, b"secret", durable_files.PRIVATE)
        durable_files.write_file_durably(file.with_name("open.json"), b"")
    finally:
        os.umask(before)
    assert (modes[0], modes[2], stat.S_IMODE(file.stat().st_mode)) == (0o600, 0o644, 0o600)
    with pytest.raises(FileExistsError):
        durable_files.write_file_durably(file, b"other", durable_files.PRIVATE, overwrite=False)
    assert (file.read_bytes(), len(list(file.parent.iterdir()))) == (b"secret", 2)
    durable_files.write_file_durably(file.with_name("new.key"), b"key", durable_files.PRIVATE, overwrite=False)
    assert (file.with_name("new.key").read_bytes(), file.with_name("new.key").stat().st_nlink) == (b"key", 1)


WRITE_BY_THEMSELVES = {
    "sluice.durable_files": "it is the one way",
    "sluice.declare.pipeline": "it is the producer's side of a landing folder, for deliveries that are made up",
    "sluice.runs.lineage_sending": "events, which its client writes; what a power failure takes of them, no run needs",
    "sluice.locations": "it moves a file of rows that wait for their commit; a run that broke off is begun anew, and so are they",
    "sluice.stores.store_object": "it is the file interface of a store, where one PUT is durable; durable_files writes through it",
    "sluice.erasure.personal_places.planting": "a canary holds files as those of others are written, and is seen whole or planted anew",
    "sluice.flows.quarantine.staged_records": "its folder is removed at the end of the block, and at the beginning of the next",
    "sluice.testing.running": "keys in a folder that is gone with the test",
    "sluice.cli.setup.new_pipeline": "a package of source files, which is removed as a whole where one cannot be written",
    "sluice.ingest.landing.cleaning": "a rename of a landed file for each delivery; the run's end flushes the file system",
    "sluice.ingest.deliveries.event_folder": "an event of others that is moved aside; one that stays is moved by the next run",
    "sluice.lake.file_rewrites": "a table in a folder that is gone with the block; the commit to the table itself is written durably",
    "sluice.lake.releases": "it swaps folders of tables, and repairs at the next opening what broke off",
    "orchestration.server.environment_file": "it runs where nothing is installed, and never overwrites",
    "orchestration.server.standalone_cluster": "a Python in a folder that is gone with the cluster",
    "orchestration.server.deployment": "files in a folder that is gone with the command that reads them",
    "orchestration.spark_submit.job_secrets": "files in memory, in a folder that is gone with the job",
}
"""The modules that write, move or flush files in another way, and why."""
PATHS = {"pathlib", "sluice.locations"}
OF_A_MODULE = {
    "os": {"replace", "rename", "renames", "link", "fsync"},
    "shutil": {"move"},
    "tempfile": {"mkstemp", "NamedTemporaryFile"},
}


def _find_own_writes(tree: ast.AST) -> Iterator[int]:
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name, owner = call.func.attr, call.func.value
        of_module = isinstance(owner, ast.Name) and name in OF_A_MODULE.get(owner.id, ())
        # `str.replace` has two arguments, that of a time and `dataclasses.replace` name theirs. Others than paths have such a method, too.
        of_path = name in ("replace", "rename") and len(call.args) == 1 and not call.keywords and bool(imported & PATHS)
        if of_module or of_path or name in ("write_text", "write_bytes", "hardlink_to") or "O_CREAT" in ast.unparse(call.args):  # type: ignore[arg-type]
            yield call.lineno


def _modules_with_own_writes() -> dict[str, list[int]]:
    found = {}
    for path in [file for room in ("sluice", "orchestration") for file in (ROOT / "include" / room).rglob("*.py")]:
        lines = list(_find_own_writes(ast.parse(path.read_text(encoding="utf-8"))))
        if lines:
            found[".".join(path.relative_to(ROOT / "include").with_suffix("").parts)] = lines
    return found


def test_nothing_in_the_engine_writes_a_file_by_itself_but_for_those_with_a_reason() -> None:
    found = _modules_with_own_writes()
    strange = {name: lines for name, lines in found.items() if name not in WRITE_BY_THEMSELVES}
    assert not strange, "Use sluice.durable_files, or say the reason in WRITE_BY_THEMSELVES."
    assert not set(WRITE_BY_THEMSELVES) - set(found), "These write nothing by themselves any more: take them out of the list."


@pytest.mark.parametrize(
    "line",
    [
        "path.replace(other)",
        "os.rename(a, b)",
        "p.write_text(t)",
        "tempfile.mkstemp(dir=d)",
        "os.open(p, os.O_CREAT | os.O_EXCL)",
    ],
)
def test_what_is_looked_for_is_found(line: str) -> None:
    assert list(_find_own_writes(ast.parse(f"from pathlib import Path\n{line}")))


@pytest.mark.parametrize("line", ['text.replace("a", "b")', "replace(one, mode=1)", "time.replace(hour=0)"])
def test_what_is_no_writing_is_not_taken_for_it(line: str) -> None:
    assert not list(_find_own_writes(ast.parse(f"from pathlib import Path\n{line}")))


def test_each_file_system_is_flushed_once_and_folders_that_are_not_there_are_passed_over(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(
        ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda descriptor: flushed.append(descriptor) or 0)
    )
    durable_files.flush_run_output(settings)
    assert flushed == []
    for folder in (Path(settings.lake), settings.landing, settings.restricted):
        folder.mkdir()
    durable_files.flush_run_output(settings)
    assert len(flushed) == 1


def test_what_cannot_be_written_out_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable_files.flush_file_systems([tmp_path])  # the real call
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(syncfs=lambda descriptor: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.EIO)
    with pytest.raises(OSError, match=r"Input/output error: '/"):
        durable_files.flush_file_systems([tmp_path])
