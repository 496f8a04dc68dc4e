"""The words and signs of a SQL text, without a parser: enough to split it where no quotes, brackets or comments are in the way."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["word", "name", "text", "space", "comment", "sign"]

_TOKEN = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))
      | (?P<text>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
      | (?P<name>`(?:[^`]|``)*`)
      | (?P<word>\w+)
      | (?P<space>\s+)
      | (?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """A part of a SQL text. name: an identifier in backquotes; text: a literal in quotes."""

    kind: Kind
    text: str

    def says(self, *words: str) -> bool:
        """Whether it is one of these words or signs, however it is capitalised."""
        return self.kind in ("word", "sign") and self.text.upper() in words

    @property
    def identifier(self) -> str:
        """The name that it is, without its quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "name" else self.text


Part = tuple[Token, ...]


def split_into_tokens(text: str) -> Iterator[Token]:
    """The parts of a text, in order; put together they are the text, with a blank for each comment."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "sign"
        yield Token("space", " ") if kind == "comment" else Token(kind, found.group())  # type: ignore[arg-type]


def strip_sql_layout(text: str) -> str:
    """The text without comments, and with one blank where there are any: its layout does not count."""
    return "".join(" " if token.kind == "space" else token.text for token in _collapse_blanks(split_into_tokens(text))).strip()


def split_sql_statements(text: str) -> list[str]:
    """The statements between semicolons, as they are written; of nothing but blanks and comments there is none."""
    starts = [0, *(found.end() for found in _TOKEN.finditer(text) if found.group() == ";"), len(text) + 1]
    parts = [text[start : end - 1] for start, end in itertools.pairwise(starts)]
    return [part for part in parts if strip_sql_layout(part)]


def _collapse_blanks(found: Iterator[Token]) -> Iterator[Token]:
    after_space = False
    for token in found:
        if token.kind != "space" or not after_space:
            yield token
        after_space = token.kind == "space"


def find_bracket_end(found: Sequence[Token]) -> int:
    """Where the bracket ends that the first token opens: the position after it."""
    depth = 0
    for position, token in enumerate(found):
        depth += token.says("(") - token.says(")")
        if depth == 0:
            return position + 1
    return len(found)


def tokens_outside_brackets(found: Part) -> Part:
    """The tokens that stand in no brackets."""
    kept, depth = [], 0
    for token in found:
        depth -= token.says(")", ">")
        if depth == 0 and not token.says(")", ">"):
            kept.append(token)
        depth += token.says("(", "<")
    return tuple(one for one in kept if not one.says("(", "<"))


def find_first_word(found: Part, *words: str) -> int:
    """The position of the first of these words that stands in no brackets; the length where there is none."""
    depth = 0
    for position, token in enumerate(found):
        depth += token.says("(", "<") - token.says(")", ">")
        if depth == 0 and token.says(*words):
            return position
    return len(found)


def strip_blank_tokens(part: Part) -> Part:
    """The tokens without blanks at both ends."""
    start, end = 0, len(part)
    while start < end and part[start].kind == "space":
        start += 1
    while end > start and part[end - 1].kind == "space":
        end -= 1
    return part[start:end]


def join_tokens(part: Sequence[Token]) -> str:
    """Tokens as text."""
    return "".join(token.text for token in part).strip()
