"""Files of JSON into rows: lines and documents."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sluice.declare import Source
from sluice.ingest import formats
from sluice.ingest.files import delivered_bytes
from sluice.ingest.formats import CUT_OFF, NO_OBJECT, TOO_DEEP, json_fast, json_records
from sluice.ingest.formats.json_exact import ExactJsonReader
from sluice.ingest.values import json_values

LONG, D, S = pa.int64(), pa.float64(), pa.string()
SCHEMA = pa.schema([("a", LONG), ("b", S), ("n", pa.struct([("x", LONG), ("y", S)]))])
Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The rows of a file with this text: columns that are not NULL, rescued data as its value."""

    def of(text: str, schema: pa.Schema = SCHEMA, path: dict[str, str] | None = None, **options: Any) -> list[dict[str, Any]]:
        file = tmp_path / "file.json"
        file.write_text(text, encoding="utf-8", newline="")
        found = [
            row
            for block in formats.read_file_records(Source(name="s", **options), file, schema, path or {})
            for row in block.rows.to_pylist()
        ]
        for row in found:
            row["_rescued_data"] = row["_rescued_data"] and json.loads(row["_rescued_data"])
        return [{name: value for name, value in row.items() if value is not None} for row in found]

    return of


def news(text: str, schema: pa.Schema, tmp_path: Path, path: dict[str, str] | None = None, **options: Any) -> pa.StructType:
    file = tmp_path / "news.json"
    file.write_text(text)
    (block,) = formats.read_file_records(Source(name="s", **options), file, schema, path or {})
    return block.news


def test_each_field_is_in_its_column_or_rescued(read: Read) -> None:
    assert read(
        '{"a":1,"b":"x"}\n{"a":"1","b":2,"more":[1.50]}\n\n{"n":{"x":1,"y":2,"z":null}}\n{"A":1,"_file":"f","a":null}'
    ) == [
        {"a": 1, "b": "x"},
        {"_rescued_data": {"a": "1", "b": 2, "more": [1.5]}},
        {"n": {"x": 1, "y": None}, "_rescued_data": {"n": {"y": 2}}},
        {"_rescued_data": {"A": 1, "_file": "f"}},
    ]


def test_rescued_numbers_keep_their_text(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text('{"z":[1.50,1e400,NaN,123456789012345678901234567890,-0]}')
    (block,) = formats.read_file_records(Source(name="s"), file, SCHEMA, {})
    assert block.rows["_rescued_data"].to_pylist() == ['{"z":[1.50,1e400,"NaN",123456789012345678901234567890,-0]}']


@pytest.mark.parametrize("value", ['{"a":1,"a":2}', '{"a":{"b":1},"a":{}}'])
def test_an_object_with_a_key_twice_is_no_list(read: Read, value: str) -> None:
    schema = pa.schema([("tags", pa.list_(S))])
    for text in (value, f"[{value}]"):
        (row,) = read(f'{{"tags":{text}}}', schema, infer_types=False)
        assert row.get("tags") in (None, [value]) and json.dumps(row).count("a") > 1, row


def test_of_a_key_that_comes_twice_the_first_stays_and_the_others_are_rescued(read: Read) -> None:
    assert read(
        '{"a":1,"a":2}\n{"a":1,"a":2,"a":"x"}\n{"a":"x","a":2}\n{"n":{"x":1,"x":2}}\n{"n":{"x":1,"q":2},"n":3}\n{"n":{"x":1,"q":{"a":1,"a":2}}}'
    ) == [
        {"a": 1, "_rescued_data": {"a": 2}},
        {"a": 1, "_rescued_data": {"a": [2, "x"]}},
        {"_rescued_data": {"a": ["x", 2]}},
        {"_rescued_data": {"n": '{"x":1,"x":2}'}},
        {"_rescued_data": {"n": [{"x": 1, "q": 2}, 3]}},
        {"_rescued_data": {"n": '{"x":1,"q":{"a":1,"a":2}}'}},
    ]


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "[1]",
        "1",
        '"x"',
        '{"a":1',
        '{"a":1} x',
        '{"a":1} {"a":2}',
        '{"a":1}{"a":2}',
        '{"a":1,}',
        "{'a':1}",
        '{"a":nul}',
        '{"a":01}',
        "}",
    ],
)
@pytest.mark.parametrize("others", ["", '{"a":1}\n'])
def test_what_is_no_object_is_a_row_with_its_text_and_no_values(read: Read, line: str, others: str) -> None:
    assert read(others + line + "\n" + others) == [
        *([{"a": 1}] if others else []),
        {"_problem": NO_OBJECT, "_record": line},
        *([{"a": 1}] if others else []),
    ]


