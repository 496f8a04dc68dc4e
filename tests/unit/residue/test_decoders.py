"""Every kind of file is opened, whatever contains it. What cannot be opened is reported, and its bytes are searched all the same."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import residue
from residue import needles
from sluice.erasure.personal_places import containers

WHO, NUMBER = "anna-schmidt-4711", 7_000_000_001
NO_SCHEMA = "the columns of a state store are unknown, and a short identifier is searched for"


def scanned(*paths: Path, processes: int = 1) -> residue.ScanResult:
    wanted = needles.build_needles([("who", WHO), ("user_id", str(NUMBER)), ("member", "12140")], {"member": {"member"}})
    wanted += needles.build_needles([("card", "12345678901234567890")])
    return residue.scan_roots([residue.ScanRoot("r", str(path)) for path in paths], wanted, processes=processes)


def parquet(rows: dict[str, object], **options: object) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(rows), target, **options)
    return target.getvalue()


def database(wide: bool = False, who: str = WHO, blob: bytes = b"") -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (member INTEGER, note TEXT, data BLOB)")
    connection.execute("INSERT INTO t VALUES (?, ?, ?)", (12140 if who else 1, "x" * (20_000 if wide else 1) + who, blob))
    connection.commit()
    return connection.serialize()


def cell(content: bytes) -> bytes:
    return parquet({"w": pa.array([content], pa.binary())})


def zipped(name: str, content: bytes) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return target.getvalue()


def tarred(name: str, content: bytes) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def hadoop_snappy(data: bytes) -> bytes:
    packed = pa.Codec("snappy").compress(data, asbytes=True)
    return struct.pack(">II", len(data), len(packed)) + packed


def xerial(data: bytes) -> bytes:
    packed = pa.Codec("snappy").compress(data, asbytes=True)
    return b"\x82SNAPPY\0" + struct.pack(">III", 1, 1, len(packed)) + packed


TEXT = b"a line\n" * 2000 + WHO.encode() + b"\n"
FILES: dict[str, tuple[str, Callable[[], bytes]]] = {
    "dictionary": ("a.parquet", lambda: parquet({"w": [WHO] * 9})),
    "no dictionary, zstd": ("a.parquet", lambda: parquet({"w": [WHO] * 9}, use_dictionary=False, compression="zstd")),
    "binary": ("a.parquet", lambda: parquet({"w": pa.array([WHO.encode()], pa.binary())})),
    "gzip in a binary cell": ("a.parquet", lambda: parquet({"w": pa.array([gzip.compress(TEXT)], pa.binary())})),
    "nested": ("a.parquet", lambda: parquet({"s": [{"m": [{"x": WHO}]}]})),
    "map": ("a.parquet", lambda: parquet({"m": pa.array([[("k", WHO)]], pa.map_(pa.string(), pa.string()))})),
    "number": ("a.parquet", lambda: parquet({"n": [1, NUMBER, 3]}, write_statistics=False)),
    "float": ("a.parquet", lambda: parquet({"n": [1.5, float(NUMBER)]})),
    "decimal": ("a.parquet", lambda: parquet({"n": pa.array([Decimal(f"{NUMBER}.00"), Decimal("1.50")])})),
    "short number": ("a.parquet", lambda: parquet({"member": pa.array([1, 12140], pa.int32())})),
    "short text": ("a.parquet", lambda: parquet({"member": ["12140", "1"]})),
    "short, in a record": ("a.parquet", lambda: parquet({"record": ['{"member": 12140}']})),
    "metadata": ("a.parquet", lambda: _with_metadata()),
    "delta encoded": (
        "a.parquet",
        lambda: parquet({"w": [WHO[:9], WHO]}, use_dictionary=False, column_encoding="DELTA_BYTE_ARRAY"),
    ),
    "dictionary, an entry of no row": ("a.parquet", lambda: unused(["b", WHO], compression="gzip")),
    "dictionary, a gzip of no row": ("a.parquet", lambda: unused([b"b", gzip.compress(TEXT)])),
    "dictionary, a number of no row": ("a.parquet", lambda: _with_one_row_only(pa.array([1] * 7 + [12140], pa.int64()))),
    "dictionary, a decimal of no row": (
        "a.parquet",
        lambda: _with_one_row_only(pa.array([Decimal("1.50")] * 7 + [Decimal("12140.00")], pa.decimal128(20, 2))),
    ),
    "decimal in statistics": ("a.parquet", lambda: parquet({"member": pa.array([Decimal("12140.00")], pa.decimal128(9, 2))})),
    "gzip": ("a.gz", lambda: gzip.compress(TEXT) + gzip.compress(b"and more")),
    "second member": ("a.gz", lambda: gzip.compress(b"nothing") + gzip.compress(TEXT)),
    "xz": ("a.xz", lambda: lzma.compress(TEXT)),
    "lz4-java": ("a", lambda: containers.pack_lz4_java(TEXT)),
    "lz4-java, one after the other": (
        "shuffle_0_1_0.data",
        lambda: containers.pack_lz4_java(b"x") + containers.pack_lz4_java(TEXT),
    ),
    "snappy, raw": ("a.snappy", lambda: pa.Codec("snappy").compress(TEXT, asbytes=True)),
    "snappy, Hadoop": ("a.snappy", lambda: hadoop_snappy(TEXT)),
    "snappy, xerial": ("a", lambda: xerial(TEXT)),
    "zip": ("a.zip", lambda: zipped("x", TEXT)),
    "name in a zip": ("a.zip", lambda: zipped(WHO, b"x")),
    "tar in gzip": ("a.tgz", lambda: gzip.compress(tarred("x", TEXT))),
    "parquet in zip": ("a.zip", lambda: zipped("x.parquet", parquet({"w": [WHO]}))),
    "sqlite in gzip": ("a.gz", lambda: gzip.compress(database())),
    "sqlite, over several pages": ("a.db", lambda: database(wide=True)),
    "pickle": ("a.pkl", lambda: pickle.dumps({"x": WHO})),
    "rocksdb": ("000001.sst", lambda: containers.build_rocksdb_table([(b"k", WHO.encode()), (WHO.encode(), b"")])),
    "across chunks": ("a.log", lambda: b"x" * ((1 << 20) - 5) + b" " + WHO.encode() + b" "),
    "across chunks, packed": ("a.gz", lambda: gzip.compress(b"x" * ((1 << 20) - 5) + b" " + WHO.encode() + b" ")),
    "at the very end": ("a.log", lambda: WHO.encode()),
    "short number in a DECIMAL of 20 digits": (
        "a.parquet",
        lambda: parquet({"member": pa.array([Decimal("12345678901234567890")], pa.decimal128(20, 0))}),
    ),
    "short, by the key of a map": (
        "a.parquet",
        lambda: parquet({"m": pa.array([[("x", "1"), ("Member", "12140")]], pa.map_(pa.string(), pa.string()))}),
    ),
    "short, letter case of the column": ("a.parquet", lambda: parquet({"MEMBER": [12140]})),
    "UTF-16, short": ("a.json", lambda: '{"member": 12140}'.encode("utf-16")),
    "UTF-16 big-endian, escaped": (
        "a.json",
        lambda: b"\xfe\xff" + '{"x": "anna\\u002dschmidt-4711 member\\": 12140"}'.encode("utf-16-be"),
    ),
    "UTF-16, rows": ("a.csv", lambda: "n,member\n1,12140\n".encode("utf-16")),
    "UTF-32": ("a.json", lambda: f'{{"x": "{WHO}"}}'.encode("utf-32")),
    "UTF-16 in gzip": ("a.csv.gz", lambda: gzip.compress("n,member\n1,12140\n".encode("utf-16"))),
    "UTF-16 in a binary cell": ("a.parquet", lambda: cell('{"member": 12140}'.encode("utf-16"))),
    "zlib in a binary cell": ("a.parquet", lambda: cell(zlib.compress(TEXT))),
    "tar in a binary cell": ("a.parquet", lambda: cell(tarred("x.gz", gzip.compress(TEXT)))),
    "gzip in a blob": ("a.db", lambda: database(blob=gzip.compress(TEXT), who="")),
    "zlib in a blob": ("a.db", lambda: database(blob=zlib.compress(TEXT), who="")),
    "zlib": ("a", lambda: zlib.compress(TEXT)),
    "8-bit text": ("a.txt", lambda: "Grün ".encode("latin-1") + WHO.encode()),
}


def unused(entries: list[str] | list[bytes], **options: object) -> bytes:
    """A dictionary column: every row has the first of these values, the dictionary has all. Nothing marks it as a column of categories."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), pa.array(entries))
    return parquet({"w": column}, store_schema=False, **options)


