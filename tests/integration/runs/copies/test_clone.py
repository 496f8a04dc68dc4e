"""`sluice clone`: a copy that names nobody and joins as before, or references to the files; and what runs in it."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import Lakehouse

from sluice.cli.erasure import making_requests
from sluice.cli.tables.read import query_delta_table
from sluice.cli.tables.upkeep import describe_table_vacuums
from sluice.declare import F, Pipeline, Source, materialized_view, table
from sluice.declare.assembly.graph import Graph, build_declaration_graph
from sluice.erasure import requests
from sluice.errors import SluiceError, UsageError
from sluice.flows.copies import copying
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake
from sluice.locations import locate
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import pseudonyms
from sluice.runs.copies import cloning, releasing
from sluice.runs.execution import clones, upkeep
from sluice.runs.repair import quarantine_run, restoring
from sluice.runs.repair.quarantine_run import QuarantineSelection
from sluice.runs.status import removals
from sluice.table_properties import RETENTION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = Pipeline(
    name="club", description="A club.", owner="tests", layers=("club.bronze", "club.silver", "club.gold"), retain="9 days"
)
VISITS = Source(name="visits", schema="person BIGINT, name STRING, at INT, room STRING", subject="person", personal="name")
ROOMS = Source(name="rooms", schema="room STRING, seats INT")
PEOPLE = {4_010_010_010_001: "Annabel", 4_010_010_010_002: "Bartholomew", 4_010_010_010_003: "Clementine"}
"""Their numbers are so long that no time and no name of a file holds one by chance."""


def within(layer: str) -> Callable[[Any], Any]:
    """Let a transform be declared in a layer."""

    def set_module(function: Any) -> Any:
        function.__module__ = f"club.{layer}"
        return function

    return set_module


def declared() -> Graph:
    @table(
        reads="visits",
        keys=("person", "at"),
        subject="person",
        personal="name",
        partition_by="room",
        schema="""
            person BIGINT NOT NULL COMMENT 'the number of the member', name STRING, at INT, room STRING,
            CONSTRAINT later CHECK (at > 0), CONSTRAINT named CHECK (length(name) > 1), CONSTRAINT numbered CHECK (person < 10000000000000)
        """,
    )
    @within("silver")
    def visit(visits: DataFrame) -> DataFrame:
        """Who was where."""
        return visits.select("person", "name", "at", "room")

    @table(reads="visits", keys="card", subject="card")
    @within("silver")
    def card(visits: DataFrame) -> DataFrame:
        """A member's card, which has the number as a text."""
        return visits.select(F.col("person").cast("string").alias("card"))

    @table(reads="rooms", keys="room")
    @within("silver")
    def room(rooms: DataFrame) -> DataFrame:
        """Rooms."""
        return rooms.select("room", "seats")

    @table(reads="visits", keys="person", subject="person", personal="name", restricted=True)
    @within("silver")
    def person(visits: DataFrame) -> DataFrame:
        """Who is behind a number."""
        return visits.select("person", "name")

    @materialized_view(reads=("visit", "card", "room"), keys="card", personal="card")
    @within("gold")
    def seats(visit: DataFrame, card: DataFrame, room: DataFrame) -> DataFrame:
        """How many seats a member had the choice of."""
        known = card.join(visit, F.col("card").cast("bigint") == F.col("person")).join(room, "room")
        return known.groupBy("card").agg(F.sum("seats").alias("seats"))

    @materialized_view(reads="visit", keys="initial")
    @within("gold")
    def initials(visit: DataFrame) -> DataFrame:
        """How many members' names begin so."""
        return visit.groupBy(F.substring("name", 1, 1).alias("initial")).agg(F.count("*").alias("visits"))

    return build_declaration_graph(PIPELINE, [VISITS, ROOMS, visit, card, room, person, seats, initials])


