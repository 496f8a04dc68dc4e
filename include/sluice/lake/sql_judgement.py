"""Judges whether a query of `sluice sql` is allowed: when it is parsed, before Spark looks anything up, and again when it is analysed.

Judging only after analysis would be too late: analysis runs EXECUTE IMMEDIATE and opens paths. The plan that was judged is the plan that
runs; no text is parsed twice. Every field of every node is inspected; sluice.lake.sql_allowed lists what may be there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import JavaObject
from pyspark.errors import AnalysisException

from sluice.errors import UsageError, nearest_name_hint
from sluice.lake.sql_allowed import ASKING, EXPRESSIONS, FUNCTIONS, LISTING, NODES, TABLE_FUNCTIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HINT = "Allowed are SELECT, WITH, VALUES, EXPLAIN, DESCRIBE and SHOW TABLES over tables by their names; docs/security.md has the whole list."
_CATALYST = "org.apache.spark.sql.catalyst"
_VALUES = ("org.apache.spark.sql.types.", "org.apache.spark.unsafe.types.")
"""Packages of types and values, which hold no part of a plan."""
_ABOUT_QUERY = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
"""Statements about a query, and the field that holds the query."""


@dataclass(frozen=True)
class ParsedQuery:
    """A query that is allowed as it is written. relations: the names that it reads, as written. lists: whether it lists tables."""

    plan: Any
    relations: frozenset[str]
    lists: bool


def parse_allowed_query(session: SparkSession, text: str) -> ParsedQuery:
    """Parses a text. Raises UsageError if it is not a query or holds something that no query may hold. Looks nothing up."""
    java: Any = session._jsparkSession
    try:
        plan = java.sessionState().sqlParser().parsePlan(text)
    except AnalysisException as error:
        raise UsageError(" ".join(line.strip() for line in str(error).splitlines()[:2] if line.strip())) from None
    return judge_parsed_plan(session, plan)


def judge_parsed_plan(session: SparkSession, plan: Any) -> ParsedQuery:
    """Judges a parsed plan as `parse_allowed_query` does."""
    walk = _PlanWalk(session, NODES | ASKING | LISTING)
    walk.judge(plan)
    return ParsedQuery(plan, frozenset(walk.relations), plan.getClass().getName() in LISTING)


def check_query_relations(query: ParsedQuery, known: Iterable[str], role: str | None = None) -> frozenset[str]:
    """Returns the known names that the query reads, or all of them if it lists tables. Raises UsageError if it reads any other.

    role: the role that knows these names; a role may not list tables.
    """
    by_name = {name.lower(): name for name in known}
    if query.lists and role:
        may_read = ", ".join(sorted(by_name.values())) or "nothing yet"
        raise UsageError(f"The role '{role}' may read: {may_read}. It lists nothing.")
    for name in sorted(query.relations):
        if name.lower() not in by_name and role:
            raise UsageError(
                f"'{name}' is none of the tables that this role may read.{nearest_name_hint(name, by_name.values())}"
            )
        if name.lower() not in by_name:
            none = nearest_name_hint(name, by_name.values()) or (" No table has been made yet." if not by_name else "")
            raise UsageError(f"There is no table '{name}'.{none}")
    return frozenset(by_name.values() if query.lists else (by_name[name.lower()] for name in query.relations))


def analyse_query(session: SparkSession, query: ParsedQuery, known: Iterable[str]) -> DataFrame:
    """Returns the query as a frame. Raises UsageError if it does not fit the tables, or if analysis added something that is not allowed.

    known: the names that may be read, which are views in the session's catalog.
    """
    from pyspark.sql import DataFrame

    java: Any = session._jsparkSession
    jvm: Any = session._jvm
    about = _ABOUT_QUERY.get(query.plan.getClass().getSimpleName())
    try:
        if about or query.plan.getClass().getName() not in ASKING | LISTING:
            inner = getattr(query.plan, about)() if about else query.plan
            unexecuted = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
            analysed = java.sessionState().executePlan(inner, unexecuted).analyzed()
            _PlanWalk(session, NODES, frozenset(name.lower() for name in known)).judge(analysed)
        return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, query.plan), session)
    except AnalysisException as error:
        raise UsageError(str(error).splitlines()[0].rstrip(";")) from None


class _PlanWalk:
    """A walk through a plan. nodes: the allowed ones. views: the names that an analysed plan may read, in lower case."""

    def __init__(self, session: SparkSession, nodes: frozenset[str], views: frozenset[str] = frozenset()) -> None:
        self.relations: set[str] = set()
        self._jvm: Any = session._jvm
        self._loader = session._jsparkSession.getClass().getClassLoader()
        self._nodes, self._views = nodes, views
        self._kinds: dict[str, str] = {}

    def judge(self, plan: Any) -> None:
        """Raises UsageError for the first part that is not allowed."""
        waiting: list[tuple[Any, frozenset[str]]] = [(plan, frozenset())]
        while waiting:
            part, ctes = waiting.pop()
            if not isinstance(part, JavaObject):
                continue
            name = str(part.getClass().getName())
            if name == f"{_CATALYST}.plans.logical.UnresolvedWith":
                waiting += _walk_with_definitions(part, ctes)
            else:
                waiting += [(below, ctes) for below in self._inside(part, name, ctes)]

    def _inside(self, part: Any, name: str, ctes: frozenset[str]) -> Iterable[Any]:
        """Returns what a part holds. Raises UsageError if the part is not allowed."""
        kind = self._kind(part, name)
        short = name.rpartition(".")[2]
        if kind == "node" and name not in self._nodes:
            raise UsageError(f"{short.rstrip('$')} is no query or part of one that is allowed here. {_HINT}")
        if kind == "expression" and name not in EXPRESSIONS and name not in _allowed_function_classes(self._jvm):
            raise UsageError(f"The expression {short.rstrip('$')} is not allowed here. {_HINT}")
        if kind == "collection":
            return _iterate_jvm(part.iterator())
        if short in _CHECKED and kind in ("node", "expression"):
            return _CHECKED[short](self, part, ctes)
        if kind == "replaceable":
            return _iterate_jvm(part.parameters().iterator())
        return _iterate_jvm(part.productIterator()) if kind != "value" else ()

    def _kind(self, part: Any, name: str) -> str:
        if name not in self._kinds:
            self._kinds[name] = self._kind_of_class(part, name)
        return self._kinds[name]

    def _kind_of_class(self, part: Any, name: str) -> str:
        if name.startswith(_VALUES):
            return "value"
        if self._is(part, f"{_CATALYST}.expressions.Expression"):
            # Spark itself chose what replaces the function; the user wrote its parameters.
            inherits = self._is(part, f"{_CATALYST}.expressions.InheritAnalysisRules")
            allowed = name in EXPRESSIONS or name in _allowed_function_classes(self._jvm)
            return "replaceable" if inherits and allowed else "expression"
        if self._is(part, f"{_CATALYST}.trees.TreeNode"):
            return "node"
        if self._is(part, "scala.collection.Iterable"):
            return "collection"
        return "product" if self._is(part, "scala.Product") else "value"

    def _is(self, part: Any, name: str) -> bool:
        return bool(self._jvm.java.lang.Class.forName(name, False, self._loader).isInstance(part))

    def _function(self, part: Any, ctes: frozenset[str]) -> Iterable[Any]:
        parts = [str(one) for one in _iterate_jvm(part.nameParts().iterator())]
        _check_function_allowed(parts, FUNCTIONS)
        return _iterate_jvm(part.productIterator())

    def _generator(self, part: Any, ctes: frozenset[str]) -> Iterable[Any]:
        name = part.name()
        _check_function_allowed([*(["?"] if name.database().isDefined() else []), str(name.funcName())], TABLE_FUNCTIONS)
        return _iterate_jvm(part.productIterator())

    def _table_function(self, part: Any, ctes: frozenset[str]) -> Iterable[Any]:
        _check_function_allowed([str(one) for one in _iterate_jvm(part.name().iterator())], TABLE_FUNCTIONS)
        return _iterate_jvm(part.productIterator())

    def _relation(self, part: Any, ctes: frozenset[str]) -> Iterable[Any]:
        name = ".".join(str(one) for one in _iterate_jvm(part.multipartIdentifier().iterator()))
        if part.getClass().getSimpleName() == "UnresolvedRelation" and (part.options().size() or part.isStreaming()):
            raise UsageError(f"'{name}' is read with options or as a stream, which is not allowed here. {_HINT}")
        if name.lower() not in ctes:
            self.relations.add(name)
        return ()

    def _view(self, part: Any, ctes: frozenset[str]) -> Iterable[Any]:
        identifier = part.desc().identifier()
        database = identifier.database()
        name = f"{database.get() if database.isDefined() else ''}.{identifier.table()}"
        if part.isTempView() or name.lower() not in self._views:
            raise UsageError(f"'{name.lstrip('.')}' may not be read here. {_HINT}")
        return ()  # Sluice wrote what the view is made of, not the query's author

    def _rows(self, part: Any, ctes: frozenset[str]) -> Iterable[Any]:
        return _iterate_jvm(part.output().iterator())  # values, of which there may be many


@lru_cache(maxsize=1)
def _allowed_function_classes(jvm: Any) -> frozenset[str]:
    """Returns the expression classes of the allowed functions."""
    registry = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    identifier = jvm.org.apache.spark.sql.catalyst.FunctionIdentifier
    found = [registry.lookupFunction(identifier(name)) for name in sorted(FUNCTIONS)]
    return frozenset(str(one.get().getClassName()) for one in found if one.isDefined())


_CHECKED = {
    "UnresolvedFunction": _PlanWalk._function,
    "UnresolvedGenerator": _PlanWalk._generator,
    "UnresolvedTableValuedFunction": _PlanWalk._table_function,
    "UnresolvedRelation": _PlanWalk._relation,
    "UnresolvedTableOrView": _PlanWalk._relation,
    "View": _PlanWalk._view,
    "LocalRelation": _PlanWalk._rows,
}
"""Parts that are judged by their names, by class."""


def _check_function_allowed(parts: list[str], allowed: frozenset[str]) -> None:
    name = ".".join(parts)
    if name.lower() not in allowed:
        close = get_close_matches(name.lower(), allowed, 1, 0.8)  # if both functions exist, neither is a misspelling of the other
        raise UsageError(f"The function {name}() is not allowed here.{f' Did you mean {close[0]}()?' if close else ''} {_HINT}")


def _walk_with_definitions(part: Any, ctes: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """Yields the definitions of a WITH and its query, each with the names that are defined around it."""
    recursive = part.allowRecursion()
    for pair in _iterate_jvm(part.cteRelations().iterator()):
        own = str(pair.productElement(0)).lower()
        yield pair, ctes | {own} if recursive else ctes
        ctes |= {own}
    yield part.child(), ctes


def _iterate_jvm(iterator: Any) -> list[Any]:
    found = []
    while iterator.hasNext():
        found.append(iterator.next())
    return found
