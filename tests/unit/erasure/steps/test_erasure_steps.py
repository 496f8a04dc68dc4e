"""The parts of an erasure that need no Spark: what is swept, which files a table does not need, who is behind, going on after a kill."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import os
import subprocess
import time
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.conftest import settings_at
from tests.vault_entries import add_vault_identifiers

import residue
from residue import needles
from residue.delimited_rows import DelimitedRows
from sluice import optimize, session, vacuum
from sluice.declare import Link, Pipeline, Source, materialized_view, table, treat
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.declare.ingest.file_formats import CsvDialect
from sluice.erasure import (
    aging,
    canary,
    erasure_ledger,
    physical,
    propagation,
    request_events,
    request_record,
    request_reversal,
    requests,
    vault,
)
from sluice.erasure.personal_places.place import TEXT, PersonalPlace
from sluice.erasure.personal_places.registry import PERSONAL_PLACES
from sluice.erasure.proof import search_scope, sought
from sluice.erasure.steps import erased_names, landing, naming, rows, subject_tables, sweep
from sluice.erasure.steps.erasure_step import ErasureStep, Propagation
from sluice.erasure.subjects import closure, identity_settling
from sluice.erasure.subjects.link_rows import LinkRow
from sluice.erasure.vault import Identifier
from sluice.errors import LeaseLost, SluiceError, StopRequested, UsageError
from sluice.flows.bronze import append, intake
from sluice.flows.progress import checkpoints, positions
from sluice.ingest import delivery_tables
from sluice.ingest.landing import cleaning, rewriting
from sluice.ingest.reading import records
from sluice.lake.clone_registry import register_shallow_clone
from sluice.lake.flow_report import FlowReport, FlowsFailed
from sluice.lake.pipeline_lake import PipelineLake
from sluice.lake.workspace import Workspace
from sluice.pipeline_records import PipelineRecords
from sluice.privacy import suppression_list
from sluice.record_states import DELIVERED
from sluice.runs import erasure_jobs, run_ledger
from sluice.runs.execution import layers, stages
from sluice.spark_process import build_spark_environment
from sluice.table_properties import INSTANTS, MICROSECONDS, RETENTION

NOW = datetime.now(UTC)
STEPS = [place.name for place in PERSONAL_PLACES if place.erase]
LONG_AGO = 1_000_000_000.0

source = Source(name="says", schema="who STRING, at TIMESTAMP", subject="who", comment="s")


@table(reads="says", keys="who", subject="who")
def said(says: Any) -> Any:
    """Said."""
    return says


@materialized_view(reads="said", keys="who", subject="who")
def each(said: Any) -> Any:
    """Each."""
    return said


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    settings = replace(settings_at(tmp_path), root=tmp_path / "checkout")
    settings.root.mkdir()
    layers = ("pipelines.house.bronze", __name__)
    session: Any = SimpleNamespace(
        conf=SimpleNamespace(get=lambda name, other: f"file:{settings.root}/events", set=lambda *said: None),
        sparkContext=SimpleNamespace(applicationId="local-1"),
    )
    return Workspace(
        settings,
        build_declaration_graph(Pipeline(name="house", description="h", owner="t", layers=layers), [source, said, each]),
        session,
        "r",
    )


def _written(path: str, *versions: list[int], keep: str = "interval 1 day") -> None:
    for numbers in versions:
        write_deltalake(path, pa.table({"n": numbers}), mode="overwrite", configuration={RETENTION: keep})


def _made(path: Path, at: float = LONG_AGO, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    os.utime(path, (at, at))
    return path


def test_what_killed_writers_left_is_swept_and_nothing_else(workspace: Workspace) -> None:
    lake, root = Path(workspace.settings.lake) / "house", workspace.settings.root
    left = [
        _made(lake / "bronze/says/_delta_log/.00000000000000000003.json.0a-1b.tmp"),
        _made(lake / "bronze/says/_delta_log/..00000000000000000003.json.0a-1b.tmp.crc"),
        _made(lake / "bronze/says/_delta_log/_commit_0a.json.tmp"),
        _made(lake / "bronze/says/_delta_log/.00000000000000000002.json.crc"),
        _made(workspace.settings.restricted / "house/silver/keys/_delta_log/.1.json.2.tmp"),
        _made(lake / "_sluice/checkpoints/x/abc/offsets/.3.0a.tmp"),
        _made(lake / "_sluice/outcomes/part-0.snappy.parquet#1"),
        _made(lake / "silver/said/_change_data/cdc-0.snappy.parquet#12"),
        _made(workspace.landing / "says/.f.jsonl.0a.rewritten.part"),
        _made(root / "events/local-0"),
    ]
    folders = [lake / "_sluice/staging", lake / "bronze/says/_temporary", root / ".sluice/spark-local/session-0a"]
    for folder in folders:
        _made(folder / "0" / "inside")
        os.utime(folder, (LONG_AGO, LONG_AGO))
    stays = [
        _made(lake / "bronze/says/part-1.parquet"),
        _made(lake / "bronze/says/_delta_log/00000000000000000003.json"),
        _made(lake / "bronze/says/_delta_log/.00000000000000000003.json.crc"),
        _made(lake / "bronze/says/_delta_log/.4.json.young.tmp", at=time.time() + 3600),
        _made(workspace.landing / "says/f.jsonl"),
        _made(root / "events/local-1"),
    ]
    # A VACUUM, before: of the lake, and nothing that is needed to end what was killed.
    of_commits = [path for path in left if path.is_relative_to(lake) or path.is_relative_to(workspace.settings.restricted)]
    assert sweep.remove_killed_commit_files(workspace, time.time()) == len(of_commits) + 1
    assert folders[0].exists() and not folders[1].exists() and not any(path.exists() for path in of_commits)
    for path in of_commits:
        _made(path)
    _made(folders[1] / "0" / "inside")
    os.utime(folders[1], (LONG_AGO, LONG_AGO))
    assert sweep.remove_leftover_files(workspace, time.time()) == len(left) + len(folders)
    assert not any(path.exists() for path in (*left, *folders)) and all(path.exists() for path in stays)


def test_all_of_the_local_airflow_is_scanned(workspace: Workspace) -> None:
    home = workspace.settings.state / "airflow"
    for name in ("airflow.cfg", "airflow.db-wal", "logs/a.log", "plugins/notes.txt", "of/somebody.txt"):
        _made(home / name, content="anna-schmidt-4711")
    roots = [root for root in search_scope.list_scan_roots(workspace.lake) if root.name.startswith("airflow")]
    found = residue.scan_roots(roots, needles.build_needles([("who", "anna-schmidt-4711")]), processes=1)
    assert {hit.path for hit in found.hits} == {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}


def test_what_is_said_to_be_somebody_elses_is_not_swept(workspace: Workspace) -> None:
    pipeline = replace(workspace.graph.pipeline, also_here=("lake/by_hand", "restricted/notes.tmp"))
    made = replace(workspace, graph=build_declaration_graph(pipeline, [source, said, each]))
    lake, restricted = Path(workspace.settings.lake) / "house", workspace.settings.restricted / "house"
    theirs = [_made(lake / "by_hand" / name) for name in ("x.tmp", "d/_temporary/x")] + [_made(restricted / "notes.tmp")]
    os.utime(lake / "by_hand/d/_temporary", (LONG_AGO, LONG_AGO))
    ours = _made(lake / "by_hand_too" / "x.tmp")
    assert sweep.remove_leftover_files(made, time.time()) == 1
    assert all(path.exists() for path in theirs) and not ours.exists()


def test_a_folder_that_a_running_session_owns_stays_and_a_killed_ones_goes(workspace: Workspace) -> None:
    settings = workspace.settings
    killed, running = (Path(build_spark_environment(settings)["SPARK_LOCAL_DIRS"]) for _ in range(2))
    _made(running / "blockmgr-1" / "x")
    with subprocess.Popen(["/bin/sleep", "60"], env={"SPARK_LOCAL_DIRS": str(running)}) as process:
        _made(killed / "blockmgr-2" / "x")  # although a session runs that is older
        assert session.session_folders_in_use(settings) == [running]
        without = {root.name: root.without for root in search_scope.list_scan_roots(PipelineLake(settings, workspace.graph))}
        assert without["spark-local"] == (str(running),), "what nobody uses is scanned"
        told = [
            str(one["what"])
            for one in search_scope.list_unreachable_places(
                PipelineLake(replace(settings, spark_master="spark://x"), workspace.graph)
            )
        ]
        assert any("executors" in one for one in told) and any("an Airflow elsewhere" in one for one in told)
        assert sweep.remove_leftover_files(workspace, time.time() + 1) == 1 and running.exists() and not killed.exists()
        process.kill()
    assert sweep.remove_leftover_files(workspace, time.time() + 1) == 1 and not running.exists()


def test_a_process_that_may_not_be_looked_at_has_a_folder_of_its_user_and_its_time(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.settings.spark_local / "session-0a"
    folder.mkdir(parents=True)
    now = time.time()

    def in_use(user: int | None, started: float, local: str | None = None) -> bool:
        monkeypatch.setattr(session, "_list_processes", lambda: [session._Process(True, local, started, user)])
        return session.session_folders_in_use(workspace.settings) == [folder]

    assert in_use(os.getuid(), now - 60) and in_use(None, now - 60)
    assert not in_use(os.getuid(), now + 60), "it was there before the process was"
    assert not in_use(os.getuid() + 1, now - 60) and not in_use(os.getuid(), now - 60, local="/elsewhere")
    (folder.parent / "called").symlink_to(folder.parent)
    assert in_use(os.getuid(), now, local=str(folder.parent / "called" / folder.name)), "the same folder, called otherwise"


def test_files_that_no_version_needs_go_when_the_retention_is_over(tmp_path: Path) -> None:
    path = tmp_path / "t"
    _written(str(path), [1], [2], [3])
    orphan = _made(path / "part-orphan.parquet")
    feed = _made(path / "_change_data" / "cdc-1.parquet")
    _made(path / ".part-orphan.parquet.crc")
    assert sweep.remove_orphan_files(str(path), datetime.now(UTC)) == 3
    assert not orphan.exists() and not feed.exists()
    assert len(list(path.rglob("*.parquet"))) == 3  # what was removed within the retention stays
    assert sweep.remove_orphan_files(str(path), datetime.now(UTC) + timedelta(days=2)) == 2
    assert [Path(uri) for uri in DeltaTable(path).file_uris()] == list(path.glob("*.parquet"))
    assert pa.table(DeltaTable(path).to_pyarrow_table()).to_pydict() == {"n": [3]}


def test_nothing_goes_where_a_name_in_the_log_is_not_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    write_deltalake(str(path), pa.table({"n": [1, 2], "p": ["a b/c%20d", "é"]}), partition_by=["p"])
    assert sweep.remove_orphan_files(str(path), datetime.now(UTC) + timedelta(days=99)) == 0
    assert len(DeltaTable(path).to_pyarrow_table()) == 2
    _made(path / "orphan.parquet")
    monkeypatch.setattr(sweep, "_list_needed_files", lambda path: ["not_there.parquet"])
    assert sweep.remove_orphan_files(str(path), datetime.now(UTC) + timedelta(days=99)) == 0


def _checkpoint(workspace: Workspace, read_to: int, done: bool = True, reset: str | None = None) -> None:
    folder = Path(workspace.checkpoints("test_erasure_steps_each"))
    id_ = str(DeltaTable(workspace.path("said")).metadata().id)
    memory = {"flow": "test_erasure_steps_each", "identity": "abc", "inputs": {"said": id_}, "reset": reset}
    _made(folder / "flow.json", content=json.dumps(memory))
    offset = {"reservoirId": id_, "reservoirVersion": read_to + 1, "index": -1, "isStartingVersion": False}
    _made(folder / "abc" / "offsets" / "0", content=f"v1\n{{}}\n{json.dumps(offset)}\n")
    _made(folder / "abc" / "metadata", content='{"id": "a"}')
    if done:
        _made(folder / "abc" / "commits" / "0", content="v1\n{}")


def test_files_stay_that_a_flow_has_yet_to_read_when_they_are_old(workspace: Workspace) -> None:
    _written(workspace.path("said"), [1], [2], [3])
    later = NOW + timedelta(days=2)
    assert positions.find_lagging_flows(workspace, later) == {}  # it has no checkpoint: it reads what is there
    _checkpoint(workspace, read_to=2)
    assert positions.find_lagging_flows(workspace, later) == {}
    _checkpoint(workspace, read_to=0)
    found = positions.find_lagging_flows(workspace, later)[workspace.path("said")]
    assert [(one.flow, one.version) for one in found] == [("test_erasure_steps_each", 1)]
    assert positions.find_lagging_flows(workspace, NOW) == {}  # its files are within the retention, and no VACUUM takes them
    _checkpoint(workspace, read_to=0, reset="erased")
    assert positions.find_lagging_flows(workspace, later) == {}
    (Path(workspace.checkpoints("test_erasure_steps_each")) / "abc" / "commits" / "0").unlink()
    _checkpoint(workspace, read_to=0, done=False)
    assert (
        positions.find_lagging_flows(workspace, later)[workspace.path("said")][0].version == 1
    )  # it was reading the table as a whole


def test_a_flow_that_is_behind_for_longer_than_declared_is_not_waited_for(workspace: Workspace) -> None:
    _written(workspace.path("said"), [1], [2], [3])
    _checkpoint(workspace, read_to=0)
    (for_ever,) = positions.find_lagging_flows(workspace, NOW + timedelta(days=9999))[workspace.path("said")]
    assert not for_ever.overdue
    graph = replace(workspace.graph, pipeline=replace(workspace.graph.pipeline, vacuum_waits="30 days"))
    patient = replace(workspace, graph=graph)
    (early,) = positions.find_lagging_flows(patient, NOW + timedelta(days=29))[workspace.path("said")]
    (late,) = positions.find_lagging_flows(patient, NOW + timedelta(days=31))[workspace.path("said")]
    assert (early.overdue, late.overdue) == (False, True)
    assert late.let_go() == (
        "the flow 'test_erasure_steps_each' starts over with its next run: VACUUM waited 30 days for it to read version 1 of an input"
    )
    assert positions.find_lagging_flows(patient, NOW + timedelta(days=31)) == {}
    why = checkpoints.reason_to_rebase(workspace.checkpoints(late.flow), late.flow, {})
    assert why == "VACUUM waited 30 days for it to read version 1 of an input"


def test_checkpoints_go_that_no_flow_names(workspace: Workspace) -> None:
    _written(workspace.path("said"), [1])
    _checkpoint(workspace, read_to=0)
    root = Path(workspace.checkpoints("any")).parent
    left = _made(root / "test_erasure_steps_each" / "old" / "state" / "0" / "1.delta")
    sweep.remove_abandoned_checkpoints(ErasureStep(Propagation(workspace, [], lambda: []), "state"))
    assert left.exists()  # nobody is to be erased
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna")])
    sweep.remove_abandoned_checkpoints(ErasureStep(Propagation(workspace, [request], lambda: []), "state"))
    assert not left.parents[2].exists() and (root / "test_erasure_steps_each" / "abc" / "offsets" / "0").exists()


def test_somebody_is_named_by_a_word_of_its_own_and_not_by_chance() -> None:
    names = erased_names.index_erased_names(["anna@example.org", "912140001", "ab"])
    assert names.are_in_bytes(b'x,"Anna@Example.org",') and names.are_in_bytes(b"912140001;1")
    assert not names.are_in_bytes(b"9121400012 hanna@example.organic ab")
    assert names.are_in_content(gzip.compress(b"a 912140001 b" * 9000)[:-20])
    assert not erased_names.index_erased_names(["ab"]).are_in_content(b"ab")
    other = erased_names.index_erased_names(["+49 171 555", "Müller", "Анна Шмидт"])
    for text, there in (
        ("of +49 171 555.", True),
        ("x+49 171 555", False),
        ("mÜLLER", True),
        ("MüLLER", True),
        ("Анна Шмидт", True),
    ):
        assert other.are_in_bytes(text.encode()) == there, text


@pytest.mark.parametrize(
    "written",
    [
        rb'{"who": "me\u0040example.org',
        rb'"{\"who\": \"m\\u0065\\u0040example.org\"',
        b"who: " + base64.b64encode(b"<me@example.org>"),
        b'{"body": "' + base64.encodebytes(b"." * 80 + b" me@example.org ").replace(b"\n", rb"\r\n"),
        b"data/" + base64.urlsafe_b64encode(rb"\u006de@example.org"),
        rb'{"n": "\ud83d\ude00 me@example\u002eorg"}',
    ],
)
def test_somebody_is_named_however_it_is_written(written: bytes) -> None:
    names = erased_names.index_erased_names(["me@example.org"])
    assert names.are_in_record(written) and names.are_in_content(gzip.compress(written + b"." * 99)[:-9])
    assert not erased_names.index_erased_names(["he@example.org"]).are_in_record(written)


@pytest.mark.parametrize(
    "written",
    [
        b'1,"""ada ""ad"" o\'brien""@example.org",x',
        b"('\"ada \"ad\" o''brien\"@example.org')",
        b"&quot;ada &#34;ad&#34; o&#39;brien&quot;@example.org",
        b"%22ada+%22ad%22+o'brien%22%40example.org",
        b"%22ada%20%22ad%22%20o%27brien%22%40example.org",
    ],
)
def test_somebody_with_quotes_is_named_in_csv_sql_html_and_urls(written: bytes) -> None:
    assert erased_names.index_erased_names(['"ada "ad" o\'brien"@example.org']).are_in_record(written)


