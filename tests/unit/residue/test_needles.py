"""What is looked for of an identifier is found in every dress that it may wear, and a short one only in its columns."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import struct
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import residue
from residue import needles
from sluice.erasure.personal_places import containers

MAIL = "Inés.Østergård@example.org"
DRESSES = {
    "as it is": MAIL.encode(),
    "upper case": MAIL.upper().encode(),
    "folded": MAIL.casefold().encode(),
    "blanks around it": f"  {MAIL}\t".encode(),
    "NFD": __import__("unicodedata").normalize("NFD", MAIL).encode(),
    "URL": quote(MAIL, safe="").encode(),
    "URL, lower case": quote(MAIL, safe="").lower().encode(),
    "JSON": json.dumps(MAIL).encode(),
    "JSON in JSON": json.dumps(json.dumps({"mail": MAIL})).encode(),
    "UTF-16, little": MAIL.encode("utf-16-le"),
    "UTF-16, big": MAIL.encode("utf-16-be"),
    "latin-1": MAIL.encode("latin-1"),
    "hex": MAIL.encode().hex().encode(),
    "HEX": MAIL.encode().hex().upper().encode(),
    **{f"base64, {before} before": base64.b64encode(b"x" * before + MAIL.encode() + b"yz") for before in range(3)},
    "base64 of URLs": base64.urlsafe_b64encode(b"??" + MAIL.encode()),
    "md5": hashlib.md5(MAIL.encode()).hexdigest().encode(),
    "sha1, raw": hashlib.sha1(MAIL.encode()).digest(),
    "sha256 of the folded": hashlib.sha256(MAIL.casefold().encode()).hexdigest().upper().encode(),
    "sha256, base64": base64.b64encode(hashlib.sha256(MAIL.encode()).digest()),
}


def hits(folder: Path, *identifiers: tuple[str, str], columns: dict[str, set[str]] | None = None) -> list[residue.Hit]:
    return residue.scan_roots([residue.ScanRoot("r", str(folder))], needles.build_needles(identifiers, columns), processes=1).hits


@pytest.mark.parametrize("dress", DRESSES)
def test_every_dress_is_found(dress: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1021 + b" " + DRESSES[dress] + b"\n")
    assert hits(tmp_path, ("mail", MAIL))


@pytest.mark.parametrize(
    ("identifier", "content"),
    [
        (("mac", "02:ab:cd:01:ef:99"), b"02-AB-CD-01-EF-99"),
        (("mac", "02:ab:cd:01:ef:99"), b"02abcd01ef99"),
        (("phone", "+43 660 / 123 45-67"), b"436601234567"),
        (("number", "7000000001"), struct.pack("<q", 7000000001)),
        (("number", "7000000001"), struct.pack(">q", 7000000001)),
        (("number", "7000000001"), b"7.000000001E9"),
        (("long", "a" * 30 + "bcdefgh"), b"a" * 30 + b"bc" + "…".encode()),  # the 32 characters that statistics keep
        (("short", "12140"), hashlib.sha256(b"12140").hexdigest().encode()),
    ],
)
def test_numbers_phones_addresses_and_what_statistics_keep(identifier: tuple[str, str], content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"{" + content + b"}")
    assert hits(tmp_path, identifier)


@pytest.mark.parametrize(
    ("identifier", "content"),
    [
        ('"ada smith"@example.org', b'1,"""ada smith""@example.org"'),
        *(
            ("o'brien.smith@example.org", f"o{mark}brien.smith@example.org".encode())
            for mark in ("''", "\\'", "&#39;", "&#039;", "&apos;", "&#x27;")
        ),
        ("o'brien.smith@example.org", b"o%27brien.smith%40example.org"),
        ("o'brien (smith)@example.org", b"o'brien%20(smith)%40example.org"),
        ("o'brien & <smith>", b"o&#39;brien &amp; &lt;smith&gt;"),
    ],
)
def test_quotes_are_found_as_csv_sql_html_and_urls_write_them(identifier: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"{" + content + b"}")
    assert hits(tmp_path, ("mail", identifier))


