"""Reads CSV: the names in the header, and every cell either in its column or rescued as delivered.

Quotes decide where rows end, however the text is cut into chunks. A row ends with its line, unless a quoted field continues. A quote is
doubled within quotes, and stands for itself in a field that does not begin with one. An empty field is NULL, "" is an empty text. Blank
lines are not rows. If a row's quotes are wrong (never closed, or text after the closing one), only its first line is set aside with its text;
reading continues with the next line, and no other row is lost.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import IO

import numpy as np
import pyarrow as pa
from pyarrow import csv

from sluice.declare.field_values import find_column_spelling
from sluice.declare.ingest.file_formats import USUAL_DELIMITERS, CsvDialect
from sluice.declare.ingest.source import Source
from sluice.ingest.files import delivered_bytes
from sluice.ingest.files.delivered_bytes import FileSpan, UnreadableFile
from sluice.ingest.files.paths import parse_path_values
from sluice.ingest.formats import RAGGED, RESCUED, ExaminedContent, ParsedBlock, csv_rows
from sluice.ingest.formats.csv_blocks import CsvCutFinder, CsvSplitter
from sluice.ingest.formats.csv_rows import BROKEN_QUOTES, filter_csv_rows, list_headerless_fields
from sluice.ingest.formats.delivered_fields import DeliveredField, TextValues, add_path_fields, fit_delivered_fields
from sluice.ingest.formats.plain import examine_text, write_encoded_text
from sluice.ingest.values.types import column_names, match_table_spelling
from sluice.locations import Location

HEADER_LIMIT = 1 << 20
"""The first row lies within this many bytes of text."""

_LONGEST_NAME = 1 << 17


def read_format_records(
    source: Source, path: Location, schema: pa.Schema, path_values: Mapping[str, str | None], span: FileSpan | None = None
) -> Iterator[ParsedBlock]:
    """As `formats.read_file_records`."""
    texts = delivered_bytes.read_text_pieces(source, path)
    start = _read_file_start(texts)
    is_blank = not start.strip()
    if is_blank and not _may_have_blank_records(source):
        return
    dialect = source.dialect
    fields, rows_at = _find_fields(source, path_values, start)
    names = match_table_spelling(fields, schema.names)
    if is_blank and not names:  # the path gives all declared columns
        return
    if span is None:
        texts = _prepend_text(start[rows_at:], texts)
    else:
        texts = delivered_bytes.read_span_pieces(source, path, span)
        texts = texts if span.start else _drop_start(texts, rows_at)
    for rows in parse_csv_rows(dialect, texts, len(names)):
        yield _build_csv_block(source, schema, path_values, names, rows)


def examine_format_content(source: Source, path: Location, seen: Callable[[bytes], object]) -> ExaminedContent:
    """As `formats.examine_file_content`."""
    on_disk = path.stat().st_size
    starts = delivered_bytes.divide_file(on_disk, on_disk)[1:] if delivered_bytes.is_cut_anywhere(source, path) else []
    finder = CsvCutFinder(source.dialect, starts)
    text = examine_text(source, path, seen, keep=HEADER_LIMIT, follow=finder.follow_text)
    if text.is_blank:
        return ExaminedContent(empty=not (text.size and _may_have_blank_records(source)), text_bytes=text.size)
    header = read_csv_header(source, text.start) if source.header else ()
    first_row = _read_first_row(source.dialect, text.start)[1] if source.header else 0
    cuts = finder.list_cuts(first_row, on_disk - text.size) if starts else ()
    return replace(text.as_content(header), cuts=cuts)


def write_remaining_records(
    source: Source, path: Location, file: str, gone: frozenset[int], emptied: Mapping[int, Collection[str]], target: IO[bytes]
) -> None:
    """As `formats.write_remaining_records`."""
    text = b"".join(delivered_bytes.read_text_pieces(source, path)).decode()
    write_encoded_text(
        source, target, filter_csv_rows(source, text, gone, emptied, parse_path_values(file) if source.path_columns else ())
    )


def read_csv_header(source: Source, start: bytes) -> tuple[str, ...]:
    """Returns the names in a file's first row, as delivered. start: its text as UTF-8, all of it or at least `HEADER_LIMIT` bytes.

    Raises UnreadableFile if the row is not a header, or if the file has another separator.
    """
    names = tuple(name or "" for name in _read_first_row(source.dialect, start)[0])
    if any(len(name) > _LONGEST_NAME for name in names):
        raise UnreadableFile("the first line is no header: one field of it is longer than 128 KiB")
    if len(names) == 1:
        others = {other: names[0].count(other) for other in USUAL_DELIMITERS if other != source.delimiter}
        likely = max(others, key=lambda other: others[other])
        if others[likely] > 0:
            found, wanted = USUAL_DELIMITERS[likely], USUAL_DELIMITERS.get(source.delimiter, repr(source.delimiter))
            raise UnreadableFile(f"the file's fields are separated by {found}, the source declares {wanted}")
    return names


def _build_csv_block(
    source: Source, schema: pa.Schema, path_values: Mapping[str, str | None], names: list[str], rows: CsvRows
) -> ParsedBlock:
    fields = [
        DeliveredField(name or f"_field_{position}", TextValues(column, None if source.infer_types else pa.string()), bool(name))
        for position, (name, column) in enumerate(zip(names, rows.columns, strict=True), start=1)
    ]
    if path_values:
        present = pa.array([position not in rows.problems for position in range(rows.count)])
        fields = add_path_fields(path_values, fields, schema, present)
    found = fit_delivered_fields(source, schema, fields, rows.count, rows.problems)
    subject = find_column_spelling(source.subject, names) if rows.problems else None
    return _rescue_subject_keys(source, names.index(subject), rows, found) if subject else found


def _rescue_subject_keys(source: Source, position: int, rows: CsvRows, found: ParsedBlock) -> ParsedBlock:
    """Puts the subject of a row that cannot stand in bronze into _rescued_data, so that the quarantine knows whose row it keeps.

    position: of the subject among the row's fields.
    """
    dialect = source.dialect
    rescued = found.rows.column(RESCUED).to_pylist()
    for number, (_, text) in rows.problems.items():
        row = csv_rows.find_first_csv_row(dialect, text, True)[0] or []
        if position < len(row) and row[position] is not None:
            rescued[number] = json.dumps({source.subject: row[position]}, ensure_ascii=False)
    column = found.rows.schema.get_field_index(RESCUED)
    return ParsedBlock(found.rows.set_column(column, found.rows.schema.field(column), pa.array(rescued, pa.string())), found.news)


def _find_fields(source: Source, path_values: Mapping[str, str | None], start: bytes) -> tuple[list[str], int]:
    """Returns the names of a file's fields, and where its first record begins, in bytes."""
    if not source.header and (declared := list_headerless_fields(source, path_values, 0)):
        return declared, 0  # the first row is a record like any other, whatever its quotes
    first, rows_at = _read_first_row(source.dialect, start) if start.strip() else ([], 0)
    if source.header:
        return column_names([name or "" for name in first]), rows_at
    return list_headerless_fields(source, path_values, len(first)), rows_at