def test_somebody_is_named_in_another_case_also_outside_ascii() -> None:
    names = erased_names.index_erased_names(["ödegaard@example.org", "Straße 7b"])
    composed_otherwise = unicodedata.normalize("NFD", "Ödegaard@example.org")
    for written in ("Ödegaard@example.org", "ÖDEGAARD@EXAMPLE.ORG", composed_otherwise, "STRASSE 7B"):
        assert names.are_in_record(f"of {written}, \ud83d".encode("utf-8", "surrogatepass")), written
    assert not names.are_in_record(b"odegaard@example.org")


PHONE, MAC = "+49 170 123-4567", "AA:bb:CC:00:11:22"


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        *((PHONE, text) for text in ("491701234567", "+49 (170) 1234567", "2026-11-20 49 170/123 4567", "7 49 170/123 4567")),
        *((MAC, text) for text in ("aabbcc001122", "AA-BB-CC-00-11-22", "aabb.cc00.1122", "aa bb cc 00 11 22")),
        *(("AABBCC001122", text) for text in (MAC, "aabb.cc00.1122")),
        ("istanbul", "İSTANBUL"),
        ("İstanbul", "istanbul"),
    ],
)
def test_somebody_is_named_with_other_separators_or_none(asked: str, written: str) -> None:
    names = erased_names.index_erased_names([asked])
    assert names.are_in_record(f"of {written}, and".encode()) and names.are_in_content(gzip.compress(written.encode()))
    assert not names.are_in_record(f"of {written.replace('2', '3').replace('i', 'o').replace('İ', 'O')}, and".encode())


