"""Whose rows are in a table: what the declarations say, and what they leave open."""

from __future__ import annotations

from typing import Any

from sluice.declare import Pipeline, Source, materialized_view, table, treat
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.assembly.subjects import TableSubjects

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("shop.bronze", __name__))
SALES = Source(name="sales", schema="buyer STRING, amount INT", subject="buyer")
CARDS = Source(name="cards", schema="card STRING", subject="card", into="scans")
SCANS = Source(name="scans", schema="card STRING", subject="card")


@table(reads="sales", keys="customer", subject="customer")
def sale(sales: Any) -> Any:
    """Sales, whose buyer has another name here."""


@table(reads="scans", keys="card", subject="card")
def scan(scans: Any) -> Any:
    """Scanned cards."""


def told(columns: str, *reads: str, **options: Any) -> TableSubjects:
    """Of a view of these columns."""
    view = materialized_view(name="v", reads=reads, keys=columns.split()[0], sql=f"SELECT * FROM {', '.join(reads)}", **options)
    whole = materialized_view(name="w", reads="sale", keys="day", sql="SELECT * FROM sale")
    made = build_declaration_graph(PIPELINE, [SALES, CARDS, SCANS, sale, scan, view, whole])
    return subjects.find_table_subjects(made, made.views["v"], columns.split())


def test_a_column_that_is_named_as_a_subject_above_tells() -> None:
    assert told("customer amount", "sale") == TableSubjects((("customer", "buyer"),))
    assert told("customer card", "sale", "scan") == TableSubjects((("card", "card"), ("customer", "buyer")))
    assert told("customer day", "sale", "w") == TableSubjects((("customer", "buyer"),))
    assert told("card amount", "sale", "scan") == TableSubjects((("card", "card"),), frozenset({"buyer"}))
    assert told("day amount", "w") == TableSubjects((), frozenset({"buyer"})), "through another view"


def test_its_own_subject_tells_where_one_kind_is_left() -> None:
    assert told("who", "sale", subject="who") == TableSubjects((("who", "buyer"),))
    assert told("card who", "sale", "scan", subject="who") == TableSubjects((("card", "card"), ("who", "buyer")))
    assert told("who", "sale", "scan", subject="who") == TableSubjects((), frozenset({"buyer", "card"})), "of which kind is it?"


def test_a_treated_value_is_no_identifier_but_a_pseudonym() -> None:
    hidden = treat.hmac("c")
    assert told("customer", "sale", personal={"customer": hidden}) == TableSubjects(
        (("customer", "pseudonym"),), frozenset({"buyer"})
    )
    assert told("who", "sale", subject="who", personal={"who": hidden}) == TableSubjects(
        (("who", "pseudonym"),), frozenset({"buyer"})
    )
    assert told("customer", "sale", personal={"customer": treat.truncate(3)}) == TableSubjects((), frozenset({"buyer"}))


def test_a_column_is_found_in_whatever_letter_case_a_table_has_it() -> None:
    assert told("Customer amount", "sale") == TableSubjects((("Customer", "buyer"),))
    assert told("WHO", "sale", subject="who") == TableSubjects((("WHO", "buyer"),))
    assert told("customer", "sale", personal={"Customer": treat.truncate(3)}) == TableSubjects((), frozenset({"buyer"}))
    made = build_declaration_graph(PIPELINE, [SALES, sale])
    assert subjects.build_subject_expression(made, SALES, ["Buyer", "amount"]) == "CAST(`Buyer` AS STRING)"
    rescued = subjects.build_subject_expression(made, SALES, ["BUYER", "_rescued_data"])
    assert rescued and rescued.startswith("coalesce(CAST(`BUYER` AS STRING), ")
