"""Recognises erased people's names in bytes that nothing attributes to anybody: records and files that nobody could read.

A short number or text occurs in many records by chance, so it counts as a name only beside the name of a column of its kind, or as a whole
field where fields have no names.

A record may be encoded: `written_forms` undoes that. The scan reads such records by code of its own, and shares nothing with this module or that one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sluice.declare.ingest.file_formats import CsvDialect
from sluice.erasure.steps import written_forms
from sluice.locations import Location

_WORD = re.compile(rb"[0-9A-Za-z]+")
_WORD_GOES_ON = re.compile(rb"[0-9a-z_]")
_COLUMN_NAME = re.compile(rb"[a-z_][a-z0-9_ .-]*")
_TEXT_ENDS = re.compile(rb"[\"'\s,;}\])<&|\\]|[.:!?](?:\s|\Z)|\Z")
_WRITTEN_NUMBER = re.compile(rb"[+-]?[0-9]+(?:\.[0-9]+(?:e[0-9]+)?)?")
_AROUND_SIGN = rb"[\"'\\]{0,16}(?:\s|\\{1,8}[nrt]){0,128}[:=>]{1,2}(?:\s|\\{1,8}[nrt]){0,128}"
"""What may end a line between a name and its value, as JSON is written for people: a sign and blanks, escaped or not."""
_LIST_BEGINS = re.compile(
    rb"(?:" + _AROUND_SIGN + rb"[^a-z0-9\n\[(]{0,16}|[^a-z0-9\n\[(]{1,16}[ \t]{0,128})(?:in[^a-z0-9\n\[(]{0,4})?[\[(]"
)
_LIST_PART = re.compile(rb"""(?s)\\.|(["'])(?:(?!\1)[^\\]|\\.)*(?:\1(?=\s*(?:[,:\])}]|\Z))|\Z)|[\[\]()]""")
"""What bears on where a list ends: brackets, and the quoted texts that may hold some. One ends before a mark, or is cut off."""
_NESTED_ELEMENT = re.compile(rb"(?:\A|[,\[(])([^,\[\]()]*)")
_LONGEST_LIST = 100_000
_LONGEST_ELEMENT = 200


@dataclass(frozen=True)
class ErasedNames:
    """The names to search for, folded: by their first letters and digits, the whole names and the offset of those within them.

    Letters outside ASCII count as boundaries of a word; names made only of them are found wherever they occur.
    """

    by_first: Mapping[bytes, Sequence[tuple[bytes, int]]] = field(default_factory=dict, repr=False)
    short: frozenset[tuple[bytes, bytes]] = field(default=frozenset(), repr=False)
    """Short numbers and texts, folded, each after a column that it may stand beside."""
    phones: frozenset[bytes] = field(default=frozenset(), repr=False)
    """Telephone numbers, of digits alone, that a text may write in groups."""
    encodings: tuple[str, ...] = ()
    """Text encodings to try with a whole file, besides the usual ones."""

    def __bool__(self) -> bool:
        """Whether there is anybody to search for."""
        return bool(self.by_first or self.short)

    def are_in_bytes(self, content: bytes) -> bool:
        """Whether one of them occurs as a whole word, in any letter case, or a short one beside its column's name.

        Escapes and base64 are decoded.
        """
        return any(map(self._stand_in, written_forms.decode_possible_texts(content)))

    def _stand_in(self, content: bytes) -> bool:
        lowered = written_forms.fold_letters(content)
        other = any(name in lowered for name, _ in self.by_first.get(b"", ()))
        near = self._near(lowered) if self.by_first else ()
        return (
            other
            or any(_is_whole_word(lowered, found.start() - before, name) for found, name, before in near)
            or self._beside(lowered)
            or (bool(self.phones) and any(number in self.phones for number in written_forms.join_grouped_digits(lowered)))
        )

    def are_in_record(self, record: bytes, dialect: CsvDialect | None = None) -> bool:
        """Whether one of them occurs in a single record, as for `are_in_bytes`.

        In a record without names, a short number or text counts in a field of its own as well.

        dialect: how its fields are separated, if its source says so; in other records another character may do that.
        """
        if self.are_in_bytes(record):
            return True
        row = written_forms.fold_letters(written_forms.strip_byte_order_mark(record))
        return written_forms.may_be_rows(row) and self._have_short(
            written_forms.split_fields(row, written_forms.choose_delimiters(row, dialect))
        )

    def _have_short(self, fields: Iterable[bytes]) -> bool:
        """Whether a short value is one of these fields, in whichever column."""
        return any(value in self._short_values for field in fields for value in written_forms.list_field_values(field))

    @cached_property
    def _short_values(self) -> frozenset[bytes]:
        return frozenset(value for _, value in self.short)

    def _beside(self, lowered: bytes) -> bool:
        named = self._named.finditer(lowered) if self._named else ()
        searched: dict[bytes, int] = {}
        return any(self._begins_short(lowered, found) or self._lists_short(lowered, found, searched) for found in named)

    def _lists_short(self, lowered: bytes, named: re.Match[bytes], searched: dict[bytes, int]) -> bool:
        """Whether a short value of a column is in the list that follows its name. searched: by column, up to where lists are done.

        A list that nothing closes goes on over others of its column, of which only the first element is then new.
        """
        begun = _LIST_BEGINS.match(lowered, named.end(1))
        if not begun:
            return False
        if begun.end() < searched.get(named[1], 0):
            elements = [
                lowered[begun.end() : begun.end() + _LONGEST_ELEMENT].partition(b",")[0].partition(b"]")[0].partition(b")")[0]
            ]
        else:
            end = searched[named[1]] = _find_list_end(lowered, begun.end())
            listed = lowered[begun.end() : end]
            elements = [*listed.split(b","), *_NESTED_ELEMENT.findall(listed)]
        return any((named[1], element.strip(written_forms.AROUND_ELEMENTS)) in self.short for element in elements)

    def _begins_short(self, lowered: bytes, named: re.Match[bytes]) -> bool:
        """Whether a short value of a column follows its name as a whole word; of a text, as all of it: `jan` is not `jan.kowalski`.

        It may begin with a sign or with a letter outside ASCII.
        """
        starts = (named.end(), *range(named.end(1) + 1, named.end())) if self._odd_beginnings else (named.end(),)
        return any(
            (named[1], lowered[start : start + length]) in self.short and _ends_value(lowered, start, start + length)
            for start in starts
            for length in self._short_lengths
        )

    @cached_property
    def _short_lengths(self) -> tuple[int, ...]:
        return tuple(sorted({len(value) for value in self._short_values}))

    @cached_property
    def _odd_beginnings(self) -> bool:
        return any(not _WORD.match(value) for value in self._short_values)

    @cached_property
    def _named(self) -> re.Pattern[bytes] | None:
        columns = b"|".join(
            re.escape(name) for name in sorted({name for name, _ in self.short}, key=lambda name: (-len(name), name))
        )
        between = rb"(?:" + _AROUND_SIGN + rb"[^a-z0-9\n]{0,16}|[^a-z0-9\n]{1,16}[ \t]{0,128})"
        return re.compile(rb"(?<![a-z0-9_])(" + columns + rb")" + between) if columns else None

    def _are_in_rows(self, content: bytes) -> bool:
        """Whether a short value is a field of delimited text: in its column, or in any where the fields have no names."""
        if not self.short or not written_forms.may_be_rows(content):
            return False
        lines = written_forms.fold_letters(content).splitlines()
        mark = written_forms.find_usual_delimiter(lines[0]) if lines else ""
        header = written_forms.split_fields(lines[0], mark) if lines else []
        named = [self._short_by_column.get(name, frozenset()) for name in header]
        has_names = any(named) or all(map(_COLUMN_NAME.fullmatch, header))
        for line in lines:
            fields = written_forms.split_fields(line, mark)
            if has_names and len(fields) == len(header):
                if any(
                    not values.isdisjoint(written_forms.list_field_values(field))
                    for field, values in zip(fields, named, strict=True)
                ):
                    return True
            elif self._have_short(fields) or self._have_short(
                written_forms.split_fields(line, written_forms.find_usual_delimiter(line))
            ):
                return True
        return False

    @cached_property
    def _short_by_column(self) -> Mapping[bytes, frozenset[bytes]]:
        found = defaultdict[bytes, set[bytes]](set)
        for column, value in self.short:
            found[column].add(value)
        return {column: frozenset(values) for column, values in found.items()}

    def _near(self, lowered: bytes) -> Iterator[tuple[re.Match[bytes], bytes, int]]:
        """Finds where words begin as a name does, so that each word is looked up once, however many names there are."""
        for found in _WORD.finditer(lowered):
            for name, before in self.by_first.get(found.group(), ()):
                yield found, name, before

    def are_in(self, path: Location) -> bool:
        """Whether a file names one of them, as it is or, for a compressed and perhaps damaged one, in what can still be read of it."""
        if not self:
            return False
        try:
            return self.are_in_content(path.read_bytes())
        except OSError:
            return False

    def are_in_content(self, content: bytes) -> bool:
        """Whether one of them occurs in a whole file's bytes, in whichever encoding, as text or as a field of a row."""
        return any(
            self.are_in_bytes(text) or self._are_in_rows(text)
            for text in written_forms.decode_whole_file(content, self.encodings)
        )


def index_erased_names(
    values: Iterable[str],
    beside: Iterable[tuple[str, str]] = (),
    encodings: Iterable[str] = (),
    phones: Iterable[str] = (),
) -> ErasedNames:
    """Indexes these identifiers. beside: the columns that each may stand beside, which short ones need. encodings: see `ErasedNames`.

    phones: those of a domain of telephone numbers, which may be written in groups though they are given as digits alone. Any other number
    would be found in times, addresses and coordinates of other people.
    """
    by_first: dict[bytes, list[tuple[bytes, int]]] = {}
    texts = list(values)
    long = {form for value in texts for form, is_short in written_forms.list_search_forms(value) if not is_short}
    for name in sorted({written_forms.fold_letters(value.encode()) for value in long}):
        first = _WORD.search(name)
        by_first.setdefault(first.group() if first else b"", []).append((name, first.start() if first else 0))
    short = {
        (written_forms.fold_letters(column.rpartition(".")[2].encode()), written_forms.fold_letters(text.encode()))
        for column, value in beside
        for text, is_short in written_forms.list_search_forms(value)
        if text and is_short
    }
    grouped = [*(written_forms.find_phone_digits(value) for value in texts), *map(written_forms.keep_digits, phones)]
    numbers = frozenset(digits.encode() for digits in grouped if digits and len(digits) >= written_forms.LEAST_DIGITS)
    return ErasedNames(by_first, frozenset(short), numbers, tuple(sorted(encodings)))


def _find_list_end(content: bytes, start: int) -> int:
    """Where a list ends whose elements begin there: at the bracket that closes it, those in quoted texts aside, or at the greatest length."""
    opening, depth, limit = content[start - 1 : start], 1, min(start + _LONGEST_LIST, len(content))
    closing = b"]" if opening == b"[" else b")"
    for part in _LIST_PART.finditer(content, start, limit):
        depth += (part[0] == opening) - (part[0] == closing)
        if not depth:
            return part.start()
    return limit


def _ends_value(content: bytes, start: int, end: int) -> bool:
    """Whether what stands there goes on no further: a number may be followed by any mark, a text by one that ends it."""
    if _WRITTEN_NUMBER.fullmatch(content, start, end):
        return not _WORD_GOES_ON.match(content, end)
    return _TEXT_ENDS.match(content, end) is not None


def _is_whole_word(content: bytes, start: int, name: bytes) -> bool:
    """Whether a name is there, with no letter or digit beside it."""
    end = start + len(name)
    beside = content[max(start - 1, 0) : max(start, 0)] + content[end : end + 1]
    return start >= 0 and content[start:end] == name and _WORD.search(beside) is None
