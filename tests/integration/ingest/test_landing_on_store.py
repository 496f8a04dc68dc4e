"""A landing folder on a store: what is read, what is known about it, and what an erasure removes from it. The lake is on a disk."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

import boto3  # type: ignore[import-untyped]  # it has no types
import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.conftest import LAKES, Lakehouse

from sluice.declare import Pipeline, Source, table
from sluice.declare.assembly.graph import build_declaration_graph
from sluice.erasure import physical, propagation, request_record, requests
from sluice.erasure.proof import certificate
from sluice.erasure.vault import Identifier
from sluice.errors import SluiceError, UsageError
from sluice.ingest.landing import rewriting
from sluice.locations import Location, find_last_write, locate, remove_folder
from sluice.runs.execution import stages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.settings import Settings

LAYERS = ("pipelines.shop.bronze", __name__)
PIPELINE = Pipeline(name="shop", description="A shop.", owner="tests", layers=LAYERS, retain="0 seconds")
HER, OTHER = "anna-schmidt-4711", "bert-meier-0815"
Shop = Callable[..., Lakehouse]


@table(reads="a", keys="id", subject="who")
def thing(a: DataFrame) -> DataFrame:
    """A thing."""
    return a.select("id", "who")


@pytest.fixture
def landing(bucket_url: str) -> Location:
    """The landing folder of all pipelines, on a store of its own."""
    if LAKES:
        pytest.skip("one process knows one store")
    return locate(f"{bucket_url}/landed")


@pytest.fixture
def shop(settings: Settings, landing: Location, spark: SparkSession) -> Shop:
    settings = replace(settings, landing=landing)
    settings.__dict__["state"] = settings.secrets.parent / "state"  # what other runs of this checkout leave is not searched
    return lambda *declared: Lakehouse(settings, spark, build_declaration_graph(PIPELINE, declared))


def lines(*rows: dict[str, object]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def put(lake: Lakehouse, file: str, content: bytes) -> None:
    (lake.settings.landing / "shop" / file).write_bytes(content)


def put_in_one_second(lake: Lakehouse, files: dict[str, bytes]) -> None:
    """Put objects, again and again until the store, which knows whole seconds, has one time for all of them."""
    while True:
        for file, content in files.items():
            put(lake, file, content)
        if len({find_last_write(lake.settings.landing / "shop" / file) for file in files}) == 1:
            return


def states(lake: Lakehouse) -> list[tuple[str, str]]:
    return [(row["file"], row["state"]) for row in lake.outcomes()]


def parquet_of(*numbers: int) -> bytes:
    content = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"id": pa.array(numbers, pa.int64())}), content)
    return content.getvalue()


def test_objects_of_every_format_are_read_and_what_is_no_delivery_is_not(shop: Shop) -> None:
    lake = shop(
        Source(name="a", schema="id BIGINT, text STRING"),
        Source(name="c", format="csv", schema="id BIGINT"),
        Source(name="p", format="parquet", schema="id BIGINT"),
        Source(name="m", schema="id BIGINT", ready_marker="{name}.done"),
    )
    put(lake, "a/below/whole.json", lines({"id": 1}))
    put(lake, "a/packed.json.gz", gzip.compress(lines({"id": 2})))
    put(lake, "a/odd [x] 50% ü.json", lines({"id": 3}))
    put(lake, "a/#9? 1%231.json", lines({"id": 9}))
    put(lake, "a/large.json", lines(*({"id": 4, "text": "x" * 1000} for _ in range(6000))))
    for left_out in ("a/written.json.tmp", "a/_hidden.json", "a/.hidden/x.json", "ab/x.json"):
        put(lake, left_out, lines({"id": 99}))
    put(lake, "a/folder/", b"")
    put(lake, "c/1.csv", b"id\n5\n")
    put(lake, "p/1.parquet", parquet_of(6))
    put(lake, "m/1.json", lines({"id": 7}))
    put(lake, "m/2.json", lines({"id": 8}))
    put(lake, "m/2.json.done", b"")
    lake.run()
    assert [(row[0], row[1]) for row in sorted(set(lake.rows("a", "id", "_file")))] == [
        (1, "below/whole.json"), (2, "packed.json.gz"), (3, "odd [x] 50% ü.json"), (4, "large.json"),
        (9, "#9? 1%231.json"),
    ]  # fmt: skip
    assert len(lake.rows("a")) == 6004, "a large object is read in ranges"
    assert lake.rows("c", "id") + lake.rows("p", "id") + lake.rows("m", "id") == [(5,), (6,), (8,)]
    before = lake.versions()
    lake.run()
    assert lake.versions() == before


@pytest.mark.thorough
def test_an_object_whose_name_is_no_path_is_missed_and_said_and_holds_nobody_up(shop: Shop, bucket_url: str) -> None:
    lake = shop(Source(name="a", schema="id BIGINT"))
    put(lake, "a/1.json", lines({"id": 1}))
    odd = boto3.client("s3", region_name="us-east-1")
    for name in ("/2.json", "tab\there.json"):
        odd.put_object(Bucket=bucket_url.removeprefix("s3://"), Key=f"landed/shop/a/{name}", Body=lines({"id": 2}))
    told = "2 files are missed, which every run tries again: sluice ledger shop --state missed"
    assert told in lake.run()["a"].notes and lake.rows("a", "id") == [(1,)]
    before = lake.versions()
    assert told in lake.run()["a"].notes and lake.versions() == before, "noted once"


@pytest.mark.thorough
def test_another_content_of_the_same_size_and_second_is_a_delivery_and_one_second_goes_by_names(shop: Shop) -> None:
    lake = shop(Source(name="a", schema="id BIGINT, who STRING", subject="who", allow_overwrites=True))
    put_in_one_second(lake, {f"a/{name}.json": lines({"id": 0, "who": name}) for name in ("c", "a", "b")})
    lake.run()
    for who in ("d", "e"):
        put(lake, "a/c.json", lines({"id": 1, "who": who}))
        lake.run()
        assert (1, who) in lake.rows("a", "id", "who"), "each is known by its ETag, in whichever second it came"
    deliveries = [row["file"] for row in sorted(lake.outcomes(), key=lambda row: row["delivery"])]
    assert deliveries == ["a.json", "b.json", "c.json", "c.json", "c.json"]


def test_a_folder_without_its_objects_and_a_store_that_does_not_answer_are_not_nothing_new(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = shop(Source(name="a", schema="id BIGINT"))
    with pytest.raises(UsageError, match=r"no landing folder s3://"):
        lake.run()
    put(lake, "a/1.json", lines({"id": 1}))
    lake.run()
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        with pytest.raises(SluiceError, match=r"cannot be (listed|looked at)"):
            lake.run()
    remove_folder(lake.settings.landing)
    with pytest.raises(UsageError, match="_MAY_BE_EMPTY"):
        lake.run()
    put(lake, "a/2.json", lines({"id": 2}))
    lake.run()
    assert lake.rows("a", "id") == [(1,), (2,)], "rows of a file that is gone stay"


@pytest.mark.thorough
@pytest.mark.parametrize("how", ["archive", pytest.param("delete", marks=pytest.mark.slow)])
def test_objects_that_were_taken_are_archived_or_deleted(shop: Shop, how: str) -> None:
    lake = shop(Source(name="a", schema="id BIGINT", clean_source=how, clean_after_days=0))
    put(lake, "a/x.json", lines({"id": 1}))
    lake.run()
    folder = lake.settings.landing / "shop"
    assert [str(one.relative_to(folder)) for one in folder.rglob("*")] == (["_archive/a/x.json"] if how == "archive" else [])
    before = lake.versions()
    lake.run()
    assert lake.versions() == before and lake.rows("a", "id") == [(1,)]
    put(lake, "a/y.json", lines({"id": 2}))
    lake.run()
    assert lake.rows("a", "id") == [(1,), (2,)]


def _interrupt(*given: Any) -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.thorough
@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_erasure_takes_her_out_of_the_objects_and_their_rest_is_no_new_delivery(
    shop: Shop, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = shop(Source(name="a", schema="id BIGINT, who STRING", subject="who", allow_overwrites=True), thing)
    put(lake, "a/1.json", lines({"id": 1, "who": HER}, {"id": 2, "who": OTHER}))
    put(lake, "a/2.json.gz", gzip.compress(lines({"id": 3, "who": HER})))
    lake.run()
    request = requests.receive_erasure_request(lake.lake, [Identifier("who", HER)]).request

    def erase() -> None:
        propagation.propagate_deletions(
            lake.workspace(), lambda: stages.run_pipeline_stage(lake.workspace(), __name__.rsplit(".", 1)[-1])
        )

    if killed:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(rewriting, "_record_rewritten_files", _interrupt)
            erase()
        rewriting.finish_rewriting_journals(
            locate(lake.records.bookkeeping("rewriting")), lake.workspace().deliveries, "a-later-run"
        )
    erase()
    folder = lake.settings.landing / "shop" / "a"
    assert (folder / "1.json").read_bytes() == lines({"id": 2, "who": OTHER})
    assert gzip.decompress((folder / "2.json.gz").read_bytes()) == b"" and len(list(folder.rglob("*"))) == 2
    physical.finish_physical_erasure(lake.workspace(), datetime.now(UTC) + timedelta(minutes=1))
    made = certificate.issue_certificates(lake.lake, [request_record.read_erasure_request(lake.records, request)])
    assert made[request].verdict == "PASS", made[request].record["stamps"]
    before = lake.versions()
    lake.run()
    assert lake.versions() == before, "what was rewritten is no new delivery"
    assert lake.rows("thing", "id", "who") == [(2, OTHER)]


def test_a_source_with_events_takes_what_they_name_and_the_run_says_what_it_could_not_read(shop: Shop) -> None:
    lake = shop(
        Source(name="a", schema="id BIGINT", events="folder://told"), Source(name="g", schema="id BIGINT", names_grow=True)
    )
    put(lake, "a/1.json", lines({"id": 1}))
    put(lake, "g/2026-01-02.json", lines({"id": 1}))
    lake.run()
    put(lake, "a/2.json", lines({"id": 2}))
    put(lake, "a/3.json", lines({"id": 3}))
    put(lake, "g/2026-01-01.json", lines({"id": 0}))
    put(lake, "g/2026-01-03.json", lines({"id": 2}))
    folder = lake.settings.landing / "shop"
    about = {"bucket": {"name": folder.parts[1]}, "object": {"key": "/".join((*folder.parts[2:], "a/2.json"))}}
    put(lake, "told/1.json", json.dumps({"Records": [{"eventSource": "aws:s3", "s3": about}]}).encode())
    put(lake, "told/2.json", b"{")
    told = "1 message of folder://told about something else, or that cannot be read: nothing was taken of that"
    assert told in lake.run()["a"].notes
    assert lake.rows("a", "id") == [(1,), (2,)] and lake.rows("g", "id") == [(1,), (2,)]
    before = lake.versions()
    lake.run()
    assert lake.versions() == before and (folder / "told" / "_strange" / "2.json").is_file()
    remove_folder(locate(lake.records.bookkeeping("full_listings")))
    lake.run()
    assert lake.rows("a", "id") == [(1,), (2,), (3,)] and lake.rows("g", "id") == [(0,), (1,), (2,)]
