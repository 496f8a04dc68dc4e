"""A wrong declaration is an error that names the file, the line and what to write instead; another mistake the file and the line."""

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
        ("Pipeline(name='shop')", "Pipeline needs description, owner and layers."),
        ("auto_cdc('a', reads='b', keys='c')", "auto_cdc needs sequence_by."),
        ("auto_cdc('a', target='b')", "auto_cdc has no argument 'target'. Did you mean 'name'?"),
        ("Source('orders')", 'Source takes its arguments by name: Source(name="…").'),
        ("auto_cdc('a', 'b')", 'auto_cdc takes its arguments by name: auto_cdc(name="…", reads="…", keys="…", sequence_by="…").'),
        ("@table\ndef f(a): return a", '@table takes its arguments by name: @table(reads="…", keys="…").'),
        (
            "expect('bpm > 0')",
            'expect needs condition. expect takes a name and a condition: @expect("positive", "bpm > 0")',
        ),
        (
            "expect_all_or_drop(a='bpm > 0')",
            "expect_all_or_drop has no argument 'a'. There are: at_most, null_ok, rules. expect_all_or_drop takes a dict: "
            '@expect_all_or_drop({"positive": "bpm > 0"})',
        ),
        ("expect('a', 'b', nul_ok=True)", "expect has no argument 'nul_ok'. Did you mean 'null_ok'? expect takes a name"),
        (
            "from sluice.declare import materialised_view",
            "sluice.declare has no 'materialised_view'. Did you mean 'materialized_view'?",
        ),
        (
            "from sluice.declare import streaming_table",
            "sluice.declare has no 'streaming_table'. 'streaming_table' is a name of Databricks: declare a Source (bronze) or a "
            "@table (silver). See docs/gold.md#for-people-from-databricks",
        ),
        ("import sluice.declare as d; d.apply_changes()", "sluice.declare has no 'apply_changes'. 'apply_changes' is a name of "),
        (
            "from pyspark import pipelines as d; d.table(lambda: None)",
            "'pyspark.pipelines' is a name of Databricks: declare with",
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
        ("table(reads='orders')", "table needs keys."),
        ("table(name='a')", "table needs reads and keys."),
        ("table(reads='orders', keys='a')(lambda a: a)", "Table '<lambda>': a name is"),
        ("Pipeline(name='shop', description='d', owner='o', layers='a')", "layers is a tuple of module names"),
        ("Source(name='orders', format='jsn')", "Source 'orders': unknown format 'jsn'."),
        ("materialized_view(reads='orders', key='id')", "materialized_view has no argument 'key'. Did you mean 'keys'?"),
        (
            "materialized_view(reads='a', keys='b', sequence_by='c')",
            "materialized_view has no argument 'sequence_by'. There are: ",
        ),
        ("table(name='a', key='id', reads='b', sql='SELECT 1')", "table has no argument 'key'. Did you mean 'keys'?"),
    ],
)
def test_what_a_declaration_finds_wrong_is_said_with_its_line(load: Load, tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(DeclarationError) as failure:
        load(line)
    assert str(failure.value).startswith(f"Pipeline 'shop': {tmp_path}/shop_silver.py, line 2: {said}")


@pytest.mark.parametrize(
    "line",
    [
        "auto_cdc('m', reads='orders', keys='id', sequence_by=F.col('at'))",
        "auto_cdc('m', reads='orders', keys='id', sequence_by='at', apply_as_deletes=F.expr('bpm = 0'))",
        "@expect('positive', F.col('bpm') > 0)\ndef f(a): return a",
        "w = F.col('a')",
        "w = Window.partitionBy('a')",
    ],
)
def test_a_spark_expression_outside_a_function_says_to_write_text(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setattr(
        "pyspark.SparkContext._active_spark_context", None
    )  # as in a command; other tests here may have started Spark
    with pytest.raises(DeclarationError) as failure:
        load(line)
    assert str(failure.value).startswith(
        f"Pipeline 'shop': {tmp_path}/shop_silver.py, line 2: a Spark expression (F.col, F.expr, "
    )
    assert 'Use text: sequence_by="at"' in str(failure.value)


def test_a_module_of_databricks_that_is_not_there_says_with_what_to_declare(load: Load) -> None:
    with pytest.raises(DeclarationError, match="'dlt' is a name of Databricks: declare with "):
        load("import dlt")


def test_a_misspelt_module_gets_the_nearest_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop_tables").mkdir()
    (tmp_path / "shop_tables" / "silver.py").write_text("")
    with pytest.raises(
        DeclarationError, match=r"'shop_tables\.slver', which does not exist\. Did you mean 'shop_tables\.silver'\?"
    ):
        _import_pipeline_module("shop_tables.slver", "shop")
    with pytest.raises(DeclarationError, match=r"'shop_tabls\.silver', which does not exist\.$"):
        _import_pipeline_module("shop_tabls.silver", "shop")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(lambda a: a)(b=1)", "TypeError: <lambda>() got an unexpected keyword argument 'b'."),
        ("1 + 'x'", "TypeError: unsupported operand type"),
        ("from pathlib import Pth", "ImportError: cannot import name 'Pth' from 'pathlib'"),
        ("del expect; expect('a', 'b')", "NameError: name 'expect' is not defined. Import it: from sluice.declare import expect"),
        (
            "spark.read.json('a')",
            "NameError: name 'spark' is not defined. Files are loaded without Spark: move this into the function",
        ),
        ("import json; json.nothing", "AttributeError: module 'json' has no attribute 'nothing'."),
        ("import json; json.loads('Ada')", "JSONDecodeError."),
        ("{}['Ada']", "KeyError."),
        ("int('Ada')", "ValueError."),
    ],
)
def test_any_other_mistake_says_its_kind_and_its_line_and_no_value(load: Load, tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(DeclarationError) as failure:
        load(line)
    assert str(failure.value).startswith(f"Pipeline 'shop': {tmp_path}/shop_silver.py, line 2: {said}")
    assert "Ada" not in str(failure.value)


def test_a_mistake_of_sluice_itself_is_not_called_the_pipelines(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    from sluice.declare import table_layout

    code = compile("def fail(self):\n    Layout(nothing=1)", table_layout.__file__, "exec")
    space: dict[str, Any] = {"Layout": table_layout.Layout, "__name__": table_layout.__name__}
    exec(code, space)  # as if it stood in the engine's file
    monkeypatch.setattr(table_layout.Layout, "__post_init__", space["fail"])
    with pytest.raises(DeclarationError, match="line 2: TypeError in Sluice itself"):
        load("Layout()")


@pytest.mark.parametrize("declare", [table, materialized_view])
@pytest.mark.parametrize("said", [{"sql": "SELECT 1 AS k"}, {"sql": " ", "name": "starts"}])
def test_a_text_without_a_name_or_a_name_without_a_text_says_what_is_needed(declare: Any, said: dict[str, str]) -> None:
    with pytest.raises(DeclarationError, match="needs a name and a text: table\\(name='starts'"):
        declare(reads="a", keys="k", **said)