def _read_first_row(dialect: CsvDialect, start: bytes) -> tuple[list[str | None], int]:
    """Returns the cells of the first row, and where the first record begins, in bytes."""
    complete = len(start) < HEADER_LIMIT
    text = csv_rows.decode_whole_characters(start)
    found = csv_rows.find_csv_file_start(dialect, text, complete)
    if found.first is None:
        line_end = csv_rows.find_first_csv_row(dialect, text, True)[1]
        if complete or line_end < len(text):
            is_broken = complete or found.end == line_end
            why = BROKEN_QUOTES if is_broken else f"a quoted field of it is not closed within {HEADER_LIMIT >> 20} MiB"
            raise UnreadableFile(f"the first line is no header: {why}" if dialect.header else why)
    if found.first is None or (found.end == len(text) and not complete):
        raise UnreadableFile(f"the first line is longer than {HEADER_LIMIT >> 20} MiB")
    return found.first, len(text[: found.rows_at].encode())


def _may_have_blank_records(source: Source) -> bool:
    """Whether a file of blanks may have records, as `is_csv_record` says: if the width is declared, and not that of a first row that it lacks."""
    return not source.header and bool(source.ddl)


def _read_file_start(texts: Iterator[bytes]) -> bytes:
    start = b""
    for text in texts:
        start += text
        if len(start) >= HEADER_LIMIT and start.strip():
            break
    return start