@pytest.mark.parametrize(
    ("content", "wanted"), [(b'{"user_id":1.2345678E7}', True), (b'{"pulse":1.2345678E7, "user_id":1}', False)]
)
def test_a_short_number_is_found_as_java_writes_it_in_its_column(content: bytes, wanted: bool, tmp_path: Path) -> None:
    (tmp_path / "f.json").write_bytes(content)
    assert bool(hits(tmp_path, ("member", "12345678"), columns={"member": {"user_id"}})) is wanted


UUID = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")


@pytest.mark.parametrize("asked", [str(UUID), UUID.hex.upper()])
@pytest.mark.parametrize(
    "written",
    [
        UUID.hex.encode(),
        str(UUID).upper().encode(),
        b"\x00" + UUID.bytes + b"\xff",
        UUID.bytes_le,
        base64.b64encode(b"x" + UUID.bytes),
        base64.b64encode(UUID.bytes_le),
    ],
)
def test_a_uuid_is_found_with_and_without_dashes_and_as_bytes(asked: str, written: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"{" + written + b"}")
    assert hits(tmp_path, ("device", asked))


@pytest.mark.parametrize("kind", [pa.binary(), pa.binary(16)])
def test_a_uuid_is_found_in_a_binary_column_of_parquet(kind: pa.DataType, tmp_path: Path) -> None:
    pq.write_table(pa.table({"device": pa.array([UUID.bytes, b"x" * 16], kind)}), tmp_path / "f.parquet", compression="zstd")
    assert hits(tmp_path, ("device", str(UUID)))


@pytest.mark.parametrize("asked", ["istanbul", "İstanbul", "ISTANBUL", "i\u0307stanbul"])
@pytest.mark.parametrize("written", ["İstanbul", "İSTANBUL", "istanbul", "i\u0307stanbul", r"\u0130stanbul"])
def test_a_capital_i_with_a_dot_is_an_i(asked: str, written: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(f'{{"city": "{written}"}}')
    assert hits(tmp_path, ("city", asked))
    (tmp_path / "f").write_text(written, encoding="utf-16-le")
    assert hits(tmp_path, ("city", asked)) or "\\" in written


def test_a_number_is_not_found_in_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"17000000001 70000000012")
    assert hits(tmp_path, ("number", "7000000001")) == []


IN_ITS_COLUMN = [
    ("a.json", b'{"time": 1, "user_id": 12140}'),
    ("a.json", b'{"value": "{\\"user_id\\": \\"12140\\"}"}'),
    ("a.json", b'{"minValues":{"user_id":12140,"x":1}}'),
    ("a.json", b'{"USER_ID": 12140}'),
    ("a.json", b'{"who": {"name": "x", "number": 12140}}'),
    ("a.csv", b"n,user_id\n1,12140\n"),
    ("a.csv", b'user_id,name\n"12140","A, B"\n'),
    ("a.csv", b"1,12140,x\n2,5,y\n"),  # without a header, in any field
    ("a.log", b"Filter (isnotnull(user_id#12L) AND (user_id#12L = 12140))"),
    ("a.log", b"DELETE FROM t WHERE user_id IN (1, 2, 12140)"),
    ("user_id=12140/part", b"x"),
    ("a.json", b'{"user_id": 12140.0}'),
    ("a.csv", b"n,user_id\n1,12140.0\n"),
    ("a.json", b'{"user_id": [4711, 12140]}'),
    ("a.json", b'{"user_id": [\n  "4711",\n  "12140"\n]}'),
    ("a.csv", b'n,user_id\n1,"[4711, 12140]"\n'),
]
ELSEWHERE = [
    ("a.json", b'{"user_id": [4711], "n": 12140}'),
    ("a.csv", b'user_id,n\n1,"[4711, 12140]"\n'),
    ("a.json", b'{"heartrate": 12140, "user_id": 5}'),
    ("a.csv", b"user_id,n\n1,12140\n"),
    ("a.log", b"12140 rows, user_id 5"),
    ("a.json", b'{"user_id": 121400}'),
    ("n=12140/part", b"x"),
]