def _with_one_row_only(values: pa.Array) -> bytes:
    """A file whose rows have the first of two values alone: the last of eight is changed to it where the rows are."""
    made = parquet({"member": values}, compression="none", write_statistics=False)
    assert made.count(b"\x01\x03\x80") == 1  # indices of one bit, eight of them, the last one set
    made = made.replace(b"\x01\x03\x80", b"\x01\x03\0")
    assert pq.read_table(io.BytesIO(made))["member"].to_pylist() == [values[0].as_py()] * 8
    return made


def _with_metadata() -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table({"n": [1]}).replace_schema_metadata({"about": WHO}), target)
    return target.getvalue()


@pytest.mark.parametrize("kind", FILES)
def test_every_kind_is_opened(kind: str, tmp_path: Path) -> None:
    name, content = FILES[kind]
    (tmp_path / name).write_bytes(content())
    found = scanned(tmp_path)
    # A member's number is short, and no schema lies beside this one.
    told = [NO_SCHEMA] if kind == "rocksdb" else []
    assert found.hits and [one.reason for one in found.unread] == told, (found.unread, found.decoders)


ENCRYPTED = hashlib.shake_256(b"a key").digest(3000) + WHO.encode()
"""Like what is encrypted or compressed by something that nothing here knows."""
CALLED_PLAIN = {
    "shared memory of SQLite": ("airflow.db-shm", ENCRYPTED),
    "shared memory, of the right size": ("x.db-shm", (ENCRYPTED * 11)[: 32768 - len(WHO)] + WHO.encode()),
    "index of what was shuffled": ("shuffle_0_1_0.index", ENCRYPTED),
    "checksums of what was shuffled": ("shuffle_0_1_0.checksum.ADLER32", ENCRYPTED[:-1] + b"1"),
    "vectors of deleted rows": ("deletion_vector_0a-1b.bin", b"\x01" + ENCRYPTED),
    "checksums": (".x.crc", b"crc\0" + struct.pack(">I", 512) + ENCRYPTED),
    "checksums of another file": (".other.crc", b"crc\0" + struct.pack(">I", 512) + ENCRYPTED[-100:]),
    "write-ahead log of SQLite": ("x.db-wal", struct.pack(">III", 0x377F0682, 3007000, 4096) + ENCRYPTED),
    "journal of SQLite": ("x.db-journal", b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + ENCRYPTED),
    "pickle": ("conf.pkl", b"\x80\x04" + ENCRYPTED),
    "schema of a state store": ("state/0/_metadata/schema", ENCRYPTED),
    "state file": ("state/0/0/1.delta", ENCRYPTED),
}


