"""Examines a folder of unknown files: their format, their columns, their types."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from sluice.declare.ingest.field_names import is_reserved_column
from sluice.declare.ingest.file_formats import USUAL_DELIMITERS, CsvDialect
from sluice.errors import UsageError
from sluice.ingest.values.types import column_names

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
SUFFIXES = (".csv", ".tsv", ".txt", *JSON_SUFFIXES)
MOST_FILES = 200
MOST_ROWS = 20_000
_START = 1 << 20
_NAMED = {"csv": "CSV", "json": "JSON lines"}

Row = Mapping[str, str]
"""A sampled record by bronze column, trimmed, without empty values."""


@dataclass(frozen=True, kw_only=True)
class FolderSample:
    """The result of examining a folder.

    files: all of them. columns: by their names in bronze, in order. rows: a sample, each row once.
    """

    files: tuple[Path, ...]
    format: Literal["csv", "json"]
    dialect: CsvDialect
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def types(self) -> dict[str, str]:
        """The type that fits all sampled values, by column: BIGINT, DOUBLE, DATE, TIMESTAMP or STRING."""
        return {column: _infer_column_type(row[column] for row in self.rows if column in row) for column in self.columns}


@dataclass(frozen=True)
class _FileSample:
    """One file. records: the header's or the objects' names with their values, as delivered."""

    path: Path
    format: Literal["csv", "json"]
    delimiter: str
    encoding: str
    names: list[str]
    records: list[list[str]]


def sample_folder(folder: Path) -> FolderSample:
    """Examine the files of a folder and its sub-folders.

    Raises UsageError if there are none, if one cannot be read, or if they differ in format.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}.")
    files = tuple(path for path in sorted(folder.rglob("*")) if path.is_file() and not _is_hidden(path, folder))
    files = tuple(path for path in files if path.suffix.lower() in SUFFIXES)
    step = max(1, len(files) // MOST_FILES)
    looks = [seen for path in files[::step] if (seen := _sample_file(path)) is not None]
    if not looks:
        raise UsageError(f"{folder} has no files with records. Expected are names that end in {', '.join(SUFFIXES)}.")
    first = looks[0]
    _refuse_mixed_kinds(looks, lambda seen: _NAMED[seen.format])
    _refuse_mixed_kinds(looks, lambda seen: f"separated by {USUAL_DELIMITERS[seen.delimiter]}")
    _refuse_mixed_kinds([seen for seen in looks if seen.encoding], lambda seen: f"encoded as {seen.encoding}")
    columns, rows = _combine_file_samples(looks)
    encoding = next((seen.encoding for seen in looks if seen.encoding), "utf-8")
    return FolderSample(
        files=files,
        format=first.format,
        dialect=CsvDialect(delimiter=first.delimiter, encoding=encoding),
        columns=columns,
        rows=rows,
    )


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _refuse_mixed_kinds(looks: list[_FileSample], what: Callable[[_FileSample], str]) -> None:
    for other in looks[1:]:
        if what(other) != what(looks[0]):
            raise UsageError(
                f"{looks[0].path.name} is {what(looks[0])}, {other.path.name} is {what(other)}.\n"
                "A source reads files of one kind: put each kind into a folder of its own."
            )


def _sample_file(path: Path) -> _FileSample | None:
    """Examine one file; None if it is empty. Raises UsageError if it holds no records."""
    encoding = _detect_encoding(path)
    with path.open("rb") as file:
        start, whole = file.read(_START), not file.read(1)
    text = codecs.getincrementaldecoder(encoding or "utf-8")().decode(start).lstrip("\ufeff")
    if not whole:
        text = text[: text.rfind("\n") + 1]
    if not text.strip():
        return None
    if path.suffix.lower() in JSON_SUFFIXES or (path.suffix.lower() == ".txt" and text.lstrip()[0] == "{"):
        if encoding == "windows-1252":
            raise UsageError(f"{path.name} is not encoded as UTF-8, as JSON must be.")
        return _FileSample(path, "json", ",", encoding, *_parse_json_lines(path, text))
    delimiter, table = _detect_delimiter(text)
    _check_header(path, table)
    return _FileSample(path, "csv", delimiter, encoding, table[0], [row for row in table[1:] if len(row) == len(table[0])])


def _detect_encoding(path: Path) -> str:
    """Either utf-8 or windows-1252; "" where both read the same. Raises UsageError for a file that is no text."""
    for encoding in ("ascii", "utf-8", "windows-1252"):
        try:
            with path.open(encoding=encoding, newline="") as file:
                while chunk := file.read(_START):
                    if "\0" in chunk:
                        raise UsageError(f"{path.name} is no text in UTF-8 or Windows-1252: it holds NUL bytes.")
            return "" if encoding == "ascii" else encoding
        except UnicodeDecodeError:
            continue
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
    raise UsageError(f"{path.name} is no text in UTF-8 or Windows-1252.")


def _detect_delimiter(text: str) -> tuple[str, list[list[str]]]:
    """The delimiter with which the most rows have as many fields as the header, and the rows read with it."""
    tables = {delimiter: _parse_csv_rows(text, delimiter) for delimiter in USUAL_DELIMITERS}

    def score(delimiter: str) -> tuple[bool, float, int]:
        rows = tables[delimiter]
        width = len(rows[0]) if rows else 0
        return width > 1, sum(len(row) == width for row in rows) / max(1, len(rows)), width

    best = max(USUAL_DELIMITERS, key=score)
    return best, tables[best]


def _parse_csv_rows(text: str, delimiter: str) -> list[list[str]]:
    try:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        return list(itertools.islice((row for row in rows if row), MOST_ROWS + 1))
    except csv.Error:
        return []


def _check_header(path: Path, table: list[list[str]]) -> None:
    """Raises UsageError if the first line has more numbers and dates than names. Years may be names."""
    cells = [cell.strip() for cell in table[0] if cell.strip()] if table else []
    values = [cell for cell in cells if _infer_column_type([cell]) != "STRING" and not re.fullmatch(r"(19|20)[0-9][0-9]", cell)]
    if not cells or 2 * len(values) > len(cells):
        raise UsageError(f"{path.name} has no header: its first line must hold the columns' names.")


def _parse_json_lines(path: Path, text: str) -> tuple[list[str], list[list[str]]]:
    """Names and values of JSON lines, without lines that are cut off, which bronze quarantines."""
    objects = []
    for line in itertools.islice(io.StringIO(text, newline=None), MOST_ROWS):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict):
            objects.append(found)
    if not objects:
        raise UsageError(f"{path.name} is not JSON lines, which have one object on each line.")
    names = list(dict.fromkeys(name for found in objects for name in found))
    return names, [[_json_value_text(found.get(name)) for name in names] for found in objects]


