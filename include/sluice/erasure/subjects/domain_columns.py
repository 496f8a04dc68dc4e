"""The column names that hold identifiers of each domain, from the declarations alone; no rows are read."""

from __future__ import annotations

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import PSEUDONYM, Graph
from sluice.declare.ingest.source import Source
from sluice.lake import log
from sluice.lake.pipeline_paths import PipelinePaths
from sluice.settings import Settings


def columns_by_domain(settings: Settings, graph: Graph) -> dict[str, set[str]]:
    """By domain, the names of the columns with its identifiers, in any table, source or link."""
    found: dict[str, set[str]] = {domain: {"_subject"} for domain in graph.domains()}
    paths = PipelinePaths(graph.records(settings), graph)
    for declared in graph:
        if isinstance(declared, Source):
            domain = graph.domain(declared)
            pairs = [(declared.subject, domain)] if declared.subject and domain else []
            pairs += declared.also_subjects
        else:
            path = paths.table(declared.name)
            pairs = list(
                subjects.find_table_subjects(
                    graph, declared, log.read_column_names(path) if delta_log.is_delta_table(path) else []
                ).columns
            )
            hidden = [name for name, how in declared.treatments.items() if type(how).__name__ == "Hmac"]
            pairs += [(name, PSEUDONYM) for name in hidden]
        for column, domain in pairs:
            found.setdefault(domain, {"_subject"}).add(column)
    for link in graph.links:
        for column, domain in (link.person, link.identifier):
            found.setdefault(domain, {"_subject"}).add(column)
    return found
