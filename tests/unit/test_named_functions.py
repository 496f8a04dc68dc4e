"""Functions that records name as text: each is there, takes what its field says, and is loaded by nobody before it is called."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from sluice.errors import UsageError
from sluice.named_functions import NamedFunction

INCLUDE = Path(__file__).parents[2] / "include"
NAMED = re.compile(r'NamedFunction\(\s*"([^"]*)"')


class NamedByRecord(NamedTuple):
    """A function, and the record's field that names it. type: the field's, as it is written."""

    record: str
    field: str
    type: str
    function: NamedFunction[..., object]


@cache
def read_texts_by_module() -> dict[str, list[str]]:
    """By module of the engine, the functions that its code names."""
    code = {path: NAMED.findall(path.read_text(encoding="utf-8")) for path in sorted(INCLUDE.rglob("*.py"))}
    return {".".join(path.relative_to(INCLUDE).with_suffix("").parts): texts for path, texts in code.items() if texts}


def walk_records(value: object) -> Iterator[NamedByRecord]:
    if is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            held = getattr(value, field.name)
            if isinstance(held, NamedFunction):
                yield NamedByRecord(type(value).__name__, field.name, str(field.type), held)
            else:
                yield from walk_records(held)
    elif isinstance(value, Mapping | tuple):
        for held in value.values() if isinstance(value, Mapping) else value:
            yield from walk_records(held)


@cache
def list_functions_of_records() -> list[NamedByRecord]:
    """The functions that the records of the engine name: those in the variables of each module whose code names any."""
    held = (walk_records(tuple(vars(importlib.import_module(module)).values())) for module in read_texts_by_module())
    return sorted({one for found in held for one in found}, key=lambda one: (one.record, one.field, one.function.text))


def count_arguments(written: str) -> int | None:
    """The number of arguments of `NamedFunction[[...], ...]`; None if the text of a type has no such part."""
    for node in ast.walk(ast.parse(written, mode="eval")):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "NamedFunction":
            assert isinstance(node.slice, ast.Tuple) and isinstance(node.slice.elts[0], ast.List)
            return len(node.slice.elts[0].elts)
    return None


@pytest.mark.parametrize("named", list_functions_of_records(), ids=lambda one: f"{one.record}.{one.field}-{one.function.text}")
def test_each_function_that_a_record_names_is_there_and_takes_the_arguments_of_its_field(named: NamedByRecord) -> None:
    count = count_arguments(named.type)
    assert count is not None
    inspect.signature(named.function.load()).bind(*range(count))


def test_no_function_is_named_but_by_a_record() -> None:
    texts = {text for found in read_texts_by_module().values() for text in found}
    assert len(texts) > 60
    assert texts == {one.function.text for one in list_functions_of_records()}


def test_who_reads_records_loads_no_function_of_theirs() -> None:
    named = sorted({one.function.text.partition(":")[0] for one in list_functions_of_records()} - set(read_texts_by_module()))
    # Places are read where Spark's side is loaded already.
    light = [module for module in read_texts_by_module() if not module.startswith("sluice.erasure.")]
    assert len(light) > 1 and len(named) > 15
    code = f"import sys, sluice.cli, {', '.join(light)}; print(*(name for name in {named} if name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def add(one: int, other: int = 2) -> int:
    return one + other


def test_a_named_function_is_called_as_the_function_itself() -> None:
    named = NamedFunction[[int, int], int](f"{__name__}:add")
    assert (named(1, 1), named(1, other=3), named.load()) == (2, 4, add)


def test_named_functions_are_compared_and_copied_by_their_text() -> None:
    named, other = NamedFunction[..., object]("no.such:thing"), NamedFunction[..., object]("no.such:other")
    assert pickle.loads(pickle.dumps(named)) == copy.deepcopy(named) == named != other
    assert {named, copy.copy(named), other} == {named, other}


LOST = "no_such_room"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("add", "written as 'module:function'"),
        (f"{__name__}:", "written as 'module:function'"),
        (":add", "written as 'module:function'"),
        (f"{LOST}.module:add", f"no module '{LOST}'"),
        (f"sluice.{LOST}.module:add", f"no module 'sluice.{LOST}'"),
        (f"sluice.{LOST}:add", f"no module 'sluice.{LOST}'"),
        (f"sluice.errors:{LOST}", f"the module has no '{LOST}'"),
    ],
)
def test_a_name_of_nothing_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError) as refused:
        NamedFunction[..., object](text)()
    assert str(refused.value).startswith(f"'{text}' names no function: ") and told in str(refused.value)


@pytest.mark.parametrize("library", ["no_such_library", "lacking"])
def test_a_library_that_the_module_lacks_is_not_taken_for_a_wrong_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    (tmp_path / "lacking_module.py").write_text(f"import {library}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError) as raised:
        NamedFunction[..., object]("lacking_module:add")()
    assert raised.value.name == library
