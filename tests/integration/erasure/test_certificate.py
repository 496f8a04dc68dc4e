"""A certificate says PASS only where nothing is left, by whatever means one searches; and it shows by a control that it would have found it."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import os
import subprocess
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from tests.conftest import Lakehouse, lake_on_disk, versions_kept

import residue
from residue import needles
from sluice.declare import F, Pipeline, Source, expect_or_quarantine, materialized_view, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import canary, physical, propagation, request_events, request_record, requests
from sluice.erasure.personal_places import registry
from sluice.erasure.proof import certificate, checking, search_scope
from sluice.erasure.vault import Identifier
from sluice.locations import is_on_disk, locate
from sluice.runs.execution import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

pytestmark = pytest.mark.on_store

HER, OTHER = "anna-schmidt-4711", "bert-meier-0815"

FIRST = "".join(
    json.dumps({"who": who, "number": number, "text": text}) + "\n"
    for who in (HER, OTHER)
    for number, text in ((1, "hello"), (2, ""))
).encode()
OTHERWISE = b"\n".join((
    rb'{"who": "anna\u002dschmidt-4711", "number": 3, "text": "cut o',
    rb'{"wh\u006f": "anna\u002dschmidt-4711", "number": 3, "text": "cut o',
    b'{"number": 4, "text": "' + base64.encodebytes(b"." * 50 + HER.encode() + b"." * 9).replace(b"\n", rb"\r\n"),
    rb'{"who": "bert\u002dmeier-0815", "number": 3, "text": "cut o',
))  # fmt: skip
"""Records that are cut off, and say who they are of in other letters."""

STEPS = {
    "tables": ("bronze/notes/part-", "test_certificate/note/part-"),
    "quarantine": ("quarantine/note/",),
    "unattributed": ("quarantine/notes/",),
    "views": ("test_certificate/by_person/",),
    "landing": ("notes/1.jsonl", "notes/2.jsonl.gz", "notes/3.jsonl"),
    "state": ("_sluice/checkpoints/test_certificate_note/killed/",),
    "sweep": ("bronze/notes/_delta_log/.00000000000000000009.json.0a-1b.tmp", "_sluice/staging/0"),
    "vacuum": ("bronze/notes/.hidden/part-orphan",),
}
"""By the step that sees to it, where she is before: begins of paths. Each is found on its own, so that PASS needs all of the steps."""

notes = Source(name="notes", pattern="*.jsonl*", schema="who STRING, number BIGINT, text STRING", subject="who", comment="Notes.")


@table(reads="notes", keys=("who", "number"), subject="who", personal="text")
@expect_or_quarantine("said", "text <> ''")
def note(notes: DataFrame) -> DataFrame:
    """A note."""
    return notes.select("who", "number", "text")


@materialized_view(reads="note", keys="who", subject="who")
def by_person(note: DataFrame) -> DataFrame:
    """Notes of each."""
    return note.groupBy("who").agg(F.count(F.lit(1)).alias("notes"))


@pytest.fixture
def lake(settings: Settings, spark: SparkSession, tmp_path: Path) -> Iterator[Lakehouse]:
    # What other runs of this checkout leave below .sluice is not this test's.
    settings.__dict__["state"] = tmp_path / "state"
    layers = ("pipelines.house.bronze", __name__)
    pipeline = Pipeline(name="house", description="h", owner="t", layers=layers, retain="0 seconds")
    house = Lakehouse(settings, spark, build_declaration_graph(pipeline, (notes, note, by_person)))
    house.land("notes/1.jsonl", FIRST)
    house.land("notes/2.jsonl.gz", gzip.compress(FIRST.replace(b"hello", b"again")))
    house.land("notes/3.jsonl", OTHERWISE)
    with versions_kept():
        house.run()
        yield house


def _leave(lake: Lakehouse) -> None:
    """What writers that were killed leave."""
    for begin in (path for step in ("state", "sweep", "vacuum") for path in STEPS[step]):
        left = locate(lake.settings.lake, "house", f"{begin}state/0/0/1.delta" if begin.endswith("/") else begin)
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_text(HER)
        for path in (left, left.parent) if is_on_disk(left) else ():  # a store says itself when it was written
            os.utime(path, (1_600_000_000, 1_600_000_000))


def _places(lake: Lakehouse) -> set[str]:
    """The steps that have something left to do, by where the scan finds her."""
    wanted = needles.build_needles([("who", HER)], {"who": ["who"]})
    hits = residue.scan_roots(search_scope.list_scan_roots(lake.lake), wanted, processes=1).hits
    begins = {begin: step for step, some in STEPS.items() for begin in some}
    seen = {begin for begin in begins if any(hit.path.startswith(begin) and "canary" not in hit.path for hit in hits)}
    return {step for step, some in STEPS.items() if seen.issuperset(some)}


def _erased(lake: Lakehouse) -> str:
    request = requests.receive_erasure_request(lake.lake, [Identifier("who", HER)]).request
    workspace = lake.workspace()
    propagation.propagate_deletions(workspace, lambda: stages.run_pipeline_stage(workspace, __name__.rsplit(".", 1)[-1]))
    assert "tables" in _places(lake) and "landing" not in _places(lake), "files of former versions stay until VACUUM"
    physical.finish_physical_erasure(lake.workspace(), datetime.now(UTC) + timedelta(minutes=1))
    return request


def _issue(lake: Lakehouse, request: str) -> certificate.Certificate:
    return certificate.issue_certificates(lake.lake, [request_record.read_erasure_request(lake.records, request)])[request]


def _scan_canary(lake: Lakehouse, request: request_record.ErasureRequest) -> dict[str, int]:
    """The number of finds of a request's canary in its own places, for each kind of store."""
    folder = canary.locate_canary_folder(lake.records, request.control)
    wanted = canary.build_canary_needles(lake.records, request)
    return canary.count_hits_by_store(
        residue.scan_roots([residue.ScanRoot("canary", str(folder))], [], wanted, processes=1).hits, ""
    )


