"""A misspelt declaration is an error that names the file, the line and the nearest valid name; another mistake stays Python's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sluice.declare import materialized_view, table
from sluice.declare.assembly.loading import _import_pipeline_module
from sluice.errors import DeclarationError

Load = Callable[[str], object]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a layer's module with this second line."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def load_line(line: str) -> object:
        (tmp_path / "shop_silver.py").write_text(f"from sluice.declare import *\n{line}\n")
        monkeypatch.delitem(sys.modules, "shop_silver", raising=False)
        return _import_pipeline_module("shop_silver", "shop")

    return load_line


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Layout(target_file_sze='64m')", "Layout has no argument 'target_file_sze'. Did you mean 'target_file_size'?"),
        ("Source(name='orders', formt='json')", "Source has no argument 'formt'. Did you mean 'format'?"),
        ("auto_cdc(name='a', read='b')", "auto_cdc has no argument 'read'. Did you mean 'reads'?"),
        ("Pipeline(name='shop')", "Pipeline missing "),
        (
            "from sluice.declare import materialised_view",
            "sluice.declare has no 'materialised_view'. Did you mean 'materialized_view'?",
        ),
    ],
)
def test_a_misspelt_declaration_names_the_line_and_the_nearest_name(load: Load, tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(DeclarationError) as failure:
        load(line)
    assert str(failure.value).startswith(f"Pipeline 'shop': {tmp_path}/shop_silver.py, line 2: {said}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("table(read='orders', keys='id')", "table has no argument 'read'. Did you mean 'reads'?"),
        ("table(reads='orders')", "table lacks its argument 'keys'."),
        ("materialized_view(reads='orders', key='id')", "materialized_view has no argument 'key'. Did you mean 'keys'?"),
        ("table(name='a', key='id', reads='b', sql='SELECT 1')", "table has no argument 'key'. Did you mean 'keys'?"),
    ],
)
def test_options_of_tables_and_views_are_checked_where_they_are_given(load: Load, line: str, said: str) -> None:
    with pytest.raises(DeclarationError) as failure:
        load(line)
    assert str(failure.value) == said


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("(lambda a: a)(b=1)", TypeError),
        ("1 + 'x'", TypeError),
        ("dict(a=1, **{'a': 2})", TypeError),
        ("from pathlib import Pth", ImportError),
    ],
)
def test_what_is_no_declaration_stays_as_python_says_it(load: Load, line: str, kind: type[Exception]) -> None:
    with pytest.raises(kind) as failure:
        load(line)
    assert not isinstance(failure.value, DeclarationError)


def test_a_mistake_of_sluice_itself_is_not_called_the_pipelines(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.declare import layout

    code = compile("def fail(self):\n    Layout(nothing=1)", layout.__file__, "exec")
    space: dict[str, Any] = {"Layout": layout.Layout}
    exec(code, space)  # as if it stood in the engine's file
    monkeypatch.setattr(layout.Layout, "__post_init__", space["fail"])
    with pytest.raises(TypeError):
        load("Layout()")


@pytest.mark.parametrize("declare", [table, materialized_view])
@pytest.mark.parametrize("said", [{"sql": "SELECT 1 AS k"}, {"sql": " ", "name": "starts"}])
def test_a_text_without_a_name_or_a_name_without_a_text_says_what_is_needed(declare: Any, said: dict[str, str]) -> None:
    with pytest.raises(DeclarationError, match="needs a name and a text: table\\(name='starts'"):
        declare(reads="a", keys="k", **said)
