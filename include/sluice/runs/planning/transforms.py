"""What `sluice check --plans` finds: do transforms keep what their decorators promise, and how far a change reaches.

Transforms are called with empty frames and their query plans are looked into. No data is read and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from sluice.declare.assembly.graph import Graph
from sluice.declare.datasets.tables import Dataset, MaterializedView, Table
from sluice.declare.datasets.windowed import Windowed
from sluice.declare.ingest.field_names import delivered_columns
from sluice.declare.ingest.source import Source
from sluice.errors import SluiceError
from sluice.flows import stateful
from sluice.flows.bronze import append
from sluice.flows.gold.probe import reaches
from sluice.flows.silver import made
from sluice.flows.silver.provenance import carried
from sluice.flows.silver.winners import normalised
from sluice.flows.writing import enforced, targets
from sluice.lake import log, tables
from sluice.lake.workspace import PROVENANCE
from sluice.privacy import treatments
from sluice.privacy.anonymised import MARK
from sluice.quality import conditions, whole_table
from sluice.quality.verdicts import VERDICT, with_verdict
from sluice.runs.planning import subject_plans
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Findings:
    """What was found.

    mistakes: one a line. bounds: view, input, and by column of the view the expression over the input; reach: the one declared in
    time; without both: full recompute.

    notes: what could not be looked at, and why.
    """

    mistakes: list[str] = field(default_factory=list)
    bounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def examine(session: SparkSession, settings: Settings, graph: Graph) -> Findings:
    """Look into every transform of a pipeline, inputs first. What reads a table with a mistake is left out, with a note."""
    found = Findings()
    schemas: dict[str, StructType] = {}
    for source in (one for one in graph.sources.values() if one.into is None):
        schema = _bronze(session, settings, graph, source)
        if schema is None:
            found.notes.append(f"source '{source.name}': columns not known before the first delivery")
        else:
            schemas[source.name] = schema
    for declared in (*graph.tables.values(), *graph.streams.values(), *graph.views.values()):
        dataset = (declared.over(schemas) or declared) if isinstance(declared, MaterializedView) else declared
        missing = [name for name in dataset.reads if name not in schemas]
        if missing:
            found.notes.append(f"'{dataset.name}' was not looked into: the columns of '{missing[0]}' are not known")
            continue
        look = _table if isinstance(dataset, Table) else _stream if isinstance(dataset, Windowed) else _view
        with _noted(found, _owner(dataset)):
            schemas[dataset.name] = look(session, dataset, schemas, found)
    _computed(session, graph, schemas, found)
    found.mistakes += _whole_tables(graph, schemas)
    found.mistakes += subject_plans.mistakes(session, graph, schemas)
    found.mistakes = list(dict.fromkeys(found.mistakes))
    return found


def _bronze(session: SparkSession, settings: Settings, graph: Graph, source: Source) -> StructType | None:
    """A source's columns: those of the lake, else the declared ones; None where there are neither."""
    path = settings.table_path(graph.pipeline.name, graph.layer(source), source.name)
    if log.exists(path):
        schema = tables.read(session, path).drop(MARK).schema
        return schema if delivered_columns(schema.names) else None
    if source.ddl is None:
        return None
    return StructType([*tables.columns(source.ddl).fields, *tables.columns(append.TECHNICAL).fields])


def _table(session: SparkSession, table: Dataset[Any], schemas: Mapping[str, StructType], found: Findings) -> StructType:
    assert isinstance(table, Table)
    rows = normalised(carried(table(_empty(session, schemas[table.reads[0]])), table.name))
    enforced.check(table, rows.schema)
    schema = made.in_order(made.stored(None, table, with_verdict(rows, ())).drop(*VERDICT).schema)
    targets.check_columns(table, schema)
    found.mistakes += conditions.mistakes(session, table, rows.schema)
    return schema


def _stream(session: SparkSession, stream: Dataset[Any], schemas: Mapping[str, StructType], found: Findings) -> StructType:
    assert isinstance(stream, Windowed)
    return stateful.examined(session, stream, schemas)


def _view(session: SparkSession, view: Dataset[Any], schemas: Mapping[str, StructType], found: Findings) -> StructType:
    assert isinstance(view, MaterializedView)
    inputs = {name: _without_provenance(schemas[name]) for name in view.reads}
    rows = view(*(_empty(session, inputs[name]) for name in view.reads))
    enforced.check(view, rows.schema)
    stored = treatments.applied(None, rows, view.treatments, f"View '{view.name}'").schema
    targets.check_columns(view, stored)
    found.mistakes += conditions.mistakes(session, view, rows.schema)
    for name, reach in reaches(session, view, inputs).items():
        declared = view.reach.get(name)
        in_time = vars(declared) if declared else None
        found.bounds.append({"view": view.name, "input": name, "columns": dict(reach.columns), "reach": in_time})
    return stored


def _computed(session: SparkSession, graph: Graph, schemas: Mapping[str, StructType], found: Findings) -> None:
    """Call the views that are computed when they are read; those that they read come before them."""
    known = dict(schemas)
    for view in graph.computed.values():
        missing = [name for name in view.reads if name not in known]
        if missing:
            found.notes.append(f"@view '{view.name}' was not looked into: the columns of '{missing[0]}' are not known")
            continue
        with _noted(found, f"View '{view.name}'"):
            known[view.name] = view(*(_empty(session, _without_provenance(known[name])) for name in view.reads)).schema


def _whole_tables(graph: Graph, schemas: Mapping[str, StructType]) -> Iterator[str]:
    """What is wrong with expectations on whole tables whose columns are known."""
    for dataset in (*graph.tables.values(), *graph.views.values()):
        for rule in dataset.table_expectations if dataset.name in schemas else ():
            wrong = whole_table.mistake(rule, schemas, dataset.name)
            if wrong:
                yield f"{_owner(dataset)}, expectation '{rule.name}': {wrong}"


def _owner(dataset: Dataset[Any]) -> str:
    """As declared: an `auto_cdc` is a table to whoever declared it, and so is what is kept for it."""
    view = isinstance(dataset, MaterializedView) and dataset.of_some is None
    if isinstance(dataset, Windowed):
        return f"Stream '{dataset.name}'"
    return f"{'View' if view else 'Table'} '{dataset.serves or dataset.name}'"


@contextmanager
def _noted(found: Findings, owner: str) -> Iterator[None]:
    """Whatever is raised inside becomes a mistake, in one line."""
    try:
        yield
    except SluiceError as error:
        text = " ".join(str(error).splitlines())
        found.mistakes.append(text if text.startswith(owner) else f"{owner}: {text}")
    except PySparkException as error:
        found.mistakes.append(f"{owner}: {str(error).splitlines()[0]}")
    except Exception as error:
        found.mistakes.append(f"{owner}: its transform raised {type(error).__name__}: {error}")


def _empty(session: SparkSession, schema: StructType) -> DataFrame:
    return session.createDataFrame([], schema)


def _without_provenance(schema: StructType) -> StructType:
    return StructType([one for one in schema if one.name not in PROVENANCE])
