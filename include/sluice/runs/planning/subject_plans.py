"""What of subjects, links and requests can be known to be wrong once the columns of tables are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from sluice.declare.assembly.graph import Graph
from sluice.declare.expansion.stored import through
from sluice.declare.ingest.source import Source
from sluice.errors import nearest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def mistakes(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType]) -> list[str]:
    """All mistakes, one a text. schemas: of the tables whose columns are known, by name."""
    return [*_times(session, graph, schemas), *_links(graph, schemas), *_asking(session, graph, schemas)]


def _times(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    for declared in graph:
        schema = schemas.get(declared.name)
        if schema is None:
            continue
        owner = f"{'source' if isinstance(declared, Source) else 'table'} '{declared.name}'"
        if isinstance(declared, Source) and declared.subject_in:
            try:
                _empty(session, schema).select(F.expr(declared.subject_in).cast("string"))
            except AnalysisException as error:
                yield f"{owner}: subject_in cannot be read: {_first_line(error)}"
        if declared.subject_at is None:
            continue
        try:
            kind = _empty(session, schema).select(F.expr(declared.subject_at)).schema[0].dataType.typeName()
        except AnalysisException as error:
            yield f"{owner}: subject_at cannot be read: {_first_line(error)}"
            continue
        if kind not in ("timestamp", "timestamp_ntz", "date", "void"):
            yield f"{owner}: subject_at gives {kind.upper()}; of what time a row tells is a TIMESTAMP, as in subject_at='timestamp_seconds(time)'."


def _links(graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    for link in graph.links:
        if link.table in schemas:
            wanted = (link.person[0], link.identifier[0], *((link.since,) if link.since else ()))
            yield from _lacking(link.owner, wanted, schemas[link.table].names)


def _asking(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    for asking in graph.asking:
        name, passed = through(graph.unstored, asking.reads)
        if name not in schemas:
            continue
        try:
            rows = _empty(session, schemas[name])
            for view in passed:
                rows = view(rows)
            yield from _lacking(asking.owner, (asking.identifier[0],), rows.where(asking.where).columns)
        except AnalysisException as error:
            yield f"{asking.owner}: its condition cannot be read: {_first_line(error)}"


def _lacking(owner: str, wanted: Iterable[str], names: list[str]) -> Iterator[str]:
    for name in wanted:
        if name not in names:
            yield f"{owner}: it has no column '{name}'.{nearest(name, names)}"


def _first_line(error: AnalysisException) -> str:
    return str(error).splitlines()[0]


def _empty(session: SparkSession, schema: StructType) -> DataFrame:
    return session.createDataFrame([], schema)
