"""Where a declaration was made. The module whose file is being loaded keeps a record of it, so that it counts without a variable too."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

_RECORD = "_declared_with_sluice"
"""The name in a module under which the declarations are that were made while its file was loaded."""
_COPIED = "_copied_with_sluice"
"""The attribute of a declaration of which a copy was made while a file was loaded."""
_BODY = "<module>"
"""What Python calls the code of a file outside of its functions."""


@dataclass
class _Decorator:
    """A decorator that a file calls for. called_at: the file and the line; there: whether anything can apply it still, once it was not."""

    called: str
    called_at: str
    applied: bool = False
    there: Callable[[], object | None] = lambda: None


@dataclass
class _Record:
    """The declarations of one loading of a file. body: its code; a file that is loaded again has another, and a record of its own."""

    body: CodeType
    declared: list[Any] = field(default_factory=list)
    decorators: list[_Decorator] = field(default_factory=list)


def record_declaration(declared: Any) -> None:
    """Adds a declaration to the record of the module whose file is being loaded, and of those of its package that import that one.

    Nothing is recorded outside of the loading of a file, nor for a copy: a copy counts if a variable holds it. Its original is noted as
    copied.
    """
    frames = list(_walk_calling_frames())
    if not frames:
        return
    bodies = _find_running_bodies(frames)
    if _module_name(frames[0]) == "dataclasses":  # its `replace`, which makes a copy
        _note_copied_original(frames, bool(bodies))
        return
    for body in bodies:
        _open_record(body).declared.append(declared)
    if bodies:
        object.__setattr__(declared, "declared_at", _describe_call_site(bodies[0]))  # a declaration is frozen


def watch_decorator(decorator: Callable[[Any], Any], called: str) -> Callable[[Any], Any]:
    """Returns the decorator, noted in the same records: one that nothing applies declares nothing. called: as a file calls for it."""
    bodies = _find_running_bodies(list(_walk_calling_frames()))
    if not bodies:
        return decorator
    noted = _Decorator(called, _describe_call_site(bodies[0]))

    def declare(function: Any) -> Any:
        noted.applied = True
        return decorator(function)

    noted.there = weakref.ref(declare)
    for body in bodies:
        _open_record(body).decorators.append(noted)
    return declare


def list_lost_decorators(module: ModuleType) -> list[tuple[str, str]]:
    """Returns what the module's file called for and nothing applied, nor can apply any more: what it called, and where."""
    record = vars(module).get(_RECORD)
    noted = record.decorators if isinstance(record, _Record) else []
    return [(one.called, one.called_at) for one in noted if not one.applied and one.there() is None]


def _open_record(body: FrameType) -> _Record:
    record: _Record = body.f_globals.setdefault(_RECORD, _Record(body.f_code))
    if record.body is not body.f_code:
        record = body.f_globals[_RECORD] = _Record(body.f_code)
    return record


def _describe_call_site(body: FrameType) -> str:
    return f"{Path(body.f_code.co_filename).name}, line {body.f_lineno}"


def list_recorded_declarations(module: ModuleType) -> list[Any]:
    """Returns what was declared while the module's file was loaded, in that order."""
    record = vars(module).get(_RECORD)
    return list(record.declared) if isinstance(record, _Record) else []


def was_copied(declared: Any) -> bool:
    """Whether a file made a copy of it while it was loaded."""
    return getattr(declared, _COPIED, False)


def _note_copied_original(frames: list[FrameType], loading: bool) -> None:
    """Notes what a file copies while it is loaded. The engine copies declarations too, for itself: that says nothing of their originals."""
    calling = next((frame for frame in frames if _module_name(frame) not in ("dataclasses", "copy")), None)
    original = frames[0].f_locals.get("obj", frames[0].f_locals.get("self"))
    if loading and original is not None and calling is not None and not _module_name(calling).startswith("sluice."):
        object.__setattr__(original, _COPIED, True)  # a declaration is frozen


def find_calling_module() -> str:
    """The module in which something is declared: the one whose file is being loaded, whatever function it calls; else that of the caller."""
    frames = list(_walk_calling_frames())
    return str((_find_running_bodies(frames) or frames)[0].f_globals.get("__name__", "")) if frames else ""


def find_loading_module() -> str | None:
    """The module whose file is being loaded. None if none is, as in a test's function."""
    bodies = _find_running_bodies(list(_walk_calling_frames()))
    return str(bodies[0].f_globals["__name__"]) if bodies else None


def _walk_calling_frames() -> Iterator[FrameType]:
    """The calls that lead here, the last first, from the one that called `sluice.declare` on."""
    frame = inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("sluice.declare"):
        if frame.f_code.co_name == _BODY:
            return
        frame = frame.f_back
    while frame is not None:
        yield frame
        frame = frame.f_back


def _find_running_bodies(frames: list[FrameType]) -> list[FrameType]:
    """The innermost file that is being loaded, and those of its package that import it."""
    running = [frame for frame in frames if frame.f_code.co_name == _BODY]
    if not running or not _is_imported_module(running[0]):
        return []
    package = _package_name(running[0])
    outer = (one for one in running[1:] if package and _package_name(one) == package and _is_imported_module(one))
    return [running[0], *outer]


def _module_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package_name(body: FrameType) -> str:
    return _module_name(body).rpartition(".")[0]


def _is_imported_module(body: FrameType) -> bool:
    """Whether the code is the file of a module. A program's own code lasts as long as the program, and is none."""
    name = str(body.f_globals.get("__name__", ""))
    return name != "__main__" and vars(sys.modules.get(name, sys)) is body.f_globals