@pytest.mark.parametrize("kind", CALLED_PLAIN)
def test_what_is_only_called_so_is_told_and_searched_as_it_is(kind: str, tmp_path: Path) -> None:
    name, content = CALLED_PLAIN[kind]
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(content)
    (tmp_path / "other").write_bytes(bytes(12_000))
    found = scanned(tmp_path)
    assert {hit.domain for hit in found.hits} <= {"who"} and found.unread, found.decoders
    assert found.hits or not content.endswith(WHO.encode())


def sqlite_files(folder: Path, mode: str) -> list[Path]:
    """A database and what lies beside it while a transaction is open."""
    connection = sqlite3.connect(folder / f"{mode}.db", isolation_level=None)
    connection.executescript(f"PRAGMA journal_mode={mode}; PRAGMA cache_size=2; PRAGMA cache_spill=1; CREATE TABLE t (note TEXT)")
    connection.executemany("INSERT INTO t VALUES (?)", [(f"{n} {WHO}" + "x" * 200,) for n in range(900)])
    connection.execute("BEGIN")
    connection.execute("UPDATE t SET note = 'gone' || note")
    made = {path.name: path.read_bytes() for path in sorted(folder.glob(f"{mode}.db*"))}
    connection.execute("ROLLBACK")
    connection.close()
    (folder / "as_it_was").mkdir(exist_ok=True)
    for name, content in made.items():
        (folder / "as_it_was" / name).write_bytes(content)
    return [folder / "as_it_was" / name for name in made]