@pytest.mark.parametrize("written", [PHONE, "+49170.1234567", "2026-11-20 08:30:00 49 170 1234567"])
def test_a_telephone_number_of_digits_alone_is_found_in_groups_where_its_domain_says_that_it_is_one(written: str) -> None:
    assert erased_names.index_erased_names(["491701234567"], phones=["491701234567"]).are_in_record(f"of {written}, and".encode())
    assert not erased_names.index_erased_names(["491701234567"]).are_in_record(f"of {written}, and".encode())


@pytest.mark.parametrize(
    ("value", "others"),
    [
        ("2024011510", '{"member": 7, "at": "2024-01-15 10:30:00"}'),
        ("2024011510", "called on 2024-01-15 10.30"),
        ("4546421234", "at 45.4642 1234"),
        ("192.168.12.5", '{"ip": "192.168.1.25"}'),
        ("192.168.12.5", '{"ips": "192.168.1.2 5"}'),
        ("(202) 401-1510", "7,2024-01-15 10:30:00,x"),
        ("+1 921 681 2512", '{"ip": "1 192.168.125.12"}'),
        ("123456789012", '{"sizes": "12 34 56 78 90 12"}'),
        ("123456789012", "1234.5678.9012"),
    ],
)
def test_a_number_is_not_found_in_times_addresses_and_coordinates_of_others(value: str, others: str) -> None:
    names = erased_names.index_erased_names([value])
    assert names.are_in_record(f"x {value} y".encode()) and not names.are_in_record(others.encode())


def test_a_column_whose_list_nothing_closes_is_searched_once() -> None:
    names = erased_names.index_erased_names(["42"], [("member", "42")])
    lists = b'{"member": 7, "x": (' + b'"member" [1, ' * 20_000
    before = time.process_time()
    assert not names.are_in_bytes(lists)
    assert time.process_time() - before < 6, "each list once takes half a second, each from every name 15 s"
    for found in (b'"member" [42, 1', b'"member" [3, 42', b'"member": [42]', b'"member" (1, 42)'):
        assert names.are_in_bytes(lists[:9_000] + found), found


@pytest.mark.parametrize("count", [1, 84, 85, 1_000, 9_000])
@pytest.mark.parametrize("other", ["99", '"rob"'])
def test_a_short_name_is_found_in_a_list_of_any_length_and_on_the_next_line(other: str, count: int) -> None:
    names = erased_names.index_erased_names(["42"], [("member", "42")])
    for before, between, after in (
        ('{"member": [', ", ", "]}"),
        ('{"member":\n [\n  ', ",\n  ", "\n]}"),
        ('{\\"member\\":\\n [', ", ", ""),
        ("member IN (", ", ", ")"),
    ):
        record = f"{before}{between.join([other] * (count - 1) + ['42'])}{after}"
        assert names.are_in_bytes(record.encode()), record[:40]
        assert not names.are_in_bytes(record.replace("member", "other").encode()), record[:40]


@pytest.mark.parametrize(
    ("record", "is_named"),
    [
        (b'{"user_id": ["a (b)", "7042"]}', True),
        (b'{"user_id": ["[a]", "7042"], "z": 1', True),
        (b'{"user_id": ["a]", "7042"]}', True),
        (b'{"user_id": ["a], 7042', True),
        (rb'{"user_id": ["a\"], b", "7042"]}', True),
        (rb'"{\"user_id\": [\"a]\", \"7042\"]}"', True),
        (b"""{"user_id": ["o'x", "7042"]}""", True),
        (b'{"user_id": [[1, 2], [3, 7042]]}', True),
        (b'{"user_id": [[1, 2], [7042]]}', True),
        (b'{"user_id": [{"x": [1]}, 7042]}', True),
        (b"user_id in ((1), 7042)", True),
        (b"user_id: [a), 7042]", True),
        (b'{"user_id": [1, 2], "z": [1, 7042]}', False),
        (b'{"user_id": [[1], [2]], "z": [1, 7042]}', False),
        (b'{"user_id": ["[a"], "z": [1, 7042]}', False),
        (b'{"user_id": ["", 3], "z": [1, 7042]}', False),
        (b'{"user_id": [""], "z": [1, 7042]}', False),
        (rb'{"user_id": ["a\"b"], "z": [1, 7042]}', False),
        (b"user_id in ((1), 2) and z in (1, 7042)", False),
        (b'{"user_id": [{"x": 7042}]}', False),
        (b'{"user_id": [' + b"[1], " * 20_001 + b"7042]}", False),
    ],
)
def test_a_short_name_is_found_up_to_the_end_of_its_list_and_not_behind_it(record: bytes, is_named: bool) -> None:
    assert erased_names.index_erased_names(["7042"], [("user_id", "7042")]).are_in_record(record) == is_named


