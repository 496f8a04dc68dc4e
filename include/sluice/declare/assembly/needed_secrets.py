"""The secrets that a pipeline needs, by its declarations. Airflow's secret back end is asked for no others."""

from __future__ import annotations

from sluice.declare.assembly.graph import Graph
from sluice.declare.privacy.treat import Hmac

SUPPRESSION_KEY = "suppression.key"
"""The secret that keys the suppression list."""
CERTIFICATE_KEY = "certificate.key"
"""The secret that seals certificates of erasures."""


def find_needed_secrets(graph: Graph) -> tuple[str, ...]:
    """The names of these secrets, sorted."""
    found: set[str] = set()
    for declared in graph:
        found |= {how.secret for how in declared.treatments.values() if isinstance(how, Hmac)}
        found |= set(declared.needed_secrets)
    if any(source.subject for source in graph.sources.values()):
        found |= {SUPPRESSION_KEY, CERTIFICATE_KEY}
    return tuple(sorted(found))
