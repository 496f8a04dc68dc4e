"""A transform declared as a SQL text over the names it reads: one query, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sluice.declare.sql.tokens import split_into_tokens, split_sql_statements
from sluice.errors import DeclarationError, nearest_name_hint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
"""Functions in FROM that make rows of their arguments only; others may read tables."""


def build_sql_transform(text: str, reads: tuple[str, ...], owner: str = "A SQL text") -> Callable[..., DataFrame]:
    """The function of the frames that are read, in the order of `reads`, that gives what the text selects from them.

    Raises DeclarationError where the text is no single query or does not name what it reads; the function, which knows Spark's parser,
    where it reads anything else.
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
    """The text's one statement, without the semicolon at its end."""
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
    """Raises DeclarationError where the query reads a name that is neither in `reads` nor made in it by WITH."""
    try:
        plan = session._jsparkSession.sessionState().sqlParser().parseQuery(query)
    except Exception as error:
        if type(error).__name__ != "ParseException":  # nothing of pyspark is imported in this room
            raise
        raise DeclarationError(f"{owner}: its SQL text is no query that Spark understands: {_first_line(error)}") from None
    for name in _find_read_relations(plan, frozenset()):
        if name.lower() not in reads:
            raise DeclarationError(
                f"{owner}: its SQL text reads '{name}', which is not in its reads.{nearest_name_hint(name, reads)}"
            )


def _find_read_relations(plan: Any, made: frozenset[str]) -> Iterator[str]:
    """The names of what a parsed query reads, those apart that its WITHs make. made: by the WITHs around it, in lower case."""
    if plan.nodeName() == "UnresolvedWith":
        recursive = plan.allowRecursion()
        for name, definition in ((pair._1(), pair._2()) for pair in _list_scala_sequence(plan.cteRelations())):
            yield from _find_read_relations(definition, made | {name.lower()} if recursive else made)
            made |= {name.lower()}
    yield from (name for name in _find_own_relations(plan) if name.lower() not in made)
    for below in (*_list_scala_sequence(plan.subqueries()), *_list_scala_sequence(plan.children())):
        yield from _find_read_relations(below, made)


def _find_own_relations(plan: Any) -> Iterator[str]:
    """What this part of a query reads by itself."""
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
    """The frames as temporary views by name. What a person has under such a name is there again afterwards."""
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
