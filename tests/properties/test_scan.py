"""Whatever files people are in, the scan finds those who are there and nobody else, for many at once as for each alone."""

from __future__ import annotations

import base64
import bz2
import gzip
import json
import lzma
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import example, given, settings
from hypothesis import strategies as st

import residue
from residue import needles
from sluice.erasure.personal_places import containers

COLUMNS = {"user_id": ["user_id", "person"], "email": ["email"]}
PEOPLE: tuple[tuple[tuple[str, str], ...], ...] = (
    (("user_id", "7000000000"), ("email", "anna.schmidt@example.org")),  # a round number: 7.0E9
    (("user_id", "7000000001"), ("email", "Bert.Meier@example.org")),
    (("user_id", "12140"), ("email", "c@example.org")),
    (("user_id", "12141"), ("email", "müller-lüdenscheidt@example.org")),
)
NOBODY = (("user_id", "7000000077"), ("email", "nobody.at-all@example.org"))

Person = Mapping[str, str]
Rows = Sequence[Person]
Contents = Callable[[Rows], bytes]


def _json(rows: Rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _with_numbers(rows: Rows) -> bytes:
    return "".join(json.dumps({**row, "user_id": int(row["user_id"])}) + "\n" for row in rows).encode()


def _csv(rows: Rows) -> bytes:
    return "".join(["number,user_id,email\n", *(f"{n},{row['user_id']},{row['email']}\n" for n, row in enumerate(rows))]).encode()


def _parquet(rows: Rows) -> bytes:
    columns = {"person": pa.array([int(row["user_id"]) for row in rows], pa.int64()), "email": [row["email"] for row in rows]}
    return containers.encode_parquet(pa.table(columns))


def _floats(rows: Rows) -> bytes:
    return containers.encode_parquet(pa.table({"user_id": pa.array([float(row["user_id"]) for row in rows], pa.float64())}))


def _sqlite(rows: Rows) -> bytes:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE members (user_id INTEGER, email TEXT)")
    connection.executemany("INSERT INTO members VALUES (?, ?)", [(int(row["user_id"]), row["email"]) for row in rows])
    connection.commit()
    content = connection.serialize()
    connection.close()
    return content


def _nested(rows: Rows) -> bytes:
    return json.dumps({
        "batch": [{"inner": {"user_id": row["user_id"]}, "text": f"of <{row['email']}>"} for row in rows]
    }).encode()


FORMS: Mapping[str, Contents] = {
    "rows.jsonl": _json, "numbers.jsonl": _with_numbers, "rows.csv": _csv, "rows.parquet": _parquet, "floats.parquet": _floats,
    "base.db": _sqlite, "nested.json": _nested,
}  # fmt: skip
WRAPPED: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zip": lambda data: containers.pack_zip({"member": data}),
    ".tar": lambda data: containers.pack_tar("member", data),
    ".b64": base64.b64encode,
}

files = st.lists(
    st.tuples(
        st.sampled_from(sorted(FORMS)), st.lists(st.sampled_from(sorted(WRAPPED)), max_size=2), st.sets(st.sampled_from(range(4)))
    ),
    max_size=5,
)


def _is_told(name: str, wraps: list[str], person: int) -> bool:
    """Whether a file must show a person: in base64, whatever has a form of its own there, as short numbers and escaped letters have not."""
    inside = wraps[:1] == [".b64"] and ".b64" not in wraps[1:] and name in ("rows.jsonl", "numbers.jsonl", "rows.csv")
    return ".b64" not in wraps or (inside and person < 2)


def _write(folder: Path, made: list[tuple[str, list[str], set[int]]]) -> dict[int, bool]:
    """Write the files. Returns who is in one, by whether a file must show it."""
    there: dict[int, bool] = {}
    for number, (name, wraps, people) in enumerate(made):
        rows = [dict(PEOPLE[person]) for person in sorted(people)] + [dict(NOBODY)]
        content = FORMS[name](rows)
        for wrap in wraps:
            content = WRAPPED[wrap](content)
        (folder / f"{number}-{name}{''.join(wraps)}").write_bytes(content)
        there |= {person: there.get(person, False) or _is_told(name, wraps, person) for person in people}
    return there


def _sought(person: int) -> list[residue.Needle]:
    return [replace(one, of=str(person)) for one in needles.build_needles(PEOPLE[person], COLUMNS)]


@given(made=files)
@settings(max_examples=60, deadline=None)
def test_it_finds_whoever_is_there_and_nobody_else(made: list[tuple[str, list[str], set[int]]]) -> None:
    check_scan(made)


@pytest.mark.slow
@given(made=files)
@settings(max_examples=240, deadline=None)
def test_it_finds_whoever_is_there_and_nobody_else_in_many_files(made: list[tuple[str, list[str], set[int]]]) -> None:
    check_scan(made)


