"""Requests that arrive as data: rows of bronze that ask for the erasure of whom they name (`erasure_requests`).

They are looked for whenever their bronze table has changed. Whom somebody asked for already is not asked for again, unless it was refused;
when the erasure is done, the rows that asked are gone with the others.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import Graph
from sluice.declare.erasure.links import ErasureRequests
from sluice.declare.expansion.stored import through
from sluice.erasure import receiving, requests, vault
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.subjects.identifiers import Identifier
from sluice.errors import DeclarationError, nearest
from sluice.lake import log, tables
from sluice.lake.workspace import Workspace
from sluice.privacy import suppression, suppression_key
from sluice.privacy.pseudonyms import canonical_column, pseudonym
from sluice.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BY_ROWS = "asked by rows"
State = dict[str, str]
"""path: where a bronze table lies, so that it can be asked without the declarations (`sluice.runs.due`); mark: see `log.mark`."""


def take(workspace: Workspace) -> list[ErasureRequest]:
    """Make a request for each person in a declaration's new rows. Killed after that, it finds the same rows and makes none again."""
    settings, graph = workspace.settings, workspace.graph
    made: list[ErasureRequest] = []
    seen = _seen(settings, workspace.pipeline)
    kept = {name: state for name, state in seen.items() if name in map(_name, graph.asking)}
    for asking in graph.asking:
        now = _state(settings, graph, asking)
        if now is not None and kept.get(_name(asking)) != now:
            said = f"{_BY_ROWS} of '{asking.reads}'"
            made += _ask(workspace, _new(workspace, asking), said)
            kept[_name(asking)] = now
    if kept != seen:
        _see(settings, workspace.pipeline, kept)
    return made


def _ask(workspace: Workspace, people: Mapping[Identifier, int], said: str) -> Iterator[ErasureRequest]:
    """A request a person: one who cannot be told from others must not hold up the rest of a delivery. people: by how many rows each asks.

    What was asked by rows before and was refused is tried again; its deadline is still that of then.
    """
    settings, pipeline = workspace.settings, workspace.pipeline
    refused: dict[Identifier, ErasureRequest] = {}
    for one in requests.all_of(settings, pipeline) if people else ():
        by_rows = one.state == requests.FAILED and not one.done_at and one.history[0].note.startswith(said)
        if by_rows and len(one.pseudonyms) == 1 and vault.holds(settings, pipeline, one.request):
            refused |= dict.fromkeys(vault.asked(settings, pipeline, one.request), one)
    for person, rows in people.items():
        before = refused.get(person)
        if before is None:
            yield receiving.receive(settings, workspace.graph, [person], said=f"{said}: {rows}")
        else:
            yield requests.advance(settings, pipeline, before, requests.RECEIVED, "asked again")


def waits(settings: Settings, graph: Graph) -> bool:
    """Whether it was not yet looked for requests in what bronze has now. By the log: without Spark."""
    seen = _seen(settings, graph.pipeline.name) if graph.asking else {}
    return any(_state(settings, graph, one) not in (None, seen.get(_name(one))) for one in graph.asking)


def _state(settings: Settings, graph: Graph, asking: ErasureRequests) -> State | None:
    path = graph.location(settings, through(graph.unstored, asking.reads)[0])
    mark = log.mark(path)
    return None if mark is None else {"path": path, "mark": mark}


def _new(workspace: Workspace, asking: ErasureRequests) -> dict[Identifier, int]:
    """Who asks and has no request yet, and by how many rows."""
    column, domain = asking.identifier
    rows = _rows(workspace, asking)
    if column not in rows.columns:
        raise DeclarationError(f"{asking.owner}: it has no column '{column}'.{nearest(column, rows.columns)}")
    named = (
        rows
        .where(asking.where)
        .groupBy(canonical_column(F.col(f"`{column}`"), "text").alias("value"))
        .agg(F.count("*").alias("rows"))
    )
    told = {row.value: int(row.rows) for row in named.collect() if row.value}
    key = suppression_key.key(workspace.settings, workspace.suppression) if told else b""
    known = _asked(workspace)
    return {
        Identifier(domain, value): told[value]
        for value in sorted(told)
        if told[value] > known.get(str(pseudonym(key, domain, value)), 0)
    }


def _rows(workspace: Workspace, asking: ErasureRequests) -> DataFrame:
    """What the declaration reads, of everybody who was not erased."""
    name, passed = through(workspace.graph.unstored, asking.reads)
    source = workspace.graph.sources[name]
    rows = tables.read(workspace.session, workspace.path(name))
    subject = subjects.expression(workspace.graph, source, rows.columns)
    if subject and not suppression.is_empty(workspace):
        at = suppression.instant(rows, subjects.instant(source))
        rows = suppression.without_suppressed(workspace, rows, F.expr(subject), source.domain, at)
    for view in passed:
        rows = view(rows)
    return rows


def _asked(workspace: Workspace) -> dict[str, float]:
    """By pseudonym, how many rows ask for nothing new: all, of whom a request stands; as many as had asked, where it was taken back.

    One who was refused is asked for again: what came since may tell who is meant.
    """
    found: dict[str, float] = {}
    for one in requests.all_of(workspace.settings, workspace.pipeline):
        rows = 0.0
        if one.withdrawn_at is not None:
            by_rows = re.fullmatch(rf"{_BY_ROWS} of '.*': (\d+)", one.history[0].note)
            rows = float(by_rows.group(1)) if by_rows else 0.0
        elif one.lifted_at is None and (one.state != requests.FAILED or one.done_at):
            rows = math.inf
        for called in one.pseudonyms:
            found[called] = max(found.get(called, 0.0), rows)
    return found


def _name(asking: ErasureRequests) -> str:
    return f"{asking.reads}.{asking.identifier[0]}: {asking.where}"


def _file(settings: Settings, pipeline: str) -> Path:
    return Path(settings.bookkeeping(pipeline, "erasure_requests")) / requests.ASKED


def _seen(settings: Settings, pipeline: str) -> dict[str, Any]:
    path = _file(settings, pipeline)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def _see(settings: Settings, pipeline: str, states: Mapping[str, Any]) -> None:
    path = _file(settings, pipeline)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{requests.ASKED}.tmp")
    partial.write_text(json.dumps(states), encoding="utf-8")
    partial.replace(path)
