"""Turns Python's error about a misspelt declaration into Sluice's: the file, the line, and the nearest valid name."""

from __future__ import annotations

import importlib
import inspect
import re
import traceback
from collections.abc import Iterable
from pathlib import Path

from sluice.errors import nearest_name_hint

_DECLARE = "sluice.declare"
_ENGINE = Path(__file__).resolve().parents[2]
_NO_SUCH_ARGUMENT = re.compile(r"(\w+)(?:\.__init__)?\(\) got an unexpected keyword argument '(\w+)'")
_WRONG_ARGUMENTS = re.compile(r"(\w+)(?:\.__init__)?\(\) ((?:missing|takes|got) .+)")
_NO_SUCH_NAME = re.compile(rf"cannot import name '(\w+)' from '{_DECLARE}'")


def describe_misspelt_declaration(error: TypeError | ImportError) -> str | None:
    """Returns a sentence about a declaration that does not exist, or that was called with wrong arguments.

    error: raised by the import of a pipeline's file. Returns None if it is about something else, or was raised within Sluice.
    """
    # Python checks arguments before it enters a function, so the last frame is the line that calls it.
    frames = traceback.extract_tb(error.__traceback__)
    line = next((one for one in reversed(frames) if not one.filename.startswith("<frozen")), None)
    if line is None or Path(line.filename).resolve().is_relative_to(_ENGINE):
        return None
    said = _describe_import(str(error)) if isinstance(error, ImportError) else _describe_call(str(error))
    return f"{line.filename}, line {line.lineno}: {said}" if said else None


def _describe_import(said: str) -> str | None:
    found = _NO_SUCH_NAME.match(said)
    if found is None:
        return None
    names: Iterable[str] = importlib.import_module(_DECLARE).__all__
    return f"{_DECLARE} has no '{found[1]}'.{nearest_name_hint(found[1], names)}"


def _describe_call(said: str) -> str | None:
    declarations = vars(importlib.import_module(_DECLARE))
    if (found := _NO_SUCH_ARGUMENT.match(said)) and found[1] in declarations:
        known = inspect.signature(declarations[found[1]]).parameters
        return f"{found[1]} has no argument '{found[2]}'.{nearest_name_hint(found[2], known)}"
    if (found := _WRONG_ARGUMENTS.match(said)) and found[1] in declarations:
        return f"{found[1]} {found[2]}."
    return None
