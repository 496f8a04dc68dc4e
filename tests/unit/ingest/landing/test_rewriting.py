"""Records are removed from landed files of any format: the others are read as before, and the file is not a new delivery."""

from __future__ import annotations

import bz2
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import residue
from residue import needles
from sluice.declare import Source
from sluice.ingest import delivery_tables, formats
from sluice.ingest.deliveries import absence, discovery, known_files
from sluice.ingest.deliveries.landed_file import LandedFile
from sluice.ingest.landing import rewriting

COLUMNS = pa.schema([pa.field("who", pa.string()), pa.field("said", pa.string())])
THREE = [{"who": "a", "said": "x"}, {"who": "b", "said": "y"}, {"who": "c", "said": "é"}]


def _json_lines() -> bytes:
    rows = [json.dumps(row, ensure_ascii=False) for row in THREE]
    return f"{rows[0]}\n\n  \r\n{rows[1]}\r\n{rows[2]}".encode()


def _csv() -> bytes:
    return 'who,said\r\na,x\r\n\r\n"b","y\nand ""more""\n"\r\nragged\r\nc,é\r\n'.encode()


def _parquet() -> bytes:
    target = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(THREE, schema=COLUMNS), target, row_group_size=2, compression="zstd")
    return target.getvalue().to_pybytes()


CASES: list[tuple[str, dict[str, Any], str, bytes]] = [
    ("json lines", {"format": "json"}, "f.jsonl", _json_lines()),
    ("gz", {"format": "json"}, "f.jsonl.gz", gzip.compress(_json_lines())),
    ("bz2", {"format": "json"}, "f.jsonl.bz2", bz2.compress(_json_lines())),
    ("zst", {"format": "json"}, "f.jsonl.zst", pa.compress(_json_lines(), "zstd", asbytes=True)),
    ("documents", {"format": "json", "multi_line": True}, "f.json", json.dumps(THREE, indent=1).encode()),
    ("cut off", {"format": "json", "multi_line": True}, "f.json", json.dumps(THREE)[:-1].encode()),
    ("csv", {"format": "csv"}, "f.csv", _csv()),
    ("latin-1", {"format": "csv", "encoding": "latin-1"}, "f.csv", _csv().decode().encode("latin-1")),
    ("utf-16", {"format": "csv", "encoding": "utf-16"}, "f.csv.gz", gzip.compress(_csv().decode().encode("utf-16"))),
    ("no header", {"format": "csv", "header": False, "schema": "who STRING, said STRING"}, "f.csv", _csv().split(b"\r\n", 1)[1]),
    ("text", {"format": "text"}, "f.txt", b"a\n\nb\r\nc"),
    ("parquet", {"format": "parquet"}, "f.parquet", _parquet()),
]


def _read(source: Source, path: Path) -> list[dict[str, Any]]:
    columns = pa.schema([pa.field("value", pa.string())]) if source.format == "text" else COLUMNS
    return [row for block in formats.read_file_records(source, path, columns, {}) for row in block.rows.to_pylist()]