def test_what_is_so_by_its_structure_is_plain(tmp_path: Path) -> None:
    """Files as SQLite, Hadoop, Delta and Spark write them."""
    plain = [*sqlite_files(tmp_path, "wal"), *sqlite_files(tmp_path, "delete")]
    assert {path.name for path in plain} == {"wal.db", "wal.db-shm", "wal.db-wal", "delete.db", "delete.db-journal"}
    folder = tmp_path / "as_it_was"
    content = b"lines of a file\n" * 90
    sums = [zlib.crc32(content[at : at + 512]) for at in range(0, len(content), 512)]
    bitmap = struct.pack("<I", 1681511377) + bytes(range(40))
    made = {
        "a.txt": content,
        ".a.txt.crc": b"crc\0" + struct.pack(f">I{len(sums)}I", 512, *sums),
        ".gone.crc": b"crc\0" + struct.pack(">I", 512) + ENCRYPTED[:64],
        "shuffle_0_1_0.index": struct.pack(">4q", 0, 0, 70, 4711),
        "shuffle_0_1_0.checksum.ADLER32": struct.pack(">3q", 0xFEDCBA98, 0, 1),
        "deletion_vector_0a.bin": b"\x01" + (struct.pack(">I", 44) + bitmap + struct.pack(">I", zlib.crc32(bitmap))) * 2,
        "two.pkl": pickle.dumps({"a": [1, "b"]}) + pickle.dumps(b"text", protocol=2),
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    found = scanned(folder)
    assert found.unread == []
    assert {hit.path for hit in found.hits} >= {"wal.db-wal", "delete.db-journal"}


def test_bytes_within_a_pickle_are_opened(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"conf": gzip.compress(TEXT)}))
    (tmp_path / "b.pkl").write_bytes(pickle.dumps({"conf": ENCRYPTED[:100]}))
    (tmp_path / "c.parquet").write_bytes(cell(pickle.dumps([gzip.compress(TEXT)])))
    found = scanned(tmp_path)
    assert {hit.path for hit in found.hits} == {"a.pkl", "c.parquet"}
    assert [(one.path, one.reason) for one in found.unread] == [("b.pkl", "a binary cell that no decoder knows")]