def check_scan(made: list[tuple[str, list[str], set[int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        there = _write(Path(folder), made)
        roots = [residue.ScanRoot("lake", folder)]
        together = residue.scan_roots(roots, [one for person in range(4) for one in _sought(person)], processes=1)
        for person in range(4):
            alone = residue.scan_roots(roots, _sought(person), processes=1)
            mine = together.about(str(person))
            assert mine.hits == alone.hits and mine.kinds == alone.kinds and mine.unread == alone.unread
            if person not in there:
                assert not mine.of_person()
            elif there[person]:
                assert mine.of_person()


@given(
    kept=st.sets(st.sampled_from(range(4))),
    history=st.lists(st.tuples(st.sets(st.sampled_from(range(4))), st.booleans()), min_size=1, max_size=4),
)
@settings(max_examples=25, deadline=None)
def test_a_table_shows_whoever_is_in_a_version_of_it(kept: set[int], history: list[tuple[set[int], bool]]) -> None:
    """A table written by deltalake: rows of old versions lie in files that nobody has removed yet."""
    with tempfile.TemporaryDirectory() as folder:
        ever: set[int] = set()
        for people, over in [*history, (kept, True)]:
            rows = [dict(PEOPLE[person]) for person in sorted(people)] + [dict(NOBODY)]
            write_deltalake(f"{folder}/t", pa.Table.from_pylist(rows), mode="overwrite" if over else "append")
            ever |= people
        result = residue.scan_roots(
            [residue.ScanRoot("lake", folder)], [one for person in range(4) for one in _sought(person)], processes=1
        )
        assert {person for person in range(4) if result.about(str(person)).of_person()} == ever


def _escaped(text: str, letters: set[int], depth: int) -> str:
    """The text within JSON of that depth, with these of its letters escaped."""
    units = text.encode("utf-16-be")
    codes = [units[at : at + 2].hex() for at in range(0, len(units), 2)]
    made = "".join(f"\\u{code}" if n in letters or int(code, 16) > 126 else chr(int(code, 16)) for n, code in enumerate(codes))
    for _ in range(depth):
        made = json.dumps(made)[1:-1]
    return made


@given(
    person=st.sampled_from(range(4)),
    letters=st.sets(st.integers(0, 40), min_size=1),
    depth=st.integers(0, 3),
    at=st.sampled_from([0, 5, (1 << 20) - 90, (1 << 20) - 40, (1 << 20) - 1]),
    form=st.sampled_from(["cut.json", "cell.parquet", "packed.gz"]),
)
@settings(max_examples=25, deadline=None)
def test_whichever_letters_are_escaped_it_is_found(person: int, letters: set[int], depth: int, at: int, form: str) -> None:
    """In JSON within JSON, too, and over the ends of the parts that a file is read in; a short number beside its column."""
    said = dict(PEOPLE[person])
    field, value = ("user_id", said["user_id"]) if len(said["user_id"]) < 9 else ("email", said["email"])
    text = f'{{"x": "{"x" * at}", "{field}": "{_escaped(value, letters & set(range(len(value))) or {0}, depth)}'
    content = {"cut.json": str.encode, "packed.gz": lambda text: gzip.compress(text.encode())}.get(
        form, lambda text: containers.encode_parquet(pa.table({"record": ["nothing", text, "\\n"]}))
    )(text)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / form).write_bytes(content)
        wanted = [one for number in range(4) for one in _sought(number)]
        found = residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1)
        # At the third depth a short number has more than bytes of backslashes between it and its name.
        assert {hit.of for hit in found.of_person()} == {str(person)}, (text[-200:], found.hits)


@given(
    person=st.sampled_from(range(2)),
    width=st.integers(20, 90),
    end=st.sampled_from(["\n", "\r\n", "\r\n  ", "\\n", "\\r\\n", "\\\\r\\\\n"]),
    before=st.integers(0, 200),
    at=st.sampled_from([0, (1 << 20) - 90, (1 << 20) - 1]),
    in_a_cell=st.booleans(),
)
# Lines end where the next letter alone tells the one person from the other.
@example(person=0, width=22, end="\n", before=180, at=0, in_a_cell=False)
@example(person=0, width=22, end="\\r\\n", before=180, at=0, in_a_cell=True)
@settings(max_examples=25, deadline=None)
def test_base64_is_found_however_its_lines_are_broken(
    person: int, width: int, end: str, before: int, at: int, in_a_cell: bool
) -> None:
    said = dict(PEOPLE[person])
    letters = base64.b64encode(f"{'-' * before}{said['email']} {said['user_id']}{'-' * 9}".encode()).decode()
    text = "." * at + '"' + end.join(letters[start : start + width] for start in range(0, len(letters), width)) + '"'
    with tempfile.TemporaryDirectory() as folder:
        content = containers.encode_parquet(pa.table({"record": [text]})) if in_a_cell else text.encode()
        (Path(folder) / ("a.parquet" if in_a_cell else "a.txt")).write_bytes(content)
        found = residue.scan_roots([residue.ScanRoot("lake", folder)], [*_sought(0), *_sought(1)], processes=1)
        assert {hit.of for hit in found.of_person()} == {str(person)}


ALPHABETS = ("абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ", "äöüéèêñçåøæœšžłőß", "abcxyzéß")


def _shouted(text: str, capitals: list[bool]) -> str:
    """The text with those of its letters in capitals; ß has one of its own, which `upper` does not give."""
    made = (letter.replace("ß", "ẞ").upper() if big else letter for letter, big in zip(text, capitals, strict=False))
    return "".join(made)


@st.composite
def cased(draw: st.DrawFn) -> tuple[str, str]:
    """An identifier and the same in other letter case; short or long."""
    letters = st.text(st.sampled_from(draw(st.sampled_from(ALPHABETS))), min_size=3, max_size=9)
    plain = draw(letters) + (draw(st.sampled_from(["", ".x@почта.рф", "@müller.example.org"])))
    return tuple(_shouted(plain, draw(st.lists(st.booleans(), min_size=30, max_size=30))) for _ in range(2))  # type: ignore[return-value]


@given(
    who=cased(),
    at=st.sampled_from([0, 5, *range((1 << 20) - 60, (1 << 20) + 1, 7), (1 << 20) - 1]),
    form=st.sampled_from(["a.json", "escaped.json", "record.parquet", "own.parquet", "wide.txt", "rows.csv", "packed.gz"]),
)
@example(who=("анна.иванова@почта.рф", "Анна.Иванова@почта.рф"), at=0, form="a.json")
@example(who=("яна", "Яна"), at=0, form="own.parquet")
@settings(max_examples=60, deadline=None)
def test_it_is_found_in_whichever_letter_case_its_alphabet_has(who: tuple[str, str], at: int, form: str) -> None:
    """Over the ends of the parts that a file is read in, too, where a letter of two bytes is cut."""
    asked, written = who
    text = f'{{"x": "{"x" * at}", "nick": "{written}", "y": 1}}\n'
    content = {
        "a.json": text.encode(),
        "escaped.json": f'{{"x": "{"x" * at}", "nick": "{json.dumps(written)[1:-1]}"}}'.encode(),
        "record.parquet": containers.encode_parquet(pa.table({"record": ["nothing", text, "Ä"]})),
        "own.parquet": containers.encode_parquet(pa.table({"nick": ["Ä", written, None]})),
        "wide.txt": text.encode("utf-16"),
        "rows.csv": f"n,nick\n{'x' * at},{written}\n".encode(),
        "packed.gz": gzip.compress(text.encode()),
    }[form]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / form).write_bytes(content)
        wanted = [replace(one, of=of) for of in (asked, f"{asked}x") for one in needles.build_needles([("nick", of)])]
        found = residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1)
        assert {hit.of for hit in found.of_person()} == {asked}, (form, found.unread)


