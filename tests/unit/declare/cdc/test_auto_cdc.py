"""Targets of change feeds as declared: what they stand for, and what is wrong without any data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from sluice.declare import (
    Pipeline,
    Source,
    auto_cdc,
    auto_cdc_from_snapshot,
    expect,
    expect_or_quarantine,
    expect_unique,
    materialized_view,
    table,
    temporary_view,
    treat,
)
from sluice.declare.assembly.fingerprint import compute_declaration_fingerprint
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.declare.assembly.loading import collect_declarations
from sluice.declare.cdc.auto_cdc import AutoCdc
from sluice.declare.datasets.materialized_views import MaterializedView
from sluice.declare.datasets.tables import Table
from sluice.errors import DeclarationError
from sluice.flows.bronze.table_shape import TECHNICAL
from sluice.lake.pipeline_lake import PipelineLake
from sluice.runs.execution import stages
from sluice.runs.planning import transforms
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIPELINE = Pipeline(name="club", description="A club.", owner="t", layers=("club.bronze", __name__))
LAYER = __name__.rsplit(".", 1)[-1]
PEOPLE = Source(name="people", format="json", path="people", comment="People.", subject="id", personal="email")
VISITORS = replace(PEOPLE, name="visitors", path="visitors")


def changes(people: Any) -> Any:
    """Changes of people."""
    return people


VIEW = temporary_view(reads="people")(changes)


def target(name: str = "members", **options: Any) -> Any:
    return auto_cdc(name, **{"reads": "people", "keys": "id", "sequence_by": "at", "subject": "id", **options})


def of(*declared: Any, **options: Any) -> Graph:
    return build_declaration_graph(replace(PIPELINE, **options), [PEOPLE, VISITORS, *declared])


def test_a_target_is_a_view_over_a_change_log_that_lies_among_the_records_of_the_pipeline(tmp_path: Path) -> None:
    at = Settings(tmp_path, "lake", *(tmp_path / name for name in ("landing", "secrets", "restricted", "truth")))
    found = of(target(apply_as_truncates="op = 't'", reads=("people", "visitors")), target("history", stored_as_scd_type=2))
    assert found.views["members"].reads == (
        "members_changes_people",
        "members_changes_visitors",
        "members_truncates_people",
        "members_truncates_visitors",
    )
    assert found.views["members"].keys == ("id",)
    assert found.views["history"].keys == ("id", "__START_AT")
    assert PipelineLake(at, found).path("members_changes_people") == "lake/club/_sluice/changes/members__people"
    assert PipelineLake(at, found).path("members_truncates_visitors") == "lake/club/_sluice/truncates/members__visitors"
    assert PipelineLake(at, found).path("history_changes") == "lake/club/_sluice/changes/history"
    assert PipelineLake(at, found).path("members") == f"lake/club/{LAYER}/members"
    hidden = of(target(restricted=True))
    assert PipelineLake(at, hidden).path("members_changes") == f"{tmp_path}/restricted/club/_sluice/changes/members"


def test_a_log_has_the_subject_and_the_treatments_and_hides_what_is_made_of_personal_columns() -> None:
    log = of(target(personal={"name": treat.null()}, reads="changes"), VIEW).tables["members_changes"]
    assert log.subject == "id"
    assert log.treatments == {"name": treat.null()}
    assert {"id", "name", "email", "_content"} <= log.private
    assert "_sequence" not in log.private
    found = of(target(sequence_by="email", stored_as_scd_type=2))
    assert "_sequence" in found.tables["members_changes"].private
    assert {"__START_AT", "__END_AT"} <= found.views["members"].private


def test_expectations_are_on_the_changes_of_the_feed_and_a_delete_need_not_meet_them() -> None:
    rules = (expect("named", "name != ''"), expect_unique("once", "name"))
    found = of(target(apply_as_deletes="op = 'd'", sequence_by=("at", "n"), expectations=rules))
    assert {one.name: one.condition for one in found.tables["members_changes"].expectations} == {
        "known_key_and_sequence": "`id` IS NOT NULL AND `at` IS NOT NULL AND `n` IS NOT NULL",
        "named": "_change = 'delete' OR (name != '')",
    }
    assert found.views["members"].expectations == ()
    assert len(found.views["members"].table_expectations) == 1


def test_a_table_with_deletes_is_kept_by_a_change_log_too() -> None:
    @table(reads="changes", keys="id", sequence_by="at", apply_as_deletes="op = 'd'", subject="id")
    @expect_or_quarantine("named", "name != ''")
    def latest(changes: Any) -> Any:
        """The latest."""
        return changes

    found = of(latest, VIEW)
    assert found.views["latest"].comment == "The latest."
    assert found.views["latest"].reads == ("latest_changes",)
    assert found.tables["latest_changes"].reads == ("people",)
    assert [one.name for one in found.tables["latest_changes"].expectations] == ["known_key_and_sequence", "named"]


def wrong_table(**options: Any) -> Any:
    return table(reads="people", keys="id", subject="id", apply_as_deletes="op = 'd'", **options)(changes)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: target(keys=()), "Table 'members': keys may not be empty"),
        (lambda: target(sequence_by=()), "sequence_by may not be empty: without it the order of arrival would decide"),
        (lambda: target(stored_as_scd_type=3), "stored_as_scd_type is 1 or 2, not 3"),
        (lambda: target(apply_as_deletes=" "), "apply_as_deletes is an SQL condition over a row, as in \"change = 'delete'\""),
        (lambda: target(column_list="id", except_column_list="op"), "exclude each other"),
        (
            lambda: target(column_list=("idd", "name")),
            "keys names 'id', which is not in column_list. Did you mean 'idd'?",
        ),
        (lambda: target(except_column_list="id"), "keys names 'id', which except_column_list leaves out"),
        (lambda: target(personal={"at": treat.hmac("x")}), "sequence_by names 'at', which is treated"),
        (lambda: target(track_history_column_list="name"), "stored_as_scd_type=2"),
        (
            lambda: target(stored_as_scd_type=2, track_history_column_list="id"),
            "track_history_... names the key 'id', which never changes",
        ),
        (
            lambda: target(stored_as_scd_type=2, track_history_column_list="nam", column_list=("id", "name")),
            "names 'nam', which is no column of the table. Did you mean 'name'?",
        ),
        (lambda: of(target(reads="peple")), "table 'members' reads 'peple', which is not declared. Did you mean 'people'?"),
        (lambda: of(target(subject=None)), "table 'members' reads 'people', whose records have a subject"),
        (lambda: of(target(), target()), "two declarations are named 'members'"),
        (
            lambda: of(target(), temporary_view(reads="people", name="members_changes")(changes)),
            "'members_changes' is the name of a table that 'members' keeps for itself",
        ),
        (lambda: of(target(zorder_by="email")), "Table 'members': zorder_by names the personal column 'email'"),
        (lambda: of(target(partition_by="id")), "Table 'members': partition_by names the personal column 'id'"),
        (lambda: of(wrong_table()), "Table 'changes': apply_as_deletes needs sequence_by"),
        (lambda: of(wrong_table(sequence_by="at", key_in_one_file=True)), "exclude each other"),
        (lambda: target(expectations=(expect("a", "x"), expect("a", "y"))), "two expectations are named 'a'"),
        (
            lambda: of(target(), alert_when={"members.quarantined": 1}),
            "judged in its change log: write 'members_changes.quarantined'",
        ),
        (
            lambda: of(VIEW, materialized_view(reads="changes", keys="id", name="ages")(changes)),
            "reads the temporary view 'changes'",
        ),
        (lambda: auto_cdc_from_snapshot("stock", reads="people", keys="id", snapshot_by=""), "not str"),
    ],
)
def test_a_wrong_declaration_says_what_is_wrong(declare: Any, message: str) -> None:
    with pytest.raises(DeclarationError) as error:
        declare()
    assert message in str(error.value)


def test_a_module_declares_the_targets_that_it_makes_and_not_those_of_another_layer() -> None:
    here, elsewhere = target(), target("other")
    module, other = ModuleType(__name__), ModuleType("somewhere.else")
    module.__dict__.update(members=here, more=[replace(elsewhere, declared_in="somewhere.else")])
    assert collect_declarations([module, other], AutoCdc) == [here]
    assert here.module == __name__


def test_what_decides_on_rows_changes_the_fingerprints_and_what_does_not_leaves_them() -> None:
    def marks(**options: Any) -> tuple[str, str]:
        found = of(target(**options))
        return compute_declaration_fingerprint(found.tables["members_changes"]), compute_declaration_fingerprint(
            found.views["members"]
        )

    first = marks()
    assert marks() == first
    assert marks(comment="Another.", zorder_by="n") == first
    log, view = marks(stored_as_scd_type=2)
    assert (log == first[0], view == first[1]) == (True, False)
    for options in ({"apply_as_deletes": "op = 'd'"}, {"except_column_list": "op"}, {"sequence_by": "n"}):
        log, view = marks(**options)
        assert (log == first[0], view == first[1]) == (False, False)


def test_a_target_goes_by_the_feeds_that_are_there_and_waits_for_the_first() -> None:
    view = of(target(reads=("people", "visitors"), apply_as_truncates="op = 't'")).views["members"]
    assert view.over([]) is None
    assert view.over(["members_truncates_people"]) is None
    there = view.over(["members_truncates_people", "members_changes_visitors"])
    assert there is not None
    assert there.reads == ("members_changes_visitors", "members_truncates_people")
    assert compute_declaration_fingerprint(there) == compute_declaration_fingerprint(view)
    assert view.over(view.reads) is view


def test_a_target_is_made_anew_from_its_feed_and_replayed_with_its_log() -> None:
    found = of(target(), materialized_view(reads="members", keys="id", name="ages")(changes))
    assert stages.find_concerned_tables(found, "refresh", ["members"]) == {"members_changes", "members", "ages"}
    assert stages.find_concerned_tables(found, "replay", ["members"]) == {"people", "members_changes", "members"}


def test_all_of_a_target_is_declared_as_tables_and_views() -> None:
    found = of(auto_cdc_from_snapshot("stock", reads="people", keys="id", snapshot_by="day", subject="id"))
    assert isinstance(found["stock_snapshots"], Table)
    assert isinstance(found["stock"], MaterializedView)
    assert found["stock_snapshots"].record_path == "snapshots/stock"


@pytest.mark.spark
def test_columns_and_conditions_that_do_not_fit_are_found_without_data(spark: SparkSession, settings: Settings) -> None:
    people = replace(PEOPLE, schema="id BIGINT, name STRING, email STRING, at BIGINT, op STRING")
    visitors = replace(VISITORS, schema="id BIGINT, name INT, email STRING, at BIGINT")
    guests = replace(VISITORS, name="guests", path="guests", schema="id BIGINT, name STRING, email STRING, at BIGINT")
    declared = [
        target("a", keys="idd", subject="idd"),
        target("b", sequence_by="att"),
        target("c", column_list=("id", "nam")),
        target("d", apply_as_deletes="op"),
        target("e", track_history_except_column_list="nam", stored_as_scd_type=2),
        target("f", reads=("people", "visitors")),
        target("h", reads=("people", "guests"), column_list=("id", "nam")),
        target("i", reads=("people", "guests"), except_column_list=("opp", "email")),
        target("j", reads=("people", "guests"), except_column_list="op", personal=("emial", "at", "EMAIL", "op")),
        target("k", personal="emial"),
        target("l", except_column_list="opp"),
        target("m", column_list=("id", "name"), personal={"email": treat.hmac("x"), "name": None}),
        wrong_table(name="n", sequence_by="at", personal=("email", "emial")),
        target("g", apply_as_truncates="op = 't'", apply_as_deletes="op = 'd'", column_list=("id", "name")),
    ]
    found = transforms.examine_transforms(
        spark, PipelineLake(settings, build_declaration_graph(PIPELINE, [people, visitors, guests, *declared]))
    )
    misspelt = (
        "personal names 'emial', which is not one of its columns: the column that is meant would get into statistics. "
        "Did you mean 'email'?"
    )
    assert sorted(found.mistakes) == [
        "Table 'a': keys names 'idd', which is not a column of its input. Did you mean 'id'?",
        "Table 'b': sequence_by names 'att', which is not a column of its input. Did you mean 'at'?",
        "Table 'c': column_list names 'nam', which is not a column of its input. Did you mean 'name'?",
        "Table 'd': apply_as_deletes is a condition, as in \"change = 'delete'\"; this one is of type STRING.",
        "Table 'e': track_history_except_column_list names 'nam', which is not a column of its input. Did you mean 'name'?",
        "Table 'f': column 'name' is string in 'f_changes_people' and int in 'f_changes_visitors'; give it one type in all feeds.",
        "Table 'h': column_list names 'nam', which is not a column of its input. There are: id.",
        "Table 'i': except_column_list names 'opp', which is not a column of its input. Did you mean 'op'?",
        f"Table 'j': {misspelt}",
        f"Table 'k': {misspelt}",
        "Table 'l': except_column_list names 'opp', which is not a column of its input. Did you mean 'op'?",
        f"Table 'n': {misspelt}",
    ]
    bounds = {(one["view"], one["input"]): set(one["columns"]) for one in found.bounds if one["view"] == "g"}
    assert bounds == {("g", "g_changes"): {"id"}, ("g", "g_truncates"): set()}


@pytest.mark.spark
def test_a_personal_column_of_a_target_may_come_with_a_later_delivery(spark: SparkSession, settings: Settings) -> None:
    graph = of(target(personal=("email", "phone")), wrong_table(sequence_by="at", personal="email"))
    stored = f"id BIGINT, name STRING, at BIGINT, op STRING, {TECHNICAL}"
    spark.createDataFrame([], stored).write.format("delta").save(PipelineLake(settings, graph).path("people"))
    assert transforms.examine_transforms(spark, PipelineLake(settings, graph)).mistakes == []
    declared = replace(PEOPLE, schema="id BIGINT, name STRING, at BIGINT, op STRING, email STRING")
    graph = build_declaration_graph(PIPELINE, [declared, target(personal=("email", "phone"))])
    (mistake,) = transforms.examine_transforms(spark, PipelineLake(settings, graph)).mistakes
    assert mistake.startswith("Table 'members': personal names 'phone', which is not one of its columns")
