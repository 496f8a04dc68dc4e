"""What is looked for of the people of requests, and looking for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.declare.graph import Graph
from sluice.erasure import canary, scan, scope, vault
from sluice.erasure.identifiers import Identifier
from sluice.erasure.requests import ErasureRequest
from sluice.erasure.scan import Needle, ScanResult, needles
from sluice.errors import SluiceError
from sluice.settings import Settings


@dataclass(frozen=True)
class Sought:
    """What is looked for. shared: identifiers that were others', too, at other times: no needles, since the others' rows stay."""

    person: list[Needle]
    control: list[Needle]
    shared: int


def of(settings: Settings, graph: Graph, asked: Sequence[ErasureRequest]) -> Sought:
    """What is looked for of the people of some requests. Raises UsageError where the vault does not have their identifiers any more."""
    pipeline = graph.pipeline.name
    found = [
        one
        for request in asked
        for one in vault.read(settings, pipeline, request.request)
        if not one.domain.startswith(canary.PREFIX)
    ]
    own = [one for one in found if _is_own(one)]
    columns = scope.columns_of_domain(settings, graph)
    person = needles.of(((one.domain, one.value) for one in own), columns, scope.encodings(graph))
    control = [one for request in asked for one in canary.needles_of(settings, pipeline, request.request)]
    return Sought(person, control, len(found) - len(own))


def looked(settings: Settings, graph: Graph, sought: Sought) -> ScanResult:
    """Scan all roots. Raises SluiceError where the lake is not on this machine."""
    try:
        return scan.run(scope.roots(settings, graph), sought.person, sought.control)
    except ValueError as error:
        raise SluiceError(f"There can be no certificate: {error}.") from None


def _is_own(one: Identifier) -> bool:
    """Whether an identifier was never anybody else's."""
    return one.since is None and one.until is None
