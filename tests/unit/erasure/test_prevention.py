"""What must not get where no erasure reaches: refused where it is declared, found in the logs of tables that are there. Without Spark."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql.types import StringType, StructField, StructType

from sluice.declare import KafkaSource, Link, Pipeline, Source, mask, materialized_view, role_view, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import prevention
from sluice.errors import DeclarationError
from sluice.flows.copies import copying
from sluice.flows.copies.released import plan_released_columns
from sluice.lake.pipeline_lake import PipelineLake
from sluice.settings import Settings

PIPELINE = Pipeline(
    name="shop", description="A shop.", owner="tests", layers=("shop.bronze", __name__), roles={"analyst": "counts"}
)
SOURCE = Source(
    name="orders", schema="id BIGINT, who STRING, email STRING, spent INT", subject="who", personal="email", dated_by="now()"
)
KEPT = {"delta.deletedFileRetentionDuration": "interval 7 days", "delta.logRetentionDuration": "interval 30 days"}
PERSONAL = frozenset({"email"})


def sales(**options: Any) -> Any:
    def transform(orders: Any) -> Any:
        return orders

    return table(**{"name": "sales", "reads": "orders", "keys": "id", "subject": "who", **options})(transform)


RESCUED_EMAIL = (
    "get_json_object(_rescued_data#14, concat($[', static_invoke(JsonExpressionUtils.jsonObjectKeys(_rescued_data#14))"
    "[cast((array_position(static_invoke(JsonExpressionUtils.jsonObjectKeys(lower(_rescued_data#14))), email) - 1) as int)], ']))"
)


def towns(**options: Any) -> Any:
    def transform(sales: Any) -> Any:
        return sales

    return materialized_view(**{"name": "towns", "reads": "sales", "keys": "town", **options})(transform)


def shop(*declared: Any) -> Graph:
    return build_declaration_graph(PIPELINE, [SOURCE, *declared])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("(email#1 = ada@x.it)", ["email"]),
        ("((t.email#84 <=> subject#90) AND (at#85 >= 2020-01-01 00:00:00))", []),
        ("StartsWith(email#84, a)", ["email"]),
        ("(Email#3L IN (1,2) OR (id#4 = 7))", ["email"]),
        ("(NOT isnull(email#6) AND isnotnull(id#4))", []),
        ("email = 'd@x.it'", ["email"]),
        ("_delivery IN (1, 2)", []),
        ("email IS NULL", []),
        ("(coalesce(email#7, get_json_object(_rescued_data#14, $.email)) <=> _erased_subject#17)", []),
        ("(get_json_object(_rescued_data#14, $.email) = ada@x.it)", ["email"]),
        (f"(coalesce(email#7, {RESCUED_EMAIL}) <=> _erased_subject#17)", []),
        (f"({RESCUED_EMAIL} = ada@x.it)", ["email"]),
    ],
)
def test_of_a_condition_what_is_left_beside_columns_is_a_value(text: str, found: list[str]) -> None:
    assert [name.lower() for name in prevention.find_compared_columns(text, {"email"})] == found


def test_texts_of_conditions_are_found_in_whatever_a_commit_wraps_them() -> None:
    merge = '[{"predicate":"(email#1 = x)","actionType":"delete"},{"actionType":"insert"}]'
    assert list(prevention.extract_condition_texts(merge)) == ["(email#1 = x)"]
    assert (
        list(prevention.extract_condition_texts('["(email#1 = x)"]'))
        == list(prevention.extract_condition_texts("(email#1 = x)"))
        == ["(email#1 = x)"]
    )
    assert list(prevention.extract_condition_texts("[]")) == list(prevention.extract_condition_texts(None)) == []


def made(path: Path, **configuration: str) -> str:
    """A table of two people with these properties, as another program may have made it."""
    rows = pa.table({"id": [1, 2], "email": ["ada@x.it", "bob@x.it"]})
    write_deltalake(str(path), rows, configuration={**KEPT, **configuration})
    return str(path)


def whats(path: str, personal: frozenset[str] = PERSONAL) -> str:
    return "\n".join(str(one) for one in prevention.inspect_table_log(path, "t", personal))


def test_a_table_whose_statistics_leave_people_out_has_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "t", **{"delta.dataSkippingStatsColumns": "id"})
    DeltaTable(path).create_checkpoint()
    assert whats(path) == ""
    assert "ada@x" not in "".join(file.read_text() for file in (tmp_path / "t" / "_delta_log").glob("*.json"))


def test_statistics_of_a_personal_column_are_found_in_commits_and_in_checkpoints(tmp_path: Path) -> None:
    path = made(tmp_path / "t")
    found = whats(path)
    assert "lowest and highest values of the personal column 'email'" in found
    assert "dataSkippingStatsColumns is not set, so that its personal column 'email' gets into statistics" in found
    assert "ada" not in found, "no value of anybody"
    assert "personal column 'email'" in whats(path, frozenset({"EMAIL"})), "to Spark, upper and lower case are one"
    # The checkpoint tells it, too, when the commits are long gone.
    DeltaTable(path).create_checkpoint()
    for file in (tmp_path / "t" / "_delta_log").glob("*.json"):
        file.unlink()
    assert "lowest and highest values of the personal column 'email'" in whats(path)


def test_layout_by_a_personal_column_is_found(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "email": ["ada@x.it"]})
    path = str(tmp_path / "t")
    write_deltalake(path, rows, partition_by=["email"], configuration={**KEPT, "delta.dataSkippingStatsColumns": "id"})
    assert "partitioned by the personal column 'email'" in whats(path) and "folders named by" in whats(path)
    clustered = {
        "domainMetadata": {"domain": "delta.clustering", "configuration": json.dumps({"clusteringColumns": [["email"]]})}
    }
    _commit(path, 1, clustered, {"commitInfo": {"operation": "OPTIMIZE", "operationParameters": {"zOrderBy": '["email"]'}}})
    found = whats(path)
    assert "clustered by the personal column 'email'" in found and "laid out by the personal column 'email' (zOrderBy)" in found


def test_a_condition_with_a_value_a_foreign_note_and_what_is_not_said_are_found(tmp_path: Path) -> None:
    path = made(tmp_path / "t", **{"delta.dataSkippingStatsColumns": "id"})
    _commit(path, 1, {"commitInfo": {"operation": "DELETE", "operationParameters": {"predicate": '["(email#1 = ada@x.it)"]'}}})
    _commit(path, 2, {"commitInfo": {"operation": "WRITE", "operationParameters": {}, "userMetadata": "for ada"}})
    found = whats(path)
    assert "the condition of a DELETE names values of the personal column 'email'" in found
    assert "a note that Sluice did not write" in found and "ada" not in found
    bare = str(tmp_path / "bare")
    noted = CommitProperties(custom_metadata={"userMetadata": '{"sluice": 1, "run": "a"}'})
    write_deltalake(bare, pa.table({"id": [1]}), commit_properties=noted)
    assert [one.what.rpartition(": ")[2] for one in prevention.inspect_table_log(bare, "t", PERSONAL)] == [
        f"{name} is missing" for name in prevention.RETENTIONS
    ]


def test_a_log_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    path = made(tmp_path / "t", **{"delta.dataSkippingStatsColumns": "id"})
    (tmp_path / "t" / "_delta_log" / ".00000000000000000001.json.5f.tmp").write_text('{"add": {"stats": "half')
    assert "cannot be read" in whats(path) and "half" not in whats(path)


def test_all_tables_of_a_lake_are_looked_into_also_what_nobody_declared(settings: Settings) -> None:
    declared = shop(sales())
    made(Path(settings.lake) / "shop" / "test_prevention" / "sales", **{"delta.dataSkippingStatsColumns": "id"})
    made(Path(settings.lake) / "shop" / "copy_of_bob")
    found = {one.table for one in prevention.inspect_lake_logs(PipelineLake(settings, declared))}
    assert found == {"shop/copy_of_bob"}, "whatever is personal anywhere may be in what nobody declared"


def test_a_personal_column_that_is_none_protects_nothing() -> None:
    with pytest.raises(DeclarationError, match=r"personal names 'emial', no column of its schema\. Did you mean 'email'\?"):
        build_declaration_graph(PIPELINE, [replace(SOURCE, personal=("emial",))])
    with pytest.raises(
        DeclarationError,
        match="personal names 'emial', which is not one of its columns: the column that is meant would get into statistics",
    ):
        shop(sales(personal="emial", schema="id BIGINT, who STRING, email STRING"))
    shop(sales(schema="id BIGINT, who STRING"))  # what it inherits by name it need not have


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("FLOAT", "it keeps seven digits"),
        ("DOUBLE", "12140.0"),
        ("DECIMAL(20, 2)", "12140.00"),
        ("binary", "no text"),
        ("TIMESTAMP", "time zone"),
        ("TIMESTAMP_NTZ", "reads no times"),
        ("DATE", "reads no dates"),
        ("BOOLEAN", "compared as text"),
        ("INTERVAL DAY", "compared as text"),
        ("ARRAY<BIGINT>", "a column of its own"),
        ("MAP<STRING, BIGINT>", "a column of its own"),
        ("STRUCT<id: BIGINT>", "subject_in"),
        ("VARIANT", "a column of its own"),
    ],
)
def test_a_column_whose_type_identifies_nobody_is_no_subject(kind: str, why: str) -> None:
    ddl = f"id BIGINT, Who {kind} NOT NULL, email STRING"
    shown = re.escape(kind.upper().partition("<")[0])
    with pytest.raises(DeclarationError, match=rf"subject names 'who', which is {shown}.*{why}"):
        build_declaration_graph(PIPELINE, [replace(SOURCE, schema=ddl)])
    others = replace(SOURCE, schema=f"{ddl.replace(' NOT NULL', '')}, by STRING", subject="by", also_subjects=(("who", "who"),))
    with pytest.raises(DeclarationError, match=f"also_subjects names 'who', which is.*{shown}"):
        build_declaration_graph(PIPELINE, [others])
    with pytest.raises(DeclarationError, match=f"table 'sales': subject names 'who', which is.*{shown}"):
        shop(sales(schema=f"id BIGINT, who {kind}"))
    link = Link("sales", person=("who", "who"), identifier=("card", "card"))
    carded = sales(schema=f"id BIGINT, who STRING, card {kind}")
    with pytest.raises(DeclarationError, match=f"Link of table 'sales': identifier names 'card', which is.*{shown}"):
        build_declaration_graph(PIPELINE, [SOURCE, carded], [link])
    inside = replace(SOURCE, schema=ddl, subject_in="CAST(who AS STRING)", domain="who")
    assert build_declaration_graph(PIPELINE, [inside]).sources["orders"].subject == "who", "subject_in says what is compared"


@pytest.mark.parametrize(
    "kind",
    [
        "STRING",
        "CHAR(9)",
        "CHARACTER(9)",
        "VARCHAR(20)",
        "byte",
        "SMALLINT",
        "INTEGER",
        "LONG",
        "DECIMAL",
        "DECIMAL(20)",
        "NUMERIC(20, 0)",
    ],
)
def test_a_column_of_whole_numbers_or_texts_may_be_the_subject(kind: str) -> None:
    ddl = f"id BIGINT, who {kind} NOT NULL COMMENT 'whose, DOUBLE', email STRING"
    assert build_declaration_graph(PIPELINE, [replace(SOURCE, schema=ddl)]).sources["orders"].subject == "who"


def test_the_key_of_a_topic_may_say_whose_a_record_is_and_its_time_may_not() -> None:
    topic = KafkaSource(name="orders", servers="broker:9092", topics="orders", subject="key")
    assert build_declaration_graph(PIPELINE, [topic]).sources["orders"].subject == "key"
    with pytest.raises(DeclarationError, match="subject names 'timestamp', which is TIMESTAMP"):
        build_declaration_graph(PIPELINE, [replace(topic, subject="timestamp")])


def test_layout_is_refused_whatever_the_letter_case() -> None:
    with pytest.raises(DeclarationError, match="zorder_by names the personal column 'EMAIL'"):
        shop(sales(zorder_by="EMAIL"))


def test_a_personal_field_within_a_column_hides_the_column() -> None:
    ddl = "id BIGINT, who STRING, address STRUCT<email: STRING, town: STRING>"
    source = replace(SOURCE, schema=ddl, personal=("address.email",))
    declared = build_declaration_graph(PIPELINE, [source, sales()])
    released = plan_released_columns(declared, declared.tables["sales"], ["id", "who", "Address"])
    assert released.left_out == ("Address",), "whoever gets the column gets the field"
    with pytest.raises(DeclarationError, match="shows the personal column 'address' to the role 'analyst'"):
        build_declaration_graph(
            PIPELINE, [source, sales(), role_view("v", reads="sales", role="analyst", columns=("id", "address"))]
        )


def test_a_clone_leaves_personal_columns_behind_whatever_the_letter_case() -> None:
    schema = StructType([StructField(name, StringType()) for name in ("ID", "Email", "town")])
    asked = copying.CloneRequest("t", 0, "u", None, private=frozenset({"id", "email"}), joining=frozenset({"id"}))
    assert copying._plan_cloned_columns(schema, asked) == copying.ClonedColumns(["Email"], ["ID"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"at_least": 5}, "at_least and subjects come together"),
        ({"subjects": "people"}, "at_least and subjects come together"),
        ({"at_least": 1, "subjects": "people"}, "a whole number from 2 on, not 1"),
        ({"at_least": 5, "subjects": "who"}, "names the personal column 'who'"),
    ],
)
def test_small_groups_say_what_counts_people(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        shop(sales(), towns(**options))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": "who"}, "'who' is personal and among its keys, and would become NULL"),
        ({"sequence_by": "email"}, "'email' is personal and among its sequence_by"),
        ({"personal": "town"}, "source 'orders' names no such personal column"),
        (
            {"schema": "id BIGINT, email STRING NOT NULL, who STRING"},
            "makes 'email' NULL, and the schema of 'sales' says NOT NULL",
        ),
        ({"on_erasure": "anonymize"}, "Did you mean 'anonymise'?"),
    ],
)
def test_what_cannot_be_kept_without_the_person_is_refused_with_the_reason(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        shop(sales(**{"on_erasure": "anonymise", **options}))
    assert said in str(caught.value)


def test_facts_are_not_kept_where_bronze_may_be_made_anew() -> None:
    with pytest.raises(DeclarationError, match="the facts would be lost"):
        build_declaration_graph(PIPELINE, [replace(SOURCE, may_refresh=True), sales(on_erasure="anonymise")])
    shop(sales(on_erasure="anonymise"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keep_for": "a year"}, "keep_for is an interval such as '400 days'"),
        ({"keep_for": "400 days", "dated_by": None}, "keep_for needs a record's age"),
    ],
)
def test_age_needs_a_length_and_a_time(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        build_declaration_graph(PIPELINE, [replace(SOURCE, **options)])
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": ("id", "email")}, "it shows the personal column 'email' to the role 'analyst'"),
        ({"columns": "id", "role": "analist"}, "there is no role 'analist'. Did you mean 'analyst'?"),
    ],
)
def test_what_a_role_sees_is_said_column_by_column(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        shop(sales(), role_view("seen", **{"reads": "sales", "role": "analyst", **options}))
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": "id", "masks": {"emial": mask.redact()}}, "masks names 'emial', which it does not show"),
        ({"columns": "email", "masks": {"email": "***"}}, r"is one of sluice.declare.mask"),
        ({"columns": ()}, "columns may not be empty"),
    ],
)
def test_a_mask_is_of_a_column_that_is_shown(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        role_view("seen", reads="sales", role="analyst", **options)


def test_nothing_is_made_of_what_a_role_sees_and_what_is_shown_as_it_is_stays_personal() -> None:
    seen = role_view(
        "seen", reads="sales", role="analyst", columns=("id", "who", "email"), masks={"who": None, "email": mask.domain()}
    )
    assert shop(sales(), seen).computed["seen"].role == "analyst"
    with pytest.raises(DeclarationError, match=r"reads 'seen', which is the view of a role\. Read sales"):
        shop(sales(), seen, towns(reads="seen"))


def _commit(path: str, version: int, *actions: dict[str, Any]) -> None:
    file = Path(path) / "_delta_log" / f"{version:020}.json"
    file.write_text("".join(json.dumps(action) + "\n" for action in actions))