@pytest.fixture(scope="module")
def club(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    """A club with a few visits in all layers, one of them bad."""
    from tests.conftest import settings_at

    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("club")), spark, declared())
    rows = [
        {"person": n, "name": name, "at": at, "room": room}
        for n, name in PEOPLE.items()
        for at, room in ((1, "a"), (n % 3 + 2, "b"))
    ]
    lake.land(
        "visits/1.json",
        "".join(json.dumps(row) + "\n" for row in [*rows, {"person": 4_010_010_010_009, "name": "Unborn", "at": -1}]),
    )
    lake.land("rooms/1.json", '{"room": "a", "seats": 3}\n{"room": "b", "seats": 4}\n')
    lake.run()
    return lake


def cloned(club: Lakehouse, folder: Path, kind: str = clones.COPY, *names: str) -> tuple[Lakehouse, dict[str, Any]]:
    """The lake of a clone, and what it says of itself."""
    _, made = cloning.clone_tables(club.lake, str(folder), kind, names)
    return Lakehouse(replace(club.settings, lake=str(folder)), club.spark, club.graph), made


def test_a_copy_names_nobody_and_joins_as_before(club: Lakehouse, tmp_path: Path) -> None:
    copy, made = cloned(club, tmp_path / "dev")
    assert made["finished"] and clones.read_clone_description(PipelineRecords(copy.settings, "club")) == made
    assert set(made["tables"]) == {"rooms", "rooms_quarantine", "room", "room_quarantine", "visit", "card", "seats", "initials"}
    assert set(made["not_cloned"]) == {
        "visits",
        "visits_quarantine",
        "visit_quarantine",
        "card_quarantine",
        "person",
        "person_quarantine",
    }
    assert made["tables"]["visit"] == {
        "version": log.latest_table_version(club.workspace().path("visit")),
        "left_out": ["name"],
        "stand_ins": ["person"],
    }
    # Nobody by name or by number, in no file.
    signs = [word.encode() for name, number in zip(PEOPLE.values(), PEOPLE, strict=True) for word in (name, str(number))]
    for file in (tmp_path / "dev").rglob("*"):
        if file.is_file():
            assert not any(sign in file.read_bytes() for sign in signs), file
    assert not {row[0] for row in copy.rows("visit", "person")} & set(PEOPLE)
    assert Counter(copy.rows("room")) == Counter(club.rows("room"))
    visits = [row[1:] for row in copy.rows("visit", "person", "at", "room")]
    assert Counter(visits) == Counter(row[1:] for row in club.rows("visit", "person", "at", "room"))

    # Views are brought up to date in it, from fresh checkpoints: the stand-ins join, whatever type they are of.
    before = copy.rows("seats")
    reports = copy.run("gold")
    assert copy.rows("seats") == before and [row[1] for row in before] == [7, 7, 7]
    assert {row[0] for row in before} == {str(row[0]) for row in copy.rows("visit", "person")}
    assert reports["initials"].notes == ["as it was cloned: it needs the column 'name', which the clone leaves out"]
    assert copy.rows("initials") == club.rows("initials") == [("A", 2), ("B", 2), ("C", 2)]
    # Another clone has other stand-ins.
    other, _ = cloned(club, tmp_path / "other", clones.COPY, "card")
    assert not set(other.rows("card")) & set(copy.rows("card"))


def test_a_copy_is_made_as_its_table_is(club: Lakehouse, tmp_path: Path) -> None:
    copy, _ = cloned(club, tmp_path / "dev", clones.COPY, "visit")
    path = copy.workspace().path("visit")
    properties = log.read_table_properties(path)
    assert log.read_partition_columns(path) == ["room"] and log.read_table_comment(path) == "Who was where."
    assert properties["delta.constraints.later"] == "at > 0" and properties["sluice.checks"] == "later"
    assert "delta.constraints.named" not in properties and "delta.constraints.numbered" not in properties
    assert properties["delta.deletedFileRetentionDuration"] == "interval 9 days"
    assert properties["delta.enableChangeDataFeed"] == "true"
    assert "person" not in properties["delta.dataSkippingStatsColumns"].split(",")
    schema = club.spark.read.format("delta").load(path).schema
    assert schema["person"].metadata["comment"] == "the number of the member" and not schema["person"].nullable