def _named(shape: str, elements: list[str]) -> tuple[str, str]:
    """A text with a value of a column before the person's, and with the person's as its last or only one."""
    listed = ", ".join(elements)
    return {
        "list": ('{"user_id": [', f'{listed}], "n": [5, 7]}}\n'),
        "lines": ('{"user_id": [\n  ', ",\n  ".join(elements) + '\n], "n": 5}\n'),
        "in": ("isnotnull(user_id#12L) AND user_id#12L IN (", f"{listed})\n"),
        "escaped": ('{"payload": "{\\"user_id\\": [', f'{listed.replace(chr(34), chr(92) + chr(34))}]}}"}}\n'),
        "escaped lines": ('{"payload": "{\\"user_id\\":\\n [\\n  ', ",\\n  ".join(elements).replace('"', '\\"') + '\\n]}"}\n'),
        "cut off": ('{"user_id": [', f'{listed}, "x", '),
        "nested": ('{"user_id": [[1, "]"], ', f"{listed}]}}\n"),
        "behind": ('{"user_id":\n  ', f"{elements[-1]}, "),
        "blanks": ('{"user_id":' + " " * 17, f"{elements[-1]}}}\n"),
        "before": ('{"user_id"\n  : ', f"{elements[-1]}}}\n"),
        "aligned": ("user_id" + " " * 40, f"{elements[-1]}\n"),
    }[shape]


