"""What of people a pipeline says that can be known to be wrong before any data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from sluice.declare import (
    KafkaSource,
    Link,
    Pipeline,
    Source,
    auto_cdc,
    erasure_requests,
    materialized_view,
    table,
    temporary_view,
    treat,
)
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.ingest.field_names import rescued_text_expression
from sluice.erasure.subjects import closure
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIPELINE = Pipeline(name="club", description="d", owner="o", layers=("club.bronze", __name__))
WORN = Link("worn", person=("user_id", "user_id"), identifier=("device_id", "device_id"), since="since")

handed_out = Source(name="handed_out", subject="user_id", personal=("device_id",))
readings = Source(name="readings", subject="device_id", subject_at="timestamp_seconds(time)")


@table(reads="handed_out", keys=("device_id", "since"), subject="user_id", personal="device_id")
def worn(handed_out: DataFrame) -> DataFrame:
    """Who has which device from when on."""
    return handed_out


@table(reads="readings", keys=("device_id", "time"), subject="device_id", subject_at="time")
def rate(readings: DataFrame) -> DataFrame:
    """What devices told."""
    return readings


def _graph(*declared: Any, links: tuple[Link, ...] = (WORN,), asking: tuple[Any, ...] = ()) -> Graph:
    return build_declaration_graph(PIPELINE, declared, links, asking)


def _refused(says: str, *declared: Any, **more: Any) -> None:
    with pytest.raises(DeclarationError, match=re.escape(says)):
        _graph(*declared, **more)


def test_a_domain_is_the_subject_unless_it_is_said() -> None:
    events = Source(name="events", subject="key", domain="user_id")
    made = _graph(handed_out, worn, readings, rate, events)
    assert {source.name: made.domain(source) for source in made.sources.values()} == {
        "handed_out": "user_id",
        "readings": "device_id",
        "events": "user_id",
    }
    assert made.domain(made.tables["worn"]) == "user_id"
    assert made.domains() == ["device_id", "user_id"] and made.changing_hands() == {"device_id"}
    assert made.former("user_id") == {"key"} and made.former("device_id") == frozenset()
    assert made.links == (WORN,)


def test_a_name_that_is_another_domain_now_is_no_former_one() -> None:
    """If it were one, a person erased by it would be confused with somebody who has the same text as an identifier of another kind."""
    one, other = Source(name="one", subject="key", domain="user_id"), Source(name="other", subject="key")
    assert build_declaration_graph(PIPELINE, [one, other]).former("user_id") == frozenset()


def test_a_domain_is_said_of_a_subject() -> None:
    with pytest.raises(DeclarationError, match=r"domain needs a subject; declare its column \(subject=\)"):
        Source(name="events", domain="user_id")
    with pytest.raises(DeclarationError, match="subject_at needs a subject"):
        Source(name="events", subject_at="time")


def test_identifiers_that_change_hands_need_a_time() -> None:
    without = Source(name="readings", subject="device_id")
    _refused("source 'readings': identifiers of kind 'device_id' change hands (link of table 'worn')", handed_out, worn, without)
    plain = table(reads="readings", keys="time", subject="device_id", name="rate")(rate.function)
    _refused("table 'rate': identifiers of kind 'device_id' change hands", handed_out, worn, readings, plain)
    _graph(handed_out, worn, readings, rate)


def test_without_a_time_of_the_link_no_row_needs_one() -> None:
    for_ever = Link("worn", person=("user_id", "user_id"), identifier=("device_id", "device_id"))
    without = Source(name="readings", subject="device_id")
    assert _graph(handed_out, worn, without, links=(for_ever,)).changing_hands() == frozenset()


def test_the_subject_of_a_links_table_is_the_person() -> None:
    """The row that gives a device to its next owner would else be taken for the erased one's, and be left out."""
    source = Source(name="handed_out", subject="device_id", subject_at="since")
    by_device = table(reads="handed_out", keys="since", subject="device_id", subject_at="since", name="worn")(worn.function)
    _refused(
        "its rows have subjects of domain 'device_id', but the link's person is of domain 'user_id'. Make the person the subject",
        source,
        by_device,
    )


