"""What a role sees: its own views, masked and filtered, and nothing else by the same command. And where restricted tables lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.commands import Call, call_command, use_roots_of
from tests.conftest import Lakehouse, settings_at

from sluice.cli.tables import read
from sluice.declare import F, Pipeline, Source, auto_cdc, expect_or_quarantine, mask, role_view, table, treat
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import prevention
from sluice.lake.pipeline_lake import PipelineLake
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# It bears the name of a pipeline that is there, by which the command line finds it.
PIPELINE = Pipeline(
    name="gym",
    description="A club.",
    owner="t",
    layers=("gym.bronze", __name__),
    roles={"analyst": "counts", "doctor": "heart rates"},
)
PEOPLE = Source(
    name="people", schema="who STRING, email STRING, phone STRING, town STRING, born INT, at INT", subject="who",
    personal=("email", "phone", "born"),
)  # fmt: skip

PHONE = "9876543210124567"
"""Of one of them; no time in a checkpoint has so many digits."""


@table(reads="people", keys="who", sequence_by="at", subject="who")
def member(people: DataFrame) -> DataFrame:
    """Members."""
    return people.drop("_rescued_data")


@table(reads="people", keys="who", subject="who", personal={"pseudonym": treat.hmac("user")}, restricted=True)
@expect_or_quarantine("known", "who != 'nobody-known'")
def member_keys(people: DataFrame) -> DataFrame:
    """Who is behind a pseudonym."""
    return people.select("who", F.col("who").alias("pseudonym"))


history = auto_cdc("history", reads="people", keys="who", sequence_by="at", stored_as_scd_type=2, subject="who", restricted=True)

romans = role_view(
    "romans",
    reads="member",
    role="analyst",
    columns=("who", "email", "phone", "born", "town"),
    masks={
        "who": mask.redact(),
        "email": mask.domain(),
        "phone": mask.last(4),
        "born": mask.sql("born - born % 10"),
    },
    rows="town = 'Rome'",
)
patients = role_view(
    "patients", reads="member", role="doctor", columns=("who", "email"), masks={"who": None, "email": mask.null()}
)


@pytest.fixture(scope="module")
def club(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Lakehouse:
    declared = build_declaration_graph(PIPELINE, [PEOPLE, member, member_keys, history, romans, patients])
    lake = Lakehouse(settings_at(tmp_path_factory.mktemp("club")), spark, declared)
    people = (
        {"who": "ada", "email": "ada@x.it", "phone": f"+39 06 {PHONE}", "town": "Rome", "born": 1987, "at": 1},
        {"who": "bob", "email": "none", "phone": "123", "town": "Rome", "born": None, "at": 1},
        {"who": "eve", "email": "eve@y.it", "phone": None, "town": "Bari", "born": 1990, "at": 1},
        {"who": "nobody-known", "email": None, "phone": None, "town": "Bari", "born": 1, "at": 1},
    )
    lake.land("people/1.jsonl", "".join(json.dumps(one) + "\n" for one in people))
    lake.run()
    return lake


@pytest.fixture
def call(club: Lakehouse, capsys: pytest.CaptureFixture[str]) -> Iterator[Call]:
    """A command over that lake, with its declarations in place of the gym's."""

    def declared(settings: Settings, pipeline: str) -> PipelineLake:
        other = replace(PIPELINE, name=pipeline, roles={})
        return PipelineLake(settings, club.graph if pipeline == "gym" else replace(club.graph, pipeline=other, computed={}))

    with pytest.MonkeyPatch.context() as patch:
        use_roots_of(patch, club.settings)
        patch.setattr(read, "load_lake_if_readable", declared)
        yield lambda *arguments: call_command(capsys, *arguments)