SHAPES = ["list", "lines", "in", "escaped", "escaped lines", "cut off", "nested", "behind", "blanks", "before", "aligned"]


@pytest.mark.parametrize("count", [1, 84, 85, 1_000])
@pytest.mark.parametrize("kind", ["numbers", "texts"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_short_identifier_is_found_beside_its_column_however_many_stand_before_it(shape: str, kind: str, count: int) -> None:
    """In a file, over the end of a part that it is read in, and in a cell; the same values of other columns are nobody's."""
    asked = "12140" if kind == "numbers" else "jan"
    other = "99" if kind == "numbers" else "rob :) [x"
    elements = [one if kind == "numbers" else f'"{one}"' for one in [*[other] * (count - 1), asked]]
    before, after = _named(shape, elements)
    column = "user_id" if kind == "numbers" else "nick"
    before = before.replace("user_id", column)
    wanted = needles.build_needles([(column, asked)])
    hidden = f"{before}{after}".replace(column, "other")
    with tempfile.TemporaryDirectory() as folder:
        for at in (
            0,
            (1 << 20) - len(before) - 3,
            (1 << 20) - len(before) - len(after) // 2,
            (1 << 20) - len(before) - len(after) + 3,
        ):
            for text, is_there in ((f"{before}{after}", True), (hidden, False)):
                (Path(folder) / "a.json").write_text(f'{{"x": "{"x" * (at - 10)}"}}\n{text}' if at else text)
                found = residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1)
                assert bool(found.of_person()) == is_there, (at, text[:60])
        (Path(folder) / "a.json").unlink()
        for text, is_there in ((f"{before}{after}", True), (hidden, False)):
            cells = pa.table({"record": ["nothing", text, f"[{asked}", "n"]})
            (Path(folder) / "a.parquet").write_bytes(containers.encode_parquet(cells))
            found = residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1)
            assert ("record" in {hit.column for hit in found.of_person()}) == bool(found.of_person()) == is_there, text[:60]


def test_a_list_ends_where_its_bracket_is_closed() -> None:
    wanted = needles.build_needles([("user_id", "12140")])
    for text in (
        '{"user_id": [1, 2], "n": [3, 12140]}',
        '{"user_id": [1, "]", 2], "n": 3, 12140]}',
        '{"user_id": [1, {"n": 12140}]}',
        '{"user_id": [1, "it\'s"], "m": ["x", 12140]}',
        "user_id IN (1, 2), n IN (3, 12140)",
        '{"user_id": ["a\\\\"], "n": [3, 12140]}',
    ):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.json").write_text(text)
            assert not residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1).of_person(), text


@pytest.mark.parametrize(
    "unit", ['"user_id" [1, ', '"user_id": [', "user_id" + " " * 300, '"user_id":' + "\\n" * 300, "(", "[12140", "\\" * 40]
)
def test_what_is_never_closed_costs_no_more_than_its_length(unit: str) -> None:
    text = unit * (200_000 // len(unit)) + " ,12140 ]"
    wanted = needles.build_needles([("user_id", "12140")])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.json").write_text(text)
        (Path(folder) / "a.parquet").write_bytes(containers.encode_parquet(pa.table({"record": [text]})))
        before = time.process_time()
        residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1)
        assert time.process_time() - before < 10


def test_several_identifiers_of_one_person_are_each_found_in_base64() -> None:
    """They differ in bits of characters that hold bits of what is beside them, too; so do letters of either case."""
    identifiers = [*(("user_id", str(7_000_000_000 + n)) for n in range(4)), ("email", "Anna@example.com")]
    wanted = needles.build_needles(identifiers, COLUMNS)
    for text in (*(value for _, value in identifiers), "anna@example.com"):
        for before in ("", "x", "xy"):
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / "a.txt").write_bytes(base64.b64encode(f'{before}"{text}"}}'.encode()))
                assert residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1).of_person(), (text, before)


def test_large_numbers_are_found_among_many_whatever_type_they_are_stored_in() -> None:
    asked = [("user_id", str(1_234_567_890_123_456_789 + 1_000 * n)) for n in range(20)]
    wanted = needles.build_needles(asked, COLUMNS)
    stored = 1_234_567_890_123_456_789
    columns = {"f": pa.array([float(stored)]), "i": pa.array([stored], pa.int64()), "u": pa.array([stored], pa.uint64())}
    for name, column in {**columns, "other": pa.array([2**64 - 1], pa.uint64())}.items():
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "a.parquet").write_bytes(containers.encode_parquet(pa.table({"user_id": column})))
            result = residue.scan_roots([residue.ScanRoot("lake", folder)], wanted, processes=1)
            assert bool(result.of_person()) == (name != "other") and not result.unread, name