def test_links_name_tables_and_columns_that_are_there() -> None:
    wrong = Link("wron", person=("user_id", "user_id"), identifier=("device_id", "device_id"))
    _refused("Link of table 'wron': there is no such table. Did you mean 'worn'?", handed_out, worn, links=(wrong,))
    _refused(
        "Link of table 'handed_out': there is no such table",
        handed_out,
        worn,
        links=(Link("handed_out", person=("a", "user_id"), identifier=("b", "device_id")),),
    )
    typed = table(
        reads="handed_out",
        keys="since",
        subject="user_id",
        name="worn",
        schema="user_id BIGINT, device_id BIGINT, since TIMESTAMP",
    )(worn.function)
    mistaken = Link("worn", person=("user_id", "user_id"), identifier=("devise_id", "device_id"), since="since")
    _refused(
        "Link of table 'worn': it has no column 'devise_id'. Did you mean 'device_id'?", handed_out, typed, links=(mistaken,)
    )


def test_a_link_is_between_two_domains() -> None:
    with pytest.raises(DeclarationError, match="person and identifier have the same domain, 'user_id'"):
        Link("worn", person=("user_id", "user_id"), identifier=("device_id", "user_id"))
    with pytest.raises(DeclarationError, match=r"person is a column and its domain, as in \('user_id', 'user_id'\)"):
        Link("worn", person="user_id", identifier=("device_id", "device_id"))  # type: ignore[arg-type]


def test_a_personal_column_has_a_way_to_its_subject() -> None:
    _refused(
        "source 'mail' has the personal column 'address' and no subject", Source(name="mail", personal=("address",)), links=()
    )
    plain = Source(name="mail")
    made = table(reads="mail", keys="id", personal="address", name="letters")(lambda mail: mail)
    _refused("table 'letters' has the personal column 'address', and none of its sources has a subject", plain, made, links=())
    _graph(Source(name="mail", subject="customer", personal=("address",)), links=())


def test_a_link_from_an_auto_cdc_target() -> None:
    people = auto_cdc("people", reads="handed_out", keys="user_id", sequence_by="since", subject="user_id", personal="device_id")
    link = Link("people", person=("user_id", "user_id"), identifier=("device_id", "email"))
    assert _graph(handed_out, people, links=(link,)).domains() == ["email", "user_id"]


def test_rows_that_ask_for_an_erasure() -> None:
    changes = temporary_view(reads="handed_out", name="changes")(worn.function)
    said = erasure_requests(reads="changes", where="change = 'delete'", identifier=("user_id", "user_id"))
    assert _graph(handed_out, worn, changes, asking=(said,)).asking == (said,)
    other = erasure_requests(reads="changed", where="change = 'delete'", identifier=("user_id", "user"))
    _refused("it reads a source, or a temporary view of one. Did you mean 'changes'?", handed_out, worn, changes, asking=(other,))
    _refused("there is no kind of identifier 'user'. Did you mean 'user_id'?", handed_out, worn, changes, asking=(other,))
    for_device = erasure_requests(reads="changes", where="change = 'delete'", identifier=("device_id", "device_id"))
    _refused(
        "identifiers of kind 'device_id' change hands (link of table 'worn'), so that a row does not say who asks",
        handed_out,
        worn,
        changes,
        asking=(for_device,),
    )
    with pytest.raises(DeclarationError, match="where is an SQL condition over a row"):
        erasure_requests(reads="changes", where=" ", identifier=("user_id", "user_id"))


def test_whose_a_stored_row_is() -> None:
    made = _graph(handed_out, worn, readings, rate)
    source, kept = made.sources["readings"], made.tables["rate"]
    rescued = rescued_text_expression("device_id")
    assert subjects.build_subject_expression(made, source, ["device_id", "_rescued_data"]) == (
        f"coalesce(CAST(`device_id` AS STRING), {rescued})"
    )
    assert subjects.build_subject_expression(made, source, ["_rescued_data"]) == rescued
    assert subjects.build_subject_expression(made, kept, ["device_id", "time"]) == "CAST(`device_id` AS STRING)"
    assert subjects.build_subject_expression(made, kept, ["time"]) is None
    assert subjects.subject_time_expression(kept) == "time"


def test_a_pseudonym_is_found_by_the_pseudonym() -> None:
    keys = table(reads="handed_out", keys="since", subject="user_id", personal={"device_id": treat.hmac("device")}, name="keys")
    made = build_declaration_graph(PIPELINE, [handed_out, keys(worn.function)])
    assert subjects.find_table_subjects(made, made.tables["keys"], ["user_id", "device_id"]).columns == (
        ("user_id", "user_id"),
        ("device_id", "pseudonym"),
    )
    assert made.domains() == ["pseudonym", "user_id"]