def test_lists_full_of_quotes_and_brackets_are_searched_in_linear_time() -> None:
    names = erased_names.index_erased_names(["42"], [("member", "42")])
    before = time.process_time()
    for part in (b"\"'", b'"a', b'\\"', b"[", b"[]", b'"a", ', b"'\"],"):
        assert not names.are_in_bytes(b'"member": [' + part * (100_000 // len(part))), part
    assert time.process_time() - before < 6


@pytest.mark.parametrize("between", [":\n  ", "\n : ", ":" + " " * 17, " " * 40, "=\r\n\t", ":\\n  ", '\\":\\n  \\"'])
def test_a_short_name_is_found_on_the_line_after_that_of_its_column(between: str) -> None:
    names = erased_names.index_erased_names(["42", "jan"], [("member", "42"), ("member", "jan")])
    for value in ("42", "jan"):
        assert names.are_in_bytes(f'{{"member"{between}{value}, "x'.encode())
        assert not names.are_in_bytes(f'{{"other"{between}{value}, "x'.encode())
    before = time.process_time()
    assert not names.are_in_bytes(f'"member"{between}'.encode() * 50_000)
    assert time.process_time() - before < 6


@pytest.mark.parametrize(
    "value", [PHONE, MAC, "030/123456789", "001122334455", "aabb.cc00.1122", "7000000001", "me@example.org", "İzmir-İşleri"]
)
def test_every_form_in_which_the_scan_looks_for_somebody_is_found_by_the_erasure(value: str) -> None:
    """Of what is no hash and no number of a file's bytes."""
    names, kinds = (
        erased_names.index_erased_names([value]),
        ("raw", "trimmed", "folded", "upper", "hex digits", "other separators", "digits", "dotted i"),
    )
    written = [one.value for one in needles.build_needles([("who", value)]) if one.kind in kinds and isinstance(one.value, bytes)]
    assert written and [one for one in written if not names.are_in_content(b"x " + one + b" y") and b"\0" not in one] == []


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-be", "cp500"])
def test_a_whole_file_names_somebody_in_any_encoding_and_packing(encoding: str) -> None:
    names = erased_names.index_erased_names(["ödegaard@example.org"], encodings=("cp500",))
    other = erased_names.index_erased_names(["edegaard@example.org"], encodings=("cp500",))
    for before in ("", "x"):
        file = before.encode() + f"1;Ödegaard@example.org;2\n{'.' * 99}".encode(encoding)
        for written in (file, gzip.compress(file), bz2.compress(file), pa.compress(file, "zstd", asbytes=True)):
            assert names.are_in_content(written) and not other.are_in_content(written)


def test_a_short_number_is_found_that_is_escaped() -> None:
    names = erased_names.index_erased_names([], [("member", "12140")])
    assert names.are_in_record(rb'{"member": "1\u0032140"') and not names.are_in_record(rb'{"steps": "1\u0032140"')


def test_a_short_number_names_somebody_beside_its_column_or_as_a_field_without_names() -> None:
    names = erased_names.index_erased_names(["12140", "77"], [("member", "12140"), ("user.Member_Id", "77"), ("member", "anna1")])
    for text in (
        b'{"member": [4711, 12140]',
        b'{"member": ["4711",\n "12140"]}',
        b'{"member": [\n 12140\n]}',
        b"member IN (1, 12140)",
    ):
        assert names.are_in_bytes(text), text
    assert not names.are_in_bytes(b'{"member": [4711], "steps": 12140}') and not names.are_in_bytes(b"member: 4711, 12140")
    for text in (b'{"member": 12140', b"MEMBER='12140'", b'{\\"member_id\\":\\"77\\"}'):
        assert names.are_in_bytes(text) and names.are_in_record(text), text
    for text in (b'{"steps": 12140, "member": 3', b'{"remember": 12140}', b'{"member": 121401}', b"a 12140 b", b'["12140"]'):
        assert not names.are_in_bytes(text) and not names.are_in_record(text), text
    comma, semicolon, other = (CsvDialect(delimiter=one) for one in ",;^")
    assert names.are_in_record(b"3;12140;1,5", comma) and not names.are_in_record(b"3;12140,5;x", semicolon), "or as it looks"
    assert not names.are_in_record(b"3,77;abc", semicolon) and names.are_in_record(b"3^77^abc", other), "as its source parts them"
    assert names.are_in_record(b'3,"12140",x,y') and names.are_in_record(b"77") and not names.are_in_record(b"3,12140 steps,x")
    assert not names.are_in_bytes(b"3,12140,x\n"), "a file is more than a record"


def test_a_short_text_names_somebody_beside_its_column_or_as_a_field() -> None:
    names = erased_names.index_erased_names(["bob", "12345678"], [("reviewer", "bob"), ("member", "12345678"), ("who", "+é")])
    for text in (
        b'{"reviewer": "Bob"}',
        rb'{"reviewer": "\u0062ob"}',
        b"reviewer=bob;",
        b"reviewer=bob&x=1",
        b"<reviewer>bob</reviewer>",
        b"reviewer: bob. And",
        b'{"member":1.2345678E7}',
        '"who": "+É"'.encode(),
    ):
        assert names.are_in_bytes(text) and names.are_in_record(text), text
    for text in (
        b'{"author": "bob"}',
        b'{"reviewer": "bobby"}',
        b'{"reviewer": "jim-bob"}',
        b'{"reviewer": "bob.miller"}',
        b"reviewer=bob-ann;",
        b"bob's record",
        b'{"member":1.23456789E8}',
    ):
        assert not names.are_in_bytes(text) and not names.are_in_record(text), text
    assert names.are_in_record(b'1,"bob",x') and not names.are_in_record(b"1,bob and jim,x")


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (b"id,reviewer\n1,jim\n2,bob\n", True),
        (b'id;"Reviewer"\r\n1;"BOB"\r\n', True),
        (b"id,pet\n1,bob\n", False),  # another column's
        (b"id,pet\n1,bob,more\n", True),  # a row whose fields nobody knows
        (b"1,bob\n", True),  # no header
        (b"id,note\n1,bob and jim\n", False),
        (b"PAR1,bob,\0", False),  # no text
        (b"\xef\xbb\xbfreviewer,pet\njim,bob\n", False),
        (b"\xef\xbb\xbfreviewer,pet\nbob,tom\n", True),
        ("reviewer,pet\njim,bob\n".encode("utf-16"), False),
        ("reviewer,pet\nbob,tom\n".encode("utf-16"), True),
        (b"\xfe\xff" + "reviewer,pet\njim,bob\n".encode("utf-16-be"), False),
        (b"reviewer,Menge (kg)\njim,bob\n", False),  # one known name tells that the first row has names
        (b'reviewer,pet,note\njim,tom,"a, bob, ""b"""\n', False),  # a field with commas
        (b'reviewer,pet,note\n"bob",tom,"a, b"\n', True),
        (b'reviewer,pet,note\njim,"tom,bob,x\n', True),  # a quote that nothing closes
        (b'\xef\xbb\xbf{"reviewer": "jim", "pets": [1,bob,3]}\n', False),
    ],
)
def test_a_whole_file_of_rows_names_somebody_by_a_short_text_in_its_column(content: bytes, wanted: bool) -> None:
    names = erased_names.index_erased_names(["bob"], [("reviewer", "bob")])
    assert names.are_in_content(content) is names.are_in_content(gzip.compress(content)) is wanted