@pytest.mark.parametrize(
    ("name", "content", "wanted"), [(*one, True) for one in IN_ITS_COLUMN] + [(*one, False) for one in ELSEWHERE]
)
def test_a_short_value_is_looked_for_in_its_columns_alone(name: str, content: bytes, wanted: bool, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    assert bool(hits(tmp_path, ("member", "12140"), columns={"member": {"User_id", "who.number"}})) is wanted
    with (tmp_path / name).open("rb") as file:  # the same within another file
        packed = gzip.compress(file.read())
    (tmp_path / name).unlink()
    (tmp_path / name).with_name(f"{Path(name).name}.gz").write_bytes(packed)
    assert bool(hits(tmp_path, ("member", "12140"), columns={"member": {"User_id", "who.number"}})) is wanted


@pytest.mark.parametrize(
    ("written", "content"),
    [
        (residue.TextFileFormat("in", dialect=residue.TextDialect(delimiter=";")), b"user_id;x\n12140;1\n"),
        (residue.TextFileFormat("in", dialect=residue.TextDialect(delimiter=";", header=False)), b"a;12140\nb;1\n"),
        (residue.TextFileFormat("in", dialect=residue.TextDialect(delimiter=",", header=False)), b"a,b,c\nb;12140;1,5\n"),
        (residue.TextFileFormat("in", dialect=residue.TextDialect(delimiter="|", quote="'")), b"x|user_id\n'a|b'|12140\n"),
        (
            residue.TextFileFormat("in", dialect=residue.TextDialect(delimiter=",", encoding="utf-16-le")),
            "user_id,x\n12140,1\n".encode("utf-16-le"),
        ),
        (residue.TextFileFormat("in", dialect=residue.TextDialect(encoding="cp500")), '{"user_id": 12140}'.encode("cp500")),
    ],
)
def test_files_are_read_as_their_source_says_whatever_they_are_called(
    written: residue.TextFileFormat, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "part-0").write_bytes(content)
    wanted = needles.build_needles([("member", "12140")], {"member": {"user_id"}})
    root = residue.ScanRoot(
        "r", str(tmp_path), written=(residue.TextFileFormat("in", "*.json"), residue.TextFileFormat(""), written)
    )
    found = residue.scan_roots([root], wanted, processes=1)
    assert found.hits and not found.unread
    assert not residue.scan_roots([residue.ScanRoot("r", str(tmp_path))], wanted, processes=1).hits or b"{" in content


def test_a_field_may_be_as_long_as_its_row() -> None:
    assert residue.TextDialect().split_fields("a" * 200_000 + ",12140", ",")[1] == "12140"


@pytest.mark.parametrize(("line", "wanted"), [("7,12140", False), ("12140,7", True), ("7;12140;x;y", True), ("7,12140,x", False)])
def test_a_row_that_lacks_fields_has_the_others_in_their_columns(line: str, wanted: bool, tmp_path: Path) -> None:
    (tmp_path / "part-0").write_text(f"user_id,steps,x\n{line}\n")
    root = residue.ScanRoot("r", str(tmp_path), written=(residue.TextFileFormat("", dialect=residue.TextDialect(delimiter=",")),))
    found = residue.scan_roots([root], needles.build_needles([("member", "12140")], {"member": {"user_id"}}), processes=1)
    assert bool(found.hits) is wanted


def test_an_identifier_in_the_encoding_of_a_source_is_found_without_it(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes("x Łukasz-Żak x".encode("iso8859-2"))
    wanted = needles.build_needles([("who", "Łukasz-Żak")], encodings=["iso8859-2"])
    assert residue.scan_roots([residue.ScanRoot("r", str(tmp_path))], wanted).hits
    assert hits(tmp_path, ("who", "Łukasz-Żak")) == []


def test_digits_beside_a_number_are_another_value_s_in_binary_files_alone(tmp_path: Path) -> None:
    (tmp_path / "000001.sst").write_bytes(containers.build_rocksdb_table([(b"71234567890123456", b"x")]))
    assert hits(tmp_path, ("card", "1234567890123456"))
    (tmp_path / "000001.sst").unlink()
    (tmp_path / "a.log").write_bytes(b"card 71234567890123456")
    assert hits(tmp_path, ("card", "1234567890123456")) == []


def test_needles_do_not_show_themselves() -> None:
    shown = repr(needles.build_needles([("who", "anna-schmidt-4711")]))
    assert "anna" not in shown and "schmidt" not in shown


@pytest.mark.parametrize("column", ["at", "seconds", "text"])
def test_an_identifier_that_changed_hands_is_found_in_rows_of_its_time(column: str, tmp_path: Path) -> None:
    begin = datetime(2026, 2, 1, tzinfo=UTC)
    hers = [begin + timedelta(days=days) for days in (0, 5)]
    others = [begin + timedelta(days=days) for days in (-1, 10)]
    wanted = [needles.build_timed_needle("device_id", " 17 ", [(begin.isoformat(), (begin + timedelta(days=10)).isoformat())])]
    for number, (times, hits) in enumerate(((hers, 2), (others, 0), ([None, *others], 1))):
        seconds = [at.timestamp() if at else None for at in times]
        rows = {
            "Device_id": [17] * len(times),
            "at": times,
            "seconds": seconds,
            "text": [str(one) if one else None for one in seconds],
        }
        path = tmp_path / f"{number}" / "t" / "a.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(
            pa.table({
                name: pa.array(values, pa.timestamp("us", "UTC") if name == "at" else None) for name, values in rows.items()
            }),
            path,
        )
        root = residue.ScanRoot(
            "lake", str(tmp_path / f"{number}"), clocks=(residue.TableClock("t", "device_id", "device_id", column),)
        )
        found = residue.scan_roots([root], wanted, processes=1)
        assert (sum(hit.times for hit in found.of_person()), found.unread) == (hits, [])
        blind = residue.scan_roots(
            [replace(root, clocks=(residue.TableClock("t", "device_id", "device_id", None),))], wanted, processes=1
        )
        assert [one.reason for one in blind.unread] == ["rows of an identifier that changed hands, whose times cannot be read"]
    assert (
        residue.scan_roots(
            [replace(root, clocks=(residue.TableClock("t", "mac", "device_id", None),))], wanted, processes=1
        ).unread
        == []
    )


@pytest.mark.parametrize("broken", ["\n", "\r\n", "\r\n    ", "\\n", "\\\\r\\\\n", "\\\n", "%0D%0A", ""])
@pytest.mark.parametrize("written", ["b64", "escaped slash", "URL"])
def test_base64_shows_one_person_and_no_neighbour_wherever_it_is_broken(broken: str, written: str, tmp_path: Path) -> None:
    """The letter that tells neighbours apart stands behind the break, or is written as an escape."""
    people = {str(7_000_000_000 + n): needles.build_needles([("user_id", str(7_000_000_000 + n))]) for n in range(6)}
    wanted = [replace(one, of=who) for who, sought in people.items() for one in sought]
    escapes = {"b64": {}, "escaped slash": {"/": "\\/"}, "URL": {"/": "%2F", "+": "%2B"}}[written]
    for who in list(people)[:2]:
        for before in (b"", b"?", b"x?"):
            letters = base64.b64encode(before + who.encode() + b"?>").decode()
            first, end = -(-len(before) * 8 // 6), (len(before) + len(who)) * 8 // 6
            parts = (letters[:first], letters[first:end], letters[end:])
            text = broken.join(part.translate(str.maketrans(escapes)) for part in parts)
            (tmp_path / "a.txt").write_text(f'"{text}"')
            found = residue.scan_roots([residue.ScanRoot("r", str(tmp_path))], wanted, processes=1)
            assert {hit.of for hit in found.of_person()} == {who}, (text, before)
