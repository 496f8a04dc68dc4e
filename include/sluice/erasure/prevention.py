"""Is nothing of anybody where no erasure could take it away? Every log of the lake is looked into, from its first file on.

A value that got into statistics, a folder's name, the layout of files or the text of a condition stays in the log for weeks, whatever becomes
of the row. So it must never get there: `sluice check` refuses declarations that would let it, and this looks at what is there. Without a JVM.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sluice.declare.assembly.graph import Graph
from sluice.declare.ingest.source import Source
from sluice.erasure import conditions
from sluice.lake import actions
from sluice.lake.actions import Action
from sluice.lake.places import OfPipeline
from sluice.lake.workspace import has_quarantine
from sluice.settings import Settings

RETENTIONS = ("delta.deletedFileRetentionDuration", "delta.logRetentionDuration")
STATISTICS = "delta.dataSkippingStatsColumns"
QUARANTINE = frozenset({"record", "content", "made", "_subject"})
_CANARY = "_sluice/canary"
_NOTE = {"sluice", "run", "mode", "flow", "deliveries", "inputs", "lifted"}
_CONDITIONS = ("predicate", "matchedPredicates", "notMatchedPredicates", "notMatchedBySourcePredicates")


@dataclass(frozen=True)
class Finding:
    """Something of a table's log that no erasure reaches. file: the first of the log's that has it; files: how many have."""

    table: str
    what: str
    file: str = ""
    files: int = 1

    def __str__(self) -> str:
        more = f" and {self.files - 1} more" if self.files > 1 else ""
        return f"Table '{self.table}': {self.what}{f' ({self.file}{more})' if self.file else ''}"


def of_lake(settings: Settings, graph: Graph) -> list[Finding]:
    """What is found in all tables of a pipeline that are there, also in those that nobody declared."""
    known, pipeline = private(settings, graph), graph.pipeline.name
    everything = frozenset().union(*known.values()) | QUARANTINE
    found: list[Finding] = []
    for root in (Path(settings.lake), Path(settings.restricted)):
        for table in actions.tables(root / pipeline):
            if table.is_relative_to(root / pipeline / _CANARY):
                continue  # made up, to be found by the scan
            # Of a table that nobody declared, whatever is personal anywhere may be.
            found += of_table(str(table), str(table.relative_to(root)), known.get(str(table), everything))
    return found


def private(settings: Settings, graph: Graph) -> dict[str, frozenset[str]]:
    """By path, the columns with personal data of each table that the declarations know, and of those that Sluice keeps for itself."""
    places, found = OfPipeline(settings, graph), dict[str, frozenset[str]]()
    for one in graph:
        of = graph.feeding(one.name) if isinstance(one, Source) else (one,)
        path = places.table(one.name)
        found[path] = found.get(path, frozenset()).union(*(each.private for each in of))
        if has_quarantine(one):
            found[places.quarantine(one.name)] = QUARANTINE
    for stream in graph.streams.values():
        late = frozenset().union(stream.private, *(graph[name].private for name in stream.reads))
        found[graph.location_of_late(settings, stream.name)] = late
    for name in ("deliveries", "outcomes", "erasure", "runs"):
        found[places.bookkeeping(name)] = frozenset()  # ids and counts
    found[places.bookkeeping("suppression")] = frozenset({"pseudonym"})
    return found


def of_table(path: str, name: str, personal: frozenset[str]) -> list[Finding]:
    """What is found in one table's log. personal: its columns with personal data; upper and lower case are one, as in Spark."""
    hidden = {column.lower() for column in personal}
    found: dict[str, Finding] = {}
    try:
        for action in actions.of(path):
            for what in _wrong(action, hidden):
                known = found.get(what)
                again = known is not None and known.file == action.file
                found[what] = replace(known, files=known.files + (not again)) if known else Finding(name, what, action.file)
    except ValueError as error:
        return [*found.values(), Finding(name, f"{error}; so nothing can be said of it")]
    return list(found.values())


def _wrong(action: Action, hidden: set[str]) -> Iterator[str]:
    """What is wrong with an action, as sentences without values."""
    for column in sorted(name for name in action.ends if _personal(name, hidden)):
        yield f"its log has the lowest and highest values of the personal column '{column}'. {_ANEW}"
    for column in sorted(name for name in action.said.get("partitionValues") or {} if _personal(name, hidden)):
        yield f"its files lie in folders named by the personal column '{column}'. {_ANEW}"
    if action.kind == "metaData":
        yield from _of_metadata(action, hidden)
    elif action.kind == "domainMetadata" and action.said.get("domain") == "delta.clustering":
        for column in _clustering(action.said):
            if _personal(column, hidden):
                yield f"it is clustered by the personal column '{column}'. {_ANEW}"
    elif action.kind == "commitInfo":
        yield from _of_commit(action.said, hidden)


_ANEW = "Remove the table's folder and run again: it is made anew, with a log that never had them"


def _personal(column: str, hidden: set[str]) -> bool:
    return column.lower() in hidden or column.lower().partition(".")[0] in hidden


def _of_metadata(action: Action, hidden: set[str]) -> Iterator[str]:
    properties = dict(action.said.get("configuration") or {})
    for name in RETENTIONS:
        if hidden and name not in properties:
            yield f"it has not said from its first version on how long removed files and its log stay: {name} is missing"
    said = properties.get(STATISTICS)
    columns = [column.strip(" `") for column in said.split(",")] if said else []
    for column in sorted(column for column in columns if _personal(column, hidden)):
        yield f"{STATISTICS} names the personal column '{column}'. The next run takes it out; what was written stays in the log"
    if said is None:
        unsaid = sorted(column for column in _names(action.said) if _personal(column, hidden))
        if unsaid:
            yield f"{STATISTICS} is not set, so that its personal column '{unsaid[0]}' gets into statistics. {_ANEW}"
    for column in sorted(name for name in action.said.get("partitionColumns") or () if _personal(name, hidden)):
        yield f"it is partitioned by the personal column '{column}'. {_ANEW}"


def _names(said: Mapping[str, object]) -> list[str]:
    schema = json.loads(str(said.get("schemaString") or "{}"))
    return [str(field["name"]) for field in schema.get("fields", [])]


def _clustering(said: Mapping[str, object]) -> list[str]:
    columns = json.loads(str(said.get("configuration") or "{}")).get("clusteringColumns", [])
    return [".".join(column) if isinstance(column, list) else str(column) for column in columns]


def _of_commit(said: Mapping[str, object], hidden: set[str]) -> Iterator[str]:
    parameters = said.get("operationParameters")
    given: dict[str, object] = parameters if isinstance(parameters, dict) else {}
    for field in _CONDITIONS:
        for text in conditions.texts(given.get(field)):
            for column in conditions.compared(text, hidden):
                yield (
                    f"the condition of a {said.get('operation')} names values of the personal column '{column}'. "
                    "Delete by a MERGE with a table of keys"
                )
    for field in ("zOrderBy", "clusterBy", "partitionBy"):
        for column in conditions.texts(given.get(field)):
            if _personal(column.strip("` "), hidden):
                yield f"its files were laid out by the personal column '{column}' ({field}). {_ANEW}"
    if said.get("userMetadata") and not _ours(said["userMetadata"]):
        yield f"a {said.get('operation')} has a note that Sluice did not write; nobody knows what is in it"


def _ours(note: object) -> bool:
    try:
        read = json.loads(str(note))
    except ValueError:
        return False
    return isinstance(read, dict) and "sluice" in read and set(read) <= _NOTE