def test_an_object_over_two_lines_is_no_record_of_json_lines(read: Read) -> None:
    assert [row.get("_problem") for row in read('{"a":\n1}\n{"a":{"b":\n{"a":1}}}\n')] == [NO_OBJECT] * 4


def test_nesting_is_read_to_a_thousand_levels_and_a_deeper_record_says_so(read: Read) -> None:
    limit = sys.getrecursionlimit()
    for levels, problem in ((999, None), (1000, TOO_DEEP), (5000, TOO_DEEP), (200_000, TOO_DEEP)):
        text = '{"z":' + "[" * levels + "]" * levels + "}"
        (row,) = exactly(text)
        assert row["_problem"] == problem
        assert row["_record" if problem else "_rescued_data"] == text
    assert sys.getrecursionlimit() == limit
    assert read('{"b":"' + "[{" * 2000 + '"}') == [{"b": "[{" * 2000}]


def exactly(text: str) -> list[dict[str, Any]]:
    exact = ExactJsonReader(Source(name="s"), SCHEMA, {})
    found: list[dict[str, Any]] = exact.rows([text], exact.news()).to_pylist()
    return found


def test_levels_are_counted_outside_of_strings_only() -> None:
    assert json_values.measure_nesting_depth(r'{"a":["[[[\"[[",[1],{}]}') == 3
    assert json_values.count_deep_levels("[]" * 60) == 0
    with pytest.raises(json_values.TooDeep):
        json_values.count_deep_levels("[" * 1001)


def test_half_a_surrogate_pair_is_rescued_as_it_was_written(read: Read) -> None:
    assert read('{"b":"\\ud83d"}\n{"b":"\\ud83d\\ude00"}') == [{"_rescued_data": {"b": "\ud83d"}}, {"b": "\U0001f600"}]


def test_without_inference_a_column_takes_the_text_of_anything(read: Read) -> None:
    schema = pa.schema([(name, S) for name in "abcdef"])
    assert read('{"a":1.50,"b":true,"c":{"x": [1.0, "é"]},"d":"x","e":-0,"f":NaN}', schema, infer_types=False) == [
        {"a": "1.50", "b": "true", "c": '{"x":[1.0,"é"]}', "d": "x", "e": "-0", "_rescued_data": {"f": "NaN"}}
    ]


def test_with_evolution_none_unknown_fields_are_left_out_and_misfits_are_not(read: Read) -> None:
    text = '{"a":"x","more":1,"n":{"x":1,"z":2},"A":3}\n{"a":1,"more":1}'
    assert read(text, schema_evolution="none") == [{"n": {"x": 1, "y": None}, "_rescued_data": {"a": "x", "A": 3}}, {"a": 1}]


def test_a_value_in_the_path_is_a_field_of_each_record_and_the_records_own_goes_first(read: Read) -> None:
    schema = SCHEMA.append(pa.field("day", pa.date32()))
    text = '{"a":1}\n{"a":2,"day":"2026-11-20"}\n{"a":3,"day":"2026-11-21"}\n'
    for odd in ("", '{"a":"odd"}\n'):  # the quick way, and the exact one
        found = read(text + odd, schema, {"day": "2026-11-20"})
        assert [(str(row["day"]), row.get("_rescued_data")) for row in found[:3]] == [
            ("2026-11-20", None),
            ("2026-11-20", None),
            ("2026-11-21", {"day": "2026-11-20"}),
        ]
    assert read(text, schema, {"day": "x", "hour": "07"})[0] == {"a": 1, "_rescued_data": {"day": "x", "hour": "07"}}