@pytest.mark.slow
def test_a_shallow_clone_has_everything_and_reads_the_files_of_its_source(club: Lakehouse, tmp_path: Path) -> None:
    shallow, made = cloned(club, tmp_path / "dev", clones.SHALLOW)
    assert set(made["not_cloned"]) == {"person", "person_quarantine"}
    for name in ("visits", "visit", "visit_quarantine", "seats"):
        assert shallow.rows(name) == club.rows(name), name
    path = shallow.workspace().path("visit")
    assert (
        not [file for file in Path(path).rglob("*.parquet") if "_delta_log" not in file.parts]
        and log.read_table_comment(path) == "Who was where."
    )
    assert len(query_delta_table(path, "SELECT * FROM t")) == 6, "without Spark, too"
    shallow.run("gold")
    assert shallow.rows("seats") == club.rows("seats")


def test_in_a_clone_nothing_but_views_runs(club: Lakehouse, tmp_path: Path) -> None:
    copy, _ = cloned(club, tmp_path / "dev", clones.COPY, "room")
    for stage in ("bronze", "silver", "propagate_deletions"):
        with pytest.raises(UsageError, match=r"is a clone of .* Run: sluice run club --stage gold"):
            clones.check_stage_in_clone(copy.lake, stage)
    clones.check_stage_in_clone(copy.lake, "gold")
    clones.check_stage_in_clone(club.lake, "bronze")


@pytest.mark.thorough
def test_in_a_clone_nothing_is_written_that_belongs_to_its_source(club: Lakehouse, tmp_path: Path) -> None:
    shallow, _ = cloned(club, tmp_path / "dev", clones.SHALLOW, "room")
    settings, graph = shallow.settings, shallow.graph
    for work in (
        lambda: releasing.release_tables(PipelineLake(settings, graph), ["room"]),
        lambda: cloned(shallow, tmp_path / "shallow", clones.SHALLOW),
        lambda: cloned(shallow, tmp_path / "copy"),
        lambda: making_requests.refuse_request_in_clone(PipelineLake(settings, graph)),
        lambda: quarantine_run.run_quarantine_replay(PipelineLake(settings, graph), [QuarantineSelection("rooms", None)]),
    ):
        with pytest.raises(UsageError, match=rf"is a clone of {club.settings.lake}\. "):
            work()
    assert not locate(settings.released).exists() and not (tmp_path / "shallow").exists() and not (tmp_path / "copy").exists()
    # Restricted tables lie beside the lake: they are the source's, unless the clone is given a place of its own.
    own = replace(settings, restricted=tmp_path / "restricted")
    for stage in ("optimize", "vacuum"):
        with pytest.raises(UsageError, match=r"'person' is restricted, and would be written where"):
            clones.check_stage_in_clone(PipelineLake(settings, graph), stage)
        clones.check_stage_in_clone(PipelineLake(own, graph), stage)
    with pytest.raises(UsageError, match=r"'person' is restricted, and would be written where"):
        restoring.run_table_restore(PipelineLake(settings, graph), "person", "0")


def test_what_is_no_place_for_a_clone_and_what_is_not_cloned_is_said(club: Lakehouse, tmp_path: Path) -> None:
    lake = club.settings.lake
    for folder in (lake, f"{lake}/dev", str(Path(lake).parent)):
        with pytest.raises(UsageError, match="a lake of its own"):
            cloned(club, Path(folder))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is no folder"):
        cloned(club, tmp_path / "file")
    with pytest.raises(UsageError, match=r"'club.person' is not cloned: it is restricted"):
        cloned(club, tmp_path / "dev", clones.SHALLOW, "person")
    with pytest.raises(UsageError, match=r"'club.visits' is not cloned: it holds records as they came"):
        cloned(club, tmp_path / "dev", clones.COPY, "visits")
    with pytest.raises(UsageError, match=r"no table 'club.rom'.*'room'"):
        cloned(club, tmp_path / "dev", clones.COPY, "rom")
    cloned(club, tmp_path / "dev", clones.COPY, "room")
    with pytest.raises(UsageError, match=r"has tables of 'club' already.* remove"):
        cloned(club, tmp_path / "dev")


