"""Sluice's own records: each has one name, which nothing but the list of them spells."""

from __future__ import annotations

import ast
from pathlib import Path

from sluice.own_records import OWN_RECORDS, OWN_TABLES, locate_record_beside, name_own_record

ENGINE = Path(__file__).parents[2] / "include" / "sluice"


def _spells_a_name(node: ast.AST) -> bool:
    """Whether it begins with a text in the code itself."""
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and bool(first.value)


def _asks_for_bookkeeping(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "bookkeeping"


def _find_spelled_names(text: str) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(text)):
        asked = isinstance(node, ast.Call) and _asks_for_bookkeeping(node) and any(map(_spells_a_name, node.args))
        below = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _spells_a_name(node.right)
        if asked or (
            below and any(_asks_for_bookkeeping(one) and not one.args for one in ast.walk(node.left) if isinstance(one, ast.Call))
        ):
            found.append(ast.unparse(node))
    return found


def test_nobody_spells_the_name_of_a_record_beside_the_list() -> None:
    assert _find_spelled_names("locate(records.bookkeeping()) / 'idle'; paths.bookkeeping(f'schemas/{table}')") != []
    assert _find_spelled_names("records.bookkeeping(); paths.bookkeeping(f'{SCHEMAS.name}/{table}')") == []
    assert {path.name: found for path in ENGINE.rglob("*.py") if (found := _find_spelled_names(path.read_text()))} == {}


def test_each_record_has_a_name_of_its_own_and_files_say_what_they_are() -> None:
    names = [one.name for one in OWN_RECORDS]
    assert len(names) == len(set(names)) > 30
    assert {one.name for one in OWN_RECORDS if one.kind == "file"} == {name for name in names if "." in name}
    assert [one.name for one in OWN_TABLES] == ["deliveries", "outcomes", "runs", "erasure", "suppression"]


def test_records_lie_beside_each_other() -> None:
    deliveries, outcomes = OWN_TABLES[:2]
    assert name_own_record(outcomes) == "_sluice/outcomes"
    assert locate_record_beside("s3://lake/gym/_sluice/deliveries", outcomes) == "s3://lake/gym/_sluice/outcomes"
    assert locate_record_beside("/c/outcomes", deliveries) == "/c/deliveries"
