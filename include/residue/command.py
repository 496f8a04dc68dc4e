"""`residue`: searches files and folders for people, without Sluice.

Identifiers come from a file or standard input, one per line or as JSON. None is printed: errors give locations only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from residue.needles import build_needles
from residue.result import (
    FOUND_COLUMNS,
    UNREAD_COLUMNS,
    Needle,
    ScanResult,
    ScanRoot,
    Unread,
    count_hits_by_location,
    list_unread_files,
)
from residue.stored_files import StoredFile, is_on_store, list_stored_versions
from residue.walk import scan_roots

CLEAN, FOUND, MISUSED, INCONCLUSIVE = 0, 1, 2, 3
"""Exit codes. INCONCLUSIVE: nothing was found, but something could not be read, or an identifier was not searched for everywhere."""
_EPILOG = """\
Exit codes: 0 nothing was found, and everything was read; 1 something was found; 2 wrong use; 3 nothing was found, but something could not
be read, or an identifier is so short that it was searched for only in the columns of its kind."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Scans, prints what was found and what could not be read, and returns the exit code."""
    parser = _build_parser()
    given = parser.parse_args(arguments)
    try:
        roots = [_check_root(path) for path in given.root]
        identifiers = parse_identifiers(_read_identifiers(given.identifiers), given.domain)
        needles = build_needles(identifiers, _parse_columns(given.column), given.encoding)
        result = scan_roots(roots, needles, processes=given.processes)
    except (ValueError, LookupError) as error:  # LookupError: an encoding unknown to Python
        print(f"residue: {error}", file=sys.stderr)
        return MISUSED
    result.unread += [Unread(name, ".", "it is gone since the scan began") for name in result.missing]
    bounded = _list_bounded_columns(needles)
    if given.json:
        print(json.dumps(_describe_result(result, bounded)))
    else:
        _print_result(result, bounded)
    if result.of_person():
        return FOUND
    return INCONCLUSIVE if result.unread or bounded else CLEAN


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="residue",
        description="Search every byte of files and folders for people. Writes nothing.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("root", nargs="+", help="a file, or a folder to search with all that is below it; or s3://BUCKET/FOLDER")
    parser.add_argument(
        "--identifiers",
        type=Path,
        metavar="FILE",
        help="a file with identifiers, one per line or as JSON; standard input if not given",
    )
    parser.add_argument("--domain", help="the kind of the identifiers, such as user_id, if they are given one per line")
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        metavar="DOMAIN=NAME",
        help="a further column that holds identifiers of a kind; may be repeated",
    )
    parser.add_argument(
        "--encoding",
        action="append",
        default=[],
        help="a text encoding besides UTF-8, UTF-16, Latin-1 and CP1252; may be repeated",
    )
    parser.add_argument(
        "--processes", type=int, choices=range(1, 65), metavar="NUMBER", help="by default as many as there are cores"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _check_root(path: str) -> ScanRoot:
    """Returns a named root. One that does not exist is refused as a misspelling: it would count as clean."""
    try:
        there = any(True for _ in list_stored_versions(StoredFile.from_url(path))) if is_on_store(path) else os.path.lexists(path)
    except OSError as error:
        raise ValueError(f"{_escape_unprintable(path)} cannot be listed: {error.strerror}") from None
    if not there:
        raise ValueError(f"there is no file or folder {_escape_unprintable(path)}")
    return ScanRoot(path, path)


def _read_identifiers(path: Path | None) -> str:
    try:
        if path is not None:
            return path.expanduser().read_bytes().decode()
        if sys.stdin.isatty():
            print("Write identifiers, one per line or as JSON; end with Ctrl-D.", file=sys.stderr, flush=True)
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise ValueError("the identifiers are not UTF-8 text") from None
    except OSError as error:
        raise ValueError(f"the identifiers cannot be read: {error.strerror}") from None


def _parse_columns(given: Iterable[str]) -> dict[str, set[str]]:
    """The columns of each domain that has any: those that were named, and the one of the domain's own name."""
    found: dict[str, set[str]] = {}
    for one in given:
        domain, _, column = one.partition("=")
        if not domain or not column:
            raise ValueError(f"--column {_escape_unprintable(one)}: expected DOMAIN=NAME, such as user_id=member_id")
        found.setdefault(domain, {domain}).add(column)
    return found


def _list_bounded_columns(needles: Iterable[Needle]) -> list[str]:
    """The only columns in which some identifier was searched for as it is, because it is short enough to occur elsewhere by chance."""
    return sorted({name for one in needles if one.kind == "raw" for name in one.columns or ()})


def _describe_result(result: ScanResult, bounded: Sequence[str]) -> dict[str, Any]:
    return {
        "found": count_hits_by_location(result),
        "unread": list_unread_files(result),
        "only_in_columns": list(bounded),
        "files": result.files,
        "bytes": result.bytes,
        "seconds": round(result.seconds, 2),
    }


def _print_result(result: ScanResult, bounded: Sequence[str]) -> None:
    found, unread = count_hits_by_location(result), list_unread_files(result)
    print(
        f"{result.files} file{'' if result.files == 1 else 's'}, {result.bytes} byte{'' if result.bytes == 1 else 's'}, in {result.seconds:.1f} s."
    )
    if found:
        _print_table("Found", FOUND_COLUMNS, found)
    else:
        print("Nothing of them was found.")
    if unread:
        _print_table("Not read", UNREAD_COLUMNS, unread)
    if bounded:
        columns = ", ".join(map(_escape_unprintable, bounded))
        print(f"Some identifiers are short: in plain form they were searched for only in these columns: {columns}.")


def _print_table(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    cells = [list(columns), *([_escape_unprintable(str(row[name])) for name in columns] for row in rows)]
    widths = [max(len(line[number]) for line in cells) for number in range(len(columns))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def _escape_unprintable(text: str) -> str:
    """Puts the text on one line without control characters, which a file name may hold and a terminal would obey."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


_AT = "at"


"""Sluice's name for the instant at which an identifier was somebody's."""


def parse_identifiers(text: str, domain: str | None) -> list[tuple[str, str]]:
    """Parses identifiers into (domain, value): one per line, of one domain; or JSON like [{"user_id": "12140"}, {"email": "anna@example.com"}].

    Raises ValueError if it is neither, or has no identifier.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip()[:1] in ("[", "{"):
        found = list(_parse_json_identifiers(text))
    else:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines and not domain:
            raise ValueError("identifiers given one per line need --domain, their kind, such as user_id")
        found = [(domain or "", line) for line in lines]
    if not found:
        raise ValueError("there are no identifiers to look for")
    return found


def _parse_json_identifiers(text: str) -> Iterator[tuple[str, str]]:
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"the identifiers are not valid JSON: line {error.lineno}, column {error.colno}") from None
    for number, one in enumerate(given if isinstance(given, list) else [given], start=1):
        if not isinstance(one, dict) or not one:
            raise ValueError(f'the identifiers, entry {number}: expected an object such as {{"user_id": "12140"}}')
        for domain, value in one.items():
            yield domain, _check_json_value(number, domain, value)


def _check_json_value(number: int, domain: str, value: Any) -> str:
    if domain == _AT:
        raise ValueError(
            f"the identifiers, entry {number}: identifiers of a time ('{_AT}') are looked for by `sluice erase scan` alone, "
            "which knows how each table tells its times"
        )
    # A number with a fraction may be written differently elsewhere; true and false identify nobody.
    if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
        raise ValueError(f"the identifiers, entry {number}: expected a text or a whole number for each kind")
    return str(value)
