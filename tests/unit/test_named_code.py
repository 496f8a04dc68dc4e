"""Code that a test names as text, such as a crash point or a module, exists: also where only a slow test, which runs seldom, would notice."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]
MODULE = re.compile(r"(sluice|orchestration|residue|demonstrations)(\.[a-z_][a-z0-9_]*)+")
ATTRIBUTE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

TABLE_PROPERTIES = frozenset({"sluice.checks", "sluice.fingerprint", "sluice.pipeline", "sluice.place"})
"""Texts with the form of a module that are properties of tables. A new one is added here."""


def list_named_code(tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """The line, module and attribute ("" for the module itself) of what a test names: "module:attribute", or both as two arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Tuple | ast.Call):
            parts = node.elts if isinstance(node, ast.Tuple) else node.args
            texts = [part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "" for part in parts]
            for first, second in pairwise(texts):
                if MODULE.fullmatch(first) and ATTRIBUTE.fullmatch(second):
                    yield node.lineno, first, second
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module, colon, attribute = node.value.partition(":")
            if colon and MODULE.fullmatch(module) and ATTRIBUTE.fullmatch(attribute):
                yield node.lineno, module, attribute


@cache
def find_missing_part(module: str, attribute: str) -> str:
    """The first part of "module.attribute" that does not exist; "" if all do."""
    try:
        owner: object = importlib.import_module(module)
    except ModuleNotFoundError:
        return module
    for part in attribute.split("."):
        if not hasattr(owner, part):
            return f"{part} in {module}"
        owner = getattr(owner, part)
    return ""


def list_bare_modules(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and text of each text that is as a whole a dotted path below a package, and no property of a table."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
        if MODULE.fullmatch(text) and text not in TABLE_PROPERTIES:
            yield node.lineno, text


@cache
def exists(path: str) -> bool:
    """Whether a dotted path is a module, which is not imported for it, or an attribute of one."""
    module, _, attribute = path.rpartition(".")
    try:
        return importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:  # the part before the last dot is no package
        return find_missing_part(module, attribute) == ""


FILES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("*.py"))


@pytest.mark.parametrize("file", FILES)
def test_code_that_a_test_names_exists(file: str) -> None:
    tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
    missing = {line: part for line, module, name in list_named_code(tree) if (part := find_missing_part(module, name))}
    missing |= {line: path for line, path in list_bare_modules(tree) if not exists(path)}
    assert missing == {}


def test_the_crash_points_are_among_them() -> None:
    named = {
        (module, name)
        for file in FILES
        for _, module, name in list_named_code(ast.parse((TESTS / file).read_text(encoding="utf-8")))
    }
    assert ("sluice.flows.silver.fold", "apply_merge_operations") in named
    assert ("sluice.flows.bronze.intake", "commits.append_rows") in named
    module = "sluice.flows.silver.fold"
    lost = "no_such_function"
    assert find_missing_part(module, lost) == f"{lost} in {module}"


def test_a_bare_module_is_among_them_and_a_lost_one_is_found() -> None:
    file = TESTS / "integration" / "flows" / "bronze" / "test_large_loads.py"
    named = {path for _, path in list_bare_modules(ast.parse(file.read_text(encoding="utf-8")))}
    assert {"sluice.flows.silver.fold", "sluice.flows.gold.view_batch"} <= named
    texts = ast.parse('"sluice." "no_such_room.fold"; "sluice.checks"; "sluice.toml of a folder"')
    assert [path for _, path in list_bare_modules(texts)] == ["sluice." + "no_such_room.fold"]
    for lost in ("no_such_room", "no_such_room.fold", "errors.no_such_name"):
        assert not exists("sluice." + lost)
    assert exists("sluice.errors") and exists("sluice.errors.UsageError")