@pytest.mark.parametrize("number", ["12140", "-12140", "12345678", "012345678", "7000000000", "7000000001"])
@pytest.mark.parametrize(
    "rows",
    [
        "customer_id,qty\n{double},1\n",
        "customer_id;qty\n[3, {number}];1\n",
        'customer_id,qty\n"[3, {number}]",1\n',
        'customer_id,qty\n"[""3"", ""{number}""]",1\n',
        "customer_id,qty\n1;{number};2;3\n",
    ],
)
def test_a_number_of_unreadable_rows_that_the_scan_finds_is_found_by_the_erasure(number: str, rows: str) -> None:
    columns = frozenset({"customer_id"})
    sought = needles.build_needles([("customer", number)], {"customer": columns})
    found = {
        one.kind: one.value.decode()
        for one in sought
        if isinstance(one.value, bytes) and one.kind in ("raw", needles.JAVA_DOUBLE)
    }
    value = found[needles.JAVA_DOUBLE if "{double}" in rows else "raw"]
    content = rows.format(double=value, number=value).lower().encode()
    start = content.index(value.lower().encode())
    assert DelimitedRows(content, columns, None).holds(content, start, start + len(value), columns)
    names = erased_names.index_erased_names([number], [("customer_id", number)])
    assert names.are_in_content(content)
    assert not names.are_in_content(content.translate(bytes.maketrans(b"17", b"89")))


def test_what_changed_hands_names_nobody_in_what_tells_no_time(workspace: Workspace) -> None:
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna-schmidt")])
    handed_on = Identifier("who", "badge-00a7f3", "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00")
    add_vault_identifiers(workspace.records, request.request, [handed_on, Identifier("who", "badge-00a7f3")])
    names = naming.load_erased_names(Propagation(workspace, [request], lambda: []))
    assert names.are_in_bytes(b"anna-schmidt") and not names.are_in_bytes(b"badge-00a7f3")


def test_a_number_is_a_telephone_number_where_the_form_of_its_domain_is_digits(workspace: Workspace) -> None:
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "491701234567")])
    for canonical, wanted in (("text", False), ("digits", True)):
        pipeline = replace(workspace.graph.pipeline, canonical={"who": canonical})
        made = replace(workspace, graph=build_declaration_graph(pipeline, [source, said, each]))
        names = naming.load_erased_names(Propagation(made, [request], lambda: []))
        assert names.are_in_bytes(b"491701234567") and names.are_in_bytes(b"of 49 170/123 4567, and") is wanted