def test_stand_ins_tell_values_apart_and_are_of_their_type(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("7", 7, 7), (" 7", 8, 8), ("", 9, 9), ("x", None, 10), (None, 11, 11)], "t STRING, b BIGINT, i INT"
    )
    made = pseudonyms.replace_with_stand_ins(frame, b"k" * 32, ("t", "b", "i"))
    assert [kind for _, kind in made.dtypes] == ["string", "bigint", "int"]
    rows = made.collect()
    assert len({row.t for row in rows}) == 5 and rows[4].t is None and rows[3].b is None
    assert rows[0].t == str(rows[0].b), "the text of a number has the stand-in of the number"
    assert len({row.b for row in rows}) == 5 and len({row.i for row in rows}) == 5


@pytest.mark.thorough
def test_two_values_with_one_stand_in_stop_the_clone(club: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        copying.pseudonyms,
        "replace_with_stand_ins",
        lambda frame, key, columns: frame.withColumns({c: F.lit(1) for c in columns}),
    )
    path = str(tmp_path / "t")
    club.spark.range(3).selectExpr("CAST(id AS INT) AS i").write.format("delta").save(path)
    asked = copying.CloneRequest(path, 0, f"{path}2", None, frozenset({"i"}), frozenset({"i"}))
    from sluice.lake.flow_report import FlowReport

    with pytest.raises(SluiceError, match="'i' is INT and has 3 values; two of them got one stand-in"):
        copying.copy_table_into_clone(club.workspace(), asked, b"", FlowReport("t", "clone"))


@pytest.mark.slow
def test_vacuum_waits_for_a_shallow_clone_that_reads_files_which_its_table_has_no_longer(club: Lakehouse, tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    shallow, _ = cloned(club, dev, clones.SHALLOW, "initials")
    path, rows = club.workspace().path("initials"), club.rows("initials")
    club.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('{RETENTION}' = 'interval 0 days')")
    club.spark.sql(f"UPDATE delta.`{path}` SET visits = visits")
    (held,) = upkeep.vacuum_named_table(club.workspace(), "initials")
    why = f"the shallow clone {dev} reads files that the table no longer has; remove that folder, and the files go with the next VACUUM"
    assert held.deleted == 0 and held.notes == [f"not vacuumed: {why}"]
    assert held.decision and held.decision.startswith("no: 1 reader is behind; else yes: "), held.decision
    assert Counter(shallow.rows("initials")) == Counter(rows)
    (asked,) = [row for row in describe_table_vacuums(club.lake) if row["table"] == "initials"]
    assert not asked["remove"] and asked["why"] == why

    patient = replace(club.graph, pipeline=replace(club.graph.pipeline, vacuum_waits="1 second"))
    assert removals.decide_table_vacuums(PipelineLake(club.settings, patient), datetime.now(UTC) + timedelta(seconds=2))[
        "initials"
    ].needed
    shutil.rmtree(dev / "club")
    (done,) = upkeep.vacuum_named_table(club.workspace(), "initials")
    assert done.deleted > 0 and done.notes == [f"{done.deleted} files removed"]
    assert Counter(club.rows("initials")) == Counter(rows)


@pytest.mark.slow
def test_whoever_was_erased_is_in_no_copy(club: Lakehouse, tmp_path: Path) -> None:
    cloned(club, tmp_path / "shallow", clones.SHALLOW, "room")
    requests.receive_erasure_request(club.lake, [str(list(PEOPLE)[1])])
    with pytest.raises(SluiceError, match="Erasure requests of 'club' wait"):
        cloned(club, tmp_path / "dev")
    reports = club.run("propagate_deletions")
    assert f"still in the shallow clone {tmp_path / 'shallow'}: remove it" in next(iter(reports.values())).notes
    copy, _ = cloned(club, tmp_path / "dev")
    assert len(copy.rows("visit")) == 4 and len(copy.rows("card")) == 3