DAMAGED: dict[str, tuple[str, Callable[[], bytes]]] = {
    "nobody's kind": ("a.bin", lambda: bytes(range(256)) + WHO.encode()),
    "PDF": ("a.pdf", lambda: b"%PDF-1.7 " + WHO.encode()),
    "parquet without a footer": ("a.parquet", lambda: parquet({"w": [WHO]}, compression="none", use_dictionary=False)[:-8]),
    "gzip, cut off": ("a.gz", lambda: gzip.compress(bytes(range(256)) * 40)[:-12] + WHO.encode()),
    "gzip, then something else": ("a.gz", lambda: gzip.compress(b"x") + WHO.encode()),
    "zip, damaged": ("a.zip", lambda: b"PK\x03\x04" + bytes(40) + WHO.encode()),
    "sqlite, damaged": ("a.db", lambda: database()[:3000] + WHO.encode()),
    "rocksdb of another make": ("a.sst", lambda: WHO.encode() + bytes(60)),
    "UTF-16, cut off": ("a.txt", lambda: f"{WHO} ".encode("utf-16")[:-1]),
    "UTF-32 that is none": ("a.txt", lambda: b"\xff\xfe\0\0" + WHO.encode() + b"\xff" * 9),
    "PDF in a binary cell": ("a.parquet", lambda: cell(b"%PDF-1.7 " + WHO.encode())),
    "nobody's kind in a binary cell": ("a.parquet", lambda: cell(bytes(range(256)) + WHO.encode())),
    "nobody's kind in a blob": ("a.db", lambda: database(blob=bytes(range(256)))),
    "lz4-java, cut off": ("a", lambda: containers.pack_lz4_java(TEXT)[:40] + WHO.encode()),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_what_cannot_be_opened_is_told_and_searched_as_it_is(kind: str, tmp_path: Path) -> None:
    name, content = DAMAGED[kind]
    (tmp_path / name).write_bytes(content())
    found = scanned(tmp_path)
    assert found.unread and WHO not in repr(found.unread)
    assert any(hit.decoder in ("raw bytes", "text", "parquet") for hit in found.hits), found.hits


def _scanned_as_declared(path: Path, content: bytes, dialect: residue.TextDialect) -> residue.ScanResult:
    path.write_bytes(content)
    root = residue.ScanRoot("landing", str(path.parent), written=(residue.TextFileFormat("", "*.csv", dialect),))
    return residue.scan_roots([root], needles.build_needles([("user_id", "12140")]), processes=1)


@pytest.mark.parametrize(("delimiter", "quote"), [("\x01", '"'), ("\x1f", '"'), ("|", "\x02")])
def test_control_characters_that_a_source_declares_are_text(delimiter: str, quote: str, tmp_path: Path) -> None:
    dialect = residue.TextDialect(delimiter=delimiter, quote=quote)
    rows = f"name{delimiter}user_id\n{quote}bob{quote}{delimiter}12140\n{quote}x{quote}{delimiter}5\n".encode()
    found = _scanned_as_declared(tmp_path / "x.csv", rows, dialect)
    assert found.unread == [] and [hit.times for hit in found.hits] == [1]
    assert _scanned_as_declared(tmp_path / "x.csv", rows.decode().encode("utf-16"), dialect).unread == []
    for packed in (ENCRYPTED, ENCRYPTED[:500], bytes(range(256)), rows + b"\x03", b"%PDF-1.7 " + rows):
        assert _scanned_as_declared(tmp_path / "x.csv", packed, dialect).unread, packed[:20]
    (tmp_path / "x.csv").unlink()
    (tmp_path / "x.txt").write_bytes(rows)
    assert scanned(tmp_path).unread, "nobody declares it"


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
def test_a_stray_control_character_in_a_declared_text_makes_it_no_other_kind(encoding: str, tmp_path: Path) -> None:
    dialect, text = residue.TextDialect(encoding=encoding, delimiter=","), "user_id,note\n" + "5,Grün\n" * 300
    for stray in ("\0", "\x05"):
        assert _scanned_as_declared(tmp_path / "x.csv", f"{text}{stray}\n".encode(encoding), dialect).unread == []
        often = (text + stray * 9).encode(encoding)
        assert _scanned_as_declared(tmp_path / "x.csv", often, dialect).unread
    for packed in (ENCRYPTED, ENCRYPTED[:500], text.encode("utf-8") + b"\x05\x81\xff\xfe\x8d\n"):
        assert _scanned_as_declared(tmp_path / "x.csv", packed, dialect).unread
    (tmp_path / "x.csv").unlink()
    (tmp_path / "x.txt").write_bytes(f"{text}\0\n".encode())
    assert scanned(tmp_path).unread, "nobody declares it"


def test_ends_in_a_footer_are_found_that_no_row_has(tmp_path: Path) -> None:
    """Spark and delta-rs write them of every column, whole."""
    row = parquet({"member": [12140], "who": [WHO]}, use_dictionary=False, compression="gzip")
    (tmp_path / "a.parquet").write_bytes(row)
    found = {(hit.column, hit.domain) for hit in scanned(tmp_path).hits if hit.decoder == "parquet statistics"}
    assert found == {("member", "member"), ("who", "who")}


def test_keys_digests_and_texts_in_binary_cells_are_values(tmp_path: Path) -> None:
    values = [b"", bytes(range(16)), b"\xff\xfe" + bytes(30), b"ORCHIDS " * 20, b"x^2 + y " * 20, "Grün ".encode("latin-1") * 20]
    values += [pickle.dumps({"a": 1}), pickle.dumps("x" * 100, protocol=2), None]
    (tmp_path / "a.parquet").write_bytes(parquet({"w": pa.array(values, pa.binary()), "n": range(len(values))}))
    values += [bytes([2] * size) for size in (20, 32, 64)] + ["Grün\tund\n".encode(), b"12140"]
    (tmp_path / "a.parquet").write_bytes(parquet({"w": pa.array(values, pa.binary()), "n": range(len(values))}))
    (tmp_path / "a.db").write_bytes(database(who="", blob=hashlib.sha256(b"x").digest()))
    assert scanned(tmp_path).unread == []


@pytest.mark.parametrize("packed", [b"\x08\xdc^", b"\xf8\xbd\x01", b"\xe0]", struct.pack(">q", 12140), b"\n\x04anna" * 5])
def test_a_small_message_in_a_binary_cell_is_told(packed: bytes, tmp_path: Path) -> None:
    """A number of a member's in Protobuf, in Avro (with and without a control character), as eight bytes; a text with its length."""
    (tmp_path / "a.parquet").write_bytes(parquet({"value": pa.array([b"text", None, packed, b""], pa.binary())}))
    (tmp_path / "a.db").write_bytes(database(who="", blob=packed))
    assert [one.reason for one in scanned(tmp_path).unread] == ["a binary cell that no decoder knows"] * 2


def test_what_may_not_be_looked_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shut").mkdir()
    (tmp_path / "shut" / "a.json").write_text("{}")
    look = os.lstat

    def lstat(path: str, **options: object) -> os.stat_result:
        if "shut/" in str(path):
            raise PermissionError(13, "Permission denied")
        return look(path)

    monkeypatch.setattr(os, "lstat", lstat)
    found = residue.scan_roots(
        [residue.ScanRoot("r", str(tmp_path)), residue.ScanRoot("s", str(tmp_path / "shut" / "x"))],
        needles.build_needles([("who", WHO)]),
    )
    assert [(one.root, one.reason) for one in found.unread] == [
        ("r", "it cannot be examined: Permission denied"),
        ("s", "it cannot be examined: Permission denied"),
    ]
    assert found.missing == (), "it is there, as far as is known"


def test_what_lies_too_deep_is_told(tmp_path: Path) -> None:
    content = TEXT
    for _ in range(8):
        content = gzip.compress(content)
    (tmp_path / "a.gz").write_bytes(content)
    assert [one.reason for one in scanned(tmp_path).unread] == ["deeper than 4 within other files"]


def test_names_links_and_roots(tmp_path: Path) -> None:
    (tmp_path / "in" / f"of-{WHO}").mkdir(parents=True)
    (tmp_path / "in" / "link").symlink_to("/etc/hostname")
    (tmp_path / "in" / "kept").mkdir()
    (tmp_path / "in" / "kept" / "f").write_text(WHO)
    roots = [
        residue.ScanRoot("r", str(tmp_path / "in"), (str(tmp_path / "in" / "kept"),)),
        residue.ScanRoot("gone", str(tmp_path / "out")),
    ]
    found = residue.scan_roots(roots, needles.build_needles([("who", WHO)]))
    assert {(hit.decoder, hit.path) for hit in found.hits} == {("names", f"of-{WHO}")}
    assert [one.reason for one in found.unread] == ["a link that leads out of the roots"] and found.missing == ("gone",)


def test_a_root_that_is_a_link_is_scanned_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "f.txt").write_text(WHO)
    roots = [residue.ScanRoot(name, str(tmp_path / name)) for name in ("folder", "file", "nowhere")]
    (tmp_path / "folder").symlink_to(tmp_path / "disk")
    (tmp_path / "file").symlink_to(tmp_path / "disk" / "f.txt")
    (tmp_path / "nowhere").symlink_to(tmp_path / "not_mounted")
    roots.append(residue.ScanRoot("below", str(tmp_path / "nowhere" / "gym")))
    found = residue.scan_roots(roots, needles.build_needles([("who", WHO)]))
    assert {(hit.root, hit.path, hit.decoder) for hit in found.hits} == {(root, "f.txt", "text") for root in ("folder", "file")}
    assert found.roots == tuple(roots) and found.missing == ("nowhere", "below")
    assert [(one.root, one.reason) for one in found.unread] == [
        (root, "a link that leads nowhere") for root in ("below", "nowhere")
    ]