def test_a_bucket_that_lets_no_version_go_is_noted_and_holds_up_no_other_step(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[SluiceError] = [SluiceError("An erasure needs s3:DeleteObjectVersion"), LeaseLost("Another has it")]
    left = _made(
        Path(workspace.paths.bookkeeping("rewriting")) / "1.versions", content='["s3://bucket/landing/house/says/1.json"]'
    )

    def refuse(location: object) -> int:
        raise said[0]

    monkeypatch.setattr(rewriting, "remove_replaced_versions", refuse)
    (report,) = landing._remove_versions_of_rewritten_files(workspace)
    assert report.notes == ["An erasure needs s3:DeleteObjectVersion"] and left.exists()
    said.pop(0)
    with pytest.raises(LeaseLost):
        landing._remove_versions_of_rewritten_files(workspace)
    monkeypatch.setattr(rewriting, "remove_replaced_versions", lambda location: 3)
    assert landing._remove_versions_of_rewritten_files(workspace)[0].deleted == 3 and not left.exists()
    assert landing._remove_versions_of_rewritten_files(workspace) == []


def test_what_can_be_set_right_leaves_every_request_as_it_is(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = workspace.settings
    first, lost = (
        requests.receive_erasure_request(PipelineLake(settings, workspace.graph), [Identifier("who", name)])
        for name in ("anna", "bert")
    )
    vault.remove_vault_entry(PipelineRecords(settings, "house"), lost.request)

    def refuse(*_: object) -> list[Identifier]:
        raise why

    monkeypatch.setattr(identity_settling, "close_over_identifiers", refuse)
    why: UsageError = UsageError("Secret file s can be read by others. Run: chmod 600 s")
    with pytest.raises(UsageError, match="chmod 600"):
        identity_settling.settle_waiting_requests(workspace)
    assert request_record.read_erasure_request(PipelineRecords(settings, "house"), first.request).state == request_events.RECEIVED
    why = closure.AmbiguousIdentifier("Identifier 1, a 'who', was several people's")
    assert identity_settling.settle_waiting_requests(workspace) == []
    assert {one.state for one in request_record.list_erasure_requests(PipelineRecords(settings, "house"))} == {
        request_events.FAILED
    }


def test_until_the_list_has_them_people_are_closed_over_again_from_what_was_asked(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, asked = workspace.settings, Identifier("who", "anna", at="2026-01-01T00:00:00+00:00")
    request = requests.receive_erasure_request(PipelineLake(settings, workspace.graph), [asked])
    told: list[list[Identifier]] = []
    found = [[Identifier("who", "anna"), Identifier("badge", number, "2026-01-01", None)] for number in ("1", "2")]

    def close(_: object, identifiers: list[Identifier], rows: object) -> list[Identifier]:
        told.append(list(identifiers))
        return found[len(told) - 1]

    monkeypatch.setattr(identity_settling, "close_over_identifiers", close)
    identity_settling.settle_erasure_request(workspace, request)
    made_up = Identifier(f"{canary.PREFIX}{TEXT}", "canary-1")
    add_vault_identifiers(PipelineRecords(settings, "house"), request.request, [made_up])
    # Killed before the list had them; then it is told that her badge is another by now.
    again = identity_settling.settle_erasure_request(
        workspace, request_record.read_erasure_request(PipelineRecords(settings, "house"), request.request)
    )
    assert told == [[asked], [asked]]
    assert set(vault.read_vault_identifiers(PipelineRecords(settings, "house"), request.request)) == {asked, *found[1], made_up}
    assert again.subjects == tuple(
        sorted(requests.pseudonymise_subjects(PipelineLake(settings, workspace.graph), found[1]), key=repr)
    )
    monkeypatch.setattr(suppression_list, "list_suppressed_requests", lambda *_: {request.request})
    assert identity_settling.settle_erasure_request(workspace, again) is again


def test_a_begun_request_keeps_its_identifiers_when_the_list_has_lost_it(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its links are deleted already: resolved anew, it would be the asked identifier alone."""
    hers = [Identifier("who", "anna"), Identifier("badge", "badge-00a7f3")]
    closing = iter([hers, hers[:1]])
    monkeypatch.setattr(identity_settling, "close_over_identifiers", lambda *_: next(closing))
    request = requests.receive_erasure_request(workspace.lake, hers[:1])
    settled = identity_settling.settle_erasure_request(workspace, request)
    erasure_ledger.record_erasure_step(workspace.records, [request.request], "says", "tables", rows=1)
    assert identity_settling.settle_erasure_request(workspace, settled) is settled
    assert vault.read_vault_identifiers(workspace.records, request.request) == hers
    with pytest.raises(UsageError, match="is being carried out"):
        request_reversal.withdraw_erasure_request(workspace.records, request.request)


def test_the_list_is_on_the_disk_before_any_row_goes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    monkeypatch.setattr(suppression_list, "suppress_subjects", lambda *_: did.append("listed"))
    monkeypatch.setattr(propagation.durable_files, "flush_run_output", lambda _: did.append("flushed"))
    propagation.suppress_request_subjects(ErasureStep(Propagation(workspace, [], lambda: []), "suppress"))
    assert did == ["listed", "flushed"]


def test_what_is_too_old_and_fails_holds_up_nobody_who_asked(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_followed(*_: object) -> list[FlowReport]:
        raise FlowsFailed([FlowReport(flow="says", layer="propagate_deletions")], {"each": SluiceError("a rule is not met")})

    def refuse(*_: object, **__: object) -> list[FlowReport]:
        raise SluiceError("no")

    monkeypatch.setattr(aging, "delete_expired_rows", not_followed)
    monkeypatch.setattr(
        propagation, "propagate_deletions", lambda *_, **__: [FlowReport(flow="said", layer="propagate_deletions")]
    )
    with pytest.raises(FlowsFailed) as failed:
        stages.run_pipeline_stage(workspace, "propagate_deletions")
    assert [one.flow for one in failed.value.reports] == ["says", "said"] and set(failed.value.errors) == {"each"}
    monkeypatch.setattr(propagation, "propagate_deletions", refuse)
    with pytest.raises(FlowsFailed) as failed:
        stages.run_pipeline_stage(workspace, "propagate_deletions")
    assert list(failed.value.errors) == ["propagate_deletions", "each"], "the worse one first"

    # Bytes go and scans are made all the same.
    monkeypatch.setattr(
        physical, "finish_physical_erasure", lambda *_, **__: [FlowReport(flow="left_over_files", layer="vacuum")]
    )
    monkeypatch.setattr(erasure_jobs, "scan_and_certify_requests", lambda *_: [FlowReport(flow="erasure_1", layer="erase")])
    with pytest.raises(FlowsFailed) as failed:
        erasure_jobs.carry_out_due_erasures(workspace)
    assert [one.flow for one in failed.value.reports] == ["says", "propagate_deletions", "left_over_files", "erasure_1"]
    assert set(failed.value.errors) == {"propagate_deletions", "each"}


def test_expiry_that_was_not_followed_tells_what_it_did(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    old, report = replace(source, keep_for="1 day", subject_at="at"), FlowReport(flow="says", layer="propagate_deletions")
    _written(workspace.path("says"), [1])
    journal = _made(Path(workspace.paths.bookkeeping("aging")) / "says.json")
    monkeypatch.setattr(aging, "_delete_journalled_rows", lambda *_: [report])

    def follow() -> list[FlowReport]:
        raise FlowsFailed([FlowReport(flow="each", layer="gold")], {"each": SluiceError("no")})

    with pytest.raises(FlowsFailed) as failed:
        aging.delete_expired_rows(
            replace(workspace, graph=build_declaration_graph(workspace.graph.pipeline, [old, said, each])), follow
        )
    assert [one.flow for one in failed.value.reports] == ["says", "each"] and journal.exists()


def test_a_source_whose_old_rows_cannot_go_holds_up_no_other(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    old = replace(source, keep_for="1 day", subject_at="at")
    first = replace(old, name="broken")
    made = replace(workspace, graph=build_declaration_graph(workspace.graph.pipeline, [first, old, said, each]))
    for name in ("broken", "says"):
        _written(made.path(name), [1])
        _made(Path(workspace.paths.bookkeeping("aging")) / f"{name}.json")

    def carried_out(_: Workspace, of: Source) -> list[FlowReport]:
        if of.name == "broken":
            raise SluiceError("no")
        return [FlowReport(flow=of.name, layer="propagate_deletions")]

    monkeypatch.setattr(aging, "_delete_journalled_rows", carried_out)
    followed: list[int] = []

    def follow() -> list[FlowReport]:
        followed.append(1)
        return []

    with pytest.raises(FlowsFailed) as failed:
        aging.delete_expired_rows(made, follow)
    assert list(failed.value.errors) == ["broken"] and [one.flow for one in failed.value.reports] == ["broken", "says"]
    left = Path(workspace.paths.bookkeeping("aging")).glob("*.json")
    assert followed and [one.name for one in left] == ["broken.json"], "the next run goes on with it"


@pytest.mark.parametrize("end", [LeaseLost("Another has it"), StopRequested("asked")])
def test_what_ends_the_stage_ends_it_at_the_first_source(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, end: SluiceError
) -> None:
    old = replace(source, keep_for="1 day", subject_at="at")
    sources = [replace(old, name="broken"), old]
    made = replace(workspace, graph=build_declaration_graph(workspace.graph.pipeline, [*sources, said, each]))
    for name in ("broken", "says"):
        _written(made.path(name), [1])
        _made(Path(workspace.paths.bookkeeping("aging")) / f"{name}.json")
    tried: list[str] = []

    def fail(_: Workspace, of: Source) -> list[FlowReport]:
        tried.append(of.name)
        raise end

    monkeypatch.setattr(aging, "_delete_journalled_rows", fail)
    with pytest.raises(type(end)):
        aging.delete_expired_rows(made, lambda: [])
    monkeypatch.setattr(propagation, "propagate_deletions", lambda *_, **__: tried.append("requests"))
    with pytest.raises(type(end)):
        stages.run_pipeline_stage(made, "propagate_deletions")
    assert tried == ["broken"] * 2


def test_an_identifier_whose_rows_tell_no_time_is_its_owners_until_now_and_of_two_owners_nobodys() -> None:
    link = Link("worn", person=("who", "who"), identifier=("badge", "badge"), since="since")
    assert closure.compute_holding_times([LinkRow("anna", "1", None)], link, NOW) == {"1": [("anna", (None, None, NOW))]}
    later = NOW - timedelta(days=3)
    held = closure.compute_holding_times(
        [LinkRow("anna", "1", None), LinkRow("anna", "1", None), LinkRow("bert", "1", later)], link, NOW
    )
    assert held == {"1": [("anna", (None, later, None)), ("bert", (later, None, later))]}
    with pytest.raises(closure.AmbiguousIdentifier, match="whose 'since' is empty") as refused:
        closure.compute_holding_times([LinkRow("anna", "1", None), LinkRow("bert", "1", None)], link, NOW)
    assert "anna" not in str(refused.value)


@table(reads="says", keys="who", subject="who", subject_at="at", personal={"nick": treat.hmac("member")})
def nicknamed(says: Any) -> Any:
    """By pseudonyms, too."""
    return says


def test_rows_are_of_a_time_by_whichever_column_they_are_found(workspace: Workspace) -> None:
    made = replace(workspace, graph=build_declaration_graph(workspace.graph.pipeline, [source, nicknamed]))
    write_deltalake(made.path("nicknamed"), pa.table({"who": ["a"], "nick": ["b"], "at": [NOW]}))
    assert [(one.subject, one.domain, one.at) for one in subject_tables.find_subject_tables(made)] == [
        ("`who`", "who", "at"),
        ("`nick`", "pseudonym", "at"),
    ]


def test_files_that_come_again_are_rewritten_before_they_are_archived(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = replace(source, clean_source="archive", clean_after_days=0)
    made = replace(workspace, graph=build_declaration_graph(workspace.graph.pipeline, [kept, said, each]))
    did: list[str] = []

    def rewrite(_: Workspace) -> list[FlowReport]:
        did.append("rewritten")
        return [FlowReport(flow="says_landing", layer="landing")]

    def clean(*_: object) -> cleaning.CleaningResult:
        did.append("archived")
        return cleaning.CleaningResult()

    monkeypatch.setattr(landing, "rewrite_redelivered_files", rewrite)
    monkeypatch.setattr(cleaning, "clean_landing_folder", clean)
    reports = [FlowReport(flow="says", layer="bronze")]
    layers.clean_sources(made, reports)
    assert did == ["rewritten", "archived"] and [one.flow for one in reports] == ["says", "says_landing"]
    layers.clean_sources(workspace, [])
    assert len(did) == 2, "where nothing is archived nothing is looked for"

    def refuse(_: Workspace) -> list[FlowReport]:
        raise SluiceError("written to")

    monkeypatch.setattr(landing, "rewrite_redelivered_files", refuse)
    with pytest.raises(FlowsFailed):
        layers.clean_sources(made, [])
    assert len(did) == 2, "nothing is archived that has them"


def test_a_file_that_turns_out_unreadable_goes_where_it_names_somebody(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace.landing / "says"
    hers, others, changing = (
        _made(folder / f"{n}.json", content=f'{{"who": "{who}"}}\n') for n, who in enumerate(("anna1", "b", "c"))
    )
    called: list[int] = []

    def read(_: object, __: object, examined: list[Any], *___: object) -> records.DeliveredRecords:
        called.append(len([one for one in examined if one.state == "ingested"]))
        if len(called) == 1:
            changing.write_text('{"who": "c"}\n{"who": "d"}\n')
            raise records.ChangedWhileRead("it was changed")
        if len(called) == 2:
            raise records.RefusedDeliveries({
                one.delivery.number: "broken" for one in examined if one.delivery.file in ("0.json", "1.json")
            })
        return records.DeliveredRecords()

    monkeypatch.setattr(records, "read_delivered_records", read)
    monkeypatch.setattr(append, "create_bronze_tables", lambda *_: None)
    monkeypatch.setattr(intake, "current_source_columns", lambda _, of: SimpleNamespace(source=of, schema=None))
    assert landing.rewrite_source_files(workspace, source, erased_names.index_erased_names(["anna1"])) == (1, 1, 1)
    assert called[:3] == [3, 2, 0]
    assert [path.exists() for path in (hers, others, changing)] == [False, True, True]


def test_nobody_is_passed_over_in_releases_and_restricted_tables_whose_disk_is_not_mounted(workspace: Workspace) -> None:
    @table(reads="says", keys="who", subject="who", restricted=True)
    def secret(says: Any) -> Any:
        """Secret."""
        return says

    @materialized_view(reads="secret", keys="who", subject="who", restricted=True)
    def secret_each(secret: Any) -> Any:
        """Secret, and computed."""
        return secret

    declared = [source, said, each, secret, secret_each]
    workspace = replace(workspace, graph=build_declaration_graph(workspace.graph.pipeline, declared))
    row = {"run": "r", "state": "done"}
    run_ledger.append_run_rows(workspace.records, [row | {"stage": "silver", "flow": "secret"}])
    assert subject_tables.find_subject_tables(workspace) == [], "a flow that had nothing to do has made no table"
    run_ledger.append_run_rows(workspace.records, [row | {"stage": "silver", "flow": "secret", "version_after": 0}])
    with pytest.raises(SluiceError, match=r"are not there: secret\. .*mount that, or let SLUICE_RESTRICTED say"):
        subject_tables.find_subject_tables(workspace)
    _written(workspace.path("secret"), [1])
    assert {one.name for one in subject_tables.find_subject_tables(workspace)} == {"secret"}

    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna")])
    requests.advance_request_state(workspace.records, request, request_events.LOGICALLY, physical_due_at=NOW.isoformat())
    run_ledger.append_run_rows(workspace.records, [row | {"stage": "silver", "flow": "secret_each", "version_after": 0}])
    with pytest.raises(SluiceError, match=r"are not there: secret_each\. "):
        physical.finish_physical_erasure(workspace, NOW + timedelta(days=2))
    assert request_record.read_erasure_request(workspace.records, request.request).state == request_events.LOGICALLY
    scanned = sought.scan_all_roots(workspace.lake, sought.SoughtNeedles([], [], {}))
    unread = [one for one in scanned.unread if one.root == "restricted"]
    assert [one.path for one in unread] == [workspace.path("secret_each")] and "a run has written" in unread[0].reason
    _written(workspace.path("secret_each"), [1])
    scanned = sought.scan_all_roots(workspace.lake, sought.SoughtNeedles([], [], {}))
    assert [one for one in scanned.unread if one.root == "restricted"] == []

    rows.erase_from_releases(ErasureStep(Propagation(workspace, [], lambda: []), "releases"))
    run_ledger.append_run_rows(workspace.records, [row | {"stage": "release", "flow": "said"}])
    with pytest.raises(SluiceError, match=r"has made releases, and they are not there"):
        rows.erase_from_releases(ErasureStep(Propagation(workspace, [], lambda: []), "releases"))
    scanned = sought.scan_all_roots(workspace.lake, sought.SoughtNeedles([], [], {}))
    assert "runs have made some" in str([one.reason for one in scanned.unread if one.root == "released"])


def test_nobody_is_taken_out_of_landed_files_that_are_not_there(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "create_bronze_tables", lambda *_: None)
    monkeypatch.setattr(intake, "current_source_columns", lambda _, of: SimpleNamespace(source=of, schema=None))
    monkeypatch.setattr(records, "read_delivered_records", lambda *_: records.DeliveredRecords())
    rows = [{"source": "says", "file": f"{n}.json", "event": DELIVERED} for n in (1, 2)]
    delivery_tables.append_numbered_deliveries(workspace.deliveries, [rows], 0, "run")
    for _ in range(2):  # without the folder, and with the one where a disk is mounted at other times
        with pytest.raises(
            SluiceError,
            match=r"from which people must be removed, are not there: .*/says\. If it is on a disk or a share, mount that",
        ):
            landing.rewrite_source_files(workspace, source, erased_names.index_erased_names(["anna1"]))
        (workspace.landing / "says").mkdir(parents=True, exist_ok=True)
    _made(workspace.landing / "says" / "2.json", content="{}\n")
    assert landing.rewrite_source_files(workspace, source, erased_names.index_erased_names(["anna1"])) == (0, 0, 0), (
        "somebody removed the other one"
    )


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """No landed file can be read."""

    def read(_: object, __: object, examined: list[Any], *___: object) -> records.DeliveredRecords:
        if whole := {one.delivery.number: "broken" for one in examined if one.state == "ingested"}:
            raise records.RefusedDeliveries(whole)
        return records.DeliveredRecords()

    monkeypatch.setattr(records, "read_delivered_records", read)
    monkeypatch.setattr(append, "create_bronze_tables", lambda *_: None)
    monkeypatch.setattr(intake, "current_source_columns", lambda _, of: SimpleNamespace(source=of, schema=None))


@pytest.mark.usefixtures("unreadable")
def test_a_file_that_its_producer_still_writes_stays_and_keeps_the_request_open(workspace: Workspace) -> None:
    folder, marked = workspace.landing / "says", replace(source, ready_marker="{name}.done")
    for name, of, at_rest in (
        ("a.json.part", source, LONG_AGO),
        (".a.json", source, LONG_AGO),
        ("a.json", marked, LONG_AGO),
        ("a.json", source, time.time()),
        ("sub/a.json", source, time.time()),
    ):
        still = _made(folder / name, time.time(), '{"who": "anna1"}')
        if at_rest == LONG_AGO:
            with pytest.raises(SluiceError, match="1 file of source 'says' are written to"):
                landing.rewrite_source_files(workspace, of, erased_names.index_erased_names(["anna1"]))
            assert still.read_text() == '{"who": "anna1"}'
            assert landing.rewrite_source_files(workspace, of, erased_names.index_erased_names(["berta"])) == (0, 0, 0), (
                "who is not in it need not wait"
            )
        # A file that a discovery would take is finished, however young it is.
        os.utime(still, (at_rest, at_rest))
        assert (
            landing.rewrite_source_files(workspace, of, erased_names.index_erased_names(["anna1"])) == (1, 1, 1)
            and not still.exists()
        )


@pytest.mark.parametrize("stage", ["optimize", "vacuum"])
def test_upkeep_stops_between_two_tables(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    done: list[str] = []

    def one(of: Workspace, table: Any, *_: object, **__: object) -> FlowReport:
        done.append(table if isinstance(table, str) else table.name)
        stop = of.paths.stop_request(of.run)
        stop.parent.mkdir(parents=True, exist_ok=True)
        stop.touch()
        return FlowReport(flow=done[-1], layer=stage)

    for name in ("says", "said", "each"):
        _written(workspace.path(name), [1])
        # As tables of now are made: nothing of them is to be rewritten first.
        DeltaTable(workspace.path(name)).alter.set_table_properties({INSTANTS: MICROSECONDS}, raise_if_not_exists=False)
    module, function = {"optimize": (optimize, "optimize_table"), "vacuum": (vacuum, "vacuum_table")}[stage]
    monkeypatch.setattr(module, function, one)
    with pytest.raises(StopRequested):
        stages.run_pipeline_stage(workspace, stage)
    assert done == ["says"]


def test_what_is_asked_for_by_its_id_is_carried_out_alone(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = workspace.settings
    carried_out: list[str] = []
    first, other = (
        requests.receive_erasure_request(PipelineLake(settings, workspace.graph), [Identifier("who", name)])
        for name in ("anna", "bert")
    )

    def suppress(step: ErasureStep) -> None:
        carried_out.extend(one.request for one in step.propagation.waiting)

    monkeypatch.setattr(propagation, "PERSONAL_PLACES", (PersonalPlace("suppress", "", suppress),))
    monkeypatch.setattr(identity_settling, "close_over_identifiers", lambda _, asked, rows: asked)
    monkeypatch.setattr(canary, "plant_canary", lambda _, asked: asked)
    monkeypatch.setattr(physical, "_vacuum_due_tables", lambda *arguments: [])
    monkeypatch.setattr(erasure_jobs, "scan_and_certify_requests", lambda *_: [])

    class Standing(datetime):
        """A clock that stands still, so that nothing becomes due for removal however long the test takes."""

        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return NOW

    monkeypatch.setattr(erasure_jobs, "datetime", Standing)

    def states() -> list[str]:
        return [
            request_record.read_erasure_request(PipelineRecords(settings, "house"), one.request).state for one in (first, other)
        ]

    erasure_jobs.carry_out_due_erasures(workspace, [first.request])
    assert carried_out == [first.request] and states() == [request_events.LOGICALLY, request_events.RECEIVED]
    erasure_jobs.carry_out_due_erasures(workspace)
    assert carried_out == [first.request, other.request] and states() == [request_events.LOGICALLY] * 2
    later = NOW + timedelta(days=9)
    physical.finish_physical_erasure(workspace, later, only=[other.request])
    assert states() == [request_events.LOGICALLY, request_events.PHYSICALLY]


@pytest.mark.parametrize("killed_in", STEPS)
def test_a_killed_propagation_goes_on_where_it_was(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, killed_in: str) -> None:
    """Before and after each step, which is noted for each table: none is done twice, none is left out."""

    class Killed(BaseException):
        pass

    killing, did = [True], []

    def work(step: ErasureStep) -> None:
        for one in ("a", "b"):
            if not step.is_done(one):
                if killing and step.name == killed_in and one == "b":
                    raise Killed
                did.append((step.name, one))
                step.record_done(one, rows=1)

    monkeypatch.setattr(propagation, "PERSONAL_PLACES", tuple(PersonalPlace(name, "", work) for name in STEPS))
    monkeypatch.setattr(
        identity_settling, "settle_waiting_requests", lambda of, only: request_record.list_waiting_requests(of.records, only)
    )
    monkeypatch.setattr(canary, "plant_canary", lambda _, asked: asked)
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna")])
    with pytest.raises(Killed):
        propagation.propagate_deletions(workspace, lambda: [])
    assert (
        request_record.read_erasure_request(PipelineRecords(workspace.settings, "house"), request.request).state
        == request_events.RECEIVED
    )
    killing.clear()
    propagation.propagate_deletions(workspace, lambda: [])
    assert did == [(name, one) for name in STEPS for one in ("a", "b")]
    done = request_record.read_erasure_request(PipelineRecords(workspace.settings, "house"), request.request)
    assert done.state == request_events.LOGICALLY and done.physical_due_at is not None
    rows = erasure_ledger.read_erasure_ledger(PipelineRecords(workspace.settings, "house"))
    assert len(rows) == 2 * len(STEPS) and {one.request for one in rows} == {request.request}
    propagation.propagate_deletions(workspace, lambda: [])
    assert len(erasure_ledger.read_erasure_ledger(PipelineRecords(workspace.settings, "house"))) == len(rows)


def test_a_shallow_clone_keeps_the_bytes_and_is_named(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(physical, "_vacuum_due_tables", lambda *arguments: [FlowReport(flow="said", layer="vacuum")])
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna")])
    soon = (NOW + timedelta(minutes=1)).isoformat()
    requests.advance_request_state(
        PipelineRecords(workspace.settings, "house"), request, request_events.LOGICALLY, physical_due_at=soon
    )
    assert physical.finish_physical_erasure(workspace, NOW) == []  # not yet
    (tmp_path / "clone" / "house").mkdir(parents=True)
    register_shallow_clone(PipelineRecords(workspace.settings, "house"), "r", str(tmp_path / "clone"))
    with pytest.raises(SluiceError, match=str(tmp_path / "clone")):
        physical.finish_physical_erasure(workspace, NOW + timedelta(days=1))
    (tmp_path / "clone" / "house").rmdir()
    physical.finish_physical_erasure(workspace, NOW + timedelta(days=1))
    assert (
        request_record.read_erasure_request(PipelineRecords(workspace.settings, "house"), request.request).state
        == request_events.PHYSICALLY
    )


def test_a_request_waits_for_a_flow_that_is_behind(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(workspace.path("said"), [1], [2], [3])
    _checkpoint(workspace, read_to=0)
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna")])
    requests.advance_request_state(
        PipelineRecords(workspace.settings, "house"), request, request_events.LOGICALLY, physical_due_at=NOW.isoformat()
    )
    reports = physical.finish_physical_erasure(workspace, NOW + timedelta(days=2))
    assert any("test_erasure_steps_each" in note for report in reports for note in report.notes)
    assert (
        request_record.read_erasure_request(PipelineRecords(workspace.settings, "house"), request.request).state
        == request_events.LOGICALLY
    )
    assert len(list(Path(workspace.path("said")).glob("*.parquet"))) == 3


def test_a_table_whose_bytes_cannot_be_removed_keeps_the_request_and_no_other_table(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _written(workspace.path("says"), [1], [2], [3])
    _written(workspace.path("said"), [1], [2], [3])
    _checkpoint(workspace, read_to=2)
    request = requests.receive_erasure_request(workspace.lake, [Identifier("who", "anna")])
    records = PipelineRecords(workspace.settings, "house")
    requests.advance_request_state(records, request, request_events.LOGICALLY, physical_due_at=NOW.isoformat())
    find, vacuumed = sweep.find_orphan_files, list[str]()

    def find_or_fail(path: str, now: datetime) -> list[Any]:
        if path == workspace.path("says"):
            raise OSError("the disk does not answer")
        return find(path, now)

    def vacuum_without_spark(_: Workspace, name: str, *__: Any, **___: Any) -> FlowReport:
        vacuumed.append(name)
        return FlowReport(flow=name, layer="vacuum")

    monkeypatch.setattr(sweep, "find_orphan_files", find_or_fail)
    monkeypatch.setattr(vacuum, "vacuum_table", vacuum_without_spark)
    with pytest.raises(FlowsFailed) as failed:
        physical.finish_physical_erasure(workspace, NOW + timedelta(days=2))
    assert list(failed.value.errors) == ["says"] and [one.flow for one in failed.value.reports][:2] == ["says", "said"]
    assert vacuumed == ["said"] and len(list(Path(workspace.path("said")).glob("*.parquet"))) == 1
    assert request_record.read_erasure_request(records, request.request).state == request_events.LOGICALLY


def test_the_names_that_are_searched_for_do_not_show_themselves() -> None:
    names = erased_names.index_erased_names(["anna-schmidt", "+49 170 1234567"], [("reviewer", "bob")], phones=["441632960961"])
    assert names.are_in_bytes(b"call (49) 170-1234567") and "1234567" not in repr(names)
    assert not any(value in repr(names) for value in ("schmidt", "bob", "441632960961"))
