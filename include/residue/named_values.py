"""Values that belong to a column by its name: right behind it, or as elements of the list that it names, in a text of any syntax.

Texts may be cut off or broken, so nothing is parsed: a list ends at its bracket, where the list of another name begins, or with the text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection

WINDOW = 640
"""How many bytes before a value, or a list, may hold its column's name."""
LONGEST_LIST = 1 << 16
"""How many bytes of a list are kept for what comes next. Within bytes that are searched at once it may have any length."""

_BLANK = rb"(?:\s|\\{1,8}[nrt])"
_SIGN = rb"[\"'\\]{0,16}" + _BLANK + rb"{0,128}[:=>]{1,2}" + _BLANK + rb"{0,128}"
"""What may be followed, or preceded, by the end of a line, as in JSON that was written for people. A few repetitions, so that it ends."""
_NUMBERED = rb"(?:#[0-9]+l?)?"
_BESIDE = _NUMBERED + rb"(?:" + _SIGN + rb"[^a-z0-9\n]{0,16}|[^a-z0-9\n]{1,16}[ \t]{0,128}[\"'\\]{0,16})(?:in[^a-z0-9\n]{1,4})?\Z"
"""What may stand between a name and its value: `":`, `\\":\\"`, `=`, `#12L = `, `: [`, ` IN (`."""
_BEGINNING = (
    _NUMBERED + rb"(?:" + _SIGN + rb"[^a-z0-9\n\[(]{0,16}|[^a-z0-9\n\[(]{0,16}[ \t]{0,128})(?:in[^a-z0-9\n\[(]{0,4})?[\[(]"
)
"""The same between a name and the elements of its list."""
_NO_WORD = bytes(code for code in range(256) if not chr(code).isalnum() or code > 0x7F)
_ESCAPED_OR_NUMBERED = re.compile(rb"(?:\\[nrt]|#[0-9]+l?)\Z")
_BLANKS_AND_QUOTES = b" \t\r\n\"'\\"
_MARKS = {b"[": re.compile(rb"\\*[\"']|[\[\]]"), b"(": re.compile(rb"\\*[\"']|[()]")}


class ColumnNames:
    """The names of columns, compiled for searching in lower case."""

    def __init__(self, names: Collection[str]) -> None:
        any_name = rb"(?<![a-z0-9_])(" + b"|".join(re.escape(name.encode()) for name in sorted(names)) + rb")"
        self.before_value = re.compile(any_name + _BESIDE)
        self._ends = tuple(name.encode() for name in names)
        self._all_end_in_words = all(re.search(rb"[a-z0-9]\Z", name) for name in self._ends)
        self.list_begins = re.compile(any_name + _BEGINNING)

    def find_beside(self, before: bytes) -> bytes | None:
        """The name right before a value, by the bytes before that."""
        words = before.rstrip(_NO_WORD)
        # A search from every position takes long, and what stands between ends with a letter or a digit in few syntaxes.
        if self._all_end_in_words and not (words.endswith((*self._ends, b"in")) or _ESCAPED_OR_NUMBERED.search(words[-24:])):
            return None
        found = self.before_value.search(before)
        return found[1] if found else None

    def find_open_list(self, data: bytes) -> int | None:
        """Where the name of a list stands that has not ended with the data, so that its elements may be among what follows."""
        end = data[-LONGEST_LIST:].lower()
        begun = list(self.list_begins.finditer(end)) if b"[" in end or b"(" in end else []
        if not begun or _find_list_end(end, begun[-1].end(), len(end)) < len(end):
            return None
        return len(data) - len(end) + begun[-1].start()


class NamedValues:
    """A text in lower case, for asking which columns its values belong to. Its lists are searched once a value may be in one."""

    def __init__(self, names: ColumnNames, data: bytes) -> None:
        self._names, self._data = names, data
        self._lists: tuple[list[int], list[int], list[bytes]] | None = None

    def find_columns(self, start: int) -> set[str]:
        """The names of the columns that the value at a position may belong to."""
        before = self._data[max(0, start - WINDOW) : start]
        beside = self._names.find_beside(before)
        found = set() if beside is None else {beside}
        if _is_element(before):
            begins, ends, names = self._lists = self._lists or self._find_lists()
            position = bisect_right(begins, start) - 1
            if position >= 0 and start < ends[position]:
                found.add(names[position])
        return {name.decode() for name in found}

    def _find_lists(self) -> tuple[list[int], list[int], list[bytes]]:
        """Where lists of columns begin and end, and their names."""
        data = self._data
        may_have = b"[" in data or b"(" in data
        found = list(self._names.list_begins.finditer(data)) if may_have else []
        # Each list is read up to the next name only: where nothing closes them, each to the end would take for ever.
        limits = [*(one.start() for one in found), len(data)][1:]
        ends = [_find_list_end(data, one.end(), limit) for one, limit in zip(found, limits, strict=True)]
        return [one.end() for one in found], ends, [one[1] for one in found]


def _is_element(before: bytes) -> bool:
    """Whether a value after these bytes stands where elements of a list do, perhaps in quotes and on a line of its own."""
    before = before.rstrip(_BLANKS_AND_QUOTES)
    while before[-1:] in (b"n", b"r", b"t") and before[-2:-1] == b"\\":
        before = before[:-1].rstrip(_BLANKS_AND_QUOTES)
    return before[-1:] in (b",", b"[", b"(")


def _find_list_end(data: bytes, start: int, limit: int) -> int:
    """Where a list ends whose elements begin at a position. Brackets in quoted texts count for nothing.

    Within JSON in JSON all quotes are escaped; there and elsewhere, one that is escaped more often than the first is part of a text.
    """
    opening = data[start - 1 : start]
    depth, within, first = 1, False, b""
    for found in _MARKS[opening].finditer(data, start, limit):
        mark = found.group()
        if mark[-1:] in (b'"', b"'"):
            first = first or mark
            escapes = len(first) - 1
            same = mark[-1] == first[-1] and (len(mark) - 1) % (2 * (escapes + 1)) == escapes
            within = within != same
        elif not within:
            depth += 1 if mark == opening else -1
            if not depth:
                return found.start()
    return limit
