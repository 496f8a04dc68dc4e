"""Which secrets a pipeline needs, from its declarations: Airflow's secret back end is asked for no other."""

from __future__ import annotations

from sluice.declare.assembly.graph import Graph
from sluice.declare.privacy.treat import Hmac

SUPPRESSION_KEY = "suppression.key"
"""The secret that the list of erased people is kept with."""
CERTIFICATE_KEY = "certificate.key"
"""The secret that certificates of erasures are sealed with."""


def find_needed_secrets(graph: Graph) -> tuple[str, ...]:
    """Their names, sorted."""
    found: set[str] = set()
    for declared in graph:
        found |= {how.secret for how in declared.treatments.values() if isinstance(how, Hmac)}
        found |= set(declared.needed_secrets)
    if any(source.subject for source in graph.sources.values()):
        found |= {SUPPRESSION_KEY, CERTIFICATE_KEY}
    return tuple(sorted(found))