def test_two_processes_find_what_one_finds(tmp_path: Path) -> None:
    for number in range(40):
        (tmp_path / f"{number}.jsonl").write_bytes(TEXT if number % 3 else b"nothing\n" * 400_000)
    alone, together = scanned(tmp_path), scanned(tmp_path, processes=2)
    assert (together.hits, together.files, together.bytes, together.decoders) == (
        alone.hits,
        alone.files,
        alone.bytes,
        alone.decoders,
    )


def test_it_holds_little_of_a_large_file_in_memory(tmp_path: Path) -> None:
    import resource

    with gzip.open(tmp_path / "a.gz", "wb", compresslevel=1) as file:
        for _ in range(300):
            file.write(bytes(1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    scanned(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB; unpacked it has 300 MiB


def test_rows_that_spark_shuffled_are_no_text_and_are_read(tmp_path: Path) -> None:
    row = bytes(range(32)) + struct.pack("<q", NUMBER)  # as it lies in memory
    (tmp_path / "shuffle_0_1_0.data").write_bytes(containers.pack_lz4_java(row) + containers.pack_lz4_java(bytes(9)))
    found = scanned(tmp_path)
    assert {hit.kind for hit in found.hits} >= {"int64"} and not found.unread


def test_short_values_in_rows_of_a_state_store_are_found_in_their_columns(tmp_path: Path) -> None:
    """Bytes as Spark 4.2 wrote them: a version, bits of NULLs, a word a field, texts behind; the key ends with what RocksDB adds."""
    store = tmp_path / "flow" / "state" / "0" / "0"
    inner = {"type": "struct", "fields": [{"name": "who", "type": "string"}]}
    fields: list[tuple[str, object]] = [("member", "long"), ("other", "long"), ("at", inner)]
    schema = {
        "type": "struct",
        "fields": [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields],
    }
    text = json.dumps(schema, separators=(",", ":")).encode()
    (store / "_metadata").mkdir(parents=True)
    (store / "SSTs").mkdir()
    (store / "_metadata" / "schema").write_bytes(b"\0\2v2" + (struct.pack(">IH", 1, len(text)) + text) * 2)

    def row(member: int, other: int, who: bytes, nulls: int = 0) -> bytes:
        nested = struct.pack("<qII", 0, len(who), 16) + who.ljust(8, b"\0")
        return b"\0" + struct.pack("<qqqII", nulls, member, other, len(nested), 32) + nested

    def found(value: bytes) -> set[tuple[str, str]]:
        entry = (row(1, 2, b"x") + bytes(8), value)
        (store / "SSTs" / "000008-a.sst").write_bytes(containers.build_rocksdb_table([entry]))
        result = residue.scan_roots(
            [residue.ScanRoot("r", str(tmp_path))],
            needles.build_needles([("member", "12140"), ("who", "anna")], {"who": {"who"}}),
            processes=1,
        )
        assert not result.unread
        return {(hit.column, hit.kind) for hit in result.hits if hit.decoder == "state rows"}

    assert found(row(12140, 1, b"x")) == {("member", "number")}
    assert found(row(1, 1, b"anna")) == {("at.who", "raw")}
    assert found(row(1, 12140, b"12140")) == set()
    assert found(row(12140, 1, b"x", nulls=1)) == set()
    (store / "_metadata" / "schema").write_bytes(b"\0\2v3")
    assert [
        one.reason
        for one in residue.scan_roots([residue.ScanRoot("r", str(tmp_path))], needles.build_needles([("member", "12140")])).unread
    ] == ["the schema of a state store is of another form"]


@pytest.mark.parametrize("name", ["", "left-keyToNumValues"])
def test_the_schema_of_a_state_store_is_beside_its_first_partition(name: str, tmp_path: Path) -> None:
    first, other = (tmp_path / "flow" / "state" / "0" / partition / name for partition in ("0", "17"))
    sst = other / "SSTs" / "000008-a.sst"
    sst.parent.mkdir(parents=True)
    sst.write_bytes(
        containers.build_rocksdb_table([(containers.build_state_row(12140) + bytes(8), containers.build_state_row(1))])
    )

    def found(*people: tuple[str, str]) -> tuple[list[str], list[str]]:
        result = residue.scan_roots(
            [residue.ScanRoot("r", str(tmp_path))],
            needles.build_needles(people),
            needles.build_needles([("canary", "12140")]),
            processes=1,
        )
        return [hit.column for hit in result.hits if hit.decoder == "state rows"], [one.reason for one in result.unread]

    assert found(("member", "12140")) == ([], [NO_SCHEMA]) and found(("who", WHO)) == ([], [])
    (first / "_metadata").mkdir(parents=True)
    (first / "_metadata" / "schema").write_bytes(containers.build_state_schema("member", "count"))
    assert found(("member", "12140")) == (["member"], [])
    prefixed = b"\0" + struct.pack(">i", 16) + containers.build_state_row(12140)[1:]
    sst.write_bytes(containers.build_rocksdb_table([(prefixed + bytes(8), containers.build_state_row(1))]))
    assert found(("member", "12140"))[1] == ["rows of a state store have an unknown form, and a short identifier is searched for"]


def test_a_root_may_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "airflow.db").write_bytes(database())
    (tmp_path / "airflow.db-shm").write_bytes(bytes(32768))
    found = scanned(tmp_path / "airflow.db", tmp_path / "airflow.db-shm")
    assert {hit.path for hit in found.hits} == {"airflow.db"} and not found.unread