def _prepend_text(start: bytes, texts: Iterator[bytes]) -> Iterator[bytes]:
    if start:
        yield start
    yield from texts


def _drop_start(texts: Iterator[bytes], count: int) -> Iterator[bytes]:
    """Yields the same text without some bytes at its start."""
    for text in texts:
        yield text[count:]
        count = max(0, count - len(text))


@dataclass(frozen=True)
class CsvRows:
    """columns: one of text for each field. problems: by a row's position, why it cannot be read, and its text; all of its columns are NULL."""

    columns: list[pa.Array]
    count: int
    problems: dict[int, tuple[str, str]] = field(default_factory=dict)


def parse_csv_rows(dialect: CsvDialect, texts: Iterator[bytes], width: int) -> Iterator[CsvRows]:
    """Yields the rows of UTF-8 text that comes in pieces. width: how many fields a row has. Raises UnreadableFile, and what `texts` raises."""
    splitter = CsvSplitter(dialect)
    for text, last in delivered_bytes.mark_last_text(texts):
        for block in splitter.add_text(text, last):
            found = (_parse_clean_rows if block.is_clean else _parse_rows_singly)(dialect, block.data, width)
            if found.count:
                yield found


def _parse_clean_rows(dialect: CsvDialect, data: bytes, width: int) -> CsvRows:
    """Parses rows whose quotes are right, by Arrow."""
    odd: list[csv.InvalidRow] = []

    def note(row: csv.InvalidRow) -> str:
        odd.append(row)
        return "skip"

    # Arrow drops a byte order mark from the start of what it reads. Here one is part of the first row.
    data = codecs.BOM_UTF8 + data if data.startswith(codecs.BOM_UTF8) else data
    # And at the end it takes an empty field for a quoted one if the field before was.
    data = data if data.endswith((b"\n", b"\r")) else data + b"\n"
    names = [str(number) for number in range(width)]
    table = csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        *csv_rows.build_arrow_options(dialect, names, note),
    )
    columns = [column.combine_chunks() for column in table.columns]
    return _insert_problem_rows(columns, table.num_rows, [(row.number - 1, row.text) for row in odd])


def _insert_problem_rows(columns: list[pa.Array], good: int, ragged: list[tuple[int, str]]) -> CsvRows:
    """Puts good and other rows in order. ragged: the position of each other row among all rows, and its text; blank ones are not rows."""
    bad = {position - blank: (RAGGED, text) for position, text, blank in _count_blank_rows_before(ragged) if text.strip()}
    if not bad:
        return CsvRows(columns, good)
    order = np.zeros(good + len(bad), np.int64)
    is_bad = np.zeros(len(order), bool)
    is_bad[list(bad)] = True
    order[~is_bad] = np.arange(good)
    positions = pa.array(order, mask=is_bad)
    return CsvRows([column.take(positions) for column in columns], len(order), bad)


def _count_blank_rows_before(ragged: list[tuple[int, str]]) -> Iterator[tuple[int, str, int]]:
    """Returns each row with the number of blank ones before it."""
    blank = 0
    for position, text in ragged:
        yield position, text, blank
        blank += not text.strip()


def _parse_rows_singly(dialect: CsvDialect, data: bytes, width: int) -> CsvRows:
    """Parses rows one by one, whatever their quotes."""
    text = data.decode()
    rows: list[list[str | None]] = []
    problems: dict[int, tuple[str, str]] = {}
    at = 0
    while at < len(text):
        cells, end = csv_rows.parse_csv_row(dialect, text, at, True)
        assert end is not None  # nothing comes after the text
        line, at = text[at:end].rstrip("\r\n"), end
        if not csv_rows.is_csv_record(cells, line, width):
            continue
        if cells is not None and len(cells) == width:
            rows.append(cells)
        else:
            problems[len(rows)] = (BROKEN_QUOTES if cells is None else RAGGED, line)
            rows.append([None] * width)
    columns = [pa.array([row[number] for row in rows], pa.string()) for number in range(width)]
    return CsvRows(columns, len(rows), problems)