def test_news_are_unknown_fields_and_the_types_of_misfits(tmp_path: Path) -> None:
    text = '{"a":1.5,"z":{"q":[1]},"n":{"w":true},"_file":1,"A":1,"full name":2,"e":null}\n{"n":"text","z":{"q":[2.5]}}'
    expected = pa.struct([
        ("a", D),
        ("z", pa.struct([("q", pa.list_(D))])),
        ("n", pa.struct([("w", pa.bool_())])),
        ("_file", LONG),
    ])
    assert news(text, SCHEMA, tmp_path) == expected
    assert news('{"a":1}', SCHEMA, tmp_path, {"hour": "07", "day": "2026-11-20"}) == pa.struct([
        ("hour", S),
        ("day", pa.date32()),
    ])
    assert news('{"a":1,"z":1}', SCHEMA, tmp_path, {"hour": "7"}, schema_evolution="none") == pa.struct([])
    assert news('{"d":"2026-11-20T10:00"}', pa.schema([("d", pa.date32())]), tmp_path) == pa.struct([
        ("d", pa.timestamp("us", tz="UTC"))
    ])


def test_the_quick_way_is_taken_where_nothing_is_odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_records.JsonVerifier, "fits", lambda *_: pytest.fail("a clean block was looked at record by record"))
    file = tmp_path / "f"
    fields = [
        ("i", LONG),
        ("d", D),
        ("f", pa.float32()),
        ("c", pa.decimal128(10, 2)),
        ("t", pa.timestamp("us", tz="UTC")),
        ("l", pa.list_(pa.date32())),
    ]
    line = '{"i":1,"d":0.1,"f":0.1,"c":1.50,"t":"2026-01-01T00:00:00Z","l":["2026-01-01",null]}'
    for end in ("\n", "\r\n"):
        file.write_text(f"{line}{end}" * 3, newline="")
        (block,) = formats.read_file_records(Source(name="s"), file, pa.schema(fields), {})
        assert block.rows.num_rows == 3 and block.rows["_rescued_data"].null_count == 3


def test_odd_records_do_not_slow_down_the_good_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    one = ExactJsonReader._one
    monkeypatch.setattr(ExactJsonReader, "_one", lambda self, text, news: seen.append(text) or one(self, text, news))
    file = tmp_path / "f"
    odd = ['{"a":"x"}', '{"a":1,"a":2}', '{"z":1}', "null", '{"a":1} x', '{"a":9223372036854775808}']
    file.write_text("\n".join(['{"a":1}'] * 50 + odd + ['{"a":1}'] * 50))
    (block,) = formats.read_file_records(Source(name="s"), file, SCHEMA, {})
    assert seen == odd
    assert block.rows["a"].to_pylist() == [1] * 50 + [None, 1, None, None, None, None] + [1] * 50


@pytest.mark.parametrize(
    ("block", "count"),
    [
        ("{}\n{}", 2),
        ("{}\r\n{}\r\n", 2),
        ("{} {}\n", 1),
        ("null\n{}", None),
        ("{}\n\n{}", None),
        ('{"a":\n{}}', None),
        ("", None),
    ],
)
def test_lines_are_counted_only_where_each_starts_and_ends_an_object(block: str, count: int | None) -> None:
    assert json_fast.count_object_lines(block.encode()) == count


@pytest.mark.parametrize(
    "text",
    ['[{"a":1},\n {"a":\n2}]', '{"a":1}{"a":2}', '{"a":1}\n{"a":2}\n', '\n[{"a":1}]\n[{"a":2}]', '{"a":1},{"a":2},'],
)
def test_documents_are_objects_or_arrays_over_any_number_of_lines(read: Read, text: str) -> None:
    assert read(text, multi_line=True) == [{"a": 1}, {"a": 2}]


def test_what_of_a_document_is_no_object_is_a_row_of_its_own(read: Read) -> None:
    assert read('[{"a":1}, 7, [{"a":2}], {"a":nul}]', multi_line=True) == [
        {"a": 1},
        *({"_problem": NO_OBJECT, "_record": text} for text in ("7", '[{"a":2}]', '{"a":nul}')),
    ]
    assert read("", multi_line=True) == read(" \n[]", multi_line=True) == []


