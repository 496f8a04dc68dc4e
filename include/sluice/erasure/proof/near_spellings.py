"""What to do where a scan found somebody: where it is shown, and whether another spelling may be the reason."""

from __future__ import annotations

from sluice.declare.assembly.graph import Graph
from sluice.declare.privacy.treat import AS_TEXT
from sluice.erasure import vault
from sluice.erasure.canary import PREFIX
from sluice.erasure.subjects.identifiers import PSEUDONYM
from sluice.settings import Settings


def hint_at_near_spellings(settings: Settings, graph: Graph, request: str) -> str:
    """A sentence or two to append to a message. No value of anybody."""
    pipeline = graph.pipeline.name
    told = f" Where: sluice erase scan {pipeline} --request {request}"
    if not vault.has_vault_entry(settings, pipeline, request):
        return told
    kinds = sorted({
        one.domain
        for one in vault.read_vault_identifiers(settings, pipeline, request)
        if one.domain != PSEUDONYM
        and not one.domain.startswith(PREFIX)
        and graph.canonical(one.domain) == AS_TEXT
        and not one.value.strip().isdecimal()
    })
    if not kinds:
        return told
    forms = ", ".join(f"'{kind}': 'lower'" for kind in kinds)
    return (
        f"{told} The scan finds other spellings, too, such as another letter case; an erasure takes out what is spelled alike. Where spellings "
        f"of a kind are one person's, say so: Pipeline(canonical={{{forms}}}). The next run then erases them."
    )