def test_a_role_sees_its_rows_and_masks(call: Call) -> None:
    code, out, err = call(
        "sql", "--role", "analyst", "--json", "WITH r AS (SELECT * FROM gym.romans) SELECT * FROM r ORDER BY born"
    )
    assert code == 0, err
    assert json.loads(out)["rows"] == [
        {"who": "***", "email": "***", "phone": "***", "born": None, "town": "Rome"},
        {"who": "***", "email": "***@x.it", "phone": f"***{PHONE[-4:]}", "born": 1980, "town": "Rome"},
    ]
    # A condition of the query is on what is shown, not on what is stored.
    assert (
        json.loads(call("sql", "--role", "analyst", "--json", "SELECT 1 FROM gym.romans WHERE email = 'ada@x.it'")[1])["rows"]
        == []
    )
    assert [
        row["col_name"] for row in json.loads(call("sql", "--role", "doctor", "--json", "DESCRIBE gym.patients")[1])["rows"]
    ] == [
        "who",
        "email",
    ]
    out = call("sql", "--role", "doctor", "--json", "SELECT * FROM gym.patients WHERE who = 'ada'")[1]
    assert json.loads(out)["rows"] == [{"who": "ada", "email": None}]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT * FROM gym.member", "'gym.member' is none of the tables that this role may read"),
        ("SELECT * FROM gym.romans WHERE town IN (SELECT town FROM gym.member)", "'gym.member' is none of"),
        ("SELECT * FROM gym.patients", "'gym.patients' is none of"),
        ("SELECT * FROM gym.romans JOIN delta.`{lake}/gym/x/member` USING (town)", "is none of the tables"),
        ("SELECT * FROM text.`{lake}/gym`", "is none of the tables"),
        ("SELECT * FROM table_changes_by_path('{lake}/gym/x/member', 0)", "The function table_changes_by_path()"),
        ("SELECT * FROM IDENTIFIER('gym.member')", "'gym.member' is none of"),
        ("SELECT * FROM delta.`{lake}/gym/x/member` VERSION AS OF 1", "RelationTimeTravel"),
        ("EXECUTE IMMEDIATE 'SELECT * FROM gym.member'", "UnresolvedExecuteImmediate"),
        ("SELECT TRANSFORM(who) USING 'sh -c id' AS (x) FROM gym.romans", "ScriptTransformation"),
        ("SELECT `reflect`('java.lang.System', 'getenv', 'HOME') FROM gym.romans", "The function reflect()"),
        ("SELECT input_file_name() FROM gym.romans", "The function input_file_name()"),
        ("SELECT * FROM _gym_romans", "'_gym_romans' is none of"),
        ("SHOW TABLES IN gym", "The role 'analyst' may read: gym.romans"),
        ("/* */ DESCRIBE HISTORY delta.`{lake}/gym/x/member`", "DescribeDeltaHistory"),
        ("DESCRIBE gym.member", "'gym.member' is none of"),
        ("EXPLAIN SELECT * FROM gym.member", "'gym.member' is none of"),
        ("DELETE FROM gym.romans", "is no query"),
    ],
)
def test_a_role_reads_nothing_else(club: Lakehouse, call: Call, query: str, said: str) -> None:
    code, out, err = call("sql", "--role", "analyst", query.format(lake=club.settings.lake))
    assert code == 2 and said in err and not out, err


def test_a_role_is_known_and_reads_what_is_there_now(call: Call) -> None:
    code, _, err = call("sql", "--role", "analist", "SELECT 1")
    assert code == 2 and "No pipeline names a role 'analist'. Did you mean 'analyst'?" in err
    code, _, err = call("sql", "--role", "analyst", "--as-of", "0", "SELECT * FROM gym.romans")
    assert code == 2 and "leave out --as-of or --role" in err


def test_of_restricted_tables_nothing_lies_in_the_lake(club: Lakehouse) -> None:
    """Their rows, what they set aside, the log of changes, and what their flows remember."""
    root, lake = club.settings.restricted, Path(club.settings.lake)
    assert root.stat().st_mode & 0o777 == 0o700
    tables = {str(path.relative_to(root)) for path in root.rglob("_delta_log")}
    assert (
        len(tables) >= 4
        and any("quarantine/member_keys" in one for one in tables)
        and any("history_changes" in one for one in tables)
    )
    assert len(club.rows("member_keys_quarantine")) == 1 and len(club.rows("history")) == 4
    names = {path.name for path in lake.rglob("*") if path.is_dir() and (path / "_delta_log").is_dir()}
    assert not names & {"member_keys", "history", "history_changes"}
    checkpoints = lake / "gym" / "_sluice" / "checkpoints"
    ours = [path for path in checkpoints.rglob("*") if path.is_file() and ("member_keys" in str(path) or "history" in str(path))]
    assert ours, "the check has looked at something"
    for path in ours:
        assert not any(name in path.read_bytes() for name in (b"ada@x.it", PHONE.encode(), b"nobody-known")), path
    assert prevention.inspect_lake_logs(club.lake) == []
