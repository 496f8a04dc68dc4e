"""The column names that hold identifiers of each domain, from the declarations alone; no rows are read."""

from __future__ import annotations

from sluice import delta_log
from sluice.declare.assembly import subjects
from sluice.declare.assembly.graph import PSEUDONYM
from sluice.declare.ingest.source import Source
from sluice.lake import log
from sluice.lake.pipeline_lake import PipelineLake


def columns_by_domain(lake: PipelineLake) -> dict[str, set[str]]:
    """By domain, the names of the columns with its identifiers, in any table, source or link."""
    found: dict[str, set[str]] = {domain: {"_subject"} for domain in lake.graph.domains()}
    for declared in lake.graph:
        if isinstance(declared, Source):
            domain = lake.graph.domain(declared)
            pairs = [(declared.subject, domain)] if declared.subject and domain else []
            pairs += declared.also_subjects
        else:
            path = lake.path(declared.name)
            pairs = list(
                subjects.find_table_subjects(
                    lake.graph, declared, log.read_column_names(path) if delta_log.is_delta_table(path) else []
                ).columns
            )
            hidden = [name for name, how in declared.treatments.items() if type(how).__name__ == "Hmac"]
            pairs += [(name, PSEUDONYM) for name in hidden]
        for column, domain in pairs:
            found.setdefault(domain, {"_subject"}).add(column)
    for link in lake.graph.links:
        for column, domain in (link.person, link.identifier):
            found.setdefault(domain, {"_subject"}).add(column)
    return found