@pytest.mark.parametrize(("options", "name", "content"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_record_can_go_and_the_others_stay(tmp_path: Path, options: dict[str, Any], name: str, content: bytes) -> None:
    source, path = Source(name="s", **options), tmp_path / name
    path.write_bytes(content)
    before = _read(source, path)
    assert len(before) >= 3
    for gone in [{number} for number in range(len(before))] + [set(range(len(before))), {0, len(before) - 1}]:
        path.write_bytes(content)
        os.utime(path, (1_600_000_000, 1_600_000_000))
        path.chmod(0o640)
        done = rewriting.prepare_rewritten_file(source, name, path, gone, is_known=False)
        assert rewriting.replace_rewritten_files(tmp_path / "journals", str(tmp_path / "deliveries"), [done], "r") == 1
        assert _read(source, path) == [row for number, row in enumerate(before) if number not in gone], gone
        assert (path.stat().st_mtime, path.stat().st_mode & 0o777) == (1_600_000_000, 0o640)
    assert sorted(one.name for one in tmp_path.iterdir()) == sorted([name, "journals"])


@pytest.fixture
def landed(tmp_path: Path) -> tuple[Source, Path, str]:
    """A source, its one file, which was delivered, and the deliveries table."""
    source, path = Source(name="s"), tmp_path / "landing" / "s" / "f.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(_json_lines())
    os.utime(path, (1_600_000_000, 1_600_000_000))
    deliveries = str(tmp_path / "lake" / "deliveries")
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 1
    return source, path, deliveries


def test_a_rewritten_file_is_the_same_delivery(tmp_path: Path, landed: tuple[Source, Path, str]) -> None:
    source, path, deliveries = landed
    rewriting.replace_rewritten_files(
        tmp_path / "journals", deliveries, [rewriting.prepare_rewritten_file(source, "f.jsonl", path, {1}, is_known=True)], "r"
    )
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 0
    (row,) = known_files.read_current_deliveries(deliveries)
    assert (row["delivery"], row["event"], row["size"]) == (1, "delivered", path.stat().st_size)
    assert LandedFile("f.jsonl", str(path), 0, 0).file in known_files.read_known_files(deliveries).files_of_source("s")
    assert known_files.read_known_files(deliveries).files_of_source("s")["f.jsonl"].delivery == 1
    # Delivered again as it was, it is a new one; and rewritten again to what it once was, none.
    for number in (3, 5):
        path.write_bytes(_json_lines())
        assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 1
        rewriting.replace_rewritten_files(
            tmp_path / "journals",
            deliveries,
            [rewriting.prepare_rewritten_file(source, "f.jsonl", path, {1}, is_known=True)],
            "r",
        )
        assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 0
        assert known_files.read_known_files(deliveries).files_of_source("s")["f.jsonl"].delivery == number
    # As rewritten it may go and come.
    path.rename(tmp_path / "away")
    (path.parent / absence.MAY_BE_EMPTY).touch()
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 1
    (tmp_path / "away").rename(path)
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 1
    seen = known_files.read_known_files(deliveries).files_of_source("s")["f.jsonl"]
    assert (seen.delivery, seen.event) == (5, "delivered")


@pytest.mark.parametrize("point", ["journal", "ledger", "file", "journal gone"])
def test_a_killed_rewriting_is_brought_to_its_end(
    tmp_path: Path, landed: tuple[Source, Path, str], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    source, path, deliveries = landed
    prepared = rewriting.prepare_rewritten_file(source, "f.jsonl", path, {1}, is_known=True)

    class Killed(BaseException):
        pass

    def killed(*arguments: object, **options: object) -> None:
        raise Killed

    after_the_ledger = point in ("file", "journal gone")
    if point == "journal":
        monkeypatch.setattr(rewriting, "_finish_rewriting_journal", killed)
    elif point == "ledger":
        monkeypatch.setattr(rewriting.delivery_tables, "append_numbered_deliveries", killed)
    else:
        real = rewriting._record_rewritten_files
        monkeypatch.setattr(rewriting, "_record_rewritten_files", lambda *arguments: (real(*arguments), killed())[0])
    with pytest.raises(Killed):
        rewriting.replace_rewritten_files(tmp_path / "journals", deliveries, [prepared], "r")
    monkeypatch.undo()
    if point == "journal gone":  # the file was put in place, too
        Path(str(prepared.part)).replace(path)
    assert (len(delivery_tables.read_delivery_ledger_rows(deliveries)) == 2) == after_the_ledger
    rewriting.finish_rewriting_journals(tmp_path / "journals", deliveries, "r")
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 0
    assert [row["who"] for row in _read(source, path)] == ["a", "c"]
    assert len(delivery_tables.read_delivery_ledger_rows(deliveries)) == 2 and not list((tmp_path / "journals").iterdir())
    assert [one.name for one in path.parent.iterdir()] == ["f.jsonl"]


def test_a_file_that_its_producer_writes_meanwhile_stays_as_it_is(tmp_path: Path, landed: tuple[Source, Path, str]) -> None:
    source, path, deliveries = landed
    prepared = rewriting.prepare_rewritten_file(source, "f.jsonl", path, {1}, is_known=True)
    path.write_text('{"who": "d"}\n')
    assert rewriting.replace_rewritten_files(tmp_path / "journals", deliveries, [prepared], "r") == 0
    assert path.read_text() == '{"who": "d"}\n'
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 1


@pytest.mark.parametrize("gone", [{1}, None], ids=["records", "the whole file"])
@pytest.mark.parametrize("meanwhile", ["written again", "removed"])
def test_what_a_producer_does_while_the_ledger_is_told_stays(
    tmp_path: Path, landed: tuple[Source, Path, str], monkeypatch: pytest.MonkeyPatch, gone: set[int] | None, meanwhile: str
) -> None:
    source, path, deliveries = landed
    prepared = rewriting.prepare_rewritten_file(source, "f.jsonl", path, gone, is_known=True)
    real = rewriting._record_rewritten_files

    def record_slowly(*arguments: Any) -> None:
        real(*arguments)
        if meanwhile == "removed":
            path.unlink()
        else:
            path.write_text('{"who": "d"}\n')

    monkeypatch.setattr(rewriting, "_record_rewritten_files", record_slowly)
    assert rewriting.replace_rewritten_files(tmp_path / "journals", deliveries, [prepared], "r") == 0
    assert not list((tmp_path / "journals").iterdir())
    if meanwhile == "removed":
        assert list(path.parent.iterdir()) == []
        return
    assert path.read_text() == '{"who": "d"}\n' and [one.name for one in path.parent.iterdir()] == ["f.jsonl"]
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 1
    last = delivery_tables.sort_deliveries_by_number(delivery_tables.read_delivery_ledger_rows(deliveries))[-1]
    assert (last["file"], last["event"], last["size"]) == ("f.jsonl", "delivered", 13)


def test_a_file_of_one_record_goes_as_a_whole_and_has_not_vanished(tmp_path: Path) -> None:
    source, path = Source(name="s", format="binary"), tmp_path / "landing" / "s" / "f.bin"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"all of it")
    deliveries = str(tmp_path / "lake" / "deliveries")
    discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal()
    rewriting.replace_rewritten_files(
        tmp_path / "journals", deliveries, [rewriting.prepare_rewritten_file(source, "f.bin", path, {0}, is_known=True)], "r"
    )
    assert not path.exists()
    assert discovery.discover_deliveries([source], tmp_path / "landing", deliveries, "r").raise_first_refusal().recorded == 0


@pytest.mark.parametrize("inside", ["", "struct", "list", "map"])
def test_who_goes_out_of_a_parquet_file_of_categories_goes_out_of_its_dictionary(inside: str, tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int8(), pa.string(), ordered=True)
    who = pa.DictionaryArray.from_arrays(pa.array([2, 1, 0, None], pa.int8()), ["low", "anna-schmidt-4711", "high"], ordered=True)
    offsets = pa.array(range(5), pa.int32())
    column = {
        "": who,
        "struct": pa.StructArray.from_arrays([who], fields=[pa.field("x", kind)]),
        "list": pa.ListArray.from_arrays(offsets, who),
        "map": pa.MapArray.from_arrays(offsets, ["k"] * 4, who),
    }[inside]
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"n": range(4), "who": column}), path, compression="gzip")
    before = pq.read_table(path)
    rewriting.write_without_records(
        Source(name="s", format="parquet", pattern="*.parquet"), path, path.name, {1}, tmp_path / "written"
    )
    after = pq.read_table(tmp_path / "written")
    assert after.schema.equals(before.schema, check_metadata=True)
    assert after.to_pylist() == [row for row in before.to_pylist() if row["n"] != 1]
    if not inside:
        assert after["who"].chunk(0).dictionary.to_pylist() == ["low", "high"], "in their order"
    path.unlink()
    assert (
        residue.scan_roots(
            [residue.ScanRoot("r", str(tmp_path))], needles.build_needles([("who", "anna-schmidt-4711")]), processes=1
        ).hits
        == []
    )