@pytest.mark.parametrize(("rest", "kept"), [('{"a":', '{"a":'), ("", ""), ('{"b":"]}', '{"b":"]}')])
def test_a_document_that_is_cut_off_keeps_its_whole_records_and_says_so(read: Read, rest: str, kept: str) -> None:
    assert read(f'[{{"a":1}},{rest}', multi_line=True) == [{"a": 1}, {"_problem": CUT_OFF, "_record": kept}]


def test_a_long_record_of_a_document_is_put_together_from_its_pieces(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivered_bytes, "_CHUNK", 4096)
    text = json.dumps([{"b": "é[" * 50_000}, {"a": 1}], ensure_ascii=False)
    assert read(text, multi_line=True) == [{"b": "é[" * 50_000}, {"a": 1}]
    monkeypatch.setattr(delivered_bytes, "LONGEST", 100_000)
    with pytest.raises(delivered_bytes.UnreadableFile, match="a record of the file has more than 100000 bytes"):
        read(text, multi_line=True)


@pytest.mark.parametrize(
    ("number", "precision", "scale", "fits"),
    [
        ("34" + "0" * 37, 38, 0, False),
        ("3.4e38", 38, 0, False),
        ("4425", 38, 38, False),
        ("-4755263844", 10, 10, False),
        ("7.09e-400", 38, 38, False),
        ("28324.9e-38", 38, 0, False),
        ("1.555", 10, 2, False),
        ('"1.5"', 10, 2, False),
        ("0", 10, 2, True),
        ("9" * 38, 38, 0, True),
        ("99999999.99", 10, 2, True),
        ("-1.500", 10, 2, True),
        ("15e-1", 10, 2, True),
    ],
)
def test_a_decimal_holds_exactly_the_number_or_nothing_of_it(
    read: Read, number: str, precision: int, scale: int, fits: bool
) -> None:
    """Arrow's reader takes most of these for other numbers, without a word."""
    schema = pa.schema([
        ("c", pa.decimal128(precision, scale)),
        ("l", pa.list_(pa.struct([("c", pa.decimal128(precision, scale))]))),
    ])
    (row,) = read(f'{{"c":{number},"l":[null,{{"c":{number}}}]}}', schema)
    assert row == (
        {"c": Decimal(number), "l": [None, {"c": Decimal(number)}]}
        if fits
        else {"_rescued_data": json.loads(f'{{"c":{number},"l":[null,{{"c":{number}}}]}}')}
    )


@pytest.mark.parametrize(
    ("number", "fits"),
    [
        ("99999999999999999999", False),
        ("-100000000000000000001", False),
        ("100000000000000000000", True),
        ("1e20", True),
        ("99999999999999999999.0", True),
        ("9007199254740993", False),
        ("18014398509481984", False),
        ("1e39", False),
        ("1" * 400, False),
        ("16777217", False),
        ("0.1", True),
        ("-7", True),
    ],
)
def test_a_float_holds_a_number_or_not_whatever_else_is_in_its_block(
    read: Read, monkeypatch: pytest.MonkeyPatch, number: str, fits: bool
) -> None:
    kind = pa.float32()
    schema = pa.schema([("f", kind), ("n", pa.struct([("l", pa.list_(kind))])), ("a", LONG)])
    record = f'{{"f":{number},"n":{{"l":[null,{number}]}}}}'
    verified = [read(f"{record}\n{odd}", schema)[0] for odd in ('{"a":"x"}', "null")]
    # Without the verifier, whatever the fast way does not take is read by the exact one.
    monkeypatch.setattr(json_records.JsonVerifier, "fits", lambda *_: False)
    fast = read(record, schema)
    monkeypatch.setattr(json_fast.FastJsonReader, "rows", lambda *_, **__: None)
    exact = read(record, schema)
    assert [*fast, *verified] == exact * 3 and ("_rescued_data" not in exact[0]) == fits
    assert ("f" in exact[0]) == fits