IN_PAYLOAD = "CASE topic WHEN 'orders' THEN get_json_object(CAST(value AS STRING), '$.buyer.id') ELSE CAST(key AS STRING) END"


def test_a_subject_may_stand_in_a_payload() -> None:
    topics = KafkaSource(
        name="topics", servers="b:9092", topics=("orders", "visits"), subject="value", subject_in=IN_PAYLOAD, domain="user_id"
    )
    made = build_declaration_graph(PIPELINE, [topics])
    assert made.domains() == ["user_id"] and topics.private == {"value"}
    assert subjects.build_subject_expression(made, topics, ["key", "value", "topic"]) == f"CAST({IN_PAYLOAD} AS STRING)"
    with pytest.raises(DeclarationError, match=r"subject_in needs the kind of identifier that it gives \(domain=\)"):
        Source(name="events", subject="value", subject_in="get_json_object(value, '$.id')")
    with pytest.raises(DeclarationError, match="subject_in needs a subject"):
        Source(name="events", subject_in="get_json_object(value, '$.id')")


def test_a_payload_as_a_whole_is_nobodys_identifier() -> None:
    topics = Source(name="topics", subject="value", subject_in="get_json_object(value, '$.id')", domain="user_id")
    told = table(reads="topics", keys="id", subject="who", name="told")(worn.function)
    seen = materialized_view(reads="told", keys="value", name="seen")(worn.function)
    made = build_declaration_graph(PIPELINE, [topics, told, seen])
    assert subjects.find_table_subjects(made, made.views["seen"], ["value", "who"]) == subjects.TableSubjects((
        ("who", "user_id"),
    ))
    assert subjects.find_table_subjects(made, made.views["seen"], ["value"]) == subjects.TableSubjects((), frozenset({"user_id"}))


def test_the_form_of_a_kind_of_identifier_is_said_once() -> None:
    from dataclasses import replace

    from sluice.erasure.subjects.closure import canonicalise_identifiers
    from sluice.erasure.vault import Identifier

    mail = Link("worn", person=("user_id", "user_id"), identifier=("email", "email"))

    def keys(form: Any, named: str = "email") -> Any:
        hidden = {"email": treat.hmac(named, canonical=form)}
        return table(reads="handed_out", keys="since", subject="user_id", personal=hidden, name="keys")(
            lambda handed_out: handed_out
        )

    def formed(said: dict[str, str], *more: Any) -> Graph:
        return build_declaration_graph(replace(PIPELINE, canonical=said), [handed_out, readings, worn, rate, *more], [WORN, mail])

    assert formed({}).forms == {} and formed({"email": "text"}).forms == {}
    assert formed({"email": "lower"}).forms == {"email": "lower"}
    assert formed({}, keys("lower")).forms == {"email": "lower"}, "as its pseudonyms are made"
    assert formed({}, keys("lower", "another")).forms == {"email": "lower"}, "by its column"
    made = formed({"email": "lower", "device_id": "digits"})
    asked = [Identifier("email", " Ada@Example.org"), Identifier("device_id", "No. 17"), Identifier("user_id", "Ada")]
    assert [one.value for one in canonicalise_identifiers(made, asked)] == ["ada@example.org", "17", "Ada"]
    for said, more, why in (
        ({"mail": "lower"}, (), "canonical names 'mail', no kind of identifier. Did you mean 'email'?"),
        ({"email": "lowe"}, (), "canonical has no form 'lowe' for 'email'. Did you mean 'lower'?"),
        ({"email": "digits"}, (keys("lower"),), "Use one form for each kind of identifier"),
    ):
        with pytest.raises(DeclarationError, match=re.escape(why)):
            formed(said, *more)


def test_a_uuid_has_two_spellings_with_and_without_dashes() -> None:
    dashed, bare = "550e8400-E29b-41d4-a716-446655440000", "f" * 32
    found = closure._KnownIdentifiers()
    for value in (dashed, bare, "550e8400"):
        found.add("device", value, (None, None, None))
    closure._add_uuid_spellings(found)
    values = {one.value for one in found.identifiers()}
    assert values == {dashed, dashed.replace("-", ""), bare, "ffffffff-ffff-ffff-ffff-ffffffffffff", "550e8400"}
