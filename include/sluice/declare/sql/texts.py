"""SQL texts of declarations: splits them into tokens without a parser, and builds the transform of one that is a query."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """A part of an SQL text. name: an identifier in backquotes; text: a literal in quotes."""

    kind: Kind
    text: str

    def says(self, *words: str) -> bool:
        """Whether it is one of these words or signs, in any case."""
        return self.kind in ("word", "sign") and self.text.upper() in words

    @property
    def identifier(self) -> str:
        """Its name without the quotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "name" else self.text


Part = tuple[Token, ...]


def split_into_tokens(text: str) -> Iterator[Token]:
    """The parts of a text, in order. Joined, they are the text with a blank for each comment."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or "sign"
        yield Token("space", " ") if kind == "comment" else Token(kind, found.group())  # type: ignore[arg-type]


def strip_sql_layout(text: str) -> str:
    """The text without comments, and with every run of blanks made one, so that layout does not count."""
    return "".join(" " if token.kind == "space" else token.text for token in _collapse_blanks(split_into_tokens(text))).strip()


def split_sql_statements(text: str) -> list[str]:
    """The statements between semicolons, as written, without those that hold only blanks and comments."""
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
    """The position after the bracket that closes the one the first token opens."""
    depth = 0
    for position, token in enumerate(found):
        depth += token.says("(") - token.says(")")
        if depth == 0:
            return position + 1
    return len(found)


def tokens_outside_brackets(found: Part) -> Part:
    """The tokens outside brackets."""
    kept, depth = [], 0
    for token in found:
        depth -= token.says(")", ">")
        if depth == 0 and not token.says(")", ">"):
            kept.append(token)
        depth += token.says("(", "<")
    return tuple(one for one in kept if not one.says("(", "<"))


def find_first_word(found: Part, *words: str) -> int:
    """The position of the first of these words outside brackets, or the length if there is none."""
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
    """Joins tokens into text."""
    return "".join(token.text for token in part).strip()


_FIRST = ("SELECT", "WITH", "FROM", "TABLE", "VALUES", "(")
_OF_ROWS = (
    "range",
    "explode",
    "explode_outer",
    "posexplode",
    "posexplode_outer",
    "inline",
    "inline_outer",
    "stack",
    "json_tuple",
)
"""Functions in FROM that make rows from their arguments alone; other functions may read tables."""


def build_sql_transform(text: str, reads: tuple[str, ...], owner: str = "A SQL text") -> Callable[..., DataFrame]:
    """Builds a function that runs the query over the frames that are read, in the order of `reads`.

    Raises DeclarationError if the text is not a single query or does not name what it reads. The function itself, which has Spark's
    parser, raises it if the query reads anything else.
    """
    query = _extract_single_query(text, owner)
    _check_mentions(query, reads, owner)

    def selected(*frames: DataFrame) -> DataFrame:
        session = frames[0].sparkSession
        _check_reads(session, query, reads, owner)
        with _register_temporary_views(session, dict(zip(reads, frames, strict=True))):
            return session.sql(query)

    return selected


def _extract_single_query(text: str, owner: str) -> str:
    """The text's only statement, without the semicolon at its end."""
    found = split_sql_statements(text)
    if len(found) != 1:
        raise DeclarationError(f"{owner}: its SQL text {'has several statements' if found else 'is empty'}; it is one query.")
    first = next(token for token in split_into_tokens(found[0]) if token.kind != "space")
    if not first.says(*_FIRST):
        raise DeclarationError(
            f"{owner}: its SQL text begins with {first.text}; it is one query, which begins with SELECT or WITH."
        )
    return found[0]


def _check_mentions(text: str, reads: tuple[str, ...], owner: str) -> None:
    words = {token.identifier.lower() for token in split_into_tokens(text) if token.kind in ("word", "name")}
    for name in reads:
        if name not in words:
            raise DeclarationError(f"{owner} reads '{name}', but its SQL text does not name it.")


def _check_reads(session: SparkSession, query: str, reads: tuple[str, ...], owner: str) -> None:
    """Raises DeclarationError if the query reads a name that is neither in `reads` nor defined by a WITH in it."""
    try:
        plan = session._jsparkSession.sessionState().sqlParser().parseQuery(query)
    except Exception as error:
        if type(error).__name__ != "ParseException":  # This room imports nothing of pyspark.
            raise
        raise DeclarationError(f"{owner}: its SQL text is no query that Spark understands: {_first_line(error)}") from None
    for name in _find_read_relations(plan, frozenset()):
        if name.lower() not in reads:
            raise DeclarationError(
                f"{owner}: its SQL text reads '{name}', which is not in its reads.{nearest_name_hint(name, reads)}"
            )


def _find_read_relations(plan: Any, made: frozenset[str]) -> Iterator[str]:
    """The names that a parsed query reads, except those its WITHs define. made: the names of the WITHs around it, in lower case."""
    if plan.nodeName() == "UnresolvedWith":
        recursive = plan.allowRecursion()
        for name, definition in ((pair._1(), pair._2()) for pair in _list_scala_sequence(plan.cteRelations())):
            yield from _find_read_relations(definition, made | {name.lower()} if recursive else made)
            made |= {name.lower()}
    yield from (name for name in _find_own_relations(plan) if name.lower() not in made)
    for below in (*_list_scala_sequence(plan.subqueries()), *_list_scala_sequence(plan.children())):
        yield from _find_read_relations(below, made)


def _find_own_relations(plan: Any) -> Iterator[str]:
    """The names that this part of a query reads directly."""
    kind = plan.nodeName()
    if kind == "UnresolvedRelation":
        yield ".".join(str(part) for part in _list_scala_sequence(plan.multipartIdentifier()))
    elif kind == "RelationTimeTravel":
        yield from _find_own_relations(plan.relation())
    elif kind == "PlanWithUnresolvedIdentifier":
        yield "IDENTIFIER(...)"
    elif kind == "UnresolvedTableValuedFunction" and (name := str(plan.name().last()).lower()) not in _OF_ROWS:
        yield f"{name}(...)"


@contextmanager
def _register_temporary_views(session: SparkSession, frames: dict[str, DataFrame]) -> Iterator[None]:
    """Registers the frames as temporary views by name. A view that the user already had under such a name is restored afterwards."""
    catalog = session._jsparkSession.sessionState().catalog()
    before = {name: session.table(name) for name in frames if catalog.getTempView(name).isDefined()}
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    try:
        yield
    finally:
        for name in frames:
            session.catalog.dropTempView(name)
        for name, frame in before.items():
            frame.createOrReplaceTempView(name)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _list_scala_sequence(sequence: Any) -> list[Any]:
    return [sequence.apply(position) for position in range(sequence.size())]
