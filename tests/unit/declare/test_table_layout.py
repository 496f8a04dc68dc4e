"""Declared layout: what does not fit a table or its pipeline is said when it is declared, and what is not declared changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

from sluice.declare import (
    KafkaSource,
    Layout,
    Pipeline,
    Source,
    Watermark,
    auto_cdc,
    auto_cdc_from_snapshot,
    materialized_view,
    table,
    windowed,
)
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint, digest_declarations
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.errors import DeclarationError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SALES = Source(name="sales", path="sales", comment="Sales.", schema="id BIGINT, day DATE, email STRING, at TIMESTAMP")
EVERYTHING = Layout(
    retain="14 days",
    keep_log="60 days",
    statistics=("id", "day"),
    target_file_size="64m",
    change_feed=False,
    deletion_vectors=True,
)


def visits(sales: DataFrame) -> DataFrame:
    """A visit."""
    return sales


def declare(layout: Layout | None = None, personal: str | tuple[str, ...] = (), **options: Any) -> Any:
    return table(reads="sales", keys="id", layout=layout, personal=personal, **options)(visits)


def assemble(*declared: Any, source: Source = SALES, **options: Any) -> Graph:
    given = {"name": "shop", "description": "A shop.", "owner": "t", "layers": ("shop.bronze", __name__)}
    return build_declaration_graph(Pipeline(**given | options), [source, *declared])


@pytest.mark.parametrize(
    ("options", "personal", "said"),
    [
        ({"statistics": "email"}, "email", "layout.statistics names the personal column 'email'"),
        ({"statistics": "EMAIL"}, "email", "personal column"),
        ({"retain": "3 days"}, "email", "has the retain= of its pipeline"),
        ({"retain": "60 days", "keep_log": "40 days"}, (), "shorter than layout.retain"),
        ({"deletion_vectors": True}, "email", "must leave the files"),
    ],
)
def test_what_does_not_fit_a_table_is_refused(options: dict[str, Any], personal: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        declare(Layout(**options), personal)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster_by": "day", "zorder_by": "id"}, "cluster_by and zorder_by exclude each other"),
        ({"cluster_by": "id", "partition_by": "day"}, "cluster_by and partition_by exclude each other"),
        ({"cluster_by": "EMAIL", "personal": "email"}, "cluster_by names the personal column 'EMAIL'"),
        ({"cluster_by": tuple("abcde")}, "names 5 columns; Delta clusters by 4 at most"),
        ({"cluster_by": "day", "layout": Layout(statistics="id")}, "layout.statistics lacks 'day', which cluster_by names"),
    ],
)
@pytest.mark.parametrize("kind", [table, materialized_view, windowed, auto_cdc])
def test_an_order_that_delta_cannot_have_is_refused_of_every_kind(kind: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        if kind is auto_cdc:
            assemble(auto_cdc("visits", reads="sales", keys="id", sequence_by="at", **options))
        else:
            more = {"watermark": Watermark("at", "1 hour")} if kind is windowed else {}
            kind(reads="sales", keys="id", **more, **options)(visits)


@pytest.mark.parametrize(
    "options",
    [
        {"retain": "soon"},
        {"keep_log": "P3D"},
        {"statistics": ("a", "a")},
        {"statistics": (1,)},
        {"target_file_size": "large"},
        {"target_file_size": "10k"},
        {"change_feed": "no"},
        {"deletion_vectors": None},
    ],
)
def test_what_is_no_interval_no_columns_and_no_size_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="Layout"):
        Layout(**options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster_by": "dya"}, "cluster_by names 'dya', no column of its schema=. Did you mean 'day'?"),
        ({"layout": Layout(statistics="idd")}, "layout.statistics names 'idd', no column of its schema=. Did you mean 'id'?"),
    ],
)
def test_an_unknown_column_is_named_with_the_nearest_one(options: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        assemble(declare(schema="id BIGINT, day DATE", **options))
    assert said in str(caught.value)
    target = auto_cdc("visits", reads="sales", keys="id", sequence_by="at", schema="id BIGINT, day DATE", **options)
    with pytest.raises(DeclarationError) as caught:
        assemble(target)
    assert said in str(caught.value)


def source(layout: Layout, **options: Any) -> Source:
    return Source(**{"name": "sales", "path": "sales", "schema": SALES.schema, "layout": layout, **options})


VIEW = materialized_view(reads="sales", keys="id", name="whole")(visits)
STREAM = windowed(reads="visits", keys="id", name="counted", watermark=Watermark("at", "1 hour"))(visits)


@pytest.mark.parametrize(
    ("layout", "declared", "pipeline", "said"),
    [
        ({"statistics": "dya"}, [], {}, "layout.statistics names 'dya', no column of its schema=. Did you mean 'day'?"),
        ({"statistics": "_delivery"}, [], {}, "names '_delivery', which Sluice, Delta or Spark uses itself"),
        ({"change_feed": False}, [VIEW], {}, "layout.change_feed is False, but 'whole' follows the table's changes by its feed"),
        ({"retain": "2 hours"}, [], {"deadline": "6 hours"}, "layout.retain ('2 hours') is shorter than the deadline="),
        ({"keep_log": "20 days"}, [], {"retain": "30 days"}, "layout.keep_log ('20 days') is shorter than the retain="),
        ({"keep_log": "20 days"}, [VIEW], {"vacuum_waits": "30 days"}, "is shorter than the vacuum_waits= of the pipeline"),
    ],
)
def test_what_the_pipeline_needs_of_a_source_is_not_declared_away(
    layout: dict[str, Any], declared: Sequence[Any], pipeline: dict[str, Any], said: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        assemble(*declared, source=source(Layout(**layout)), **pipeline)
    assert "Pipeline 'shop': source 'sales': " in str(caught.value) and said in str(caught.value)


def test_the_change_feed_of_what_a_stream_follows_is_kept_and_of_what_nothing_follows_need_not_be() -> None:
    with pytest.raises(DeclarationError, match=r"table 'visits': layout.change_feed is False, but 'counted' follows"):
        assemble(declare(Layout(change_feed=False)), STREAM)
    # A @table reads deliveries of bronze, not its changes; and nobody waits for a log that nobody follows.
    silent = Layout(change_feed=False, keep_log="20 days")
    made = assemble(declare(silent), source=source(silent), vacuum_waits="30 days")
    assert made["sales"].layout == made["visits"].layout == silent


def test_a_layout_is_of_a_table_and_a_source_whose_records_go_into_another_has_none() -> None:
    other = source(Layout(keep_log="40 days"), name="more", into="sales")
    with pytest.raises(
        DeclarationError, match=r"source 'more': layout belongs to a table, and the records go into 'sales'. Declare it there."
    ):
        assemble(other)
    with pytest.raises(DeclarationError, match=r"Source 'sales': layout.statistics names the personal column 'email'"):
        source(Layout(statistics="email"), personal="email")
    topic = KafkaSource(name="taps", servers="localhost:9092", topics="taps", layout=EVERYTHING)
    assert topic.layout == EVERYTHING


def test_every_kind_takes_a_layout_and_brings_it_to_its_table() -> None:
    kept = Layout(keep_log="60 days")
    options: dict[str, Any] = {"cluster_by": "day", "layout": kept}
    made = assemble(
        declare(**options),
        declare(name="cleared", sequence_by="at", apply_as_deletes="id < 0", **options),
        materialized_view(reads="sales", keys="id", name="whole", **options)(visits),
        windowed(reads="sales", keys="id", name="counted", watermark=Watermark("at", "1 hour"), **options)(visits),
        auto_cdc("members", reads="sales", keys="id", sequence_by="at", **options),
        auto_cdc_from_snapshot("extracts", reads="sales", keys="id", snapshot_by="day", **options),
        source=source(kept),
    )
    shown = {one.name: (one.layout, one.cluster_by) for one in made if not one.serves}
    assert shown.pop("sales") == (kept, ())
    assert shown == dict.fromkeys(("visits", "cleared", "whole", "counted", "members", "extracts"), (kept, ("day",)))
    assert {one.layout for one in made if one.serves} == {None}, "a log of changes is kept as all are"


def test_a_layout_is_no_part_of_the_fingerprint_but_a_quiet_pipeline_is_told() -> None:
    """A layout changes no row: a table that gets one is not refreshed, but the next run applies it."""
    for options in ({"layout": EVERYTHING}, {"cluster_by": "day"}):
        assert compute_declaration_fingerprint(declare(**options)) == compute_declaration_fingerprint(declare(None))
        assert digest_declarations(assemble(declare(**options))) != digest_declarations(assemble(declare(None)))
    assert repr(source(EVERYTHING)) == repr(source(Layout())), "transforms that name a source count its repr"
    assert digest_declarations(assemble(source=source(EVERYTHING))) != digest_declarations(assemble(source=source(Layout())))
    assert (EVERYTHING.statistics_columns, EVERYTHING.file_bytes) == (("id", "day"), 64_000_000)
