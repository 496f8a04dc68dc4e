"""`schema=` is split into columns, NOT NULLs and CHECKs, and becomes rules; what is not understood is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice.declare import Pipeline, Source, auto_cdc, expect_or_quarantine, materialized_view, table, treat
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.quality.expectations import Action
from sluice.declare.sql.schema import SchemaCheck, split_schema_declaration
from sluice.errors import DeclarationError

PIPELINE = Pipeline(name="shop", description="A shop.", owner="t", layers=("shop.bronze", __name__))
SOURCE = Source(name="orders")
PEOPLE = Source(name="people", subject="id")


def order(schema: str, **options: Any) -> Any:
    return table(**{"reads": "orders", "keys": "id", "name": "order", "schema": schema, **options})(lambda orders: orders)


def declared(*items: Any) -> Any:
    return build_declaration_graph(PIPELINE, [SOURCE, PEOPLE, *items])


def test_commas_in_types_texts_conditions_and_comments_do_not_split() -> None:
    found = split_schema_declaration(
        """
        id BIGINT NOT NULL COMMENT 'whose, or "what, (it''s)', -- a, remark
        `heart rate`: DOUBLE CHECK (`heart rate` > 0 AND greatest(1, 2) < 3) CONSTRAINT low CHECK ((`heart rate`) < 230),
        parts STRUCT<a: ARRAY<INT>, b: DECIMAL(10, 2)> /* x, y ( */,
        check BOOLEAN, at TIMESTAMP CHECK (at > ')') NOT NULL,
        CONSTRAINT in_order CHECK (at < 'x(' AND ID > 1), CHECK (parts.a[0] < 3), check(1 <> 2), price DECIMAL(10, 2)
        """.replace(" CHECK (at > ')') NOT NULL", " NOT NULL CHECK (at > ')')"),
        "Table 't'",
    )
    assert found.columns == ("id", "heart rate", "parts", "check", "at", "price")
    assert found.not_null == ("id", "at")
    assert found.ddl.startswith("`id` BIGINT NOT NULL COMMENT 'whose, or \"what, (it''s)', `heart rate` DOUBLE, `parts` STRUCT<")
    assert "CHECK" not in found.ddl and "remark" not in found.ddl
    assert found.checks == (
        SchemaCheck("check_heart_rate", "`heart rate` > 0 AND greatest(1, 2) < 3", frozenset({"heart rate"})),
        SchemaCheck("low", "(`heart rate`) < 230", frozenset({"heart rate"})),
        SchemaCheck("check_at", "at > ')'", frozenset({"at"})),
        SchemaCheck("in_order", "at < 'x(' AND ID > 1", frozenset({"at", "id"})),
        SchemaCheck("check", "parts.a[0] < 3", frozenset({"parts"})),
        SchemaCheck("check_2", "1 <> 2", frozenset()),
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("", "schema= has an empty part"),
        ("id BIGINT,", "schema= has an empty part"),
        ("id BIGNIT", "column 'id' has the unknown type 'BIGNIT'. Did you mean 'BIGINT'?"),
        ("id", "column 'id' has no type"),
        ("id BIGINT, ID INT", "names the column 'ID' twice"),
        ("id BIGINT DEFAULT 3", "column 'id': DEFAULT does not belong here"),
        ("id BIGINT, PRIMARY KEY (id)", "PRIMARY does not belong in schema=: keys= says what identifies a row"),
        ("id BIGINT, CONSTRAINT pk UNIQUE (id)", "UNIQUE does not belong in schema=: say it with @expect_unique"),
        ("id STRUCT<x: INT NOT NULL>", "column 'id': NOT NULL inside a type is not enforced"),
        ("id BIGINT CHECK ()", "a CHECK that says nothing"),
        ("id BIGINT CHECK id IS NULL", "write CHECK (condition)"),
        ("id BIGINT, CONSTRAINT Low CHECK (id > 1)", "the check 'Low': a name is lower-case snake case"),
        ("id BIGINT, CONSTRAINT x CHECK (id > 1), CONSTRAINT x CHECK (id > 2)", "two checks named 'x'"),
        ("id DECIMAL(3", "has a '(' that is not closed"),
        ("id BIGINT)", "has a ')' too many"),
        ("'id' BIGINT", "where a column and its type are expected"),
        ("CHECK (id > 3)", "names no column"),
    ],
)
def test_what_is_not_understood_is_named(schema: str, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(order(schema))
    assert "Table 'order'" in str(caught.value) and said in str(caught.value)


def test_a_schema_is_rules_that_quarantine_in_a_table_and_fail_in_a_view() -> None:
    schema = "id BIGINT NOT NULL, price DOUBLE CONSTRAINT positive CHECK (price > 0)"
    mine = order(schema, expectations=(expect_or_quarantine("mine", "id > 1"),))
    view = materialized_view(reads="order", keys="id", name="whole", schema=schema)(lambda order: order)
    whole = declared(mine, view)
    rules = [(rule.name, rule.condition, rule.action) for rule in whole.tables["order"].expectations]
    assert rules == [
        ("not_null_id", "`id` IS NOT NULL", Action.QUARANTINE),
        ("positive", "price > 0", Action.QUARANTINE),
        ("mine", "id > 1", Action.QUARANTINE),
    ]
    assert [rule.action for rule in whole.views["whole"].expectations] == [Action.FAIL, Action.FAIL]
    with pytest.raises(DeclarationError, match="'order': the expectation 'positive' has the name of a rule of its schema="):
        declared(order(schema, expectations=(expect_or_quarantine("positive", "price >= 0"),)))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": "idd"}, "keys names 'idd', no column of its schema=. Did you mean 'id'?"),
        ({"sequence_by": "prices"}, "sequence_by names 'prices', no column of its schema=. Did you mean 'price'?"),
        ({"zorder_by": "day"}, "zorder_by names 'day', no column of its schema=. There are: id, price."),
        ({"asked_by": ("id", "prize")}, "asked_by names 'prize', no column of its schema=. Did you mean 'price'?"),
    ],
)
def test_a_column_that_the_schema_has_not_is_named_without_data(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declared(order("id BIGINT, price DOUBLE", **options))
    assert said in str(caught.value)


def test_a_fingerprint_changes_with_the_rules_of_a_schema_and_not_with_its_comments() -> None:
    schemas = ["id BIGINT NOT NULL", "id BIGINT COMMENT 'x' NOT NULL", "id BIGINT NOT NULL -- y", "id BIGINT"]
    prints = [compute_declaration_fingerprint(declared(order(schema)).tables["order"]) for schema in schemas]
    assert prints[0] == prints[1] == prints[2] != prints[3]


def test_by_what_a_table_is_asked_changes_nothing_of_it() -> None:
    plain, asked = (declared(order("id BIGINT, price DOUBLE", asked_by=by)) for by in ((), "price"))
    assert compute_declaration_fingerprint(plain.tables["order"]) == compute_declaration_fingerprint(asked.tables["order"])
    assert (plain.find_asked_columns("order"), asked.find_asked_columns("order")) == (("id",), ("price",))


def test_of_a_change_feed_bad_rows_are_set_aside_before_they_reach_the_log() -> None:
    schema = """id BIGINT NOT NULL, seq BIGINT, city STRING NOT NULL, mail STRING CHECK (length(mail) = 64),
        CONSTRAINT late CHECK (seq > 0)"""
    whole = declared(_members(schema))
    names = [rule.name for rule in whole.tables["members_changes"].expectations]
    assert [name for name in names if name != "known_key_and_sequence"] == ["not_null_id", "not_null_city", "late"]
    assert {rule.action for rule in whole.tables["members_changes"].expectations} == {Action.QUARANTINE}
    assert whole.tables["members_changes"].schema is None, "a log's rows have columns of their own"
    target = {rule.name: rule.action for rule in whole.views["members"].expectations}
    assert target == dict.fromkeys(("not_null_id", "not_null_city", "check_mail", "late"), Action.FAIL)
    partial = declared(_members(schema, ignore_null_updates=True)).tables["members_changes"].expectations
    assert "not_null_city" not in [rule.name for rule in partial], "NULL there leaves what the target has"


def _members(schema: str, **options: Any) -> Any:
    personal = {"mail": treat.hmac("mail")}
    options = {"keys": "id", "sequence_by": "seq", "subject": "id", "personal": personal, "schema": schema, **options}
    return replace(auto_cdc("members", reads="people", **options), declared_in=__name__)