def _json_value_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _combine_file_samples(looks: list[_FileSample]) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    """The columns of all files, and their rows, each once: a file that came twice says nothing about keys."""
    spelling: dict[str, str] = {}
    rows: dict[frozenset[tuple[str, str]], Row] = {}
    share = max(1, MOST_ROWS // len(looks))
    for seen in looks:
        fit = ["" if is_reserved_column(name) else name for name in column_names(seen.names)]
        names = [name and spelling.setdefault(name.lower(), name) for name in fit]
        for record in seen.records[:share]:
            row = {name: value.strip() for name, value in zip(names, record, strict=True) if name and value.strip()}
            rows[frozenset(row.items())] = row
    return tuple(spelling.values()), tuple(rows.values())


def _infer_column_type(values: Iterable[str]) -> str:
    found = {_infer_value_type(value) for value in values}
    if found == {"BIGINT", "DOUBLE"}:
        return "DOUBLE"
    if found == {"DATE", "TIMESTAMP"}:
        return "TIMESTAMP"
    return found.pop() if len(found) == 1 else "STRING"


def _infer_value_type(value: str) -> str:
    """The type of one value. A number with leading zeros is a code: as a number it would lose them."""
    if re.fullmatch(r"(?a)[+-]?(0|[1-9]\d{0,17})", value):
        return "BIGINT"
    if re.fullmatch(r"(?a)[+-]?(0|[1-9]\d*)?\.\d+([eE][+-]?\d+)?|[+-]?[1-9]\d*([eE][+-]?\d+)", value):
        return "DOUBLE"
    if re.fullmatch(r"(?a)\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)?)?", value):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            return "STRING"
        return "DATE" if len(value) == 10 else "TIMESTAMP"
    return "STRING"
