"""What a pipeline's files declare counts, whether a variable holds it or not; of two of one name, none is lost silently."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.unit.declare.conftest import LoadShop

from sluice.declare.assembly.graph import Graph
from sluice.errors import DeclarationError

ORDERS = "orders = Source(name='orders', schema='id INT, at TIMESTAMP, email STRING')"
LISTED = "table(name='{0}', reads='orders', keys='id', sql='SELECT * FROM orders')"


def _silver_tables(graph: Graph) -> list[str]:
    return sorted(one.name for one in graph if one.module == "pipelines.shop.silver")


@pytest.mark.parametrize(
    "silver",
    [
        LISTED.format("a"),
        "auto_cdc('a', reads='orders', keys='id', sequence_by='at')",
        "auto_cdc_from_snapshot('a', reads='orders', keys='id', snapshot_by='at')",
        "for name in ['a']:\n    @materialized_view(name=name, reads='orders', keys='id')\n    def t(orders): return orders",
        "@windowed(name='a', reads='orders', keys='id', watermark=Watermark('at', '1 hour'))\ndef t(orders): return orders\n\ndel t",
        f"def declare():\n    kept = {LISTED.format('a')}\n\ndeclare()",
        f"kept = {{'k': [{LISTED.format('a')}]}}",
        f"kept = {{ {LISTED.format('a')} }}",
        f"kept = [{LISTED.format('a')}]",
    ],
)
def test_a_table_counts_wherever_the_file_leaves_it(load_shop: LoadShop, silver: str) -> None:
    assert "a" in _silver_tables(load_shop(bronze=ORDERS, silver=silver))


def test_a_loop_declares_each_of_its_tables(load_shop: LoadShop) -> None:
    loop = "for name in 'abc':\n    @table(name=name, reads='orders', keys='id')\n    def t(orders): return orders"
    assert _silver_tables(load_shop(bronze=ORDERS, silver=loop)) == ["a", "b", "c"]


def test_a_source_and_the_views_that_store_nothing_count_without_a_variable(load_shop: LoadShop) -> None:
    graph = load_shop(
        bronze="Source(name='orders', schema='id INT')",
        silver="temporary_view(name='few', reads='orders', sql='SELECT * FROM orders')\n"
        "table(name='a', reads='few', keys='id', sql='SELECT * FROM few')",
        gold="view(name='seen', reads='a', sql='SELECT * FROM a')",
    )
    assert (list(graph.sources), list(graph.unstored), list(graph.computed)) == (["orders"], ["few"], ["seen"])


def test_links_and_erasure_requests_count_without_a_variable(load_shop: LoadShop) -> None:
    graph = load_shop(
        bronze="orders = Source(name='orders', schema='id INT, at TIMESTAMP, email STRING', subject='id')",
        silver="table(name='a', reads='orders', keys='id', subject='id', personal='email', sql='SELECT * FROM orders')\n"
        "Link('a', person=('id', 'id'), identifier=('email', 'email'))\n"
        "erasure_requests(reads='orders', where='id < 0', identifier=('id', 'id'))",
    )
    assert [link.name for link in graph.links] == ["a.email"]
    assert [one.reads for one in graph.asking] == ["orders"]


def test_two_functions_of_one_name_are_both_declared(load_shop: LoadShop) -> None:
    function = "@table({}reads='orders', keys='id')\ndef t(orders): return orders\n"
    renamed = load_shop(bronze=ORDERS, silver=function.format("name='a', ") + function.format("name='b', "))
    assert _silver_tables(renamed) == ["a", "b"]


def test_a_copied_function_whose_name_was_left_is_an_error(load_shop: LoadShop) -> None:
    function = "@table(reads='orders', keys='id')\ndef t(orders): return orders\n"
    with pytest.raises(DeclarationError, match="two declarations are named 't'"):
        load_shop(bronze=ORDERS, silver=function * 2)


def test_a_copy_of_a_table_takes_the_place_of_what_it_was_copied_from(load_shop: LoadShop) -> None:
    changed = (
        f"from dataclasses import replace\na = {LISTED.format('a')}\na = replace(a, comment='other')\nb = replace(a, name='b')"
    )
    graph = load_shop(bronze=ORDERS, silver=changed)
    assert _silver_tables(graph) == ["a", "b"]
    assert graph["a"].comment == "other"


@pytest.mark.parametrize(
    "bronze",
    [
        "copies = [replace(Source(name='base', schema='id INT'), name=name) for name in ('one', 'two')]",
        "def keep(name):\n    base = Source(name='base', schema='id INT')\n    return replace(base, name=name)\n\n"
        "copies = [keep('one'), keep('two')]",
        "base = Source(name='base', schema='id INT')\ncopies = [replace(base, name='one'), replace(base, name='two')]\ndel base",
        "copies = {name: replace(replace(Source(name='base'), name='between'), name=name) for name in ('one', 'two')}",
    ],
)
def test_what_only_copies_are_made_of_does_not_count(load_shop: LoadShop, bronze: str) -> None:
    for _ in range(2):
        assert list(load_shop(bronze=f"from dataclasses import replace\n{bronze}").sources) == ["one", "two"]


def test_what_is_copied_and_held_counts_beside_its_copies(load_shop: LoadShop) -> None:
    bronze = "from dataclasses import replace\nbase = Source(name='base')\ncopies = [replace(base, name='one')]"
    assert list(load_shop(bronze=bronze).sources) == ["base", "one"]


def test_what_the_engine_copies_for_itself_counts_as_before(load_shop: LoadShop) -> None:
    silver = f"{LISTED.format('a')}.add_personal_columns(frozenset({{'email'}}))"
    assert _silver_tables(load_shop(bronze=ORDERS, silver=silver)) == ["a"]


def test_what_another_layer_imports_stays_in_the_layer_that_declares_it(load_shop: LoadShop) -> None:
    graph = load_shop(
        bronze=ORDERS,
        silver=f"from pipelines.shop.bronze import orders\na = {LISTED.format('a')}",
        gold="from pipelines.shop.silver import a, orders",
    )
    assert [(one.name, graph.layer(one)) for one in graph] == [("orders", "bronze"), ("a", "silver")]


def test_what_a_helper_of_another_module_declares_is_in_the_layer_that_calls_it(load_shop: LoadShop) -> None:
    helper = (
        "def keep(name):\n    @table(name=name, reads='orders', keys='id')\n    def kept(orders): return orders\n\n"
        "def follow(name): auto_cdc(name, reads='orders', keys='id', sequence_by='at')\n"
    )
    silver = "from pipelines.shop.helper import follow, keep\nkeep('a')\nfollow('b')"
    assert _silver_tables(load_shop(bronze=ORDERS, helper=helper, silver=silver)) == ["a", "b", "b_changes"]


def test_a_table_in_a_module_that_is_no_layer_is_refused(load_shop: LoadShop) -> None:
    with pytest.raises(DeclarationError, match=r"table 'a' is declared in 'pipelines.shop.further', which is not a layer"):
        load_shop(bronze=ORDERS, further=LISTED.format("a"), silver="import pipelines.shop.further")


def test_what_another_package_declares_for_itself_is_not_collected(
    load_shop: LoadShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that the pipeline imports for its functions may declare sources for somebody else."""
    (tmp_path / "tables_elsewhere.py").write_text("from sluice.declare import Source\nSource(name='elsewhere')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    graph = load_shop(bronze=ORDERS, silver=f"import tables_elsewhere\n{LISTED.format('a')}")
    assert list(graph.sources) == ["orders"]


def test_a_table_of_another_pipeline_that_is_imported_for_its_function_is_not_collected(
    load_shop: LoadShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    table = "@table(reads='orders', keys='id')\ndef b(orders): return orders\n"
    (folder / "silver.py").write_text(f"from sluice.declare import *\n{table}orders = Source(name='orders')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        graph = load_shop(
            bronze="from elsewhere.silver import orders", silver=f"from elsewhere.silver import b\n{LISTED.format('a')}"
        )
    finally:
        for name in ("elsewhere", "elsewhere.silver"):
            sys.modules.pop(name, None)
    assert [one.name for one in graph] == ["orders", "a"], "an imported source counts"


def test_a_table_of_a_module_in_no_package_is_not_collected(
    load_shop: LoadShop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tables_of_others.py").write_text(f"from sluice.declare import *\nb = {LISTED.format('b')}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert _silver_tables(load_shop(bronze=ORDERS, silver=f"from tables_of_others import b\n{LISTED.format('a')}")) == ["a"]


def test_a_pipeline_can_be_loaded_twice(load_shop: LoadShop) -> None:
    for _ in range(2):
        assert _silver_tables(load_shop(bronze=ORDERS, silver=LISTED.format("a"))) == ["a"]


def test_the_source_inside_a_topic_is_none_of_the_pipeline(load_shop: LoadShop) -> None:
    graph = load_shop(bronze="KafkaSource(name='events', servers='broker:9092', topics='events')")
    assert list(graph.sources) == ["events"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("table(name='a', reads='orders', keys='id')", "table(...) declares nothing without a function"),
        ("materialized_view(name='a', reads='orders', keys='id')", "write @materialized_view(...) above one, or say sql='SELECT"),
        ("temporary_view(name='a', reads='orders')", "write @temporary_view(...) above one"),
        ("view(name='a', reads='orders')", "write @view(...) above one, or say sql='SELECT ...'."),
        ("windowed(name='a', reads='orders', keys='id', output='update')", "write @windowed(...) above one."),
        ("def keep():\n    table(name='a', reads='orders', keys='id')\nkeep()", "silver.py, line 4: table(...) declares nothing"),
    ],
)
def test_a_decorator_above_no_function_is_an_error_with_its_line(load_shop: LoadShop, call: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=r"^silver\.py, line \d: ") as failure:
        load_shop(bronze=ORDERS, silver=call)
    assert said in str(failure.value)


def test_a_decorator_may_wait_for_its_function(load_shop: LoadShop) -> None:
    silver = (
        "kept = table(reads='orders', keys='id')\nwaits = table(reads='orders', keys='id')\n@kept\ndef a(orders): return orders"
    )
    assert _silver_tables(load_shop(bronze=ORDERS, silver=silver)) == ["a"]


def test_expectations_without_a_table_above_them_are_an_error(load_shop: LoadShop) -> None:
    silver = "@expect('known', 'id IS NOT NULL')\ndef a(orders): return orders\n"
    with pytest.raises(DeclarationError, match=r"silver.py, line 2: 'a' has expectations, and no @table or @materialized_view"):
        load_shop(bronze=ORDERS, silver=silver)
    for name in ("bronze", "silver"):
        del sys.modules[f"pipelines.shop.{name}"]
    assert _silver_tables(load_shop(bronze=ORDERS, silver=f"{silver}table(name='b', reads='orders', keys='id')(a)")) == ["b"]