@pytest.mark.thorough(beside="unit/erasure/proof/test_certificates.py")
def test_after_pass_a_search_by_other_means_finds_nothing(lake: Lakehouse) -> None:
    assert list(_by_other_means(lake)) != []
    tables = {"bronze/notes", "quarantine/note", "test_certificate/note", "test_certificate/by_person"}
    assert tables <= {name for name, _ in _by_history(lake)}
    _leave(lake)
    assert _places(lake) == set(STEPS), "F10: any step that is left out leaves something that is found"
    subjects = [who for (who,) in lake.rows("notes_quarantine", "_subject")]
    assert subjects == [HER, OTHER, None, None], "whose they are is read without the escapes"
    request = _erased(lake)
    assert [row[0].encode() for row in lake.rows("notes_quarantine", "record")] == OTHERWISE.splitlines()[3:]
    assert (lake.settings.landing / "house" / "notes" / "3.jsonl").read_bytes() == OTHERWISE.splitlines()[3]
    assert _places(lake) == set()
    made = _issue(lake, request)
    left = _scan_canary(lake, request_record.read_erasure_request(lake.records, request))
    assert made.verdict == "PASS", (made.record["control"], made.record["stamps"], left)
    assert list(_by_other_means(lake)) == [] and list(_by_history(lake)) == []
    stores = {one.title for store in registry.list_control_stores() for one in store.findings}
    assert set(made.record["control"]["before"]) == stores == set(made.record["control"]["now"])
    assert request_record.read_erasure_request(lake.records, request).state == request_events.CERTIFIED
    for text in (made.path.with_suffix(".html").read_text(), made.path.read_text()):
        assert HER not in text and canary.read_canary_identifiers(lake.records, request)[0].value not in text

    # F13: what comes again brings her back into no table, and leaves the files that it came in.
    for name in ("1", "again"):
        lake.land(f"notes/{name}.jsonl", FIRST)
    assert lake.run()["notes"].suppressed == 4 and lake.rows("by_person", "who") == [(OTHER,)]
    lake.run("propagate_deletions")
    assert list(_by_other_means(lake)) == []

    # A rescan is another certificate, in the chain of the first; whoever changes a record, or takes one out of the chain, is found out.
    # What else makes one fail is in `unit/erasure/proof/test_certificates.py`, which needs no run.
    again = _issue(lake, request)
    assert again.verdict == "PASS" and again.record["previous"] == made.record["hash"]
    assert checking.verify_certificate(lake.settings, made.path)["issued"] == "PASS"
    made.path.write_text(json.dumps({**made.record, "verdict": "FAIL"}))
    assert checking.verify_certificate(lake.settings, made.path)["hash"] is False
    assert checking.verify_certificate(lake.settings, again.path)["chain"] is False


def _by_other_means(lake: Lakehouse) -> Iterator[str]:
    """Every file decompressed by other tools and searched, and DuckDB over every Parquet file, current or not."""
    landing = lake.settings.landing
    roots = [lake_on_disk(lake.settings, landing.parent / "fetched"), landing, lake.settings.restricted]
    for path in (path for root in roots for path in root.rglob("*") if path.is_file() and "certificates" not in path.parts):
        if path.suffix == ".parquet":
            rows: list[Any] = duckdb.sql(f"SELECT * FROM read_parquet('{path}', hive_partitioning = false)").fetchall()
            footer = duckdb.sql(f"SELECT * FROM parquet_metadata('{path}')").fetchall()
            content = repr((rows, footer)).encode()
        elif path.suffix == ".zip":
            content = b"".join(zipfile.ZipFile(path).read(name) for name in zipfile.ZipFile(path).namelist())
        elif path.suffix == ".gz":
            content = subprocess.run(["gzip", "-dc", str(path)], check=True, capture_output=True).stdout
        else:
            content = bz2.decompress(path.read_bytes()) if path.suffix == ".bz2" else b""
        if HER.encode() in content + path.read_bytes() or HER in str(path):
            yield str(path)


def _by_history(lake: Lakehouse) -> Iterator[tuple[str, int]]:
    """The tables and versions that hold her: DuckDB reads every readable version of every table, whether Sluice knows the table or not."""
    roots = (lake_on_disk(lake.settings, lake.settings.landing.parent / "fetched"), lake.settings.restricted)
    for log in sorted(path for root in roots for path in root.rglob("_delta_log")):
        table, name = DeltaTable(str(log.parent)), f"{log.parent.parent.name}/{log.parent.name}"
        for version in range(table.version() + 1):
            try:
                table.load_as_version(version)
                rows = table.to_pyarrow_dataset()  # DuckDB finds it by the name of the variable
                found: list[Any] = duckdb.sql("SELECT * FROM rows").fetchall() if rows.files else []
            except (DeltaError, duckdb.Error, OSError):
                continue  # its files are gone, or it marks rows as deleted, which DuckDB cannot read here
            if HER in repr(found):
                yield name, version
