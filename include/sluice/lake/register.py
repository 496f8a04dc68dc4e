"""Tables by the names they have in SQL, for reading only.

They are registered as views in the session's in-memory catalog. Nothing can be written through a view, and a view can stand for
an earlier version. Making one reads the table's log, so only those are made that a query names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import AnalysisException

from sluice.errors import SluiceError, UsageError, nearest
from sluice.lake import log, versions
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Named = TypeVar("Named")
_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_CHANGING = (f"{_LOGICAL}.Command", f"{_LOGICAL}.ParsedStatement")
"""What a plan that does more than read holds. Inserts are ParsedStatements, as are some that only ask."""
_ASKING = ("Describe", "Show")
_BY_NAME = ("WithUnresolvedIdentifier", "UnresolvedIdentifier")


def check_query(session: SparkSession, text: str) -> None:
    """Raises UsageError for a text that does not parse, or that would do more than read. Runs nothing."""
    plan = _parsed(session, text)
    if plan.getClass().getSimpleName().startswith(_ASKING):
        return
    loader = plan.getClass().getClassLoader()
    jvm: Any = session._jvm
    changing = [jvm.java.lang.Class.forName(name, False, loader) for name in _CHANGING]
    for node in _nodes(plan):
        if any(kind.isInstance(node) for kind in changing):
            raise UsageError(f"{node.nodeName()} is no query. Only SELECT, WITH, VALUES, DESCRIBE and SHOW are allowed here.")


def check_reads(session: SparkSession, text: str, names: Iterable[str]) -> None:
    """Raises UsageError for a query that reads anything but these tables: others, files by their path, what a function gives.

    It keeps honest people from mistakes. Whoever runs Spark as this user reads the files, whatever a query may say.
    """
    # Names that are computed, and ways out of SQL.
    called = re.search(r"\b(identifier|reflect|try_reflect|java_method)\s*\(", text, re.IGNORECASE)
    if called:
        raise UsageError(f"A role may not call {called[1].lower()}().")
    known = {name.lower() for name in names}
    nodes = _nodes(_parsed(session, text))
    own = {node.identifier().name().lower() for node in nodes if node.nodeName() == "SubqueryAlias"}
    for node in nodes:
        kind = node.getClass().getSimpleName()
        if kind == "UnresolvedRelation":
            parts = [node.multipartIdentifier().apply(one) for one in range(node.multipartIdentifier().size())]
            name = ".".join(parts).lower()
            if name not in known and not (len(parts) == 1 and name in own):
                raise UsageError(f"'{'.'.join(parts)}' is none of the tables that this role may read.{nearest(name, known)}")
        elif kind == "UnresolvedTableValuedFunction" or kind.endswith(_BY_NAME):
            raise UsageError("A role reads its tables by their names, and no functions that give tables.")


def asks(text: str) -> bool:
    """Whether a query lists or describes tables, and reads none."""
    return re.match(r"\s*(SHOW|DESC)", text, re.IGNORECASE) is not None


def named(text: str, names: Mapping[str, Named]) -> dict[str, Named]:
    """Those of the tables that a query may name, and all for one that lists them. names: what stands for them, by '<pipeline>.<table>'."""
    if asks(text):
        return dict(names)
    words = set(re.findall(r"\w+", text.lower()))
    return {name: path for name, path in names.items() if name.lower().split(".")[1] in words}


def register(session: SparkSession, settings: Settings, names: Mapping[str, str], as_of: str | None = None) -> None:
    """Make the tables known to the session by name. names: paths by '<pipeline>.<table>'; as_of: a version, date or instant.

    Raises UsageError where a table has no such version, or as_of is neither.
    """
    for schema in sorted({name.split(".")[0] for name in names}):
        session.sql(f"CREATE SCHEMA IF NOT EXISTS `{schema}`")
    for name, path in sorted(names.items()):
        schema, table = name.split(".")
        session.sql(f"CREATE OR REPLACE VIEW `{schema}`.`{table}` AS {_selecting(name, path, as_of)}")


def version_of(session: SparkSession, name: str, path: str, as_of: str | None) -> DataFrame:
    """A table as a frame. Arguments and errors as of `register`."""
    return session.sql(_selecting(name, path, as_of))


def _selecting(name: str, path: str, as_of: str | None) -> str:
    version = "" if as_of is None else f" VERSION AS OF {_version(name, path, as_of)}"
    return f"SELECT * FROM delta.`{path}`{version}"


def asked(session: SparkSession, text: str, names: Iterable[str]) -> DataFrame:
    """The query as a frame. Raises UsageError, with the nearest name, where it does not fit the tables."""
    try:
        return session.sql(text)
    except AnalysisException as error:
        missing = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND" and missing:
            raise UsageError(
                f"There is no table '{missing}'.{nearest(missing, names) or ' No table has been made yet.'}"
            ) from None
        raise UsageError(str(error).splitlines()[0].rstrip(";")) from None


def _parsed(session: SparkSession, text: str) -> Any:
    java: Any = session._jsparkSession
    try:
        return java.sessionState().sqlParser().parsePlan(text)
    except AnalysisException as error:
        raise UsageError(" ".join(line.strip() for line in str(error).splitlines()[:2] if line.strip())) from None


def _nodes(plan: Any) -> list[Any]:
    """The plan's nodes with those of its subqueries and common table expressions."""
    found, waiting = [], [plan]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for below in (node.children(), node.subqueries(), node.innerChildren()):
            waiting += [below.apply(position) for position in range(below.size())]
    return found


def _version(name: str, path: str, as_of: str) -> int:
    """The version of a table that a version number, date or instant means."""
    if log.version(path) is None:
        raise SluiceError(f"Table '{name}' is gone.")
    return versions.meant(name, path, as_of)
