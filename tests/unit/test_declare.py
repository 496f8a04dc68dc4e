"""Declarations: what is wrong is said when they are made or put together, with the offender and what was expected."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from sluice.declare import Pipeline, Source, expect, expect_or_drop, materialized_view, table
from sluice.declare.fingerprint import fingerprint
from sluice.declare.graph import graph
from sluice.errors import DeclarationError, UsageError

LAYERS = ("shop.bronze", __name__)
PIPELINE = Pipeline(name="shop", description="A shop.", owner="t", layers=LAYERS)
SOURCE = Source(name="orders", format="csv", path="orders", comment="Orders.", subject="who", personal=("email",))


def declared(name: str = "sales", **options: Any) -> Any:
    def transform(orders: Any) -> Any:
        return orders

    transform.__name__ = name
    return table(**{"reads": "orders", "keys": "id", "subject": "who", **options})(transform)


def view(name: str, reads: str | tuple[str, ...], **options: Any) -> Any:
    def one(a: Any) -> Any:
        return a

    one.__name__ = name
    return materialized_view(**{"reads": reads, "keys": "id", **options})(one)


def test_declarations_load_no_pyspark() -> None:
    code = "import sys, sluice.declare, pipelines.gym.gold, pipelines.italy.silver; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_decorated_function_is_still_a_function() -> None:
    assert declared()("frame") == "frame"


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (lambda: [SOURCE, declared(reads="order")], "reads 'order', which is not declared. Did you mean 'orders'?"),
        (lambda: [SOURCE, declared(), declared()], "two declarations are named 'sales'"),
        (lambda: [SOURCE, declared(), view("a", "b"), view("b", "a")], "read each other in a circle"),
        (lambda: [SOURCE, declared(subject=None)], "whose records have a subject"),
        (lambda: [SOURCE, declared(key_in_one_file=True)], "needs a source with redelivery='replace'"),
        (lambda: [SOURCE, declared(), declared("more", reads="sales")], "which is no source"),
        (lambda: [SOURCE, declared(), view("a", "sales", zorder_by="email")], "zorder_by names the personal column 'email'"),
    ],
)
def test_mistakes_between_declarations(items: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message.replace("?", r"\?").replace("(", r"\(")):
        graph(PIPELINE, items())


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("sale.quarantined", "alert_when names the table 'sale'. Did you mean 'sales'?"),
        ("sales.quarantine", "'sales' has no such rule. Did you mean 'quarantined'?"),
    ],
)
def test_an_alert_on_nothing_is_refused(place: str, message: str) -> None:
    with pytest.raises(DeclarationError, match=message.replace("?", r"\?")):
        graph(replace(PIPELINE, alert_when={place: 3}), [SOURCE, declared()])
    graph(replace(PIPELINE, alert_when={"sales.dropped": 3}), [SOURCE, declared()])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: declared(zorder_by="who"), "zorder_by names the personal column 'who'"),
        (lambda: declared(partition_by="who"), "partition_by names the personal column 'who'"),
        (lambda: declared(keys=()), "may not be empty"),
        (lambda: declared(reads=("orders", "more")), "reads names 2 inputs, the function takes 1"),
        (lambda: declared("Sales"), "lower-case snake case"),
        (lambda: expect("x", "a > 0")(declared()), "@table must stand above @expect"),
        (lambda: materialized_view(reads="a", keys="id")(expect_or_drop("x", "a > 0")(lambda a: a)), "cannot be dropped"),
        (lambda: Source(name="x", format="xml", path="x", comment=""), "unknown format 'xml'"),
        (lambda: Source(name="x", format="csv", path="../x", comment=""), "is a folder below"),
        (lambda: Pipeline(name="x", description="d", owner="o", layers=LAYERS, retain="soon"), "retain is an interval"),
    ],
)
def test_mistakes_in_one_declaration(make: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        make()


def test_a_graph_knows_who_reads_whom_and_what_is_personal() -> None:
    whole = graph(PIPELINE, [view("by_day", "sales"), SOURCE, declared(), view("by_week", "by_day")])
    assert list(whole.views) == ["by_day", "by_week"]
    assert whole.below("sales") == {"by_day", "by_week"}
    assert whole["by_week"].private == {"who", "email"}
    with pytest.raises(UsageError, match="Did you mean 'by_week'"):
        whole["byweek"]


def _factor(value: int) -> int:
    return value * 2


def test_a_fingerprint_changes_with_the_code_and_not_with_its_layout() -> None:
    def one(orders: Any) -> Any:
        """Doc."""
        return orders.select("a")

    def two(orders: Any) -> Any:
        # A comment, and another docstring.
        """Other."""

        return orders.select("a")

    def three(orders: Any) -> Any:
        return orders.select("b")

    two.__name__ = three.__name__ = "one"
    prints = [fingerprint(table(reads="orders", keys="id")(function)) for function in (one, two, three)]
    assert prints[0] == prints[1] != prints[2]
    assert fingerprint(table(reads="orders", keys=("id", "a"))(one)) != prints[0]
