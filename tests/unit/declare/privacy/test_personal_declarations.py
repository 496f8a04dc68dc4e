"""What may be treated is said where it is declared: the subject, keys and sequences are what rows are found and ordered by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sluice.declare import KafkaSource, Pipeline, Source, auto_cdc, materialized_view, table, treat
from sluice.declare.assembly import subjects
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.errors import DeclarationError

PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=("shop.bronze", __name__))
SOURCE = Source(name="orders", schema="who STRING", subject="who")


def sales(**options: Any) -> Any:
    def transform(orders: Any) -> Any:
        return orders

    return table(**{"name": "sales", "reads": "orders", "keys": "id", "subject": "who", **options})(transform)


def bins(**options: Any) -> Any:
    def transform(sales: Any) -> Any:
        return sales

    return materialized_view(**{"name": "bins", "reads": "sales", "keys": "who", **options})(transform)


def members(**options: Any) -> Any:
    return auto_cdc("members", **{"reads": "orders", "keys": "id", "sequence_by": "at", "subject": "who", **options})


@pytest.mark.parametrize("declared", [sales, members])
def test_a_subject_is_not_treated_and_it_is_said_what_to_do(declared: Callable[..., Any]) -> None:
    with pytest.raises(DeclarationError, match="personal treats 'who', which is its subject") as caught:
        declared(personal={"who": treat.hmac("user")})
    assert "in a restricted table (restricted=True), and publish the pseudonym in a @materialized_view" in str(caught.value)
    declared(personal={"who": None, "pseudonym": treat.hmac("user")})


def test_a_view_may_treat_its_subject_since_no_erasure_looks_for_it_there() -> None:
    assert bins(subject="who", personal={"who": treat.hmac("user")}).treatments


@pytest.mark.parametrize("declared", [sales, members, bins])
def test_a_key_may_be_a_pseudonym_but_not_null(declared: Callable[..., Any]) -> None:
    declared(keys="id", personal={"id": treat.hmac("order")})
    with pytest.raises(DeclarationError, match=r"the key 'id' by treat\.null\(\)"):
        declared(keys="id", personal={"id": treat.null()})


@pytest.mark.parametrize("declared", [sales, members])
def test_what_puts_rows_in_order_is_not_treated(declared: Callable[..., Any]) -> None:
    with pytest.raises(DeclarationError, match="sequence_by"):
        declared(sequence_by="at", personal={"at": treat.date_to_year()})


@pytest.mark.parametrize("of", ["partition_by", "zorder_by"])
def test_what_lays_out_files_is_not_personal_treated_or_not(of: str) -> None:
    for how in (None, treat.bin(18)):
        with pytest.raises(DeclarationError, match=f"{of} names the personal column 'age'"):
            sales(**{of: "age", "personal": {"age": how}})


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: treat.hmac(""), "needs a domain"),
        (lambda: treat.hmac("x", canonical="digit"), "no canonical form 'digit'. Did you mean 'digits'?"),
        (lambda: treat.hmac("x", secret="../key"), "a name has lower-case letters"),
        (lambda: treat.bin(25, 18), "rising order"),
        (lambda: treat.truncate(-1), "how many characters"),
    ],
)
def test_a_treatment_that_cannot_work_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        make()
    assert said in str(caught.value)


def test_another_treatment_is_another_table_by_its_fingerprint() -> None:
    found = [sales(personal={"x": how}) for how in (None, treat.hmac("a"), treat.hmac("b"), treat.null())]
    assert len({compute_declaration_fingerprint(one) for one in found}) == 4


def test_a_pipeline_needs_the_secrets_that_its_declarations_name() -> None:
    topic = KafkaSource(name="visits", servers="b:9092", topics="t", options_file="kafka.properties")
    keyed = sales(personal={"x": treat.hmac("a", secret="research.key"), "y": treat.null()})
    wanted = ("certificate.key", "kafka.properties", "research.key", "suppression.key")
    assert subjects.find_needed_secrets(build_declaration_graph(PIPELINE, [SOURCE, topic, keyed])) == wanted
    assert subjects.find_needed_secrets(build_declaration_graph(PIPELINE, [Source(name="orders", schema="a INT")])) == ()
